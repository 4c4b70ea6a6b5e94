"""A training step of one Mistral block with its real sizes: transformers and PEFT beside ours with weights in 4 bits."""

import floors
from harness import Entry
from tables import Section

STEPS = 256
SIZES = {"steps": STEPS, "d_model": 4096, "d_ff": 14336, "heads": 32, "kv_heads": 8}
BF16 = (1e-2, 5e-2)


def entries():
    sizes = {"comparison": "mistral"} | SIZES

    def ours(name, precision, **others):
        return Entry(name, sizes | {"precision": precision}, group="mistral", **others)

    def torch(name, type, **others):
        return Entry(name, sizes | {"type": type}, "mistral", group="mistral", **others)

    return [
        ours("ours, nf4", "f32"),
        ours("ours, nf4, bf16", "bf16", tolerance=BF16),
        torch("transformers and PEFT, f32", "f32"),
        torch("transformers and PEFT, bf16", "bf16", tolerance=BF16),
    ]


def run(race, options):
    peak = options.peaks()["products"]
    section = Section(
        f"Training step of one Mistral block, T = {STEPS}",
        "Width 4096, 32 heads (8 for keys and values), 14336 inside the MLP; frozen weights, ours packed in 4 bits, those of "
        "transformers the same values dense; LoRA r = 16 on queries and values; forward, backward with the gradient of the "
        f"block's input, clipping, AdamW. The floor is the arithmetic at {peak / 1e9:.0f} GFLOP/s, the best product in f32 of "
        "this run (products in bf16 can be below it).",
    )
    section.add(race.run(options.chosen(entries())))
    for m in section.measured:
        section.floors[m.entry.name, "step"] = floors.mistral_block(**SIZES) / peak
    section.ratio("transformers in f32 / ours", "transformers and PEFT, f32", "ours, nf4", 1.2)
    section.ratio("transformers in f32 / ours, bf16", "transformers and PEFT, f32", "ours, nf4, bf16", 1.2)
    section.ratio("transformers in bf16 / ours", "transformers and PEFT, bf16", "ours, nf4")
    section.ratio("transformers in bf16 / ours, bf16", "transformers and PEFT, bf16", "ours, nf4, bf16", 1.1)
    yield section
