"""Compares this library with others: `python run.py all`, or the names of comparisons. README.md says more."""

import argparse
import functools
import importlib.metadata
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from comparisons import conv, load, mistral, nf4, peaks, reduce, smollm2, step, threads
from harness import FOLDER, Difference, Race, machine, say
from tables import size

COMPARISONS = {
    "step": step.run,
    "step-slow": step.run_slow,
    "conv": conv.run,
    "nf4": nf4.run,
    "mistral": mistral.run,
    "reduce": reduce.run,
    "smollm2": smollm2.run,
    "load": load.run,
    "threads": threads.run,
    "peaks": peaks.run,
}
LIBRARIES = ["torch", "numpy", "scipy", "pymor", "transformers", "peft", "bitsandbytes"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "comparisons",
        nargs="+",
        choices=[*COMPARISONS, "all"],
        metavar="COMPARISON",
        help=f"{', '.join(COMPARISONS)}, or all",
    )
    parser.add_argument("--threads", type=int, default=2, help="threads of every program (2)")
    parser.add_argument("--rounds", type=int, default=7, help="measured runs of every program (7)")
    parser.add_argument("--warm-up", type=int, default=2, help="runs of every program before those (2)")
    parser.add_argument("--only", metavar="WORD", help="only programs with this word in their name")
    parser.add_argument("--shapes", type=shape, nargs="+", metavar="BxT", help="for steps: batch x length, 32x512 say")
    parser.add_argument("--program", type=Path, help="our program; built by cargo when not given")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured to FILE, too")
    parser.add_argument("--gguf", type=Path, metavar="FILE", help="the model of smollm2")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="where temporary files go")
    return parser.parse_args()


def shape(text):
    batch, steps = text.lower().split("x")
    return int(batch), int(steps)


def build():
    root = FOLDER.parent.parent
    command = ["cargo", "build", "--release", "-p", "hankel-peers", "--message-format", "json-render-diagnostics"]
    lines = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    built = [json.loads(line) for line in lines]
    return next(Path(m["executable"]) for m in built if m.get("executable") and m["target"]["name"] == "hankel-peers")


def versions():
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def head(facts):
    libraries = ", ".join(f"{name} {version}" for name, version in facts["libraries"].items())
    return (
        f"{facts['processor']}, {facts['cores']} cores, {size(facts['memory'])}; {facts['system']}; {facts['time']}, load "
        f"{facts['load']:.1f} at the beginning. {facts['threads']} threads each. Python {facts['python']}, {libraries}.\n\n"
        f"    {facts['command']}\n"
    )


def main():
    options = arguments()
    options.program = options.program or build()
    facts = machine() | {"threads": options.threads, "libraries": versions()}
    facts["command"] = "python tests/peers/run.py " + shlex.join(sys.argv[1:])
    names = list(COMPARISONS) if "all" in options.comparisons else options.comparisons
    print(head(facts), flush=True)
    written, failed = [], False
    with tempfile.TemporaryDirectory(prefix="peers-", dir=options.scratch) as folder:
        race = Race(options, folder)
        options.chosen = lambda entries: [e for e in entries if not options.only or options.only in e.name]
        options.peaks = functools.cache(lambda: peaks.measure(race))
        for name in names:
            say(f"{name}:")
            try:
                for section in COMPARISONS[name](race, options):
                    print(section.markdown() + "\n", flush=True)
                    written.append({"comparison": name} | section.json())
                    if options.json:
                        options.json.write_text(json.dumps({"machine": facts, "sections": written}, indent=1) + "\n")
            except (Difference, RuntimeError) as error:
                failed = True
                print(f"### {name}\n\nfailed: {error}\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
