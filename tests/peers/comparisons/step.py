"""A training step of TinyGPT with a frozen backbone: PyTorch beside ours."""

import floors
from harness import Entry
from tables import Section

SHAPES = [(32, 512), (32, 1024), (8, 2048)]
BARS = {512: 2.2, 1024: 2.2, 2048: 1.8}
BF16_BARS = {512: 2.9, 1024: 2.8, 2048: 2.3}
# Tokens of a slice: about what `train fit` cuts these batches into.
SLICE = 4096
# In bf16 the products with frozen weights have 8 bits.
BF16 = (2e-3, 0.1)


def settings(adapter, batch, steps, **others):
    sizes = {"batch": batch, "steps": steps, "layers": 4, "d_model": 128, "heads": 4}
    return {"comparison": "step", "adapter": adapter, "precision": "f32"} | sizes | others


def entries(batch, steps):
    def ours(name, adapter, tolerance=(1e-4, 1e-3), **others):
        return Entry(name, settings(adapter, batch, steps, **others), group=adapter, tolerance=tolerance)

    def torch(name, adapter, **others):
        return Entry(name, settings(adapter, batch, steps, **others), "step", group=adapter)

    cut = {"slice": max(1, min(batch, SLICE // steps))}
    return [
        ours("ours, LoRA", "lora", **cut),
        ours("ours, LoRA, bf16", "lora", BF16, precision="bf16", **cut),
        torch("PyTorch, LoRA", "lora", attention="sdpa"),
        torch("PyTorch, LoRA, in slices", "lora", attention="sdpa", **cut),
        ours("ours, HRM", "hrm", **cut),
        ours("ours, HRM, sequential", "hrm", scan="sequential", **cut),
        ours("ours, HRM, FFT", "hrm", scan="fft", **cut),
        ours("ours, HRM, bf16", "hrm", BF16, precision="bf16", **cut),
        torch("PyTorch, HRM, FFT", "hrm", attention="sdpa"),
        torch("PyTorch, HRM, FFT, in slices", "hrm", attention="sdpa", **cut),
    ]


def slow_entries(batch, steps):
    """Ways that nobody in a hurry takes: attention written out, a loop over time."""
    eager = settings("lora", batch, steps, attention="eager")
    loop = settings("hrm", batch, steps, attention="sdpa", recurrence="loop")
    return [
        Entry("ours, LoRA", settings("lora", batch, steps), group="lora"),
        Entry("PyTorch, LoRA, eager attention", eager, "step", group="lora"),
        Entry("ours, HRM", settings("hrm", batch, steps), group="hrm"),
        Entry("PyTorch, HRM, loop", loop, "step", group="hrm"),
    ]


def run(race, options):
    peak = options.peaks()["products"]
    for batch, steps in options.shapes or SHAPES:
        section = Section(
            f"TinyGPT training step, B = {batch}, T = {steps}",
            "4 layers, width 128, 4 heads; LoRA r = 16 on queries and values, HRM with 32 states; frozen backbone; forward, "
            f"backward, clipping, AdamW. Ours in slices of {max(1, min(batch, SLICE // steps))} sequences. PyTorch with `scaled_dot_product_attention` and fused AdamW. The floor is the "
            f"arithmetic at {peak / 1e9:.0f} GFLOP/s, the best product in f32 of this run.",
        )
        section.add(race.run(options.chosen(entries(batch, steps))))
        for m in section.measured:
            floor = floors.tiny_gpt_step(m.entry.group, batch, steps) / peak
            section.floors[m.entry.name, "step"] = floor
        bar, in_bf16 = BARS.get(steps), BF16_BARS.get(steps)
        section.ratio("LoRA: PyTorch / ours", "PyTorch, LoRA", "ours, LoRA", bar)
        section.ratio("HRM: PyTorch / ours", "PyTorch, HRM, FFT", "ours, HRM", bar)
        section.ratio("LoRA: PyTorch in f32 / ours in bf16", "PyTorch, LoRA", "ours, LoRA, bf16", in_bf16)
        section.ratio("HRM: PyTorch in f32 / ours in bf16", "PyTorch, HRM, FFT", "ours, HRM, bf16", in_bf16)
        section.ratio("LoRA: PyTorch in slices / ours", "PyTorch, LoRA, in slices", "ours, LoRA")
        section.ratio("HRM: PyTorch in slices / ours", "PyTorch, HRM, FFT, in slices", "ours, HRM")
        section.ratio("ours: HRM / LoRA", "ours, HRM", "ours, LoRA", 0.92, at_most=True)
        section.ratio("ours: HRM sequential / LoRA", "ours, HRM, sequential", "ours, LoRA", 0.95, at_most=True)
        section.ratio("ours: HRM FFT / LoRA", "ours, HRM, FFT", "ours, LoRA", 0.95, at_most=True)
        memory = {m.entry.name: m.memory for m in section.measured}
        for name, own, other in [("LoRA", "ours, LoRA", "PyTorch, LoRA"), ("HRM", "ours, HRM", "PyTorch, HRM, FFT")]:
            if own in memory and other in memory:
                text = f"peak memory, {name}: ours / PyTorch"
                section.figure(text, memory[own] / memory[other], 0.15, at_most=True)
            if own in memory and f"{other}, in slices" in memory:
                section.figure(f"peak memory, {name}: ours / PyTorch in slices", memory[own] / memory[f"{other}, in slices"])
        yield section


def run_slow(race, options):
    for batch, steps in options.shapes or SHAPES:
        section = Section(f"TinyGPT training step beside slower ways, B = {batch}, T = {steps}")
        section.add(race.run(options.chosen(slow_entries(batch, steps))))
        section.ratio("LoRA: PyTorch eager / ours", "PyTorch, LoRA, eager attention", "ours, LoRA")
        section.ratio("HRM: PyTorch loop / ours", "PyTorch, HRM, loop", "ours, HRM")
        yield section
