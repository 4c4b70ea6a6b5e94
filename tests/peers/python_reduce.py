"""`hankel.reduce` beside `bt reduce` on dense systems, in turn: the bar is 1.2 times the time of `bt` at 200 states.

    python tests/peers/python_reduce.py --bt target/release/bt [--turns 9] [--json docs/results/performance/python-reduce.json]

Needs numpy and a release wheel of `hankel` (tools/python/release.sh). `bt` is a process that reads a file of three matrices,
reduces, certifies and writes; `hankel.reduce` is a call on arrays in a process that runs already, and gives the same certificate.
Wall and processor time; exit code 1 when the bar is missed, or the two do not agree.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import hankel
import numpy as np

BAR = 1.2


def system(states, ports, seed=0):
    """Gaussian entries, spectral radius 0.99."""
    random = np.random.default_rng(seed)
    a = random.normal(size=(states, states))
    a *= 0.99 / np.abs(np.linalg.eigvals(a)).max()
    return a, random.normal(size=(states, ports)), random.normal(size=(ports, states))


def timed(action, who):
    """Seconds on the clock and of the processors."""
    before, start = resource.getrusage(who), time.perf_counter()
    result = action()
    wall, after = time.perf_counter() - start, resource.getrusage(who)
    return result, {"wall": wall, "processor": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def turn(bt, folder, matrices, order, number):
    """One of each, the first of them first in every other turn."""
    out = folder / f"reduced-{number}.npz"

    def ours():
        command = [bt, "reduce", folder / "system.npz", "-o", out, "--order", str(order)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)

    pair = {}
    for who in ("bt", "hankel") if number % 2 else ("hankel", "bt"):
        if who == "bt":
            _, pair[who] = timed(ours, resource.RUSAGE_CHILDREN)
        else:
            reduction, pair[who] = timed(lambda: hankel.reduce(*matrices, order=order), resource.RUSAGE_SELF)
    certificate = json.loads(out.with_name(out.name + ".certificate.json").read_text())["layers"][0]
    error = reduction.certificate.hinf_error
    if abs(certificate["hinf_error"] - error) > 1e-6 * error:
        sys.exit(f"errors differ: bt {certificate['hinf_error']}, hankel {error}")
    return pair


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bt", type=Path, required=True)
    parser.add_argument("--states", type=int, default=200)
    parser.add_argument("--ports", type=int, default=10)
    parser.add_argument("--order", type=int, default=50)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    matrices = system(args.states, args.ports)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "system.npz", A=matrices[0], B=matrices[1], C=matrices[2])
        # The first turn starts threads and fills caches.
        turns = [turn(args.bt.resolve(), folder, matrices, args.order, number) for number in range(args.turns + 1)][1:]
    threads = int(os.environ.get("RAYON_NUM_THREADS", os.cpu_count()))
    sizes = {"states": args.states, "ports": args.ports, "order": args.order, "processors": os.cpu_count(), "threads": threads}
    figures = sizes | {"bar": BAR, "turns": turns}
    for what in ("wall", "processor"):
        medians = {who: statistics.median(pair[who][what] for pair in turns) for who in ("bt", "hankel")}
        ratio = statistics.median(pair["hankel"][what] / pair["bt"][what] for pair in turns)
        figures[what] = medians | {"ratio": ratio}
        print(f"{what}: bt {medians['bt'] * 1e3:.0f} ms, hankel.reduce {medians['hankel'] * 1e3:.0f} ms, ratio {ratio:.2f}")
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    sys.exit(figures["wall"]["ratio"] > BAR)


if __name__ == "__main__":
    main()
