"""``hankel.torch`` in the hands of others: copies of a model, packed texts, masks of all pairs, several passes before one backward pass."""

import copy
import pickle

import pytest

from helpers import pretrained, tokens

import torch

from hankel.torch import load_adapter


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
