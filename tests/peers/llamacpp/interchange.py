"""Adapters that `train fit` trained, and models that `train merge` wrote, opened by PEFT, transformers and llama.cpp.

    python tests/peers/llamacpp/interchange.py --node judge --smollm2 FILE.gguf [--train PROGRAM] [-o interchange.json]

LoRA and rsLoRA are trained for some steps on SmolLM2 (the GGUF file) and on the small Qwen3 of tests/golden/families, and
merged. PEFT and transformers compute in float64, and so does `train forward`: logits within 1e-5. llama.cpp computes F32 files:
log-probabilities within 1e-4 of float64. `judge` is the folder of judge.py. Exit code 1 when a limit is exceeded.
"""

import argparse
import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from judge import GOLDEN, Judge, log_softmax, with_tokenizer
from peft import PeftModel
from rounding import compute, llama_of, without_casts
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM

LOGITS, LOG_PROBABILITIES = 1e-5, 1e-4
TEXT = "The river rose in the night, and by the morning the lower fields were under water. Nobody had seen it come. "


def train(judge, model, folder, kind, steps):
    """Trains an adapter on a text, and gives its directory."""
    folder.mkdir(parents=True)
    text = folder / "text.txt"
    text.write_text("\n\n".join(f"{TEXT} {i} {TEXT[i % 40 :]}" for i in range(40)))
    (folder / "config.toml").write_text(
        f'name = "interchange"\n[task]\nkind = "text"\npath = {json.dumps(str(text))}\nlength = 32\n'
        f'[backbone]\nkind = "decoder"\nmodel = {json.dumps(str(model))}\n'
        f"[train]\nsteps = {steps}\nbatch_size = 2\nlr = 5e-3\n"
        f'[[adapter]]\nkind = "lora"\nrank = 4\nlora_alpha = 8\nrslora = {kind == "rslora"}\n'.replace("True", "true").replace(
            "False", "false"
        )
        + 'targets = ["q_proj", "o_proj", "up_proj"]\n'
    )
    code, told = judge.run_train("fit", folder / "config.toml", "--out", folder / "run")
    assert code == 0, told
    return folder / "run/adapters/lora"


def rows_of(judge, name, own, base, ids, steps):
    """`own` is the model as `train` reads it, `base` that of transformers."""
    rows = []
    plain, told = judge.convert(own, f"{name}-base", "f32")
    assert plain, told
    for kind in ["lora", "rslora"]:
        folder = judge.scratch / f"{name}-{kind}"
        adapter = train(judge, own, folder, kind, steps)
        merged = folder / "merged"
        code, told = judge.run_train("merge", adapter, "--model", own, "-o", merged, "--dtype", "f32")
        assert code == 0, told
        bare, ours = judge.logits(own, ids), judge.logits(own, ids, "--adapter", adapter)
        theirs = logits(PeftModel.from_pretrained(base(), adapter), ids)
        of_merged = logits(AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32, attn_implementation="eager"), ids)
        lora, told = judge.convert(adapter, f"{name}-{kind}", None, "--model", own)
        assert lora, told
        whole, told = judge.convert(with_own_tokenizer(merged, own), f"{name}-{kind}-merged", "f32")
        assert whole, told
        rows.append(
            {
                "model": name,
                "adapter": kind,
                "tokens": len(ids),
                "adapter_changes_logits_by": distance(ours, bare),
                "peft_to_ours": distance(theirs, ours),
                "transformers_on_merged_to_ours_on_merged": distance(of_merged, judge.logits(merged, ids)),
                "merged_to_adapter_beside": distance(of_merged, ours),
                "llamacpp_lora": distance(judge.llamacpp(plain, ids, lora), log_softmax(ours)),
                "llamacpp_merged": distance(judge.llamacpp(whole, ids), log_softmax(of_merged)),
            }
        )
    return rows


def logits(model, ids):
    return compute(model, ids, probabilities=False)


def with_own_tokenizer(merged, own):
    return merged if (merged / "tokenizer.json").is_file() or not own.is_dir() else with_tokenizer(merged, merged.parent)


def distance(x, y):
    return float(np.abs(x - y).max())


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
        folder = GOLDEN / "families/qwen3"
        own = with_tokenizer(folder / "hf", judge.scratch)
        ids = load_file(folder / "io.safetensors")["input_ids"][0].tolist()

        def qwen():
            return AutoModelForCausalLM.from_pretrained(folder / "hf", dtype=torch.float32, attn_implementation="eager")

        rows = rows_of(judge, "qwen3", own, qwen, ids, 40)
        if args.smollm2:
            own = Path(args.smollm2)
            prompts = json.loads((GOLDEN / "smollm2/greedy.json").read_text())["prompts"]
            ids = [i for prompt in prompts[:2] for i in prompt["prompt_ids"] + prompt["new_ids"]][:96]
            rows += rows_of(judge, "SmolLM2-135M-Instruct", own, lambda: llama_of(own)[0], ids, 6)
    names = ["peft", "transformers", "torch"]
    result = {**{name: version(name) for name in names}, "judge": "node-llama-cpp 3.22.1, CPU", "rows": rows}
    text = json.dumps(result, indent=1) + "\n"
    print(text, end="")
    if args.output:
        Path(args.output).write_text(text)
    exact = ["peft_to_ours", "transformers_on_merged_to_ours_on_merged"]
    wrong = any(row[key] > LOGITS for row in rows for key in exact)
    wrong |= any(row[key] > LOG_PROBABILITIES for row in rows for key in ["llamacpp_lora", "llamacpp_merged"])
    sys.exit(int(wrong))


if __name__ == "__main__":
    main()
