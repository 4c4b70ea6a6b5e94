"""Balanced truncation of a Mistral-size adapter: scipy and pyMOR beside ours."""

import importlib.util

from harness import Entry
from tables import Section

SIZES = {"comparison": "reduce", "layers": 32, "states": 32, "width": 4096, "order": 8}


def entries():
    def other(name, way):
        return Entry(name, SIZES | {"way": way}, "reduce", group="reduce", tolerance=(1e-8, 1e-8))

    all = [
        Entry("ours", SIZES, group="reduce", tolerance=(1e-8, 1e-8)),
        other("scipy, solve_discrete_lyapunov", "lyapunov"),
        other("numpy, diagonal by division", "division"),
    ]
    if importlib.util.find_spec("pymor"):
        all.append(other("pyMOR, BTReductor", "pymor"))
    return all


def run(race, options):
    section = Section(
        "Balanced truncation of an adapter: 32 layers of 32 states, width 4096, to 8 states",
        "Gramians, Hankel singular values, reduced systems, in f64. scipy and numpy by the square-root method with Cholesky "
        "factors.",
    )
    section.add(race.run(options.chosen(entries())))
    for name, bar in [
        ("scipy, solve_discrete_lyapunov", 5),
        ("numpy, diagonal by division", None),
        ("pyMOR, BTReductor", None),
    ]:
        section.ratio(f"{name} / ours", (name, "reduce"), ("ours", "reduce"), bar)
    yield section
