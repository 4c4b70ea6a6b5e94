"""``hankel.torch`` against ``train forward``, ``generate`` and ``eval``: every kind, every family, saving, caches, and PEFT beside it."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from helpers import ADAPTERS, FAMILIES, TRUNCATED, close, compare, fit, forward, greedy, pretrained, run, score, tokens

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

import hankel
import hankel.torch
from hankel.torch import AdapterError, load_adapter, save_adapter


@pytest.mark.parametrize("name", sorted(ADAPTERS.keys() | TRUNCATED))
def test_every_kind(name, programs, families, llama_run, tmp_path):
    directory = llama_run / "adapters" / name
    compare(programs, tmp_path, families / "llama/hf", directory, gradients=name != "selective-order-3")


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "llama"])
def test_every_family(family, programs, golden_model, tmp_path):
    path = golden_model(family)
    names = ["paper", "signed", "complex", "hankel-shared"]
    done = fit(programs, tmp_path, path, names)
    for name in names:
        compare(programs, tmp_path, path, done / "adapters" / name)


def chosen_one_by_one(model, ids, count=40):
    """What whole sequences choose, without any cache."""
    for _ in range(count):
        with torch.no_grad():
            following = model(ids, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, following], dim=1)
    return ids


@pytest.mark.parametrize("name", ["paper", "complex-order-4", "selective", "selective-order-3", "hankel-shared", "rotation", "householder", "delta"])
def test_generation_carries_the_state(name, families, llama_run):
    model = pretrained(families / "llama/hf", attn_implementation="eager")
    model.generation_config.eos_token_id = None
    load_adapter(model, llama_run / "adapters" / name)
    ids = tokens(model, batch=3, steps=9)
    expected = chosen_one_by_one(model, ids)
    assert torch.equal(greedy(model, ids), expected)
    # A new prompt begins from zero; a longer one goes on in a cache that is given.
    assert torch.equal(greedy(model, ids), expected)
    cache = DynamicCache(config=model.config)
    first = greedy(model, ids, 12, past_key_values=cache)
    assert torch.equal(greedy(model, first, 28, past_key_values=cache), expected)


def of_bytes(config, folder):
    """A model of random weights that reads bytes, as the program generates with it."""
    torch.manual_seed(0)
    config.vocab_size, config.initializer_range = 256, 0.3
    config.pad_token_id = config.bos_token_id = config.eos_token_id = None
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder / "model")
    return folder / "model"


def continues_as_the_program(programs, model, directory, *command):
    """40 greedy tokens."""
    text = [programs / "train", "generate", *command, "--adapter", directory, "--prompt", "Once upon", "--max-tokens", "40", "--temperature", "0"]
    expected = subprocess.run(text, capture_output=True, check=True).stdout
    model.generation_config.eos_token_id = None
    adapter = load_adapter(model, directory)
    ids = torch.tensor([list(b"Once upon")])
    assert bytes(greedy(model, ids)[0].tolist()) == expected[:-1], directory.name
    adapter.remove()


@pytest.mark.parametrize("family", FAMILIES)
def test_generated_tokens_are_those_of_train_generate(family, programs, golden_model, tmp_path):
    path = of_bytes(AutoConfig.from_pretrained(golden_model(family)), tmp_path)
    kinds = ["selective", "rotation", "householder", "delta"] if family == "llama" else []
    done = fit(programs, tmp_path, path, ["paper", "complex", *kinds])
    for name in ("paper", "paper-order-3", "complex-order-4", *kinds):
        continues_as_the_program(programs, pretrained(path), done / "adapters" / name, "--model", path)


def test_beams_take_their_states_along(families, llama_run):
    model = pretrained(families / "llama/hf")
    model.generation_config.eos_token_id = None
    load_adapter(model, llama_run / "adapters/paper")
    ids = tokens(model, batch=2, steps=7)
    beams = {"num_beams": 4, "num_return_sequences": 4, "return_dict_in_generate": True, "output_scores": True}
    out = greedy(model, ids, 16, **beams)
    # The score of a beam is the mean log-probability of its tokens, which a pass without a cache computes from nothing.
    with torch.no_grad():
        logits = model(out.sequences, use_cache=False).logits.double().log_softmax(-1)
    following = out.sequences[:, 7:, None]
    scores = logits[:, 6:-1].gather(-1, following).squeeze(-1).sum(-1) / 16
    close(out.sequences_scores, scores, 1e-5)


def test_padding_before_a_text_is_not_read(families, llama_run):
    model = pretrained(families / "llama/hf")
    model.generation_config.eos_token_id = None
    for name in ("paper", "complex", "selective", "hankel-shared", "rotation", "householder", "delta"):
        adapter = load_adapter(model, llama_run / "adapters" / name)
        long, short = tokens(model, 1, 11), tokens(model, 1, 6, seed=1)
        padded = torch.cat([torch.zeros(1, 5, dtype=torch.long), short], dim=1)
        batch = torch.cat([long, padded])
        mask = torch.ones_like(batch)
        mask[1, :5] = 0
        both = greedy(model, batch, 20, attention_mask=mask)
        assert torch.equal(both[0], greedy(model, long, 20)[0])
        assert torch.equal(both[1, 5:], greedy(model, short, 20)[0])
        static = greedy(model, batch, 20, attention_mask=mask, cache_implementation="static")
        assert torch.equal(static, both)
        adapter.remove()


def test_a_cache_that_was_cut_is_refused(families, llama_run):
    model = pretrained(families / "llama/hf")
    load_adapter(model, llama_run / "adapters/paper")
    ids = tokens(model)
    with torch.no_grad():
        cache = model(ids, use_cache=True).past_key_values
        assert isinstance(cache, DynamicCache)
        cache.crop(-4)
        with pytest.raises(AdapterError, match="cannot be rolled back"):
            model(ids[:, :1], past_key_values=cache)


@pytest.mark.parametrize("name", sorted(ADAPTERS.keys() | TRUNCATED))
def test_a_directory_survives_the_round(name, programs, families, llama_run, tmp_path):
    directory = llama_run / "adapters" / name
    model = pretrained(families / "llama/hf")
    ids = tokens(model)
    load_adapter(model, directory)
    save_adapter(model, tmp_path / "saved")
    expected = forward(programs, tmp_path, families / "llama/hf", directory, ids)["logits"]
    found = forward(programs, tmp_path, families / "llama/hf", tmp_path / "saved", ids)["logits"]
    close(found, expected, 1e-6)
    first, second = (json.loads((folder / "adapter_config.json").read_text()) for folder in (directory, tmp_path / "saved"))
    assert first == second


@pytest.mark.parametrize("name", ["paper", "complex", "complex-order-4", "selective", "hankel-shared", "rotation", "householder", "delta"])
def test_what_is_trained_here_is_evaluated_there(name, programs, families, llama_run, tmp_path):
    """AdamW on the adapter alone; the saved directory has the loss of the model in memory."""
    model = pretrained(families / "llama/hf").requires_grad_(False)
    adapter = load_adapter(model, llama_run / "adapters" / name)
    trained = [p for p in model.parameters() if p.requires_grad]
    assert {id(p) for p in trained} == {id(p) for p in adapter.parameters() if p.requires_grad} and trained
    ids = tokens(model, batch=4)
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    losses = []
    for _ in range(8):
        loss = model(ids, labels=ids).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < losses[0]
    with torch.no_grad():
        after = model(ids, labels=ids)
    save_adapter(adapter, tmp_path / "trained")
    expected = forward(programs, tmp_path, families / "llama/hf", tmp_path / "trained", ids)
    close(after.logits, expected["logits"], 1e-5)
    # The score of the run's task, by the program, of the directory that it wrote and of its copy.
    save_adapter(load_adapter(pretrained(families / "llama/hf"), llama_run / "adapters" / name), tmp_path / "copy")
    assert score(programs, llama_run, tmp_path / "copy") == score(programs, llama_run, llama_run / "adapters" / name)


def test_parameters_of_the_model_that_were_trained_with_the_adapter(families, llama_run, tmp_path):
    directory = tmp_path / "adapter"
    shutil.copytree(llama_run / "adapters/paper", directory)
    model = pretrained(families / "llama/hf")
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    name = "model.norm.weight"
    save_file({name: before[name] + 1}, directory / "trained_backbone.safetensors")
    adapter = load_adapter(model, directory)
    assert torch.equal(model.model.norm.weight, before[name] + 1)
    with torch.no_grad():
        model.model.norm.weight.add_(1)
    save_adapter(adapter, tmp_path / "saved")
    assert torch.equal(load_file(tmp_path / "saved/trained_backbone.safetensors")[name], before[name] + 2)
    adapter.remove()
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    save_file({"other.weight": torch.zeros(1)}, directory / "trained_backbone.safetensors")
    with pytest.raises(AdapterError, match="other.weight is not a parameter"):
        load_adapter(model, directory)
    assert not hasattr(model.model, "hankel_adapter")


def as_gpt2(folder):
    """The small GPT of the quickstart as the GPT-2 of transformers that it is: exact GELU, an own head, projections apart."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    config = GPT2Config(
        vocab_size=sizes["vocabulary"], n_positions=sizes["context"], n_embd=sizes["d_model"], n_layer=sizes["layers"],
        n_head=sizes["heads"], n_inner=sizes["d_ff"], activation_function="gelu", tie_word_embeddings=False,
    )
    model = GPT2LMHeadModel(config).eval()
    named = {"wte": "model.embed_tokens", "wpe": "model.embed_positions", "ln_f": "model.norm"}
    state = {}
    for mine, theirs in named.items():
        state |= {f"transformer.{mine}.{end}": tensors[f"{theirs}.{end}"] for end in ("weight", "bias") if f"{theirs}.{end}" in tensors}
    state["lm_head.weight"] = tensors["lm_head.weight"]
    for layer in range(config.n_layer):
        block = f"model.layers.{layer}"
        prefix = {name.rsplit(".", 2)[-2]: name.rsplit(".", 1)[0] for name in tensors if name.startswith(f"{block}.")}
        qkv = [prefix[name] for name in ("q_proj", "k_proj", "v_proj")]
        here = f"transformer.h.{layer}"
        state[f"{here}.attn.c_attn.weight"] = torch.cat([tensors[f"{name}.weight"] for name in qkv]).T
        state[f"{here}.attn.c_attn.bias"] = torch.cat([tensors[f"{name}.bias"] for name in qkv])
        for mine, theirs in [("attn.c_proj", "o_proj"), ("mlp.c_fc", "up_proj"), ("mlp.c_proj", "down_proj")]:
            state[f"{here}.{mine}.weight"] = tensors[f"{prefix[theirs]}.weight"].T
            state[f"{here}.{mine}.bias"] = tensors[f"{prefix[theirs]}.bias"]
        norms = sorted(path for name, path in prefix.items() if "norm" in name)
        first = next(path for path in norms if "post" not in path and not path.endswith("2"))
        second = next(path for path in norms if path != first)
        for mine, theirs in [("ln_1", first), ("ln_2", second)]:
            state |= {f"{here}.{mine}.{end}": tensors[f"{theirs}.{end}"] for end in ("weight", "bias")}
    model.load_state_dict({name: t.contiguous() for name, t in state.items()})
    return model


def test_the_quickstart(programs, repository, tmp_path):
    """HRM with the head that was trained beside it, and truncated: the run of the README, of fewer steps."""
    config = (repository / "train/experiments/quickstart.toml").read_text()
    (tmp_path / "quickstart.toml").write_text(config.replace("steps = 300", "steps = 20").replace("10000", "640"))
    run(programs / "train", "fit", "quickstart.toml", cwd=tmp_path)
    done = tmp_path / "runs/quickstart"
    for directory in sorted((done / "adapters").glob("hrm*")):
        model = as_gpt2(done / "backbone")
        ids = torch.randint(0, model.config.vocab_size, (2, 40), generator=torch.Generator().manual_seed(1))
        expected = forward(programs, tmp_path, done / "backbone", directory, ids, "--gradients")
        adapter = load_adapter(model, directory)
        out = model(ids, labels=ids)
        close(out.logits.detach(), expected["logits"], 1e-5)
        out.loss.backward()
        for name, parameter in adapter.tensors().items():
            if parameter.numel():
                close(parameter.grad, expected[f"grad.base_model.model.{name}"], 1e-4, floor=1e-6)
        save_adapter(adapter, tmp_path / "copy" / directory.name)
        assert score(programs, done, tmp_path / "copy" / directory.name) == score(programs, done, directory)


def test_the_quickstart_on_bytes(programs, tmp_path):
    """The small GPT and the HRM of the quickstart where there is a text to generate."""
    (tmp_path / "text").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "bytes.toml").write_text(
        'name = "bytes"\n[task]\nkind = "bytes"\npath = "text"\nlength = 64\n[backbone]\nlayers = 2\nd_model = 32\nheads = 2\n'
        'init = "normal"\ninit_std = 0.3\n[train]\nsteps = 4\nbatch_size = 8\nlr = 3e-2\n[[adapter]]\nname = "hrm"\n' + ADAPTERS["paper"]
    )
    run(programs / "train", "fit", "bytes.toml", cwd=tmp_path)
    done = tmp_path / "runs/bytes"
    for directory in sorted((done / "adapters").glob("hrm*")):
        continues_as_the_program(programs, as_gpt2(done / "backbone"), directory, done)


def test_angles_beyond_a_half_turn_are_folded(families, llama_run, programs, tmp_path):
    for name in ("complex", "complex-order-4"):
        model = pretrained(families / "llama/hf")
        adapter = load_adapter(model, llama_run / "adapters" / name)
        with torch.no_grad():
            for parameter_name, parameter in adapter.tensors().items():
                if parameter_name.endswith("angle"):
                    parameter.copy_(torch.tensor([-0.5, 4.0, 7.0])[: len(parameter)])
            ids = tokens(model)
            expected = model(ids).logits
        save_adapter(adapter, tmp_path / name)
        close(forward(programs, tmp_path, families / "llama/hf", tmp_path / name, ids)["logits"], expected, 1e-5)


def test_systems_are_those_that_bt_truncates(programs, llama_run, families):
    """The states that `hankel.reduce` drops are those that the program dropped."""
    adapter = load_adapter(pretrained(families / "llama/hf"), llama_run / "adapters/complex")
    certificate = json.loads((llama_run / "adapters/complex-order-4/certificate.json").read_text())
    for (layer, site), facts in zip(sorted(adapter.sites, key=lambda place: place), certificate["layers"]):
        reduction = hankel.reduce(adapter.system(layer, site), order=4)
        assert reduction.certificate.holds
        np.testing.assert_allclose(
            reduction.certificate.hankel_singular_values, facts["hankel_singular_values"], rtol=1e-6
        )
        assert reduction.certificate.hinf_error == pytest.approx(facts["hinf_error"], rel=1e-5)


def test_bf16_models_keep_the_adapter_in_single_precision(families, llama_run):
    path = families / "llama/hf"
    single = pretrained(path)
    load_adapter(single, llama_run / "adapters/paper")
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
    adapter = load_adapter(model, llama_run / "adapters/paper")
    assert {p.dtype for p in adapter.parameters()} == {torch.float32}
    ids = tokens(model)
    out = model(ids, labels=ids)
    assert out.logits.dtype == torch.bfloat16
    close(out.logits.detach(), single(ids).logits.detach(), 5e-2)
    out.loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in adapter.parameters())
    assert greedy(model, ids[:, :8], 8).shape == (2, 16)


@pytest.mark.parametrize("name", ["signed", "complex", "paper"])
def test_gradient_checkpointing_gives_the_same_gradients(families, llama_run, name):
    gradients = []
    for checkpointing in (False, True):
        model = pretrained(families / "llama/hf").train()
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        adapter = load_adapter(model, llama_run / f"adapters/{name}")
        ids = tokens(model)
        model(ids, labels=ids, use_cache=False).loss.backward()
        gradients.append({entry: p.grad for entry, p in adapter.tensors().items() if p.grad is not None})
    assert gradients[0] and gradients[0].keys() == gradients[1].keys()
    for entry in gradients[0]:
        close(gradients[1][entry], gradients[0][entry], 1e-5)


def test_checkpointing_that_cuts_gradients_off_is_refused(families, llama_run):
    model = pretrained(families / "llama/hf").train()
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    load_adapter(model, llama_run / "adapters/complex")
    ids = tokens(model)
    with pytest.raises(AdapterError, match="'use_reentrant': False"):
        model(ids, labels=ids, use_cache=False).loss.backward()


def test_padding_between_tokens_is_refused(families, llama_run):
    model = pretrained(families / "llama/hf")
    load_adapter(model, llama_run / "adapters/signed")
    ids = tokens(model, steps=6)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 1, 1]])
    with pytest.raises(AdapterError, match="padding between the tokens"):
        model(ids, attention_mask=mask)
    # Behind the text, where no token sees it, it is no matter.
    with torch.no_grad():
        short = model(ids[1:, :2]).logits
        long = model(ids[1:], attention_mask=torch.tensor([[1, 1, 0, 0, 0, 0]])).logits[:, :2]
    close(long, short, 1e-5)


def test_a_model_spread_over_devices(families, llama_run, tmp_path):
    pytest.importorskip("accelerate")
    path = families / "llama/hf"
    expected = pretrained(path)
    ids = tokens(expected)
    load_adapter(expected, llama_run / "adapters/hankel-shared")
    # Weights of the second layer lie on the disk, and are brought in when they are needed.
    places = ["embed_tokens", "layers.0", "layers.1", "layers.2", "norm", "rotary_emb"]
    devices = {f"model.{place}": "cpu" for place in places} | {"lm_head": "cpu", "model.layers.1": "disk"}
    model = pretrained(path, device_map=devices, offload_folder=tmp_path)
    assert model.model.layers[1].mlp.up_proj.weight.device.type == "meta"
    adapter = load_adapter(model, llama_run / "adapters/hankel-shared")
    out = model(ids, labels=ids)
    close(out.logits.detach(), expected(ids).logits.detach(), 1e-6)
    out.loss.backward()
    assert all(p.grad is not None for p in adapter.parameters())


def test_a_lora_of_peft_on_the_same_model(families, llama_run, tmp_path):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    torch.manual_seed(3)
    both = peft.get_peft_model(pretrained(families / "llama/hf"), config)
    ids = tokens(both)
    adapter = load_adapter(both, llama_run / "adapters/paper")
    both.save_pretrained(tmp_path / "lora")
    with torch.no_grad():
        with adapter.disabled():
            lora_alone = both(ids).logits
        together = both(ids).logits
        with both.disable_adapter():
            hrm_alone = both(ids).logits
    assert (together - lora_alone).abs().max() > 1e-2 and (together - hrm_alone).abs().max() > 1e-2
    # PEFT's weights merged into the model, and HRM on that, are the same.
    merged = peft.PeftModel.from_pretrained(pretrained(families / "llama/hf"), tmp_path / "lora").merge_and_unload()
    with torch.no_grad():
        close(merged(ids).logits, lora_alone, 1e-5)
        load_adapter(merged, llama_run / "adapters/paper")
        close(merged(ids).logits, together, 1e-5)
    out = both(ids, labels=ids)
    out.loss.backward()
    trained = [name for name, p in both.named_parameters() if p.requires_grad and p.grad is not None]
    assert any("lora_" in name for name in trained) and any("hankel_adapter" in name for name in trained)
    assert all("lora_" in name or "hankel_adapter" in name for name in trained)
    assert not any("hankel" in name for name in load_file(tmp_path / "lora/adapter_model.safetensors"))
    model = pretrained(families / "llama/hf")
    adapter = load_adapter(model, llama_run / "adapters/zoh")
    peft.get_peft_model(model, config)
    assert not any(p.requires_grad for p in adapter.parameters())
    adapter.train_again()
    frozen = {name.rsplit(".", 1)[1] for name, p in adapter.tensors().items() if not p.requires_grad}
    assert frozen == {"log_dt"}


def test_refusals_say_what_is_wrong(repository, families, llama_run, tmp_path):
    model = pretrained(families / "llama/hf")

    def refusal(directory):
        with pytest.raises(AdapterError) as caught:
            load_adapter(model, directory)
        assert not hasattr(model.model, "hankel_adapter")
        return str(caught.value)

    def changed(change, name="paper"):
        shutil.rmtree(tmp_path / "bad", ignore_errors=True)
        shutil.copytree(llama_run / "adapters" / name, tmp_path / "bad")
        path = tmp_path / "bad/adapter_model.safetensors"
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path)
        return refusal(tmp_path / "bad")

    assert "cannot read" in refusal(tmp_path / "nothing")
    first = "base_model.model.model.layers.0.mlp.hrm."
    assert f"{first.removeprefix('base_model.model.model.')}c is missing" in changed(lambda t: t.pop(first + "c"))
    assert "unexpected tensor" in changed(lambda t: t.update({"other": torch.zeros(1)}))
    assert "not finite" in changed(lambda t: t[first + "b"].fill_(float("nan")))
    assert "has shape" in changed(lambda t: t.update({first + "gate": torch.zeros(2)}))
    assert "must lie in" in changed(lambda t: t[first + "pole_radius"].fill_(1.0), "paper-order-3")
    (tmp_path / "bad/adapter_model.safetensors").write_bytes(b"short")
    assert "not a readable safetensors file" in refusal(tmp_path / "bad")
    (tmp_path / "bad/adapter_config.json").write_text('{"peft_type": "LORA"}')
    (tmp_path / "bad/adapter_model.safetensors").write_bytes(
        (llama_run / "adapters/paper/adapter_model.safetensors").read_bytes()
    )
    assert "peft.PeftModel" in refusal(tmp_path / "bad")
    config = json.loads((llama_run / "adapters/paper/adapter_config.json").read_text())
    (tmp_path / "bad/adapter_config.json").write_text(json.dumps(config | {"mode": "signed", "discretization": "zoh"}))
    assert "goes with the discretization 'free' only" in refusal(tmp_path / "bad")
    with pytest.raises(AdapterError, match="width 32, the model"):
        load_adapter(pretrained(repository / "tests/golden/mistral/window/hf"), llama_run / "adapters/paper")
    with pytest.raises(AdapterError, match="not supported; llama"):
        load_adapter(torch.nn.Linear(2, 2), llama_run / "adapters/paper")
    load_adapter(model, llama_run / "adapters/paper")
    with pytest.raises(AdapterError, match="already"):
        load_adapter(model, llama_run / "adapters/paper")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("x")
    with pytest.raises(AdapterError, match="not an adapter directory"):
        save_adapter(model, tmp_path / "mine")
    assert (tmp_path / "mine/thesis.tex").read_text() == "x"


def contents(directory):
    """All files below a directory."""
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_only_an_adapter_of_this_package_is_replaced(families, llama_run, tmp_path):
    adapter = load_adapter(pretrained(families / "llama/hf"), llama_run / "adapters/paper")

    def refused(name, files, match):
        directory = tmp_path / name
        for file, content in files.items():
            (directory / file).parent.mkdir(parents=True, exist_ok=True)
            (directory / file).write_bytes(content)
        with pytest.raises(AdapterError, match=match) as caught:
            save_adapter(adapter, directory)
        assert "choose another directory" in str(caught.value)
        assert contents(directory) == files

    config = "adapter_config.json"
    mine = (llama_run / "adapters/paper" / config).read_bytes()
    refused("lora", {config: b'{"peft_type": "LORA"}', "adapter_model.safetensors": b"x"}, "peft_type 'LORA'")
    refused("trainer", {config: mine, "optimizer.pt": b"x", "trainer_state.json": b"{}"}, "optimizer.pt, trainer_state.json")
    refused("folder", {config: mine, "checkpoint-5/optimizer.pt": b"x"}, "checkpoint-5")
    refused("damaged", {config: b"{"}, "cannot be read")
    refused("list", {config: b"[]"}, "peft_type None")
    # What the programs wrote is replaced, with all that they put beside it.
    for name in ("paper-order-3", "selective-order-3"):
        shutil.copytree(llama_run / "adapters" / name, tmp_path / name)
        assert (tmp_path / name / "certificate.json").is_file()
        save_adapter(adapter, tmp_path / name)
        assert contents(tmp_path / name).keys() == {config, "adapter_model.safetensors"}


@pytest.mark.parametrize("moment", ["old", "new"])
def test_an_interrupt_leaves_the_directory_as_it_was(moment, families, llama_run, tmp_path, monkeypatch):
    adapter = load_adapter(pretrained(families / "llama/hf"), llama_run / "adapters/paper")
    save_adapter(adapter, tmp_path / "saved")
    before = contents(tmp_path)
    rename = Path.rename

    def interrupted(path, target):
        if path.name == "new":
            raise KeyboardInterrupt
        rename(path, target)
        if Path(target).name == moment:
            raise KeyboardInterrupt

    # Once the old one is moved aside, or when the new one is to take its place.
    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_adapter(adapter, tmp_path / "saved")
    assert contents(tmp_path) == before
