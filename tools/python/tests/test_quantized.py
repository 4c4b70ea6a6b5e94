"""``hankel.torch`` on models that bitsandbytes quantised: they compute what `train` computes on its own 4-bit weights."""

import pytest
from helpers import ADAPTERS, close, compare, fit, greedy, pretrained, tokens

import torch
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig

from hankel.torch import load_adapter, save_adapter

pytest.importorskip("bitsandbytes")

KINDS = ["paper", "signed", "complex", "complex-order-4", "selective", "hankel-shared", "rotation", "householder", "delta"]


@pytest.fixture(scope="module")
def model(families, tmp_path_factory):
    """The tiny Llama of 64 channels: rows of whole blocks of 64 weights."""
    folder = tmp_path_factory.mktemp("model")
    config = AutoConfig.from_pretrained(families / "llama/hf")
    config.hidden_size, config.head_dim, config.intermediate_size, config.initializer_range = 64, 16, 128, 0.1
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def done(programs, model, tmp_path_factory):
    return fit(programs, tmp_path_factory.mktemp("run"), model, [name for name in KINDS if name in ADAPTERS])


def quantized(path, exact=True, **options):
    """In 4 bits. Outside of training bitsandbytes computes in bf16 on processors that can; not so if ``exact``."""
    settings = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True, "bnb_4bit_compute_dtype": torch.float32}
    model = pretrained(path, quantization_config=BitsAndBytesConfig(**settings | options), device_map="cpu")
    for module in model.modules():
        if exact and hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
    return model


@pytest.mark.parametrize("name", KINDS)
def test_four_bits(name, programs, model, done, tmp_path):
    """Logits, loss and gradients of adapter parameters, with nf4 and double quantisation on both sides."""
    found = quantized(model)
    assert found.model.layers[0].mlp.up_proj.weight.dtype == torch.uint8
    # Scales that are quantised themselves are decoded with another rounding.
    compare(programs, tmp_path, model, done / "adapters" / name, model=found, options=["--quantize", "nf4"], tolerance=1e-4)


def test_four_bits_as_they_come(model, done):
    """The products of bitsandbytes, whatever they are on this processor, and the adapter's parameters in single precision."""
    found, exact = quantized(model, exact=False), quantized(model)
    ids = tokens(found)
    for each in (found, exact):
        adapter = load_adapter(each, done / "adapters/paper")
        assert {p.dtype for p in adapter.parameters()} == {torch.float32}
    with torch.no_grad():
        expected = exact(ids).logits
        # Single tokens may be far off: where the stream is small, its norm makes rounding large.
        assert (found(ids).logits - expected).norm() < 0.1 * expected.norm()


def test_eight_bits(model, done):
    """An adapter adds no error of its own to that of 8-bit weights and inputs."""
    found = pretrained(model, quantization_config=BitsAndBytesConfig(load_in_8bit=True), device_map="cpu")
    assert found.model.layers[0].mlp.up_proj.weight.dtype == torch.int8
    whole = pretrained(model)
    ids = tokens(whole)
    with torch.no_grad():
        alone = (found(ids).logits - whole(ids).logits).norm()
    load_adapter(whole, done / "adapters/paper")
    adapter = load_adapter(found, done / "adapters/paper")
    out = found(ids, labels=ids)
    assert (out.logits - whole(ids).logits).norm() < 2 * alone
    out.loss.backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.abs().max() > 0 for p in adapter.parameters() if p.requires_grad)


def test_generation_training_and_saving(model, done, tmp_path):
    found = quantized(model)
    found.generation_config.eos_token_id = None
    adapter = load_adapter(found, done / "adapters/paper")
    ids = tokens(found, batch=2, steps=9)
    whole = ids
    for _ in range(20):
        with torch.no_grad():
            whole = torch.cat([whole, found(whole, use_cache=False).logits[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(greedy(found, ids, 20), whole)
    optimizer = torch.optim.AdamW([p for p in adapter.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for _ in range(6):
        loss = found(ids, labels=ids).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < losses[0]
    save_adapter(adapter, tmp_path / "mine")
    again = quantized(model)
    load_adapter(again, tmp_path / "mine")
    with torch.no_grad():
        close(again(ids).logits, found(ids).logits, 1e-6)


def test_qlora_of_peft_beside_it(model, done):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    prepared = peft.prepare_model_for_kbit_training(quantized(model), use_gradient_checkpointing=False)
    both = peft.get_peft_model(prepared, config)
    ids = tokens(both)
    with torch.no_grad():
        lora = both(ids).logits
    adapter = load_adapter(both, done / "adapters/complex")
    out = both(ids, labels=ids)
    assert (out.logits - lora).abs().max() > 1e-2
    out.loss.backward()
    trained = [name for name, p in both.named_parameters() if p.grad is not None and p.grad.abs().max() > 0]
    assert any("lora_" in name for name in trained) and any("hankel_adapter" in name for name in trained)
    assert all("lora_" in name or "hankel_adapter" in name for name in trained)
    with torch.no_grad(), adapter.disabled():
        close(both(ids).logits, lora, 1e-6)
