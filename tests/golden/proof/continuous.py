"""Pairs of systems in continuous time with gains of their difference in 60 digits, as generate.py has them in discrete time.

Needs numpy and mpmath.  usage: python3 continuous.py > continuous.json
"""

import json

import mpmath
import numpy as np

import generate
from generate import changed, draw, evaluator, orthogonal, searched


def chain(k):
    """Masses between two walls, from the force on the first to the position of the last."""
    stiffness = 2 * np.eye(k) - np.eye(k, k=1) - np.eye(k, k=-1)
    damping = draw.choice([1e-4, 1e-2, 0.3]) * stiffness + 1e-5 * np.eye(k)
    return np.block([[np.zeros((k, k)), np.eye(k)], [-stiffness, -damping]])


def state_matrix(kind, d):
    if kind == "real":
        return {"diagonal": (-draw.uniform(0.1, 3, d)).tolist()}
    if kind == "stiff":
        return {"diagonal": (-(10 ** draw.uniform(-4, 4, d))).tolist()}
    if kind == "chain":
        return {"square": chain(max(1, d // 2)).tolist()}
    if kind == "dense":
        a = draw.standard_normal((d, d))
        return {"square": (a - (max(np.linalg.eigvals(a).real) + draw.choice([1e-5, 0.1, 1])) * np.eye(d)).tolist()}
    if kind == "far from normal":
        a = np.triu(draw.standard_normal((d, d)) * 10 ** draw.uniform(0, 2), 1) - np.diag(draw.uniform(0.05, 3, d))
        q = orthogonal(d)
        return {"square": (q @ a @ q.T).tolist()}
    if kind == "ladder":
        return {"square": (np.eye(d, k=1) + np.eye(d, k=-1) - 2 * np.eye(d)).tolist()}
    if kind == "pairs":
        a = np.zeros((2 * (d // 2), 2 * (d // 2)))
        for i in range(d // 2):
            damping, frequency = 10 ** -draw.uniform(0, 5), draw.uniform(0.1, 5)
            a[2 * i:2 * i + 2, 2 * i:2 * i + 2] = [[-damping, -frequency], [frequency, -damping]]
        return {"square": a.tolist()}
    raise ValueError(kind)


KINDS = ["real", "stiff", "chain", "dense", "far from normal", "ladder", "pairs"]


def truncated(a, b, c, d, order):
    """Balanced truncation of the image in discrete time, the direct term as it comes out of the map back."""
    n = len(a)
    moduli = abs(np.linalg.eigvals(a))
    rate = np.sqrt(moduli.max() * moduli.min())
    resolvent = np.linalg.inv(rate * np.eye(n) - a)
    root = np.sqrt(2 * rate)
    image = {"square": (2 * rate * resolvent - np.eye(n)).tolist()}
    small, b2, c2 = generate.truncated(image, root * resolvent @ b, root * c @ resolvent, order)
    small = np.array(small["square"])
    inverse = np.linalg.inv(np.eye(len(small)) + small)
    direct = d + c @ resolvent @ b - c2 @ inverse @ b2
    return {"square": (rate * (small - np.eye(len(small))) @ inverse).tolist()}, root * inverse @ b2, root * c2 @ inverse, direct


def reduction(number, a, b, c, d):
    way = ("truncated", "nearly the same", "without states", "fewer modes", "another direct term")[number % 5]
    if way == "without states":
        return way, {"diagonal": []}, np.zeros((0, b.shape[1])), np.zeros((c.shape[0], 0)), d
    if way == "fewer modes" and "diagonal" in a:
        kept = range(0, len(b), 2)
        return way, {"diagonal": [a["diagonal"][k] for k in kept]}, b[kept], c[:, kept], d
    if way == "another direct term":
        return way, a, b, np.array(changed(c, 1e-3)), np.array(changed(d, 1e-6)) + 1e-9
    if way == "truncated":
        return way, *truncated(generate.dense(a), b, c, d, max(1, len(b) // 2))
    size = 10 ** -draw.uniform(2, 10)
    return f"nearly the same, {size:.0e}", a, np.array(changed(b, size)), np.array(changed(c, size)), d


def largest_gain(one, two, rate):
    """Frequencies are `rate tan(angle / 2)`: the search is over angles, infinity among them."""
    g, h = evaluator(one), evaluator(two)
    at_infinity = mpmath.matrix((one[3] - two[3]).tolist())

    def gain(angle):
        angle = min(max(angle, mpmath.mpf(0)), mpmath.pi)
        if angle == mpmath.pi:
            return max(mpmath.svd_c(at_infinity, compute_uv=False)), angle
        s = mpmath.mpc(0, rate * mpmath.tan(angle / 2))
        return max(mpmath.svd_c(g(s) - h(s), compute_uv=False)), angle

    points = {mpmath.mpf(0), mpmath.pi, mpmath.mpf(1), mpmath.mpf(2)}
    for a in (one[0], two[0]):
        for p in np.linalg.eigvals(generate.dense(a)) if len(generate.dense(a)) else []:
            for k in (-2, -0.5, 0, 0.5, 2, 20):
                points.add(2 * mpmath.atan(abs(abs(p.imag) + k * abs(p.real)) / rate))
    return searched(gain, points)


def next_to_the_axis(seed):
    """A pair of poles at a distance of 1e-8 from the axis, mixed with others, and the system of that pair alone: rounding of an entry moves
    the response at its frequency by more than both differ elsewhere."""
    random = np.random.default_rng(seed)
    blocks = np.zeros((5, 5))
    blocks[:2, :2] = [[-1e-8, -0.05], [0.05, -1e-8]]
    blocks[2:4, 2:4] = [[-0.1, 10], [-10, -0.1]]
    blocks[4, 4] = -1
    mixing = random.normal(size=(5, 5))
    back = np.linalg.inv(mixing)
    a, b, c, d = mixing @ blocks @ back, mixing @ np.ones((5, 1)), np.ones((1, 5)) @ back, np.zeros((1, 1))
    small = back[:2] @ a @ mixing[:, :2]
    return ({"square": a.tolist()}, b, c, d), ({"square": small.tolist()}, back[:2] @ b, c @ mixing[:, :2], d)


def main():
    cases = []
    entry = lambda s: {"a": s[0], "b": s[1].tolist(), "c": s[2].tolist(), "d": s[3].tolist()}
    for number in range(70):
        kind, d = KINDS[number % len(KINDS)], int(draw.integers(2, 8))
        a = state_matrix(kind, d)
        # Seconds, nanoseconds, years.
        unit = (1.0, 1.0, 1e9, 1e-8)[number % 4]
        a = {name: (unit * np.array(value)).tolist() for name, value in a.items()}
        d = len(generate.dense(a))
        m, p = int(draw.integers(1, 4)), int(draw.integers(1, 4))
        b, c = draw.standard_normal((d, m)), draw.standard_normal((p, d))
        scale = ("", "", "tiny", "huge B", "rows apart")[number % 5]
        if scale == "tiny":
            b, c = b * 1e-40, c * 1e-40
        elif scale == "huge B":
            b, c = b * 1e100, c * 1e-100
        elif scale == "rows apart":
            b = b * 10 ** draw.uniform(-9, 0, (d, 1))
        direct = draw.standard_normal((p, m)) * abs(c).max() * abs(b).max() if number % 3 == 0 else np.zeros((p, m))
        way, a2, b2, c2, d2 = reduction(number // len(KINDS), a, b, c, direct)
        full, small = (a, b, c, direct), (a2, b2, c2, d2)
        gain = largest_gain(full, small, max(abs(np.linalg.eigvals(generate.dense(a)))) ** 0.5 * min(abs(np.linalg.eigvals(generate.dense(a)))) ** 0.5)
        name = f"{kind}, {scale or 'as drawn'}, {way}, unit {unit:g}, {d} to {len(b2)} states"
        cases.append({"name": name, "inputs": m, "full": entry(full), "reduced": entry(small), "gain": gain})
    for seed in (2, 6, 12, 16, 27, 37):
        full, small = next_to_the_axis(seed)
        gain = largest_gain(full, small, 0.7)
        name = f"next to the axis, {seed}, 5 to 2 states"
        cases.append({"name": name, "inputs": 1, "full": entry(full), "reduced": entry(small), "gain": gain})
    print(json.dumps(cases))


if __name__ == "__main__":
    main()
