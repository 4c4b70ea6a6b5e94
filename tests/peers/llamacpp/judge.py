"""What `train convert` writes, judged by llama.cpp itself.

    mkdir judge && cd judge && npm init -y
    npm install --ignore-scripts --omit=optional node-llama-cpp@3.22.1 @node-llama-cpp/linux-x64@3.22.1
    python tests/peers/llamacpp/judge.py --node judge [--train target/debug/train] [--smollm2 FILE.gguf]

Every family of tests/golden/families, a Gemma 3 of transformers, the model of tests/golden/gguf/adapter with its adapters, and
SmolLM2 where its file is given, against float64 (golden values, or the file read back). F32 files and adapters: largest
difference of log-probabilities at most 1e-4; F16 2e-2. All but F32: difference of the mean loss at most 1e-2 and the mean KL
divergence. Wider limits, which rounding.py explains: GPT-2 and Gemma 3 in F32 5e-3, SmolLM2 in F16 1e-1. Prints a table; exit
code 1 when a limit is exceeded.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parents[1] / "golden"
FAMILIES = ["llama", "llama3", "llama_linear", "llama_yarn", "qwen2", "qwen3", "smollm3", "olmo2", "phi3", "phi3_longrope",
            "granite", "gemma3_text", "gpt2"]
TYPES = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_k"]
LIMITS = {"f32": 1e-4, "f16": 2e-2}
# llama.cpp rounds activations to 16 bits beside weights of 16 bits: rounding.py.
LIMITS_REAL = {"f32": 1e-4, "f16": 1e-1}
# ggml looks GELU up in a table of 16-bit floats: rounding.py.
GELU = {"gpt2", "gemma3"}
GELU_LIMIT = 5e-3
LOSS, KL = 1e-2, {"f16": 1e-3, "bf16": 1e-3, "q8_0": 1e-2, "q4_0": 1e-2, "q4_k": 1e-2}


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


class Judge:
    def __init__(self, args, scratch):
        assert Path(args.train).is_file(), args.train
        self.train, self.node, self.scratch = args.train, Path(args.node), scratch
        # The script must lie where its package is.
        (self.node / "judge.mjs").write_text((HERE / "judge.mjs").read_text())
        self.failed = False

    def run_train(self, *words):
        done = subprocess.run([self.train, *map(str, words)], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def convert(self, model, name, dtype=None, *more):
        out = self.scratch / f"{name}.gguf"
        words = ["convert", model, "-o", out, *(["--type", dtype] if dtype else []), *more]
        code, text = self.run_train(*words)
        return (out, text) if code == 0 else (None, text)

    def llamacpp(self, model, ids, lora=None):
        out = self.scratch / "logprobs.safetensors"
        words = ["node", "judge.mjs", str(model), "--ids", ",".join(map(str, ids)), "--logprobs", str(out)]
        done = subprocess.run(words + (["--lora", str(lora)] if lora else []), cwd=self.node, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError((done.stdout + done.stderr)[-600:])
        # The binding sums probabilities in 32 bits: over 49,152 tokens that shifts all of them by 1e-4.
        return log_softmax(load_file(out)["logprobs"])

    def forward(self, model, ids, *more, precision="f64"):
        return log_softmax(self.logits(model, ids, *more, precision=precision))

    def logits(self, model, ids, *more, precision="f64"):
        tokens, out = self.scratch / "ids.safetensors", self.scratch / "forward.safetensors"
        save_file({"input_ids": np.array([ids], dtype=np.int64)}, tokens)
        code, text = self.run_train("forward", "--model", model, "--tokens", tokens, "-o", out, "--precision", precision, *more)
        if code:
            raise RuntimeError(text)
        logits = load_file(out)["logits"][0].astype(np.float64)
        out.unlink()
        return logits

    def verdict(self, name, figure, limit, what):
        good = figure <= limit
        self.failed |= not good
        print(f"{name:36} {what:28} {figure:10.2e}   limit {limit:.0e}   {'ok' if good else 'FAILED'}", flush=True)

    def compare(self, name, dtype, found, expected, ids):
        limit = (LIMITS if expected.shape[-1] < 1000 else LIMITS_REAL).get(dtype)
        if limit:
            self.verdict(name, np.abs(found - expected).max(), limit, "largest log-prob. difference")
        if dtype == "f32":
            return
        loss = [-x[np.arange(len(ids) - 1), ids[1:]].mean() for x in (found, expected)]
        self.verdict(name, abs(loss[0] - loss[1]), LOSS, "difference of the loss")
        kl = (np.exp(expected) * (expected - found)).sum(axis=-1).mean()
        self.verdict(name, kl, KL[dtype], "mean KL divergence")


def with_tokenizer(model, scratch):
    """A copy of a model with a tokenizer of single bytes, as many as there are ids: llama.cpp's binding wants one."""
    copy = scratch / f"{model.parent.name}-model"
    shutil.copytree(model, copy)
    config = json.loads((copy / "config.json").read_text())
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbols = [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))]
    split = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    # llama.cpp looks for some by name in a Phi-3.
    symbols = ["<unk>", "<s>", "<|endoftext|>", "</s>", *symbols]
    vocabulary = {symbol: i for i, symbol in enumerate(symbols[: config["vocab_size"]])}
    model = {"type": "BPE", "vocab": vocabulary, "merges": [], "byte_fallback": False, "ignore_merges": False}
    parts = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": split, "post_processor": None,
             "decoder": {**split, "add_prefix_space": True}, "model": model}
    (copy / "tokenizer.json").write_text(json.dumps(parts))
    return copy


def family(judge, case):
    folder = GOLDEN / "families" / case
    short = (folder / "io_short.safetensors").is_file() and case != "phi3_longrope"
    io = "io_short.safetensors" if short else "io.safetensors"
    arrays = load_file(folder / io)
    ids = arrays["input_ids"].reshape(-1)[: arrays["input_ids"].shape[-1]].tolist()
    expected = log_softmax(arrays["logits"].reshape(-1, arrays["logits"].shape[-1])[: len(ids)])
    out, text = judge.convert(with_tokenizer(folder / "hf", judge.scratch), case, "f32")
    if out is None:
        print(f"{case:36} refused: {text.strip()}")
        return
    try:
        found = judge.llamacpp(out, ids)
    except RuntimeError as error:
        judge.failed = True
        print(f"{case:36} FAILED: {error}", flush=True)
        return
    if case in GELU:
        judge.verdict(f"{case} f32", np.abs(found - expected).max(), GELU_LIMIT, "largest log-prob. difference")
    else:
        judge.compare(f"{case} f32", "f32", found, expected, ids)


def gemma(judge):
    """The golden Gemma 3 has windows where llama.cpp has none: another one, drawn by transformers and computed by it."""
    import torch
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    torch.manual_seed(0)
    sizes = dict(vocab_size=224, hidden_size=32, intermediate_size=48, num_hidden_layers=7, num_attention_heads=4)
    more = dict(num_key_value_heads=2, head_dim=16, query_pre_attn_scalar=16, sliding_window=8, initializer_range=0.3)
    folder = judge.scratch / "gemma3" / "hf"
    model = Gemma3ForCausalLM(Gemma3TextConfig(max_position_embeddings=128, **sizes, **more)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.normal_(0.0, 0.2)
    model.save_pretrained(folder)
    ids = [(7 * i * i + 3 * i + 5) % 224 for i in range(40)]
    with torch.no_grad():
        expected = log_softmax(model(torch.tensor([ids])).logits[0].numpy())
    out, text = judge.convert(with_tokenizer(folder, judge.scratch), "gemma3", "f32")
    if out is None:
        raise RuntimeError(text)
    found = judge.llamacpp(out, ids)
    judge.verdict("gemma3 f32", np.abs(found - expected).max(), GELU_LIMIT, "largest log-prob. difference")


def yarn(judge):
    """The golden YaRN with a magnitude that is not the usual one."""
    folder = judge.scratch / "llama_yarn_magnitude" / "hf"
    shutil.copytree(GOLDEN / "families/llama_yarn/hf", folder)
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"]["attention_factor"] = 1.5
    (folder / "config.json").write_text(json.dumps(config))
    ids = [(7 * i * i + 3 * i + 5) % config["vocab_size"] for i in range(40)]
    out, text = judge.convert(with_tokenizer(folder, judge.scratch), "llama_yarn_magnitude", "f32")
    if out is None:
        raise RuntimeError(text)
    judge.compare("llama_yarn_magnitude f32", "f32", judge.llamacpp(out, ids), judge.forward(folder, ids), ids)


def adapters(judge):
    base = GOLDEN / "gguf/models/hf/llama"
    model, _ = judge.convert(base, "llama-base", "f32")
    for name in ["lora", "rslora"]:
        folder = GOLDEN / "gguf/adapter"
        lora, text = judge.convert(folder / name, name, None, "--model", base)
        if lora is None:
            raise RuntimeError(text)
        arrays = load_file(folder / f"{name}.safetensors") if (folder / f"{name}.safetensors").is_file() else {}
        ids = arrays["input_ids"][0].tolist() if arrays else list(range(3, 47))
        expected = log_softmax(arrays["logits"][0]) if arrays else judge.forward(base, ids, "--adapter", folder / name)
        judge.compare(f"{name} on f32", "f32", judge.llamacpp(model, ids, lora), expected, ids)


def types(judge, model, name, ids):
    for dtype in TYPES:
        out, text = judge.convert(model, f"{name}-{dtype}", dtype)
        if out is None:
            raise RuntimeError(text)
        # The same stored values, without llama.cpp's rounding of activations to 8 or 16 bits.
        expected = judge.forward(model if dtype == "f32" else out, ids)
        judge.compare(f"{name} {dtype}", dtype, judge.llamacpp(out, ids), expected, ids)
        out.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--node", required=True, help="folder with node_modules/node-llama-cpp")
    parser.add_argument("--train", default=str(HERE.parents[2] / "target/debug/train"))
    parser.add_argument("--smollm2", help="SmolLM2-135M-Instruct as a GGUF file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        judge = Judge(args, Path(scratch))
        for case in FAMILIES:
            family(judge, case)
        gemma(judge)
        yarn(judge)
        adapters(judge)
        types(judge, GOLDEN / "gguf/models/hf/llama", "llama", list(range(3, 47)))
        if args.smollm2:
            tokens = json.loads((GOLDEN / "smollm2/greedy.json").read_text())["prompts"]
            ids = [i for prompt in tokens[:4] for i in prompt["prompt_ids"] + prompt["new_ids"]][:256]
            types(judge, Path(args.smollm2), "smollm2", ids)
    sys.exit(1 if judge.failed else 0)


if __name__ == "__main__":
    main()
