"""The diagonal recurrence (scan) and the causal convolution with any kernel: torch.fft and a loop beside ours."""

from harness import Entry
from tables import Section

BATCH, STATES = 32, 32
# In a run, so that the shortest take a few milliseconds.
CALLS = 5
LENGTHS = [512, 1024, 2048]


def entries(steps):
    sizes = {"comparison": "conv", "batch": BATCH, "steps": steps, "states": STATES, "calls": CALLS}

    def ours(name, group, **others):
        return Entry(name, sizes | others, group=group)

    def torch(name, group, way):
        return Entry(name, sizes | {"way": way}, "conv", group=group)

    return [
        ours("ours, scan, sequential", "scan", scan="sequential"),
        ours("ours, scan, chunked", "scan", scan="chunked"),
        ours("ours, scan, FFT", "scan", scan="fft"),
        torch("PyTorch, scan, FFT", "scan", "fft"),
        torch("PyTorch, scan, loop", "scan", "loop"),
        ours("ours, convolution", "convolution"),
        torch("PyTorch, convolution", "convolution", "convolution"),
    ]


def run(race, options):
    bandwidth = options.peaks()["copies"]
    for steps in LENGTHS:
        section = Section(
            f"Scan and causal convolution, B = {BATCH}, T = {steps}, {STATES} channels",
            "Gradients of input and poles (or kernel). The floor is the memory that a scan has to move (forward: input read, "
            "states written; backward: gradient and states read, input's gradient written) at "
            f"{bandwidth / 1e9:.1f} GB/s, the best large copy of this run. What fits the cache can be faster than that.",
        )
        section.add(race.run(options.chosen(entries(steps))))
        moved = 4 * BATCH * steps * STATES
        for m in section.measured:
            if m.entry.group == "scan":
                section.floors[m.entry.name, "forward"] = 2 * moved / bandwidth
                section.floors[m.entry.name, "forward and backward"] = 5 * moved / bandwidth
        own = next((m for m in section.measured if m.entry.name == "ours, scan, sequential"), None)
        if own:
            text, bar = (
                "scan, sequential: bytes moved / time, over the bandwidth of copies",
                0.5 if steps == 2048 else None,
            )
            section.figure(text, 2 * moved / own.median("forward") / bandwidth, bar)
        for measure in ("forward", "forward and backward"):
            section.ratio(
                f"convolution, {measure}: PyTorch / ours",
                ("PyTorch, convolution", measure),
                ("ours, convolution", measure),
                2 if steps == 2048 else None,
            )
            section.ratio(
                f"recurrence, {measure}: PyTorch's FFT / our scan",
                ("PyTorch, scan, FFT", measure),
                ("ours, scan, sequential", measure),
            )
        yield section
