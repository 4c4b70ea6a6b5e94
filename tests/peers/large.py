"""A random Mistral-7B in 4 bits on this machine: quantising it, a step of an HRM and of LoRA, and the memory of both.

    cargo build --release
    python tests/peers/large.py --program target/release/train --text enwik8 --folder /tmp -o docs/results/performance/large-models.json

Writes 19 GB to the folder, where they stay for a next time. `--text` is any file of 100 KB.
"""

import argparse
import json
import os
import resource
import subprocess
import time
from pathlib import Path

EXPERIMENTS = Path(__file__).resolve().parents[2] / "train/experiments"
ADAPTERS = ["hrm", "lora"]


def measured(*command):
    """Wall and processor seconds of a command."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    subprocess.run([str(part) for part in command], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = sum(getattr(after, key) - getattr(before, key) for key in ("ru_utime", "ru_stime"))
    return {"seconds": time.time() - begun, "processor_seconds": processor}


class Scale:
    """Runs of train/experiments/scale.toml on the model in 4 bits."""

    def __init__(self, program, model, text):
        self.fit = [program, "fit", EXPERIMENTS / "scale.toml", "--set", f"backbone.model={model}", "--set", f"task.path={text}"]

    def estimate(self, length):
        """Bytes that `--dry-run` says each adapter takes."""
        command = [*self.fit, "--dry-run", "--json", "--set", f"task.length={length}"]
        plan = json.loads(subprocess.run([str(part) for part in command], check=True, capture_output=True).stdout)
        return {stage["name"]: stage["memory_bytes"] for stage in plan["stages"]}

    def run(self, out, adapter, length, precision, steps):
        """Seconds of a step, and the peak of the memory that is not mapped from files."""
        settings = {"task.length": length, "precision": precision, "train.steps": steps}
        command = [*self.fit, "--only", adapter, "--out", out]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        subprocess.run([str(part) for part in command], check=True)
        events = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        seconds = [event["seconds"] for event in events if event["event"] == "step"]
        result = json.loads((out / "result.json").read_text())
        row = {"adapter": adapter, "length": length, "precision": precision}
        return row | {"step_seconds": seconds[-1] / steps, "own_bytes": result["peak_anonymous_bytes"]}, result["environment"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    program, folder = arguments.program.resolve(), arguments.folder.resolve()
    model, packed = folder / "random-7b", folder / "random-7b-nf4"
    if not model.exists():
        subprocess.run([str(program), "init-model", str(EXPERIMENTS / "mistral-7b.json"), "-o", str(model)], check=True)
    times = []
    while len(times) < 3:
        target = packed if not packed.exists() else folder / f"random-7b-nf4-{os.getpid()}-{len(times)}"
        times.append(measured(program, "quantize", model, "-o", target))
        if target != packed:
            subprocess.run(["rm", "-r", str(target)], check=True)
    scale = Scale(program, packed, arguments.text.resolve())
    result = {"quantize": times, "estimates": {str(length): scale.estimate(length) for length in (512, 4096)}, "steps": []}
    runs = [(256, "f32", 2), (256, "bf16", 2), (512, "f32", 1)]
    for length, precision, steps in runs:
        for adapter in ADAPTERS:
            out = folder / f"run-{os.getpid()}-{adapter}-{length}-{precision}"
            step, result["environment"] = scale.run(out, adapter, length, precision, steps)
            result["steps"].append(step)
            arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
