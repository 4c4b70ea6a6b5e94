"""Where llama.cpp's log-probabilities of files of `train convert` are further off than 1e-4: whose rounding that is.

    python tests/peers/llamacpp/rounding.py --node judge --smollm2 FILE.gguf [--train target/debug/train] [-o rounding.json]

`judge` is the folder of judge.py. GPT-2, Gemma 3 and SmolLM2 are computed by transformers in float64, and once more with what
ggml rounds: GELU looked up in a table of 16-bit floats, and, beside F16 weights, the inputs of products in 16 bits. gguf-py
writes a file of the same weights by its own table of names; its tensors must be those of our file, byte for byte. Every figure
is the largest difference of a log-probability over all tokens of the vocabulary and all positions.

`turned_down` is the model with its MLPs' outputs scaled by 1/100, so that the table counts for little: llama.cpp must then be
within 1e-4 of float64. Exit code 1 when that, or the equality of bytes, fails.
"""

import argparse
import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from judge import GOLDEN, Judge, log_softmax, with_tokenizer
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

DOWN = 0.01


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * x * (1 + 0.044715 * x * x)))


def gelu_by_table(x):
    """ggml_vec_gelu_f32 where GGML_GELU_FP16 is defined."""
    y = gelu(x.to(torch.float16).to(torch.float32)).to(torch.float16).to(x.dtype)
    return torch.where(x <= -10, torch.zeros_like(x), torch.where(x >= 10, x, y))


class Activation(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.forward = function


def without_casts():
    """transformers casts to float32 in normalisations and in the softmax of scores."""

    def rms(self, x, eps, gain):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * gain

    for norm in (LlamaRMSNorm, Qwen3RMSNorm):
        norm.forward = lambda self, x: rms(self, x, self.variance_epsilon, self.weight)
    Gemma3RMSNorm.forward = lambda self, x: rms(self, x, self.eps, 1 + self.weight)
    plain = torch.nn.functional.softmax
    torch.nn.functional.softmax = lambda x, dim=-1, dtype=None, **more: plain(x, dim=dim)


def compute(model, ids, dtype=torch.float64, activation=None, inputs=None, probabilities=True):
    """Log-probabilities, or logits, in `dtype`, with another activation, and with `inputs` applied before every product."""
    model = model.to(dtype).eval()
    if dtype == torch.float64:
        exact_rotary(model)
    for module in model.modules():
        for name in ("act", "act_fn"):
            if activation and hasattr(module, name):
                setattr(module, name, Activation(activation))
    products = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    hooks = [module.register_forward_pre_hook(lambda _, x: (inputs(x[0]),)) for module in products if inputs]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].double().numpy()
    for hook in hooks:
        hook.remove()
    return log_softmax(logits) if probabilities else logits


def exact_rotary(model):
    """Angles in float64 for rotary embeddings without scaling."""
    config = model.config
    if config.model_type not in ("llama", "qwen3"):
        return
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    frequencies = config.rope_parameters["rope_theta"] ** (-torch.arange(0, head, 2, dtype=torch.float64) / head)

    def forward(x, position_ids=None, **_):
        angles = position_ids[0].double()[:, None] * frequencies
        angles = torch.cat([angles, angles], dim=1)[None]
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    for module in model.modules():
        if hasattr(module, "rotary_emb"):
            module.rotary_emb.forward = forward


def distance(x, y):
    return float(np.abs(x - y).max())


def write_with_gguf_py(ours, tensors, path):
    """The tensors as gguf-py writes them, behind the metadata of our file."""
    reader = gguf.GGUFReader(ours)
    writer = gguf.GGUFWriter(path, reader.get_field("general.architecture").contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            kind, of = field.types[0], field.types[-1] if len(field.types) > 1 else None
            value = field.contents()
            # gguf-py writes no empty list, which the merges of a tokenizer of bytes are; texts are of no account here.
            writer.add_key_value(name, ["a a"] if value == [] else value, kind, of or gguf.GGUFValueType.STRING)
    for name, values in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(values, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def unequal(ours, theirs):
    """Names of tensors that differ in a byte, in shape or in being there."""
    left, right = ({tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors} for path in (ours, theirs))

    def same(name):
        both = [side.get(name) for side in (left, right)]
        facts = [side and (list(side.shape), side.tensor_type, side.data.tobytes()) for side in both]
        return None not in both and facts[0] == facts[1]

    return [name for name in sorted({*left, *right}) if not same(name)], len(left)


def tensors_of(folder, architecture, layers):
    """The weights of a directory under llama.cpp's names by gguf-py's table, as its converter changes them."""
    names = gguf.get_tensor_name_map(architecture, layers)
    found = {}
    for name, values in load_file(folder / "model.safetensors").items():
        own = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert own, name
        # Conv1D of GPT-2 has its weights transposed; gains of Gemma are counted from 1.
        if architecture == gguf.MODEL_ARCH.GPT2 and values.ndim == 2 and ".h." in name:
            values = values.T
        if architecture == gguf.MODEL_ARCH.GEMMA3 and name.endswith("norm.weight"):
            values = values + np.float32(1)
        found[own] = values
    return found


def draw_gemma(folder):
    torch.manual_seed(0)
    sizes = {"vocab_size": 224, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 7, "head_dim": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "query_pre_attn_scalar": 16, "sliding_window": 8}
    model = Gemma3ForCausalLM(Gemma3TextConfig(max_position_embeddings=128, initializer_range=0.3, **sizes, **heads))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.normal_(0.0, 0.2)
    model.save_pretrained(folder)


def turn_down(folder, to):
    """A copy of a model whose MLPs add a hundredth of what they did."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "post_feedforward_layernorm" in name:
                parameter.copy_(DOWN * (1 + parameter) - 1)
            elif ".mlp.c_proj." in name:
                parameter.mul_(DOWN)
    model.save_pretrained(to)
    return to


def gelu_family(judge, name, folder, architecture, ids):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    ours, _ = judge.convert(with_tokenizer(folder, judge.scratch), f"{name}-ours", "f32")
    theirs = judge.scratch / f"{name}-theirs.gguf"
    write_with_gguf_py(ours, tensors_of(folder, architecture, model.config.num_hidden_layers), theirs)
    different, count = unequal(ours, theirs)
    exact = compute(model, ids)
    table = compute(model, ids, activation=gelu_by_table)
    single_table = compute(model, ids, torch.float32, gelu_by_table)
    found, found_theirs = judge.llamacpp(ours, ids), judge.llamacpp(theirs, ids)
    quiet = turn_down(folder, judge.scratch / f"{name}-quiet" / "hf")
    quiet_model = AutoModelForCausalLM.from_pretrained(quiet, dtype=torch.float32, attn_implementation="eager")
    quiet_exact = compute(quiet_model, ids)
    quiet_found = judge.llamacpp(judge.convert(with_tokenizer(quiet, judge.scratch), f"{name}-quiet", "f32")[0], ids)
    return {
        "model": name,
        "type": "F32",
        "tokens": len(ids),
        "tensors": count,
        "tensors_unequal_to_gguf_py": different,
        "ours_to_float64": distance(judge.forward(folder, ids, precision="f32"), exact),
        "llamacpp_to_float64": distance(found, exact),
        "llamacpp_on_the_file_of_gguf_py_to_float64": distance(found_theirs, exact),
        "float64_with_table_to_float64": distance(table, exact),
        "llamacpp_to_float64_with_table": distance(found, table),
        "llamacpp_to_float64_with_table_median_position": float(np.median(np.abs(found - table).max(axis=1))),
        "float32_with_table_to_float64_with_table": distance(single_table, table),
        "turned_down": {"llamacpp_to_float64": distance(quiet_found, quiet_exact)},
    }


def llama_of(path):
    """SmolLM2 for transformers, from a GGUF file as gguf-py decodes it, and the decoded tensors."""
    reader = gguf.GGUFReader(path)
    fact = {name.removeprefix("llama."): field.contents() for name, field in reader.fields.items() if name.startswith("llama.")}
    tensors = {}
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        tensors[tensor.name] = values.reshape([int(n) for n in tensor.shape[::-1]])
    heads, kv_heads = fact["attention.head_count"], fact["attention.head_count_kv"]
    config = LlamaConfig(
        vocab_size=tensors["token_embd.weight"].shape[0],
        hidden_size=fact["embedding_length"],
        intermediate_size=fact["feed_forward_length"],
        num_hidden_layers=fact["block_count"],
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        rms_norm_eps=fact["attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": fact["rope.freq_base"]},
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, fact["block_count"])
    model = LlamaForCausalLM(config)
    state = {}
    for name in model.state_dict():
        values = tensors.get(names.get_name(name, try_suffixes=(".weight",)), tensors["token_embd.weight"])
        for projection, count in [("q_proj", heads), ("k_proj", kv_heads)]:
            if projection in name:
                rows, width = values.shape
                values = values.reshape(count, rows // count // 2, 2, width).swapaxes(1, 2).reshape(rows, width)
        state[name] = torch.tensor(values)
    model.load_state_dict(state)
    return model, tensors


def smollm2(judge, path, texts):
    model, tensors = llama_of(path)
    ours, _ = judge.convert(path, "smollm2-ours", "f32")
    theirs = judge.scratch / "smollm2-theirs.gguf"
    write_with_gguf_py(ours, tensors, theirs)
    different, count = unequal(ours, theirs)
    half, _ = judge.convert(path, "smollm2-half", "f16")
    rows = []
    for text, ids in texts.items():
        exact = compute(model, ids)
        found = judge.llamacpp(ours, ids)
        rows.append(
            {
                "model": "SmolLM2-135M-Instruct",
                "text": text,
                "type": "F32",
                "tokens": len(ids),
                "tensors": count,
                "tensors_unequal_to_gguf_py": different,
                "ours_to_float64": distance(judge.forward(ours, ids, precision="f32"), exact),
                "llamacpp_to_float64": distance(found, exact),
                "llamacpp_on_the_file_of_gguf_py_to_float64": distance(judge.llamacpp(theirs, ids), exact),
                "float32_to_float64": distance(compute(model, ids, torch.float32), exact),
                "largest_logit": float(np.abs(model(torch.tensor([ids])).logits.detach().numpy()).max()),
            }
        )
        model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.copy_(parameter.half().double())

    def rounded(x):
        return x.half().double()

    def rounded_beside(x):
        return (x * (1 + 1e-7 * torch.randn_like(x))).half().double()

    for text, ids in texts.items():
        exact, emulated = compute(model, ids), compute(model, ids, inputs=rounded)
        found = judge.llamacpp(half, ids)
        rows.append(
            {
                "model": "SmolLM2-135M-Instruct",
                "text": text,
                "type": "F16",
                "tokens": len(ids),
                "ours_to_float64": distance(judge.forward(half, ids, precision="f32"), exact),
                "llamacpp_to_float64": distance(found, exact),
                "float64_with_inputs_in_16_bits_to_float64": distance(emulated, exact),
                "the_same_with_inputs_off_by_1e-7": distance(compute(model, ids, inputs=rounded_beside), emulated),
            }
        )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--node", required=True, help="folder with node_modules/node-llama-cpp")
    parser.add_argument("--train", default=str(GOLDEN.parents[1] / "target/debug/train"))
    parser.add_argument("--smollm2", help="SmolLM2-135M-Instruct as a GGUF file")
    parser.add_argument("-o", "--output", help="a JSON file")
    args = parser.parse_args()
    without_casts()
    with tempfile.TemporaryDirectory() as scratch:
        judge = Judge(args, Path(scratch))
        gpt2 = load_file(GOLDEN / "families/gpt2/io.safetensors")["input_ids"][0].tolist()
        rows = [gelu_family(judge, "gpt2", GOLDEN / "families/gpt2/hf", gguf.MODEL_ARCH.GPT2, gpt2)]
        folder = Path(scratch) / "gemma3" / "hf"
        draw_gemma(folder)
        ids = [(7 * i * i + 3 * i + 5) % 224 for i in range(40)]
        rows.append(gelu_family(judge, "gemma3", folder, gguf.MODEL_ARCH.GEMMA3, ids))
        if args.smollm2:
            prompts = json.loads((GOLDEN / "smollm2/greedy.json").read_text())["prompts"]
            texts = {"answers": [i for prompt in prompts[:4] for i in prompt["prompt_ids"] + prompt["new_ids"]][:256]}
            texts["chat"] = load_file(GOLDEN / "smollm2/logits_chat.safetensors")["input_ids"].reshape(-1).tolist()
            rows += smollm2(judge, Path(args.smollm2), texts)
    versions = {"transformers": transformers.__version__, "gguf": version("gguf"), "judge": "node-llama-cpp 3.22.1, CPU"}
    result = {**versions, "rows": rows}
    text = json.dumps(result, indent=1) + "\n"
    print(text, end="")
    if args.output:
        Path(args.output).write_text(text)
    wrong = any(row.get("tensors_unequal_to_gguf_py") for row in rows)
    single = [row.get("turned_down", row) for row in rows if row["type"] == "F32"]
    wrong |= any(row["llamacpp_to_float64"] > 1e-4 for row in single)
    sys.exit(int(wrong))


if __name__ == "__main__":
    main()
