"""``hankel.torch`` in the hands of others: copies of a model, packed texts, masks of all pairs, several passes before one backward pass or at
the same time."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from helpers import FAMILIES, close, fit, pretrained, tokens

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from hankel.torch import AdapterError, load_adapter
from hankel.torch.adapter import _fills_cache
from hankel.torch.sites import backbone


def model_of(families, **options):
    return pretrained(families / "llama/hf", attn_implementation="eager", **options)


def logits(model, ids, **given):
    with torch.no_grad():
        return model(ids, use_cache=False, **given).logits


def test_a_copy_has_an_adapter_of_its_own(families, llama_run):
    model = model_of(families)
    adapter = load_adapter(model, llama_run / "adapters/paper")
    ids = tokens(model, batch=2, steps=9)
    before = logits(model, ids)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        own = twin.model.hankel_adapter
        assert own is not adapter and torch.equal(logits(twin, ids), before)
        with torch.no_grad():
            own.layer0_mlp.gate.add_(1.0)
        assert not torch.equal(logits(twin, ids), before), "it is the one that is used"
        assert torch.equal(logits(model, ids), before), "and not by the model"
        own.remove()
        assert torch.equal(logits(model, ids), before)
        with adapter.disabled():
            assert torch.equal(logits(twin, ids), logits(model, ids))


@pytest.mark.parametrize("name", ["paper", "complex-order-4", "selective", "rotation", "householder", "delta"])
def test_packed_texts_are_kept_apart(name, families, llama_run):
    model = model_of(families)
    load_adapter(model, llama_run / "adapters" / name)
    texts = [tokens(model, batch=1, steps=9)[:, first:end] for first, end in ((0, 4), (4, 5), (2, 9))]
    alone = torch.cat([logits(model, text) for text in texts], dim=1)
    packed = torch.cat(texts, dim=1)
    positions = torch.cat([torch.arange(text.shape[1]) for text in texts])[None]
    assert torch.allclose(logits(model, packed, position_ids=positions), alone, atol=1e-5)
    # The same by a mask of all pairs.
    number = torch.repeat_interleave(torch.arange(3), torch.tensor([text.shape[1] for text in texts]))
    seen = (number[:, None] == number) & torch.ones(len(number), len(number), dtype=torch.bool).tril()
    added = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None]
    assert torch.allclose(logits(model, packed, position_ids=positions, attention_mask=added), alone, atol=1e-5)
    # Positions that go on are one text.
    whole = logits(model, packed)
    assert torch.equal(logits(model, packed, position_ids=torch.arange(packed.shape[1])[None]), whole)
    assert not torch.allclose(whole, alone, atol=1e-3)


def test_packed_texts_are_refused_where_attention_mixes_them(families, llama_run):
    model = model_of(families)
    load_adapter(model, llama_run / "adapters/paper")
    ids = tokens(model, batch=2, steps=9)
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    for given in ({}, {"use_cache": True}, {"use_cache": False, "past_key_values": DynamicCache()}):
        with pytest.raises(AdapterError, match="pass use_cache=False"):
            model(ids, position_ids=positions, **given)
    apart = torch.cat([logits(model, ids[:, :4]), logits(model, ids[:, 4:])], dim=1)
    close(logits(model, ids, position_ids=positions), apart, 1e-5)
    # With a mask they are one text, here and in attention.
    one = {"position_ids": positions, "attention_mask": torch.ones_like(ids)}
    with torch.no_grad():
        cached = model(ids, **one)
    close(cached.logits, logits(model, ids, **one), 1e-6)
    # Without a cache where gradient checkpointing forbids it.
    model.train().gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    close(model(ids, position_ids=positions).logits.detach(), apart, 1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_known_where_transformers_makes_a_cache(family, golden_model):
    model = pretrained(golden_model(family))
    decoder, ids = backbone(model)[1], tokens(model, batch=1, steps=4)
    for checkpointing in (False, True):
        for training in (False, True):
            model.train(training)
            for default in (False, True):
                decoder.config.use_cache = default
                for given in ({}, {"use_cache": None}, {"use_cache": False}, {"use_cache": True}):
                    with torch.no_grad():
                        made = decoder(ids, **given).past_key_values is not None
                    assert _fills_cache(decoder, given) == made, (checkpointing, training, default, given)
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def test_a_mask_of_all_pairs_may_be_one_for_all_rows(families, llama_run):
    model = model_of(families)
    load_adapter(model, llama_run / "adapters/paper")
    ids = tokens(model, batch=2, steps=9)
    for texts in ([0, 0, 0, 0, 1, 1, 1, 1, 1], [-1, -1, 0, 0, 0, 0, 0, 0, 0], [-1, -1, 0, 0, 0, 1, 1, 1, 1]):
        number = torch.tensor(texts)
        seen = (number[:, None] == number) & (number >= 0) & torch.ones(9, 9, dtype=torch.bool).tril()
        mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None]
        expected = logits(model, ids, attention_mask=mask.expand(2, -1, -1, -1))
        close(logits(model, ids, attention_mask=mask), expected, 1e-6)
        rows = [logits(model, row[None], attention_mask=mask) for row in ids]
        close(expected, torch.cat(rows), 1e-5)


def test_padding_in_a_mask_of_all_pairs(families, llama_run):
    model = model_of(families)
    load_adapter(model, llama_run / "adapters/paper")
    ids = tokens(model, batch=2, steps=8)
    keep = torch.ones_like(ids)
    keep[1, :3] = 0
    positions = (keep.cumsum(-1) - 1).clamp(min=0)
    expected = logits(model, ids, attention_mask=keep, position_ids=positions)
    seen = keep[:, None, None, :].bool() & torch.ones(8, 8, dtype=torch.bool).tril()
    for rows in ("nothing", "everything"):
        mask = seen.clone()
        if rows == "everything":
            mask[~mask.any(-1)] = True
        added = torch.where(mask, 0.0, torch.finfo(torch.float32).min)
        found = logits(model, ids, attention_mask=added, position_ids=positions)
        assert torch.allclose(found[keep.bool()], expected[keep.bool()], atol=1e-5), rows


def test_two_passes_before_one_backward_pass(families, llama_run):
    gradients = []
    for checkpointing in (False, True):
        model = model_of(families)
        adapter = load_adapter(model, llama_run / "adapters/complex")
        model.train()
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        ids = tokens(model, batch=2, steps=8)
        losses = []
        for padding in (0, 3):
            keep = torch.ones_like(ids)
            keep[1, :padding] = 0
            losses.append(model(ids, attention_mask=keep, labels=ids).loss)
        # A text of which nothing remains is written meanwhile.
        model.eval()
        model.generate(ids[:, :4], max_new_tokens=2, do_sample=False)
        model.train()
        sum(losses).backward()
        gradients.append({name: p.grad.clone() for name, p in adapter.tensors().items() if p.grad is not None})
    assert gradients[0] and gradients[0].keys() == gradients[1].keys()
    for name, expected in gradients[0].items():
        assert torch.allclose(gradients[1][name], expected, rtol=1e-4, atol=1e-7), name


def gradients_of(model, adapter, ids, keep):
    trained = [p for p in adapter.parameters() if p.requires_grad]
    return torch.autograd.grad(model(ids, attention_mask=keep, labels=ids, use_cache=False).loss, trained)


def texts_of(model):
    """One text, and one with padding before it."""
    ids, keep = tokens(model, batch=2, steps=12), torch.ones(2, 12, dtype=torch.long)
    keep[1, :6] = 0
    return [(ids[row : row + 1], keep[row : row + 1]) for row in (0, 1)]


@pytest.mark.parametrize("name", ["paper", "signed", "complex"])
def test_passes_of_several_threads_do_not_meet(name, families, llama_run):
    model = model_of(families)
    load_adapter(model, llama_run / "adapters" / name)
    texts = texts_of(model)
    expected = [logits(model, ids, attention_mask=keep) for ids, keep in texts]

    def errors(row):
        ids, keep = texts[row]
        found = [logits(model, ids, attention_mask=keep) for _ in range(60)]
        return [(one - expected[row])[keep.bool()].abs().max().item() for one in found]

    with ThreadPoolExecutor(2) as pool:
        for row, differences in enumerate(pool.map(errors, range(2))):
            assert max(differences) < 1e-4, f"{sum(d >= 1e-4 for d in differences)} passes of thread {row} are wrong"


@pytest.mark.parametrize("name", ["paper", "signed", "complex"])
def test_layers_are_computed_again_by_several_threads(name, families, llama_run):
    model = model_of(families)
    adapter = load_adapter(model, llama_run / "adapters" / name)
    texts = texts_of(model)
    expected = [gradients_of(model, adapter, *text) for text in texts]
    model.train().gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    def repeated(row):
        return [gradients_of(model, adapter, *texts[row]) for _ in range(20)]

    with ThreadPoolExecutor(2) as pool:
        for row, found in enumerate(pool.map(repeated, range(2))):
            for gradients in found:
                for one, other in zip(gradients, expected[row], strict=True):
                    close(one, other, 1e-4, floor=1e-6)


def test_a_backward_pass_belongs_to_its_forward_pass(families, llama_run):
    """Whatever has been done in between, and by whichever thread it is made: of layers on a GPU, by one of autograd."""
    model = model_of(families)
    adapter = load_adapter(model, llama_run / "adapters/complex")
    trained = [p for p in adapter.parameters() if p.requires_grad]
    (ids, everything), (padded, keep) = texts_of(model)
    expected = gradients_of(model, adapter, padded, keep)
    model.train().gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    def backward(loss):
        with adapter.disabled():
            return torch.autograd.grad(loss, trained)

    between = torch.ones_like(keep)
    between[0, 3] = 0
    for thread in (False, True):
        loss = model(padded, attention_mask=keep, labels=padded, use_cache=False).loss
        logits(model, ids)
        with pytest.raises(AdapterError, match="padding between the tokens"):
            model(ids, attention_mask=between)
        if thread:
            with ThreadPoolExecutor(1) as pool:
                found = pool.submit(backward, loss).result()
        else:
            found = backward(loss)
        for one, other in zip(found, expected, strict=True):
            close(one, other, 1e-4, floor=1e-6)


def test_passes_are_told_apart_that_are_given_the_same_positions(programs, golden_model, tmp_path):
    path = golden_model("gpt2")
    done = fit(programs, tmp_path, path, ["paper"])
    gradients = []
    for checkpointing in (False, True):
        model = pretrained(path)
        adapter = load_adapter(model, done / "adapters/paper")
        if checkpointing:
            model.train().gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        ids = tokens(model, batch=2, steps=8)
        given = {"position_ids": torch.arange(8).repeat(2, 1), "labels": ids, "use_cache": False}
        loss = model(ids, **given).loss
        with adapter.disabled():
            model(ids, **given)
        loss.backward()
        gradients.append({name: p.grad for name, p in adapter.tensors().items() if p.grad is not None})
    assert gradients[0] and gradients[0].keys() == gradients[1].keys()
    for name, expected in gradients[0].items():
        close(gradients[1][name], expected, 1e-4, floor=1e-6)


def test_a_model_with_what_all_layers_share_can_be_saved(families, llama_run, tmp_path):
    model = model_of(families)
    adapter = load_adapter(model, llama_run / "adapters/hankel-shared")
    before = {name: p.detach().clone() for name, p in adapter.tensors().items()}
    model.save_pretrained(tmp_path / "saved")
    assert len({id(p) for p in adapter.parameters()}) == len(list(adapter.parameters()))
    model.double()
    assert all(torch.equal(p.float(), before[name]) for name, p in adapter.tensors().items())


@pytest.mark.parametrize("name", ["paper", "hankel-shared", "complex-order-4"])
def test_a_model_in_fewer_bits_does_not_round_its_adapter(name, families, llama_run):
    model = model_of(families)
    adapter = load_adapter(model, llama_run / "adapters" / name)
    before = {name: p.detach().clone() for name, p in adapter.tensors().items()}
    model.to(torch.bfloat16)
    assert model.lm_head.weight.dtype == torch.bfloat16
    for name, parameter in adapter.tensors().items():
        assert parameter.dtype == before[name].dtype and torch.equal(parameter, before[name]), name


def test_double_precision_is_rounded_where_a_device_has_none(families, llama_run):
    model = model_of(families)
    adapter = load_adapter(model, llama_run / "adapters/complex-order-4")
    expected = logits(model, tokens(model, batch=1, steps=9))

    def to_device(tensor):
        if tensor.dtype == torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return tensor.clone()

    for site in adapter.sites.values():
        site._apply(to_device)
    assert all(p.dtype == torch.float32 for p in adapter.parameters())
    assert torch.allclose(logits(model, tokens(model, batch=1, steps=9)), expected, atol=1e-4)


def test_a_stored_cache_has_its_states(families, llama_run):
    model = model_of(families)
    load_adapter(model, llama_run / "adapters/paper")
    ids = tokens(model, batch=2, steps=9)

    def rest(cache):
        with torch.no_grad():
            return model(ids[:, 6:], past_key_values=cache).logits

    with torch.no_grad():
        cache = model(ids[:, :6], use_cache=True).past_key_values
    twins = copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))
    expected = rest(cache)
    for twin in twins:
        assert type(twin) is type(cache)
        assert torch.equal(rest(twin), expected)
    assert torch.allclose(expected, logits(model, ids)[:, 6:], atol=1e-5)


def test_ways_to_part_texts_that_an_adapter_cannot_follow_are_refused(families, llama_run):
    model = model_of(families)
    adapter = load_adapter(model, llama_run / "adapters/paper")
    ids = tokens(model, batch=1, steps=9)

    class BlockMask:
        pass

    for given, reason in (({"attention_mask": BlockMask()}, "BlockMask"), ({"cache": object()}, "generate_batch")):
        with pytest.raises(AdapterError, match=reason):
            model.model(ids, use_cache=False, **given)
    # What has no state does not mind.
    adapter.remove()
    adapter = load_adapter(model, llama_run / "adapters/state-offset")
    adapter._begin(model.model, (ids,), {"cache": object()})


def test_flash_attention_parts_texts_by_lengths_and_positions(families, llama_run):
    """What the adapter takes for texts where attention is flash attention, which a CPU does not have."""
    model = model_of(families)
    adapter = load_adapter(model, llama_run / "adapters/paper")
    decoder, ids, ones = model.model, tokens(model, batch=1, steps=9), torch.ones(1, 9, dtype=torch.long)
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])

    def borders(**given):
        adapter._begin(decoder, (ids,), {"use_cache": False, **given})
        return adapter._mine.call.borders

    lengths = torch.tensor([0, 4, 9], dtype=torch.int32)
    lengths = {"cu_seq_lens_q": lengths, "cu_seq_lens_k": lengths, "max_length_q": 5, "max_length_k": 5}
    padded = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, 1]])
    # Other attention reads neither.
    assert borders(**lengths) == [[]] or borders(**lengths) == []
    assert borders(position_ids=positions, attention_mask=ones) == []
    decoder.config._attn_implementation = "flash_attention_2"
    assert borders(**lengths) == [[4]]
    assert borders(position_ids=positions, attention_mask=ones) == [[4]]
    for given in (lengths, {"position_ids": positions}):
        assert not any(borders(**given, attention_mask=padded))
    # Several rows are not packed there.
    ids = torch.cat([ids, ids])
    assert borders(position_ids=positions, attention_mask=torch.ones_like(ids)) == []


def test_masks_by_kind_of_layer_keep_texts_apart_with_a_cache(families, llama_run):
    model = model_of(families)
    adapter = load_adapter(model, llama_run / "adapters/paper")
    ids = tokens(model, batch=1, steps=9)
    number = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 1])
    seen = (number[:, None] == number) & torch.ones(9, 9, dtype=torch.bool).tril()
    mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None]
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    apart = torch.cat([logits(model, ids[:, :4]), logits(model, ids[:, 4:])], dim=1)
    with torch.no_grad():
        close(model(ids, position_ids=positions, attention_mask=mask).logits, apart, 1e-5)
    # As models with windows take them.
    adapter._begin(model.model, (ids,), {"position_ids": positions, "attention_mask": {"full_attention": mask, "sliding_attention": mask}})
    assert adapter._mine.call.borders == [[4]]


def test_what_layers_share_stays_shared_and_is_a_system_in_every_one(families, llama_run):
    model = model_of(families)
    adapter = load_adapter(model, llama_run / "adapters/hankel-shared")
    for layer, site in adapter.sites:
        system = adapter.system(layer, site)
        assert system.A.dtype == system.B.dtype == system.C.dtype == "float64"
    changed = {name: 2 * value if name.endswith("hankel_adapter.layer0_attention.c") else value for name, value in model.state_dict().items()}
    model.load_state_dict(changed, assign=True)
    twin = copy.deepcopy(model).model.hankel_adapter
    for of in (adapter, twin):
        for (_, site), module in of.sites.items():
            assert module.c is of.sites[0, site].c
        assert torch.equal(of.sites[2, "attention"].c, changed["model.hankel_adapter.layer0_attention.c"])
    assert twin.sites[0, "attention"].c is not adapter.sites[0, "attention"].c


def test_rates_that_forget_nothing_are_finite(families, llama_run):
    model = model_of(families)
    adapter = load_adapter(model, llama_run / "adapters/zoh")
    with torch.no_grad():
        adapter.sites[0, "mlp"].log_a[:2] = torch.tensor([-90.0, -200.0])
    ids = tokens(model, batch=1, steps=9)
    out = model(ids, labels=ids)
    out.loss.backward()
    assert torch.isfinite(out.logits).all() and all(torch.isfinite(p.grad).all() for p in adapter.parameters() if p.grad is not None)


def test_an_adapter_of_a_model_with_fewer_layers_is_refused(families, llama_run):
    config = model_of(families).config
    config.num_hidden_layers += 1
    deeper = AutoModelForCausalLM.from_config(config)
    for name in ("paper", "selective"):
        with pytest.raises(AdapterError, match="the adapter is for 3 layers, the model has 4"):
            load_adapter(deeper, llama_run / "adapters" / name)
