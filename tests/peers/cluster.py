"""What several processes bring a training step on this machine, and what their exchange costs.

    cargo build --release --features mpi
    python tests/peers/cluster.py --program target/release/train -o docs/results/cluster.json

TinyGPT of 4 layers and width 128, 256 tokens, 4 micro-batches of 4 sequences; and 8.4 million trained values (width 416), 2
micro-batches of 2. Settings take turns, `--rounds` times; the first of the logged parts of a run is left out.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
from pathlib import Path

ADAPTERS = {"hrm": 'kind = "hrm"\nstate_dim = 32', "lora": 'kind = "lora"\nrank = 8', "full": 'kind = "full"'}
SETTINGS = [(1, 1), (1, 2), (2, 1)]


def config(adapter, large):
    width, batch, accumulation = (416, 2, 2) if large else (128, 4, 4)
    steps, every = (8, 2) if large else (24, 6)
    return f"""
name = "cluster"
[task]
kind = "dfa"
length = 256
train_sequences = 256
validation_sequences = 1
test_sequences = 1
[backbone]
kind = "tiny_gpt"
layers = 4
d_model = {width}
[train]
steps = {steps}
batch_size = {batch}
accumulation = {accumulation}
micro_batch_size = {batch}
log_every = {every}
eval_every = 1000
eval_sequences = 1
[[adapter]]
name = "{adapter}"
{ADAPTERS[adapter]}
"""


def run(program, text, processes, threads, single_copy=True):
    """The parts of a run between two lines of its log, without the first."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.toml").write_text(text)
        command = [str(program), "fit", "config.toml", "--out", "run"]
        environment = dict(os.environ, RAYON_NUM_THREADS=str(threads))
        if processes > 1:
            environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
            if not single_copy:
                environment["OMPI_MCA_btl_vader_single_copy_mechanism"] = "none"
            command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(processes), *command]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
    steps = [line for line in map(json.loads, lines) if line["event"] == "step"]
    return [
        {
            "seconds_per_step": (after["seconds"] - before["seconds"]) / (after["step"] - before["step"]),
            "exchange_seconds": (after.get("communication") or {}).get("seconds"),
            "waiting_seconds": (after.get("communication") or {}).get("waiting_seconds"),
            "bytes": (after.get("communication") or {}).get("bytes"),
        }
        for before, after in zip(steps, steps[1:])
    ]


def median(rows, key):
    return statistics.median(row[key] for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=Path("target/release/train"))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("-o", "--output", type=Path, help="where the figures are written; the part `simulated` is kept")
    args = parser.parse_args()
    program = args.program.resolve()

    scaling, large = [], []
    for number in range(args.rounds):
        for adapter in ("hrm", "lora"):
            for processes, threads in SETTINGS[:: 1 if number % 2 == 0 else -1]:
                where = {"adapter": adapter, "processes": processes, "threads": threads, "round": number}
                scaling += [where | part for part in run(program, config(adapter, False), processes, threads)]
        for single_copy in (True, False):
            parts = run(program, config("full", True), 2, 1, single_copy)
            large += [{"single_copy": single_copy, "round": number} | part for part in parts]

    for adapter in ("hrm", "lora"):
        for processes, threads in SETTINGS:
            rows = [r for r in scaling if (r["adapter"], r["processes"], r["threads"]) == (adapter, processes, threads)]
            line = f"{adapter:5} {processes} x {threads} threads: {median(rows, 'seconds_per_step'):.4f} s a step"
            if processes > 1:
                exchange = median(rows, "exchange_seconds")
                line += f", exchange {1e3 * exchange:.3f} ms ({exchange / median(rows, 'seconds_per_step'):.2%})"
            print(line)
    for single_copy in (True, False):
        rows = [row for row in large if row["single_copy"] == single_copy]
        exchange, step = median(rows, "exchange_seconds"), median(rows, "seconds_per_step")
        print(f"8.4 million values, single copy {single_copy}: {step:.3f} s a step, exchange {1e3 * exchange:.1f} ms ({exchange / step:.1%})")

    if args.output:
        figures = json.loads(args.output.read_text()) if args.output.is_file() else {}
        figures |= {
            "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
            "mpi": subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout.splitlines()[0],
            "load_after": os.getloadavg(),
            "scaling": {"what": __doc__.strip().splitlines()[5], "rows": scaling},
            "large": {"what": "two processes of one thread, 8.4 million values", "rows": large},
        }
        args.output.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
