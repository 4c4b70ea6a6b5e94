"""Pairs of nasty systems with gains of their difference in 60 digits, for the proofs of H-infinity norms.

Needs numpy and mpmath.  usage: python3 generate.py > errors.json

Every entry is a double as it stands in the file. `gain` is the largest gain found of `G - H` on the unit circle, by a search in 60
digits, rounded down to a double: no upper end may lie below it.
"""

import json
import math

import mpmath
import numpy as np

mpmath.mp.dps = 60
draw = np.random.default_rng(20)


def orthogonal(d):
    return np.linalg.qr(draw.standard_normal((d, d)))[0]


def blocks(pairs):
    a = np.zeros((2 * len(pairs), 2 * len(pairs)))
    for i, (r, t) in enumerate(pairs):
        a[2 * i:2 * i + 2, 2 * i:2 * i + 2] = r * np.array([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]])
    return a


def state_matrix(kind, d):
    if kind == "real":
        return {"diagonal": draw.uniform(-0.999, 0.999, d).tolist()}
    if kind == "slow":
        return {"diagonal": (1 - 10 ** -draw.uniform(0, 9, d)).tolist()}
    if kind == "slow alternating":
        return {"diagonal": (draw.choice([-1, 1], d) * (1 - 10 ** -draw.uniform(0, 9, d))).tolist()}
    if kind == "nearly repeated":
        return {"diagonal": np.clip(0.7 + draw.standard_normal(d) * 10 ** -draw.uniform(3, 16), -0.999, 0.999).tolist()}
    if kind == "polar":
        return {"polar": [[1 - 10 ** -draw.uniform(0.5, 7), draw.uniform(0.01, 3.1)] for _ in range(max(1, d // 2))]}
    if kind == "blocks":
        return {"square": blocks([(1 - 10 ** -draw.uniform(0.5, 5), draw.uniform(0, np.pi)) for _ in range(max(1, d // 2))]).tolist()}
    if kind == "dense":
        a = draw.standard_normal((d, d))
        return {"square": (a / max(abs(np.linalg.eigvals(a))) * draw.choice([0.3, 0.9, 0.999])).tolist()}
    if kind == "far from normal":
        a = np.triu(draw.standard_normal((d, d)) * 10 ** draw.uniform(0, 2), 1) + np.diag(draw.uniform(-0.95, 0.95, d))
        q = orthogonal(d)
        return {"square": (q @ a @ q.T).tolist()}
    if kind == "lightly damped":
        a = blocks([(1 - 10 ** -draw.uniform(0.5, 5), draw.uniform(0, np.pi)) for _ in range(max(1, d // 2))])
        q = orthogonal(len(a))
        return {"square": (q @ a @ q.T).tolist()}
    if kind == "jordan":
        return {"square": (0.9 * np.eye(d) + np.diag(np.ones(d - 1), 1)).tolist()}
    if kind == "nilpotent":
        return {"square": np.diag(np.ones(d - 1), 1).tolist()}
    raise ValueError(kind)


KINDS = ["real", "slow", "slow alternating", "nearly repeated", "polar", "blocks", "dense", "far from normal", "lightly damped", "jordan", "nilpotent"]


def dense(a):
    if "diagonal" in a:
        return np.diag(a["diagonal"])
    return blocks(a["polar"]) if "polar" in a else np.array(a["square"])


def exact(a):
    if "polar" not in a:
        return mpmath.matrix(dense(a).tolist())
    pairs = a["polar"]
    out = mpmath.zeros(2 * len(pairs))
    for i, (r, t) in enumerate(pairs):
        r, t = mpmath.mpf(r), mpmath.mpf(t)
        out[2 * i, 2 * i] = out[2 * i + 1, 2 * i + 1] = r * mpmath.cos(t)
        out[2 * i + 1, 2 * i], out[2 * i, 2 * i + 1] = r * mpmath.sin(t), -r * mpmath.sin(t)
    return out


def changed(value, size):
    return (np.array(value) * (1 + size * draw.standard_normal(np.shape(value)))).tolist()


def truncated(a, b, c, order):
    """Balanced truncation, as well as doubles do it."""
    a = dense(a)

    def gramian(a, b):
        w, p = b @ b.T, a.copy()
        for _ in range(60):
            w, p = w + p @ w @ p.T, p @ p
        return w

    def root(w):
        values, vectors = np.linalg.eigh((w + w.T) / 2)
        return vectors * np.sqrt(np.maximum(values, 0))

    lc, lo = root(gramian(a, b)), root(gramian(a.T, c.T))
    u, s, v = np.linalg.svd(lo.T @ lc)
    order = min(order, int((s > 1e-8 * s[0]).sum()))
    left, right = (lo @ u[:, :order] / np.sqrt(s[:order])).T, lc @ v[:order].T / np.sqrt(s[:order])
    return {"square": (left @ a @ right).tolist()}, left @ b, c @ right


def reduction(number, a, b, c, d):
    """Another system: truncated, nearly the same, without states, or with some modes left out."""
    way = ("truncated", "nearly the same", "without states", "fewer modes")[number % 4]
    if way == "nearly the same" or way == "fewer modes" and not {"diagonal", "polar"} & set(a):
        size = 10 ** -draw.uniform(2, 12)
        near = {name: value if name == "polar" else changed(value, 0 if name == "square" else min(size, 1e-10)) for name, value in a.items()}
        if "diagonal" in near:
            near["diagonal"] = np.clip(near["diagonal"], -1 + 1e-15, 1 - 1e-15).tolist()
        return f"nearly the same, {size:.0e}", near, np.array(changed(b, size)), np.array(changed(c, size))
    if way == "without states":
        return way, {"diagonal": []}, np.zeros((0, b.shape[1])), np.zeros((c.shape[0], 0))
    if way == "fewer modes":
        width = 1 if "diagonal" in a else 2
        name = "diagonal" if width == 1 else "polar"
        kept = range(0, len(a[name]), 2)
        states = [width * k + i for k in kept for i in range(width)]
        return way, {name: [a[name][k] for k in kept]}, b[states], c[:, states]
    with np.errstate(all="ignore"):
        return way, *truncated(a, b, c, max(1, d // 2))


def evaluator(system):
    a, b, c, d = system
    a, n = exact(a), len(b)
    b, c, d = (mpmath.matrix(m.tolist()) if m.size else None for m in (b, c, d))

    def at(z):
        if n == 0:
            return d
        m = -a.copy()
        for i in range(n):
            m[i, i] += z
        inverse = mpmath.inverse(m)
        return c * (inverse * b) + d

    return at


def largest_gain(one, two):
    g, h = evaluator(one), evaluator(two)

    def gain(w):
        w = min(max(w, mpmath.mpf(0)), mpmath.pi)
        z = mpmath.expj(w)
        return max(mpmath.svd_c(g(z) - h(z), compute_uv=False)), w

    points = {mpmath.mpf(0), mpmath.pi, mpmath.mpf(1), mpmath.mpf(2)}
    for a in (one[0], two[0]):
        values = np.linalg.eigvals(dense(a)) if len(dense(a)) else []
        for p in list(values)[:8]:
            width = max(1e-10, 1 - abs(p))
            points |= {mpmath.mpf(float(abs(np.angle(p)) + width * k)) for k in (-2, -0.5, 0, 0.5, 2, 20)}
    return searched(gain, points)


def searched(gain, points):
    """The largest gain near the best of these points, rounded down."""
    found = sorted((gain(w) for w in points), reverse=True)
    best = found[0]
    for _, w in found[:2]:
        near = [abs(w - x) for x in points if x != w]
        step = min(near)
        for _ in range(40):
            middle = gain(w)
            for candidate in (w - step, w + step):
                tried = gain(candidate)
                if tried[0] > middle[0]:
                    middle = tried
            if middle[1] == w:
                step /= 4
            w = middle[1]
            best = max(best, middle)
            if step < 1e-12:
                break
    value = float(best[0])
    return value if mpmath.mpf(value) <= best[0] else math.nextafter(value, 0)


def main():
    cases = []
    for number in range(88):
        kind, d = KINDS[number % len(KINDS)], int(draw.integers(2, 8))
        a = state_matrix(kind, d)
        d = len(dense(a))
        m, p = int(draw.integers(1, 4)), int(draw.integers(1, 4))
        b, c = draw.standard_normal((d, m)), draw.standard_normal((p, d))
        scale = ("", "", "tiny", "huge B", "both huge", "", "rows apart")[number % 7]
        if scale == "tiny":
            b, c = b * 1e-40, c * 1e-40
        elif scale == "huge B":
            b, c = b * 1e150, c * 1e-150
        elif scale == "both huge":
            b, c = b * 1e75, c * 1e75
        elif scale == "rows apart":
            b = b * 10 ** draw.uniform(-12, 0, (d, 1))
        direct = draw.standard_normal((p, m)) * abs(c).max() * abs(b).max() if number % 5 == 0 else np.zeros((p, m))
        way, a2, b2, c2 = reduction(number // len(KINDS), a, b, c, d)
        full, small = (a, b, c, direct), (a2, b2, c2, direct)
        name = f"{kind}, {scale or 'as drawn'}, {way}, {d} to {len(b2)} states"
        gain = largest_gain(full, small)
        entry = lambda s: {"a": s[0], "b": s[1].tolist(), "c": s[2].tolist(), "d": s[3].tolist()}
        cases.append({"name": name, "inputs": m, "full": entry(full), "reduced": entry(small), "gain": gain})
    print(json.dumps(cases))


if __name__ == "__main__":
    main()
