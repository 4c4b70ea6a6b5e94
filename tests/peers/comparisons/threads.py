"""What a second thread brings a training step, beside what it brings a large product. Ours only."""

import dataclasses

from comparisons import peaks, step
from harness import Entry
from tables import Section

NAMES = {1: "one thread", 2: "two threads"}


def run(race, options):
    product = peaks.entries()[0].settings | {"megabytes": 64}
    base = [Entry("product", product)]
    for batch, steps in options.shapes or [(32, 512), (32, 1024)]:
        for adapter in ("lora", "hrm"):
            base.append(Entry(f"{adapter}, B = {batch}, T = {steps}", step.settings(adapter, batch, steps)))
    entries = [
        dataclasses.replace(entry, name=f"{entry.name}, {NAMES[threads]}", group=entry.name, threads=threads)
        for entry in base
        for threads in NAMES
    ]
    section = Section("One thread and two", "A product of 2048 x 2048 in f32, and training steps of TinyGPT.")
    section.add(race.run(entries))
    by_name = {m.entry.name: m for m in section.measured}

    def gain(name, measure):
        return by_name[f"{name}, {NAMES[1]}"].median(measure) / by_name[f"{name}, {NAMES[2]}"].median(measure)

    reference = gain("product", "product")
    section.figure("speed-up of the product", reference)
    for entry in base[1:]:
        section.figure(f"speed-up of {entry.name} / that of the product", gain(entry.name, "step") / reference, 0.95)
    yield section
