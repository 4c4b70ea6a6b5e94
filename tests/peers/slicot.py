"""`bt reduce` of dense systems to 50 states with its certificate, beside SLICOT's AB09AD, which reduces alone.

    pip install numpy scipy slycot
    cargo build --release -p hankel-tools
    python tests/peers/slicot.py [--bt target/release/bt] [--threads 1] [--turns 5] [--json OUT]

Ten inputs and outputs; a random A with Gaussian entries and spectral radius 0.99, and a lightly damped chain of masses sampled at 0.05 s.
Both work in turn. Ours is the whole program: start, reading, Gramians, reduction, certificate, writing; AB09AD is the call in a process
that has the matrices already. Told are processor time and the clock, in seconds, medians with the smallest, and our peak memory. The reduced systems
are compared by the largest gain of their error on a grid. Exit code 1 when the bar, twice AB09AD's time, is missed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ORDER, CHANNELS, BAR = 50, 10, 2.0
PEER = """
import json, sys, time
import numpy as np
import slycot
f = np.load(sys.argv[1])
a, b, c = f["A"], f["B"], f["C"]
n, m, p = len(a), b.shape[1], c.shape[0]
# The first call loads what later ones have.
slycot.ab09ad("D", "B", "N", 2, 1, 1, np.diag([0.5, 0.1]), np.ones((2, 1)), np.ones((1, 2)), nr=1)
wall, cpu = time.perf_counter(), time.process_time()
nr, ar, br, cr, hsv = slycot.ab09ad("D", "B", "N", n, m, p, a, b, c, nr=int(sys.argv[2]))
times = [time.process_time() - cpu, time.perf_counter() - wall]
np.savez(sys.argv[3], A=ar[:nr, :nr], B=br[:nr, :m], C=cr[:p, :nr])
print(json.dumps(times))
"""


def random(d):
    import numpy as np

    g = np.random.default_rng(d)
    a = g.normal(size=(d, d))
    a *= 0.99 / np.abs(np.linalg.eigvals(a)).max()
    return a, g.normal(size=(d, CHANNELS)), g.normal(size=(CHANNELS, d))


def chain(d):
    import numpy as np
    import scipy.linalg

    n = d // 2
    k = 25 * (2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1))
    a = np.block([[np.zeros((n, n)), np.eye(n)], [-k, -0.004 * k]])
    b, c = np.zeros((d, CHANNELS)), np.zeros((CHANNELS, d))
    for channel, mass in enumerate(np.linspace(0, n - 1, CHANNELS).round().astype(int)):
        b[n + mass, channel] = c[channel, mass] = 1
    e = scipy.linalg.expm(0.05 * np.block([[a, b], [np.zeros((CHANNELS, d + CHANNELS))]]))
    return e[:d, :d], e[:d, d:], c


def error(full, reduced):
    """Largest gain of the difference on a grid."""
    import numpy as np

    g, r = np.load(full), np.load(reduced)
    a = r["A"] if r["A"].ndim == 2 else np.diag(r["A"])

    def at(a, b, c, z):
        return c @ np.linalg.solve(z * np.eye(len(a)) - a, b)

    grid = np.exp(1j * np.concatenate([np.geomspace(1e-4, 0.3, 25), np.linspace(0.3, np.pi, 25)]))
    return max(np.linalg.norm(at(g["A"], g["B"], g["C"], z) - at(a, r["B"], r["C"], z), 2) for z in grid)


def ours(bt, system, out, threads):
    """Processor seconds, seconds and peak bytes."""
    for old in (out, out.with_name(out.name + ".certificate.json")):
        old.unlink(missing_ok=True)
    environment = {**os.environ, "RAYON_NUM_THREADS": str(threads)}
    start = time.perf_counter()
    process = subprocess.Popen(
        [bt, "reduce", system, "-o", out, "--order", str(ORDER)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{bt} failed on {system}")
    return used.ru_utime + used.ru_stime, time.perf_counter() - start, used.ru_maxrss * 1024


def theirs(system, out, threads):
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-c", PEER, system, str(ORDER), out]
    return json.loads(subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bt", type=Path, default=ROOT / "target" / "release" / "bt")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[200, 500, 1000])
    parser.add_argument("--json", type=Path, help="write all figures")
    arguments = parser.parse_args()
    import numpy as np
    import slycot

    rows, missed = [], False
    print("| system | bt reduce: processor, clock | AB09AD | ratio of processor times, of clocks | peak memory |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for name, make in [("chain of masses", chain), ("random", random)]:
            for d in arguments.sizes:
                system, out, other = (Path(folder) / file for file in ("system.npz", "ours.npz", "theirs.npz"))
                a, b, c = make(d)
                np.savez(system, A=a, B=b, C=c)
                turns = [
                    {"ours": ours(arguments.bt, system, out, arguments.threads), "AB09AD": theirs(system, other, arguments.threads)}
                    for _ in range(arguments.turns)
                ]
                errors = [error(system, out), error(system, other)]
                if abs(errors[0] / errors[1] - 1) > 1e-3:
                    sys.exit(f"{name}, d = {d}: the errors are {errors}, so they do not do the same")
                median = {
                    side: [statistics.median(turn[side][i] for turn in turns) for i in (0, 1)] for side in ("ours", "AB09AD")
                }
                ratios = [median["ours"][i] / median["AB09AD"][i] for i in (0, 1)]
                missed |= ratios[0] > BAR
                peak = max(turn["ours"][2] for turn in turns)
                row = {"system": name, "d": d, "turns": turns, "medians": median, "ratios": ratios, "peak_bytes": peak, "errors": errors}
                rows.append(row)
                print(
                    f"| {name}, d = {d} | {median['ours'][0]:.3f}, {median['ours'][1]:.3f} | {median['AB09AD'][0]:.3f}, "
                    f"{median['AB09AD'][1]:.3f} | {ratios[0]:.2f}, {ratios[1]:.2f} | {peak / 2**20:.0f} MiB |",
                    flush=True,
                )
    if arguments.json:
        about = {"threads": arguments.threads, "bar": BAR, "slycot": slycot.__version__, "load": os.getloadavg()}
        arguments.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
