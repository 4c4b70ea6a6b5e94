"""``hankel.torch`` on a real model, SmolLM2-135M-Instruct, against the programs on the same GGUF file. Skipped where the file is not:
$HANKEL_DATA, data/smollm2 (README.md says how it is had)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers import close, forward, greedy, run, score

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from hankel.torch import load_adapter, save_adapter

pytest.importorskip("gguf")

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPT = "The river was high that spring, and nobody in the village"


@pytest.fixture(scope="module")
def gguf(repository):
    places = [repository / "data/smollm2" / FILE]
    if os.environ.get("HANKEL_DATA"):
        places.insert(0, Path(os.environ["HANKEL_DATA"]) / FILE)
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        pytest.skip(f"{FILE} is neither in $HANKEL_DATA nor in data/smollm2")
    return found


@pytest.fixture(scope="module")
def done(programs, gguf, repository, tmp_path_factory):
    """Three steps of the default HRM on a page, and its truncation."""
    folder = tmp_path_factory.mktemp("smollm2")
    shutil.copy(repository / "docs/truncation.md", folder / "page.txt")
    (folder / "fit.toml").write_text(
        f'name = "run"\n[task]\nkind = "text"\npath = "page.txt"\nlength = 48\ntrain_sequences = 8\nvalidation_sequences = 2\n'
        f'[backbone]\nkind = "decoder"\nmodel = "{gguf}"\n[train]\nsteps = 3\nbatch_size = 2\nlr = 1e-2\n'
        '[[adapter]]\nkind = "hrm"\nstate_dim = 16\ntruncate = { order = 8 }\n'
    )
    run(programs / "train", "fit", "fit.toml", cwd=folder)
    return folder / "runs/run"


def test_smollm2(programs, gguf, done, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32).eval().requires_grad_(False)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    ids = torch.tensor([tokenizer.encode(PROMPT, add_special_tokens=False)])
    for name in ("hrm", "hrm-order-8"):
        directory = done / "adapters" / name
        expected = forward(programs, tmp_path, gguf, directory, ids, "--gradients")
        with torch.no_grad():
            alone = model(ids).logits
        adapter = load_adapter(model, directory)
        out = model(ids, labels=ids)
        assert (out.logits.detach() - alone).abs().max() > 1e-2, "the adapter must matter"
        close(out.logits.detach(), expected["logits"], 1e-5)
        assert out.loss.item() == pytest.approx(expected["loss"].item(), rel=1e-5)
        out.loss.backward()
        for entry, parameter in adapter.tensors().items():
            if parameter.grad is not None and parameter.numel():
                close(parameter.grad, expected[f"grad.base_model.model.{entry}"], 1e-4, floor=1e-6)
        options = ["--prompt", PROMPT, "--max-tokens", "40", "--temperature", "0"]
        command = [programs / "train", "generate", "--model", gguf, "--adapter", directory, *options]
        text = subprocess.run(command, capture_output=True, check=True, text=True).stdout
        model.generation_config.eos_token_id = None
        assert tokenizer.decode(greedy(model, ids)[0]).startswith(text[:-1]), name
        save_adapter(adapter, tmp_path / name)
        assert score(programs, done, tmp_path / name) == score(programs, done, directory)
        adapter.remove()
