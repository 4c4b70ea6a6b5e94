"""What this machine reaches: a large product in f32 and a large copy, ours and PyTorch's, with the threads of the run."""

from harness import Entry
from tables import Section


def entries():
    settings = {"comparison": "peaks", "size": 2048, "megabytes": 256}
    return [Entry("ours", settings, group="peaks"), Entry("PyTorch", settings, "peaks", group="peaks")]


def measure(race):
    """Operations per second of the best product, bytes per second (read and written) of the best copy."""
    measured = race.run(entries(), rounds=9, warm_up=1)
    found = rates(measured).values()
    return {"products": max(rate for rate, _ in found), "copies": max(rate for _, rate in found)}


def rates(measured):
    """Of each program its best."""
    settings = measured[0].entry.settings
    operations, moved = 2 * settings["size"] ** 3, 2e6 * settings["megabytes"]
    return {m.entry.name: (operations / min(m.seconds["product"]), moved / min(m.seconds["copy"])) for m in measured}


def run(race, options):
    section = Section("What this machine reaches", "A product of 2048 x 2048 in f32; a copy of 256 MB.")
    section.add(race.run(entries()))
    found = rates(section.measured)
    for name, (products, copies) in found.items():
        section.figure(f"{name}: product", products / 1e9, unit=" GFLOP/s")
        section.figure(f"{name}: copy, bytes read and written", copies / 1e9, unit=" GB/s")
    yield section
