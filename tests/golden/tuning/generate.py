"""Reference values for LoRA+, PiSSA and LoftQ: twenty optimizer steps of PEFT on the small Mistral of ../mistral/window/hf.

    pip install torch transformers peft bitsandbytes
    python tests/golden/tuning/generate.py

LoftQ: the weights are quantised and decoded by bitsandbytes (NF4, double quantisation), as at loading here, and the factors are PEFT's
low-rank decomposition of what that lost. PEFT's own `loftq_init` is without double quantisation and wants a GPU: `loftq_rounds` takes its
source with these two words changed, to see that it finds nearly the same, but computes in float64, as rounding to one code or
the next goes on from round to round. `start` holds what was found for one projection.
Training is in float64; `measured` has the largest relative difference of the same run in float32.
"""

import inspect
import json
import math
from pathlib import Path

import bitsandbytes
import bitsandbytes.functional as bnb
import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model
from peft.optimizers import create_loraplus_optimizer
from peft.utils import loftq_utils
from peft.utils.loftq_utils import _low_rank_decomposition
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = Path(__file__).parent
BASE = HERE.parent / "mistral" / "window" / "hf"
STEPS, BATCH, LENGTH, RATE, DECAY = 20, 2, 20, 5e-4, 0.01
TARGETS = ["q_proj", "v_proj"]
CASES = {
    "loraplus": {"r": 4, "alpha": 8, "target": TARGETS, "lora_plus_ratio": 16.0},
    "pissa": {"r": 4, "alpha": 8, "target": TARGETS, "init": "pissa"},
    "loftq": {"r": 4, "alpha": 4, "target": TARGETS, "init": "loftq"},
    "loftq_rounds": {"r": 4, "alpha": 4, "target": TARGETS, "init": "loftq", "loftq_iter": 3},
}


def quantize(model):
    """Every projection as bitsandbytes decodes it."""
    for name, parameter in model.named_parameters():
        if "_proj" in name:
            # A block to a row: on the CPU, bitsandbytes 0.50 decodes rows wrongly whose length is no multiple of the block's.
            blocks = parameter.data.reshape(-1, 64)
            packed, state = bnb.quantize_4bit(blocks, blocksize=64, quant_type="nf4", compress_statistics=True)
            parameter.data = bnb.dequantize_4bit(packed, state).to(parameter.dtype).reshape(parameter.shape)


def loftq_init(weight, hyper):
    """PEFT's, on the CPU and with double quantisation."""
    source = inspect.getsource(loftq_utils.loftq_init)
    for word, other in [('"cuda"', '"cpu"'), ("compress_statistics=False", "compress_statistics=True")]:
        assert source.count(word) == 1
        source = source.replace(word, other)
    names = dict(vars(loftq_utils), clear_device_cache=lambda: None)
    exec(source, names)
    return names["loftq_init"](weight, 4, hyper["r"], hyper.get("loftq_iter", 1))


def alternate(weight, hyper):
    """Algorithm 1 of the paper in float64; factors are rounded to float32 after each round."""
    exact, rest = weight.double(), weight
    for _ in range(hyper.get("loftq_iter", 1)):
        packed, state = bnb.quantize_4bit(rest.reshape(-1, 64), blocksize=64, quant_type="nf4", compress_statistics=True)
        quantized = bnb.dequantize_4bit(packed, state).reshape(weight.shape)
        found = _low_rank_decomposition(exact - quantized.double(), hyper["r"])
        a, b = found["R"].float(), found["L"].float()
        rest = (exact - b.double() @ a.double()).float()
    theirs, their_a, their_b = loftq_init(weight, hyper)
    ours, theirs = quantized + b @ a, theirs + their_b @ their_a
    assert ((ours - theirs).abs() < 1e-5).double().mean() > 0.95
    assert abs((ours - weight).norm() / (theirs - weight).norm() - 1) < 0.02
    return quantized, a, b


def prepare(case):
    torch.manual_seed(0)
    hyper = CASES[case]
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32, attn_implementation="eager")
    stored = {name: parameter.data.clone() for name, parameter in model.named_parameters()}
    if "loftq" in case:
        quantize(model)
    start = "pissa" if case == "pissa" else True
    config = LoraConfig(r=hyper["r"], lora_alpha=hyper["alpha"], target_modules=hyper["target"], init_lora_weights=start, task_type="CAUSAL_LM")
    model = get_peft_model(model, config)
    if "loftq" in case:
        for name, module in model.base_model.model.named_modules():
            if hasattr(module, "lora_A"):
                weight, a, b = alternate(stored[f"{name}.weight"], hyper)
                if case == "loftq":
                    assert torch.equal(weight, module.get_base_layer().weight.data)
                module.get_base_layer().weight.data = weight
                module.lora_A["default"].weight.data, module.lora_B["default"].weight.data = a, b
    return model


def train(model, case, data, dtype):
    model = model.to(dtype)
    if case == "loraplus":
        optimizer = create_loraplus_optimizer(
            model, torch.optim.AdamW, lr=RATE, loraplus_lr_ratio=CASES[case]["lora_plus_ratio"], loraplus_weight_decay=DECAY
        )
    else:
        learnt = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(learnt, lr=RATE, weight_decay=DECAY)
    losses, norms = [], []
    for tokens in data:
        loss = model(input_ids=tokens, labels=tokens).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        squares = [parameter.grad.double().square().sum() for parameter in model.parameters() if parameter.grad is not None]
        norms.append(math.sqrt(sum(squares)))
        optimizer.step()
    return torch.tensor(losses, dtype=torch.float64), torch.tensor(norms, dtype=torch.float64)


def adapter(model):
    return {name.replace(".default", ""): value.detach() for name, value in model.named_parameters() if value.requires_grad}


def tidy(folder):
    """Leaves out what is of one machine."""
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text()) | {"base_model_name_or_path": "mistral/window/hf"}
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")


def main():
    generator = torch.Generator().manual_seed(24)
    data = torch.randint(3, 512, (STEPS, BATCH, LENGTH), generator=generator)
    for case, hyper in CASES.items():
        folder = HERE / case
        folder.mkdir(exist_ok=True)
        start = prepare(case)
        tensors = {"data": data[:, None]}
        if case == "loraplus":
            tensors |= {f"init.{name}": value.clone() for name, value in adapter(start).items()}
        if case == "pissa":
            start.save_pretrained(folder / "start")
        single, _ = train(start, case, data, torch.float32)
        with torch.no_grad():
            single_logits = start(input_ids=data[-1]).logits
        model = prepare(case)
        losses, norms = train(model, case, data, torch.float64)
        tensors |= {"loss": losses[:, None], "grad_norm": norms, "lr": torch.full((STEPS,), RATE, dtype=torch.float64)}
        if case == "loraplus":
            tensors |= {f"final.{name}": value.clone() for name, value in adapter(model).items()}
        if case == "loftq_rounds":
            first = "model.layers.0.self_attn.q_proj"
            module = prepare(case).base_model.model.get_submodule(first)
            update = module.lora_B["default"].weight @ module.lora_A["default"].weight
            tensors |= {"start.weight": module.get_base_layer().weight.data, "start.update": update.detach()}
        if "loftq" not in case:
            # PEFT converts PiSSA to a plain LoRA of twice the rank, by what it began with.
            convert = {"path_initial_model_for_weight_conversion": str(folder / "start")} if case == "pissa" else {}
            model.float().save_pretrained(folder / "trained", **convert)
            tidy(folder / "trained")
        with torch.no_grad():
            tensors["eval_logits"] = model.float()(input_ids=data[-1]).logits
        # A code that is rounded the other way changes what later rounds find.
        limits = {"loss": 1e-4 if case == "loftq_rounds" else 2e-5, "grad_norm": 2e-4, "lr": 1e-6, "eval_logits": 1e-3}
        facts = {
            "case": case,
            "base": "../mistral/window/hf",
            "method": "lora",
            "hyperparameters": hyper,
            "optimizer": {"betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": DECAY, "clip": "none"},
            "measured": {
                "loss": ((single - losses).abs().max() / losses.abs().max()).item(),
                "eval_logits": ((single_logits - tensors["eval_logits"]).abs().max() / tensors["eval_logits"].abs().max()).item(),
            },
            "versions": {m.__name__: m.__version__ for m in (torch, transformers, peft, bitsandbytes)},
            "tensors": {},
        }
        for name, value in tensors.items():
            entry = {"dtype": str(value.dtype), "shape": list(value.shape)}
            if name.startswith("final."):
                entry |= {"metric": "rel_delta", "init": name.replace("final.", "init."), "tol_f32": 2e-3, "tol_f64": 2e-4}
            elif name in limits:
                # Initial factors are in float32 in either precision.
                entry |= {"metric": "rel_max", "tol_f32": limits[name], "tol_f64": limits[name]}
            facts["tensors"][name] = entry
        save_file({name: value.contiguous() for name, value in tensors.items()}, folder / "train.safetensors")
        (folder / "train.json").write_text(json.dumps(facts, indent=1) + "\n")
        if (folder / "start").exists():
            for file in (folder / "start").iterdir():
                file.unlink()
            (folder / "start").rmdir()
        print(case, facts["measured"], losses[[0, -1]].tolist())


if __name__ == "__main__":
    main()
