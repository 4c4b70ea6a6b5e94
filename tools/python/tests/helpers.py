"""What the tests of ``hankel.torch`` share: adapters, runs of ``train``, and comparisons."""

import os
import subprocess

import pytest

if not os.environ.get("HANKEL_REQUIRE_TORCH"):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from hankel.torch import load_adapter

FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "smollm3", "olmo2", "phi3", "granite", "gemma2", "gemma3_text", "gpt2"]

COMMON = "state_dim = 6\nb_std = 0.5\nc_std = 0.5\ngate_init = 0.5\n"
BOTH = 'sites = ["attention", "mlp"]\n'
ADAPTERS = {
    "paper": 'kind = "hrm"\npreset = "paper"\n' + COMMON + BOTH + "truncate = { order = 3 }\n",
    "released": 'kind = "hrm"\npreset = "released"\n' + COMMON,
    "signed": 'kind = "hrm"\nmode = "signed"\ninput = "sublayer"\n' + COMMON + BOTH,
    "complex": 'kind = "hrm"\nmode = "complex"\ninput = "norm"\n' + COMMON + BOTH + "truncate = { order = 4 }\n",
    "zoh": 'kind = "hrm"\ndiscretization = "zoh"\ntrain_log_dt = false\n' + COMMON,
    "selective": 'kind = "selective"\n' + COMMON + "truncate = { order = 3 }\n",
    "selective-signed": 'kind = "selective"\nmode = "signed"\n' + COMMON,
    "hankel-shared": 'kind = "hankel-shared"\ninput = "norm"\n' + COMMON + BOTH,
    "state-offset": 'kind = "state-offset"\n',
    "rotation": 'kind = "rotation"\nplanes = 3\nangle_std = 0.02\nb_std = 0.1\nc_std = 0.1\ngate_init = 0.5\n',
    "householder": 'kind = "householder"\nreflections = 2\nv_std = 0.1\nc_std = 0.1\ngate_init = 0.5\n',
    "delta": 'kind = "delta"\nheads = 2\nstate_dim = 4\nvalue_dim = 3\nc_std = 0.1\ngate_init = 0.5\n',
}
TRUNCATED = {"paper-order-3", "complex-order-4", "selective-order-3"}


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done


def fit(programs, folder, model, names, steps=4):
    """A run with adapters that differ from their beginning, on a tiny model."""
    tables = "".join(f'[[adapter]]\nname = "{name}"\n{ADAPTERS[name]}' for name in names)
    (folder / "fit.toml").write_text(
        f'name = "run"\n[task]\nkind = "dfa"\nstates = 4\nlength = 24\ntrain_sequences = 64\nvalidation_sequences = 16\n'
        f'test_sequences = 0\n[backbone]\nkind = "decoder"\nmodel = "{model}"\n[train]\nsteps = {steps}\nbatch_size = 8\nlr = 3e-2\n{tables}'
    )
    run(programs / "train", "fit", "fit.toml", cwd=folder)
    return folder / "runs/run"


def pretrained(path, **options):
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **options).eval()


def tokens(model, batch=2, steps=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, model.config.vocab_size, (batch, steps), generator=generator)


def forward(programs, folder, path, adapter, ids, *options):
    save_file({"input_ids": ids}, folder / "tokens.safetensors")
    output = folder / "forward.safetensors"
    # What is there is not replaced.
    output.unlink(missing_ok=True)
    run(programs / "train", "forward", "--model", path, "--adapter", adapter, "--tokens", folder / "tokens.safetensors", "-o", output, *options)
    return load_file(output)


def score(programs, done, directory):
    """What `train eval` says of an adapter on the task of a run."""
    return run(programs / "train", "eval", done, "--adapter", directory).stdout.splitlines()[-1].split()[1:]


def close(found, expected, tolerance, floor=0.0):
    """Within a share of the largest value, or the rounding of what a small one was summed up from."""
    size = expected.double().abs().max()
    difference = (found.double() - expected.double()).abs().max()
    assert difference <= tolerance * size + floor, f"{difference:.2e} of {size:.2e}"


def compare(programs, folder, path, directory, gradients=True, model=None, options=(), tolerance=1e-5):
    """Logits by both evaluations, the loss, and the gradient of every parameter, against `train forward`."""
    model = pretrained(path) if model is None else model
    ids = tokens(model)
    expected = forward(programs, folder, path, directory, ids, *options, *(["--gradients"] if gradients else []))
    alone = model(ids).logits
    adapter = load_adapter(model, directory)
    out = model(ids, labels=ids)
    assert (alone - out.logits).abs().max() > 1e-2, "the adapter must matter"
    close(out.logits.detach(), expected["logits"], tolerance)
    assert out.loss.item() == pytest.approx(expected["loss"].item(), rel=1e-5)
    if gradients:
        out.loss.backward()
        found = {f"grad.base_model.model.{name}": p.grad for name, p in adapter.tensors().items() if p.grad is not None}
        named = {name for name in expected if name.startswith("grad.base_model")}
        # `train forward` trains everything, frozen or not.
        assert found.keys() <= named and all(name.endswith(("log_dt", ".a")) for name in named - found.keys())
        for name in found:
            if expected[name].numel():
                close(found[name], expected[name], 1e-4, floor=1e-6)
    adapter.scan = "sequential"
    with torch.no_grad():
        close(model(ids).logits, expected["logits"], tolerance)
    adapter.remove()
    with torch.no_grad():
        assert torch.equal(model(ids).logits, alone)


def greedy(model, ids, count=40, **options):
    settings = {"do_sample": False, "max_new_tokens": count, "min_new_tokens": count, "pad_token_id": 0}
    with torch.no_grad():
        return model.generate(ids, **settings | {"attention_mask": torch.ones_like(ids)} | options)
