"""Prompts and generation of a GGUF file beside llama.cpp, one thread each, in processor time.

    python tests/peers/llamacpp/speed.py --node judge --model FILE.gguf [--train target/release/train] [--turns 5] [--json OUT]
    python tests/peers/llamacpp/speed.py --memory --model FILE.gguf       the peak of memory alone, without llama.cpp

`judge` is the folder that judge.py describes. Both work in turn. Processor time, not the clock, so that a busy machine matters
less; ours is the difference between two runs of `train generate`, so that loading does not count. Exit code 1 when a bar is missed.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
GENERATED, PROMPT = 64, 512
# llama.cpp's time over ours, at least; peak memory over the size of the file, at most.
BARS = {"generation": 0.9, "prompt": 0.7, "memory": 1.3}
# Words that are one token each.
WORDS = " the time of year when people in a small town near the river begin to talk about what they have seen".split()


def ours(train, model, prompt, tokens):
    """Processor seconds and peak bytes."""
    command = [train, "generate", "--model", model, "--temperature", "0", "--prompt", prompt, "--max-tokens", str(tokens)]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env={**os.environ, "RAYON_NUM_THREADS": "1"})
        _, status, used = os.wait4(process.pid, 0)
        if status:
            errors.seek(0)
            sys.exit(errors.read().decode())
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def memory(args):
    """The peak of generating; whether it misses the bar."""
    size = args.model.stat().st_size
    peaks = [ours(args.train, str(args.model.resolve()), "The", 1 + GENERATED)[1] for _ in range(args.turns)]
    share = statistics.median(peaks) / size
    figures = {"model": args.model.name, "file_bytes": size, "peak_bytes": peaks, "of_the_file": share}
    figures["bar"] = BARS["memory"]
    print(f"memory: {share:.2f} of the file, bar {BARS['memory']}{'' if share <= BARS['memory'] else ' (missed)'}")
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    return share > BARS["memory"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--node", type=Path)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--train", default="target/release/train")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.memory:
        sys.exit(memory(args))
    if args.node is None:
        parser.error("--node or --memory is needed")
    (args.node / "speed.mjs").write_text((HERE / "speed.mjs").read_text())
    model = str(args.model.resolve())
    chosen = random.Random(1)
    prompt = " ".join(chosen.choice(WORDS) for _ in range(PROMPT))
    turns = []
    for _ in range(args.turns):
        done = subprocess.run(["node", "speed.mjs", model], cwd=args.node, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        theirs = json.loads(done.stdout)
        one, _ = ours(args.train, model, "The", 1)
        many, peak = ours(args.train, model, "The", 1 + GENERATED)
        read, _ = ours(args.train, model, prompt, 1)
        mine = {"generation": (many - one) / GENERATED * 1e3, "prompt": (read - one) / (PROMPT - 1) * 1e3}
        turns.append({"ours": mine, "llama.cpp": theirs, "peak_bytes": peak})
        print(json.dumps(turns[-1]), flush=True)
    figures = {"model": args.model.name, "file_bytes": args.model.stat().st_size, "turns": turns, "bars": {}}
    missed = False
    for what in ("generation", "prompt"):
        ratio = statistics.median(turn["llama.cpp"][what] / turn["ours"][what] for turn in turns)
        medians = [statistics.median(turn[who][what] for turn in turns) for who in ("ours", "llama.cpp")]
        met = ratio >= BARS[what]
        missed |= not met
        figures["bars"][what] = {"ours_ms": medians[0], "llama.cpp_ms": medians[1], "ratio": ratio, "bar": BARS[what]}
        print(f"{what}: ours {medians[0]:.2f}, llama.cpp {medians[1]:.2f} CPU-ms a token: {ratio:.2f}, bar {BARS[what]}{'' if met else ' (missed)'}")
    share = statistics.median(turn["peak_bytes"] for turn in turns) / figures["file_bytes"]
    missed |= share > BARS["memory"]
    figures["bars"]["memory"] = {"of_the_file": share, "bar": BARS["memory"]}
    print(f"memory: {share:.2f} of the file, bar {BARS['memory']}{'' if share <= BARS['memory'] else ' (missed)'}")
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    sys.exit(missed)


if __name__ == "__main__":
    main()
