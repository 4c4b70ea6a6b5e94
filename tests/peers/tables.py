"""Tables in Markdown, and the same as JSON."""

import statistics
from pathlib import Path

import psutil

# Share of the processors that other programs may have.
QUIET = 0.05


def seconds(value):
    return f"{value:.3f}" if value >= 0.1 else f"{value * 1e3:.2f} ms" if value >= 1e-4 else f"{value * 1e6:.1f} us"


def size(bytes):
    return f"{bytes / 1e9:.2f} GB" if bytes >= 1e9 else f"{bytes / 1e6:.0f} MB"


def markdown(rows):
    head, *rows = rows
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def first_of_ours(measured, group):
    return next((m for m in measured if m.entry.group == group and m.entry.side == "hankel"), None)


def shown(settings):
    """Settings without the place of the model's file, which is this machine's."""
    return settings | ({"model": Path(settings["model"]).name} if "model" in settings else {})


class Section:
    """One comparison's tables and figures."""

    def __init__(self, title, note=""):
        self.title, self.note = title, note
        self.measured = []
        self.floors = {}
        self.figures = []

    def add(self, measured, floors=None):
        """`floors`: by (name of the entry, name of the measure), the seconds that arithmetic or memory alone would take."""
        self.measured += measured
        self.floors |= floors or {}

    def figure(self, text, value, bar=None, at_most=False, unit=""):
        """A number of its own, with what it should be at least (or at most)."""
        self.figures.append({"text": text, "value": value, "bar": bar, "at_most": at_most, "unit": unit})

    def ratio(self, text, numerator, denominator, bar=None, at_most=False):
        """A ratio of medians; each is an entry's name, or that and a measure's."""
        values = []
        for key in (numerator, denominator):
            name, measure = key if isinstance(key, tuple) else (key, None)
            found = next((m for m in self.measured if m.entry.name == name), None)
            if found is None:
                return
            values.append(found.median(measure))
        self.figure(text, values[0] / values[1], bar, at_most)

    def markdown(self):
        parts = [f"### {self.title}"] + ([self.note] if self.note else [])
        parts += [self.table(name) for name in dict.fromkeys(n for m in self.measured for n in m.seconds)]
        if self.figures:
            rows = [("", "measured", "bar", "")]
            for figure in self.figures:
                value, bar = figure["value"], figure["bar"]
                sign = "<=" if figure["at_most"] else ">="
                verdict = "" if bar is None else "met" if met(figure) else "MISSED"
                shown = f"{value:.3g}{figure['unit']}"
                rows.append((figure["text"], shown, "" if bar is None else f"{sign} {bar:g}", verdict))
            parts.append(markdown(rows))
        share = self.foreign()
        parts.append(
            f"Other programs had {share:.1%} of the processors meanwhile."
            + " **The machine was not quiet: measure again.**" * (share > QUIET)
        )
        return "\n\n".join(parts)

    def foreign(self):
        """The share of the processors that other programs had."""
        elapsed = sum(m.foreign[1] for m in self.measured)
        return max(sum(m.foreign[0] for m in self.measured) / (elapsed * psutil.cpu_count()), 0.0) if elapsed else 0.0

    def table(self, name):
        measured = [m for m in self.measured if name in m.seconds]
        floors = any((m.entry.name, name) in self.floors for m in measured)
        head = [name, "min", "median", "max", "times ours", "CPU of a run", "peak memory", "(before)"]
        rows = [head + ["of the floor"] * floors]
        for m in measured:
            times = m.seconds[name]
            median = statistics.median(times)
            ours = first_of_ours(measured, m.entry.group)
            row = [m.entry.name, seconds(min(times)), seconds(median), seconds(max(times))]
            row.append("" if ours in (None, m) else f"{median / ours.median(name):.2f}")
            # Of a run as a whole: it is not known of its parts.
            row.append(seconds(statistics.median(m.cpu)) if name == next(iter(m.seconds)) else "")
            row += [size(m.memory), size(m.memory_before)]
            if floors:
                floor = self.floors.get((m.entry.name, name))
                row.append(f"{floor / median:.0%}" if floor else "")
            rows.append(row)
        return markdown(rows)

    def json(self):
        entries = []
        for m in self.measured:
            floors = {name: s for (entry, name), s in self.floors.items() if entry == m.entry.name}
            entries.append(
                {
                    "name": m.entry.name,
                    "group": m.entry.group,
                    "settings": shown(m.entry.settings),
                    "seconds": m.seconds,
                    "cpu": m.cpu,
                    "peak_memory": m.memory,
                    "memory_before": m.memory_before,
                    "floor_seconds": floors,
                    "differences": m.differences,
                    "versions": m.versions,
                }
            )
        return {"title": self.title, "entries": entries, "figures": self.figures, "foreign": self.foreign()}


def met(figure):
    value, bar = figure["value"], figure["bar"]
    return value <= bar if figure["at_most"] else value >= bar
