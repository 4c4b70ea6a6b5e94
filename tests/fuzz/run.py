"""Runs every fuzz target for a while, one after the other, and writes down how many inputs each had, also in docs/reliability.md.

    cargo install cargo-fuzz
    python tests/fuzz/run.py 3600                  # an hour each
    python tests/fuzz/run.py 60 gguf chat_template
    python tests/fuzz/run.py 3600 --jobs 8         # eight at once

Needs a stable toolchain and a C++ compiler. New inputs that reach new code go to `tests/fuzz/work`, inputs that are found guilty to
`tests/fuzz/artifacts`: mend what they show, and put the input into `corpus/TARGET`, where `cargo test` reads it from then on. The exit
code is 1 with any finding.
"""

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULT = HERE.parents[1] / "docs/results/reliability/fuzz.json"
PAGE = HERE.parents[1] / "docs/reliability.md"
# An input is guilty when it takes longer, or more memory.
SECONDS, MEGABYTES = 10, 2048


def fuzz(target, seconds, limit):
    """Runs a target, with a limit in seconds for an input; what is written down of it."""
    work, found = HERE / "work" / target, HERE / "artifacts" / target
    work.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(found, ignore_errors=True)
    found.mkdir(parents=True)
    command = ["cargo", "fuzz", "run", "--fuzz-dir", HERE, "--sanitizer", "none", target, work, HERE / "corpus" / target, "--",
               f"-max_total_time={seconds}", f"-timeout={limit}", f"-rss_limit_mb={MEGABYTES}", "-print_final_stats=1", "-max_len=32768"]
    begun = time.time()
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        child = subprocess.Popen([str(part) for part in command], cwd=HERE, stdout=log, stderr=log)
        # Of this child, where several run.
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        said = log.read()
    stats = dict(re.findall(r"stat::(\w+):\s+(\d+)", said))
    coverage = re.findall(r"cov: (\d+)", said)
    guilty = sorted(path.name for path in found.iterdir())
    if child.returncode and not guilty:
        raise RuntimeError(f"{target}: {said[-3000:]}")
    for name in guilty:
        print(f"FINDING {target}: {found / name}\n{said[-1500:]}", flush=True)
    return {
        "target": target,
        "seconds": round(time.time() - begun),
        "processor_seconds": round(used.ru_utime + used.ru_stime),
        "inputs": int(stats.get("number_of_executed_units", 0)),
        "coverage": int(coverage[-1]) if coverage else 0,
        "findings": guilty,
    }


def table(results, targets):
    """Minutes and inputs of all runs of every target, as docs/reliability.md has them."""
    lines = ["| target | minutes | inputs | findings |", "| --- | ---: | ---: | ---: |"]
    for target in targets:
        runs = [run for run in results if run["target"] == target]
        minutes = math.floor(sum(run["seconds"] for run in runs) / 60 + 0.5)
        inputs, findings = sum(run["inputs"] for run in runs), sum(len(run["findings"]) for run in runs)
        lines.append(f"| `{target}` | {minutes} | {inputs:,} | {findings} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=int, help="for each target")
    parser.add_argument("targets", nargs="*", help="all of them when left out")
    parser.add_argument("--jobs", type=int, default=1, help="targets at once")
    parser.add_argument("--output", type=Path, default=RESULT, help="list to which the result of each target is added")
    arguments = parser.parse_intermixed_args()
    every = sorted(path.stem for path in (HERE / "fuzz_targets").glob("*.rs"))
    unknown = set(arguments.targets) - set(every)
    if unknown:
        parser.error(f"no such targets: {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=HERE, capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run(["cargo", "fuzz", "build", "--fuzz-dir", HERE, "--sanitizer", "none"], cwd=HERE, check=True)
    # Where targets share processors, an input has as much longer.
    limit = SECONDS * max(1, math.ceil(arguments.jobs / (os.cpu_count() or 1)))
    writing = threading.Lock()

    def record(target):
        result = {**fuzz(target, arguments.seconds, limit), "commit": commit}
        print(json.dumps(result), flush=True)
        with writing:
            results = json.loads(arguments.output.read_text()) if arguments.output.exists() else []
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            results.append(result)
            arguments.output.write_text(json.dumps(results, indent=1) + "\n")
            if arguments.output.resolve() == RESULT:
                parts = re.split(r"(?<=<!-- fuzz -->\n).*(?=\n<!-- /fuzz -->)", PAGE.read_text(), flags=re.DOTALL)
                PAGE.write_text(table(results, every).join(parts))
        return result["findings"]

    with ThreadPoolExecutor(arguments.jobs) as pool:
        findings = [found for found in pool.map(record, arguments.targets or every) if found]
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
