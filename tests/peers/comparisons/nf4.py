"""A linear layer of Mistral-7B with its weight in 4 bits, beside dense products and bitsandbytes."""

import importlib.util

from harness import Entry
from tables import Section

INPUTS, OUTPUTS, ROWS = 4096, 14336, 256
# What is rounded to 8 bits differs by as much.
BF16 = (1e-2, 2e-2)
# Decoded values of ours are rounded to bf16, which shows once they are packed anew.
PACKED = (1e-2, 5e-3)


def entries():
    sizes = {"comparison": "nf4", "inputs": INPUTS, "outputs": OUTPUTS, "rows": ROWS}

    def ours(name, precision, dense, **others):
        return Entry(name, sizes | {"precision": precision, "dense": dense}, group="nf4", **others)

    def torch(name, way, type, **others):
        return Entry(name, sizes | {"way": way, "type": type}, "nf4", group="nf4", **others)

    all = [
        ours("ours, nf4", "f32", False),
        ours("ours, nf4, bf16", "bf16", False, tolerance=BF16),
        ours("ours, dense f32", "f32", True),
        torch("PyTorch, dense f32", "dense", "f32"),
        torch("PyTorch, dense bf16", "dense", "bf16", tolerance=BF16),
    ]
    if importlib.util.find_spec("bitsandbytes"):
        all.append(torch("bitsandbytes, nf4, f32", "bitsandbytes", "f32", tolerance=PACKED))
        all.append(torch("bitsandbytes, nf4, bf16", "bitsandbytes", "bf16", tolerance=BF16))
    return all


def run(race, options):
    peak = options.peaks()["products"]
    section = Section(
        f"Linear layer {INPUTS} -> {OUTPUTS} with a frozen weight, {ROWS} tokens",
        f"The floor is the arithmetic at {peak / 1e9:.0f} GFLOP/s, the best product in f32 of this run (products in bf16 can "
        "be below it).",
    )
    section.add(race.run(options.chosen(entries())))
    for m in section.measured:
        for measure in m.seconds:
            section.floors[m.entry.name, measure] = 2 * INPUTS * OUTPUTS * ROWS / peak
    for measure in ("forward", "input gradient"):
        ours = ("ours, nf4", measure)
        section.ratio(f"{measure}: our dense f32 product / nf4", ("ours, dense f32", measure), ours, 0.8)
        section.ratio(f"{measure}: PyTorch's dense f32 product / nf4", ("PyTorch, dense f32", measure), ours)
        section.ratio(
            f"{measure}: our dense f32 product / nf4, bf16", ("ours, dense f32", measure), (ours[0] + ", bf16", measure), 1.9
        )
        for type in ("f32", "bf16"):
            section.ratio(
                f"{measure}: bitsandbytes {type} / nf4" + ", bf16" * (type == "bf16"),
                (f"bitsandbytes, nf4, {type}", measure),
                (ours[0] + ", bf16" * (type == "bf16"), measure),
            )
    yield section
