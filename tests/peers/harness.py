"""Programs that work in turn: each in a process of its own, stopped while another one works."""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

FOLDER = Path(__file__).resolve().parent
# Share of a turn's processor time that programs which should sleep may use.
IDLE = 0.02


class Difference(Exception):
    """Two sides do not compute the same."""


@dataclass
class Entry:
    """A program in a comparison."""

    name: str
    settings: dict
    # "hankel" for ours, otherwise the module in `sides` that runs the other library.
    side: str = "hankel"
    # Entries of one group compute the same; those of other libraries are compared with the first of ours.
    group: str = ""
    # Largest relative difference of the loss, and of any other result.
    tolerance: tuple = (1e-4, 1e-3)
    threads: int | None = None


@dataclass
class Measured:
    """What is known of a program in the end."""

    entry: Entry
    seconds: dict = field(default_factory=dict)
    values: dict = field(default_factory=dict)
    cpu: list = field(default_factory=list)
    # Processor time of programs that are none of the comparison's, meanwhile, and how long that was.
    foreign: tuple = (0.0, 0.0)
    memory: int = 0
    memory_before: int = 0
    differences: dict = field(default_factory=dict)
    versions: dict = field(default_factory=dict)

    def median(self, name=None):
        name = name or next(iter(self.seconds))
        return statistics.median(self.seconds[name])


class Process:
    """A running program that answers one request at a time."""

    def __init__(self, entry, program, threads):
        self.entry = entry
        threads = str(entry.threads or threads)
        names = ["RAYON_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"]
        environment = os.environ | dict.fromkeys(names, threads) | {"PEERS_THREADS": threads}
        other = [sys.executable, str(FOLDER / "side.py"), entry.side]
        command = [str(program)] if entry.side == "hankel" else other
        # A session of its own: an interrupt reaches this script, which then ends its programs.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            start_new_session=True,
        )
        self.system = psutil.Process(self.process.pid)
        self.is_stopped = False

    def ask(self, **request):
        self.signal(False)
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"{self.entry.name} ended without an answer to {request['command']!r}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.entry.name}: {answer['error']}")
        self.signal(True)
        return answer

    def signal(self, stop):
        if stop != self.is_stopped:
            self.process.send_signal(signal.SIGSTOP if stop else signal.SIGCONT)
            self.is_stopped = stop

    def cpu(self):
        """Seconds of processor time so far."""
        times = self.system.cpu_times()
        return times.user + times.system

    def memory(self):
        """Peak resident memory in bytes so far."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return self.system.memory_info().rss
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024

    def forget_memory(self):
        """From here on the peak is that of what follows; where the system cannot do that, it is that of everything."""
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def end(self):
        self.signal(False)
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def say(text):
    print(text, file=sys.stderr, flush=True)


class Race:
    """Runs entries in turn."""

    def __init__(self, options, folder):
        self.options = options
        self.folder = Path(folder)

    def run(self, entries, rounds=None, warm_up=None):
        """Compares results, then measures. Returns a `Measured` for each entry."""
        rounds = rounds or self.options.rounds
        warm_up = self.options.warm_up if warm_up is None else warm_up
        processes = []
        try:
            for entry in entries:
                processes.append(Process(entry, self.options.program, self.options.threads))
            return self._run(processes, rounds, warm_up)
        finally:
            for process in processes:
                process.end()
            for file in self.folder.glob("*.safetensors"):
                file.unlink()

    def _run(self, processes, rounds, warm_up):
        measured = [Measured(process.entry) for process in processes]
        for process, result in zip(processes, measured, strict=True):
            if process.entry.side != "hankel":
                answer = process.ask(command="begin")
                result.versions = answer["versions"]
            result.memory_before = process.memory()
        self._prepare(processes)
        self._compare(processes, measured)
        trails = []
        for process in processes:
            # What preparing and comparing took is not what a step takes.
            process.forget_memory()
            trails.append([process.ask(command="run")["values"] for _ in range(warm_up)])
        check_values(processes, trails)
        before, begun = foreign_time(processes), time.monotonic()
        for number in range(rounds):
            # Every other round in the opposite order: whatever follows from the order cancels.
            order = list(zip(processes, measured, strict=True))
            for process, result in order if number % 2 == 0 else reversed(order):
                self._turn(process, result, processes)
        for process, result in zip(processes, measured, strict=True):
            result.memory = process.memory()
            result.foreign = foreign_time(processes) - before, time.monotonic() - begun
        return measured

    def _prepare(self, processes):
        """Ours write what the others of their group compute from."""
        written = {}
        for process in processes:
            entry = process.entry
            if entry.side != "hankel":
                continue
            say(f"  {entry.name}: preparing")
            process.ask(command="prepare", settings=entry.settings)
            if entry.group not in written and any(
                other.entry.group == entry.group and other.entry.side != "hankel" for other in processes
            ):
                path = self.folder / f"inputs-{len(written)}.safetensors"
                process.ask(command="inputs", path=str(path))
                written[entry.group] = path
        for process in processes:
            entry = process.entry
            if entry.side != "hankel":
                say(f"  {entry.name}: preparing")
                path = written.get(entry.group)
                process.ask(command="prepare", settings=entry.settings, inputs=path and str(path))
        for path in written.values():
            path.unlink()

    def _compare(self, processes, measured):
        """Each of ours writes its results, which the others of its group compare with their own."""
        for process, result in zip(processes, measured, strict=True):
            entry = process.entry
            if entry.side != "hankel":
                continue
            others = [p for p in processes if p.entry.group == entry.group and p.entry.side != "hankel"]
            if not others:
                continue
            path = self.folder / "outputs.safetensors"
            process.ask(command="outputs", path=str(path))
            for other in others:
                found = other.ask(command="compare", outputs=str(path))["differences"]
                result.differences[other.entry.name] = found
                for name, difference in found.items():
                    # What is computed in fewer bits on either side may differ by that much.
                    limits = [max(pair) for pair in zip(entry.tolerance, other.entry.tolerance, strict=True)]
                    limit = limits[0] if name == "loss" else limits[1]
                    if not difference <= limit:
                        raise Difference(
                            f"{name} of {entry.name} and {other.entry.name} differ by {difference:.2e}, more than "
                            f"{limit:.0e}: this is not the same work, so it is not timed"
                        )
                worst = max(found.items(), key=lambda item: item[1])
                say(f"  {entry.name} = {other.entry.name}, at most {worst[1]:.1e} apart ({worst[0]})")
            path.unlink()

    def _turn(self, process, result, processes):
        before = [other.cpu() for other in processes]
        answer = process.ask(command="run")
        used = [other.cpu() - earlier for other, earlier in zip(processes, before, strict=True)]
        own = used[processes.index(process)]
        idle = sum(used) - own
        if idle > max(IDLE * own, 0.05):
            say(f"  while {process.entry.name} worked, the others used {idle:.2f} s of processor time")
        result.cpu.append(own)
        for name, seconds in answer["seconds"].items():
            result.seconds.setdefault(name, []).append(seconds)
        for name, value in answer["values"].items():
            result.values.setdefault(name, []).append(value)


def check_values(processes, trails):
    """What runs find, a loss after each step, must agree as well, within a group."""
    for process, trail in zip(processes, trails, strict=True):
        entry = process.entry
        if entry.side == "hankel":
            continue
        for other, reference in zip(processes, trails, strict=True):
            if other.entry.side != "hankel" or other.entry.group != entry.group:
                continue
            limit = max(entry.tolerance[0], other.entry.tolerance[0])
            for step, (own, ours) in enumerate(zip(trail, reference, strict=True), 1):
                if "loss" in own and abs(own["loss"] - ours["loss"]) > limit * abs(ours["loss"]):
                    raise Difference(
                        f"after {step} steps the loss of {entry.name} is {own['loss']}, that of {other.entry.name} "
                        f"{ours['loss']}: this is not the same work, so it is not timed"
                    )


def foreign_time(processes):
    """Processor time so far of all programs on the machine but these and this one."""
    all, own = psutil.cpu_times(), psutil.Process().cpu_times()
    return all.user + all.nice + all.system - own.user - own.system - sum(process.cpu() for process in processes)


def machine():
    """Facts about this machine, for the head of a table."""
    name = ""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return {
        "processor": name or os.uname().machine,
        "cores": psutil.cpu_count(),
        "memory": psutil.virtual_memory().total,
        "system": f"{os.uname().sysname} {os.uname().release}",
        "load": os.getloadavg()[0],
        "time": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "python": sys.version.split()[0],
    }
