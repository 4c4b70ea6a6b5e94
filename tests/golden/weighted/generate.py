"""Reference values for reduction under weights and in bands, and for H2-optimal reduction.

    pip install numpy scipy slycot mpmath
    python tests/golden/weighted/generate.py

SLICOT's AB09ID (frequency-weighted balancing) is not in slycot, so Gramians and projections are formed here from their definitions by
scipy: Lyapunov equations of the cascades, integrals over a band by quadrature. Norms are those of SLICOT's AB13DD, through slycot, except
in a band. The H2 optimum is found by BFGS over all entries of A, B and C from several starts, and so is that under weights, beside each of
which white noise of a twentieth of its mean square counts.
"""

import json
from pathlib import Path

import mpmath
import numpy as np
import scipy
import scipy.integrate
import scipy.linalg
import scipy.optimize
import slycot

# Share of B B^T that the modification adds, and of a weight's mean square that white noise beside it has.
SHARE = 0.05


def lyapunov(a, q):
    return scipy.linalg.solve_discrete_lyapunov(a, q)


def factor(p):
    values, vectors = np.linalg.eigh((p + p.T) / 2)
    return vectors * np.sqrt(np.clip(values, 0, None))


def balance(p, q):
    left, right = factor(p), factor(q)
    u, s, vt = np.linalg.svd(right.T @ left)
    return left, right, u, s, vt


def truncate(a, b, c, p, q, order):
    lc, lo, u, s, vt = balance(p, q)
    left = (u[:, :order] / np.sqrt(s[:order])).T @ lo.T
    right = lc @ vt[:order].T / np.sqrt(s[:order])
    return left @ a @ right, left @ b, c @ right


def after(second, first):
    a, b, c, d = second
    av, bv, cv, dv = first
    zero = np.zeros((av.shape[0], a.shape[0]))
    return np.block([[a, b @ cv], [zero, av]]), np.vstack([b @ dv, bv]), np.hstack([c, d @ cv]), d @ dv


def minus(g, r):
    return scipy.linalg.block_diag(g[0], r[0]), np.vstack([g[1], r[1]]), np.hstack([g[2], -r[2]]), g[3] - r[3]


def hinf(g):
    a, b, c, d = g
    n, m, p = len(a), b.shape[1], c.shape[0]
    return slycot.ab13dd("D", "I", "N", "D", n, m, p, a, np.eye(n), b, c, d, tol=1e-12)[0]


def h2(g):
    return float(np.sqrt(np.trace(g[2] @ lyapunov(g[0], g[1] @ g[1].T) @ g[2].T) + np.sum(g[3] ** 2)))


def modified(b, q_own, x):
    """Bh and K: |X| where the other Gramian is the identity, and a share of B B^T."""
    t = np.linalg.cholesky(q_own).T
    values, vectors = np.linalg.eigh(t @ x @ t.T)
    tb = t @ b
    share = SHARE * np.abs(values).max() / np.linalg.norm(tb, 2) ** 2
    y = vectors @ np.diag(np.abs(values)) @ vectors.T + share * tb @ tb.T
    root = scipy.linalg.sqrtm(y).real
    return np.linalg.solve(t, root), np.linalg.solve(root, tb)


def values_of(a, b, c):
    return balance(lyapunov(a, b @ b.T), lyapunov(a.T, c.T @ c))[3]


def rows(m):
    return np.asarray(m).tolist()


def system_json(g):
    return {name: rows(m) for name, m in zip("ABCD", g)}


def weighted_case(rng, n, m, p, order):
    poles = np.exp(-(10 ** rng.uniform(-2, 0.3, n))) * rng.choice([1, 1, -1], n)
    turn = np.eye(n) + 0.3 * rng.normal(size=(n, n))
    a = turn @ np.diag(poles) @ np.linalg.inv(turn)
    g = (a, turn @ rng.normal(size=(n, m)), rng.normal(size=(p, n)) @ np.linalg.inv(turn), np.zeros((p, m)))

    def stable(k, inputs, outputs):
        m = rng.normal(size=(k, k))
        m *= rng.uniform(0.6, 0.95) / np.abs(np.linalg.eigvals(m)).max()
        return m, rng.normal(size=(k, inputs)), rng.normal(size=(outputs, k)), 0.3 * rng.normal(size=(outputs, inputs))

    v, w = stable(3, m, m), stable(2, p, p)
    p_own, q_own = lyapunov(a, g[1] @ g[1].T), lyapunov(a.T, g[2].T @ g[2])
    gv, wg = after(g, v), after(w, g)
    p_enns = lyapunov(gv[0], gv[1] @ gv[1].T)[:n, :n]
    q_enns = lyapunov(wg[0].T, wg[2].T @ wg[2])[2:, 2:]
    enns = truncate(*g[:3], p_enns, q_enns, order) + (g[3],)
    x, z = p_enns - a @ p_enns @ a.T, q_enns - a.T @ q_enns @ a
    bh, k = modified(g[1], q_own, x)
    ch, l = modified(g[2].T, p_own, z)
    kv = hinf((v[0], v[1], k @ v[2], k @ v[3]))
    wl = hinf((w[0], w[1] @ l.T, w[2], w[3] @ l.T))
    values = values_of(a, bh, ch.T) * kv * wl
    stable_r = truncate(*g[:3], lyapunov(a, bh @ bh.T), lyapunov(a.T, ch @ ch.T), order) + (g[3],)

    def error(r):
        e = after(w, after(minus(g, r), v))
        return {"hinf": hinf(e), "h2": h2(e)}

    return {
        "system": system_json(g),
        "input_weight": system_json(v),
        "output_weight": system_json(w),
        "order": order,
        "enns_values": rows(balance(p_enns, q_enns)[3]),
        "enns_error": error(enns),
        "modified_values": rows(values),
        "modified_error": error(stable_r),
        "unweighted_factor": float(np.linalg.norm(k, 2) * np.linalg.norm(l, 2) / (kv * wl)),
    }


def band_case(rng, n, m, p, order, low, high):
    poles = np.exp(-(10 ** rng.uniform(-2, 0.3, n)))
    a = np.diag(poles)
    g = (a, rng.normal(size=(n, m)), rng.normal(size=(p, n)), np.zeros((p, m)))

    def gramian(b):
        gram = b @ b.T

        def entry(i, j):
            z = lambda w: mpmath.expjpi(w / mpmath.pi)
            f = lambda w: mpmath.re(1 / ((z(w) - poles[i]) * (mpmath.conj(z(w)) - poles[j])))
            return float(mpmath.quad(f, mpmath.linspace(low, high, 40)) / mpmath.pi)

        return np.array([[gram[i, j] * entry(i, j) for j in range(n)] for i in range(n)])

    p_band, q_band = gramian(g[1]), gramian(g[2].T)
    p_own, q_own = lyapunov(a, g[1] @ g[1].T), lyapunov(a, g[2].T @ g[2])
    bh, k = modified(g[1], q_own, p_band - a @ p_band @ a)
    ch, l = modified(g[2].T, p_own, q_band - a @ q_band @ a)
    values = values_of(a, bh, ch.T) * np.linalg.norm(k, 2) * np.linalg.norm(l, 2)
    r = truncate(*g[:3], lyapunov(a, bh @ bh.T), lyapunov(a, ch @ ch.T), order)
    e = minus(g, r + (g[3],))

    def gain(w):
        return np.linalg.norm(e[2] @ np.linalg.solve(np.exp(1j * w) * np.eye(len(e[0])) - e[0], e[1]), 2)

    grid = np.linspace(low, high, 4001)
    top = grid[np.argmax([gain(w) for w in grid])]
    step = grid[1] - grid[0]
    ends = (max(low, top - step), min(high, top + step))
    fine = scipy.optimize.minimize_scalar(lambda w: -gain(w), bounds=ends, method="bounded", options={"xatol": 1e-12})
    return {
        "system": system_json(g),
        "band": [low, high],
        "order": order,
        "values": rows(values),
        "hinf_in_band": float(max(-fine.fun, gain(ends[0]), gain(ends[1]))),
    }


def h2_case(rng, n, m, p, order):
    poles = np.exp(-(10 ** rng.uniform(-1.5, 0.3, n))) * rng.choice([1, 1, -1], n)
    g = (np.diag(poles), rng.normal(size=(n, m)), rng.normal(size=(p, n)), np.zeros((p, m)))
    zero = np.zeros((p, m))

    def unpack(x):
        a, b, c = np.split(x, [order * order, order * (order + m)])
        return a.reshape(order, order), b.reshape(order, m), c.reshape(p, order)

    def cost(x):
        r = unpack(x)
        if np.abs(np.linalg.eigvals(r[0])).max() >= 0.9999:
            return 1e6
        return h2(minus(g, r + (zero,))) ** 2

    p_own, q_own = lyapunov(g[0], g[1] @ g[1].T), lyapunov(g[0].T, g[2].T @ g[2])
    start = truncate(*g[:3], p_own, q_own, order)
    best = np.inf
    for attempt in range(4):
        x = np.concatenate([m.ravel() for m in start]) + 0.05 * attempt * rng.normal(size=order * (order + m + p))
        found = scipy.optimize.minimize(cost, x, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000})
        best = min(best, float(np.sqrt(found.fun)))
    return {
        "system": system_json(g),
        "order": order,
        "bt_h2_error": h2(minus(g, start + (zero,))),
        "optimal_h2_error": best,
    }


def weighted_h2_case(rng, n, m, p, order, sides):
    a = np.diag(np.exp(-(10 ** rng.uniform(-1.5, 0.3, n))) * rng.choice([1, 1, -1], n))
    zero = np.zeros((p, m))
    g = (a, rng.normal(size=(n, m)), rng.normal(size=(p, n)), zero)

    def weight(k, channels):
        m = rng.normal(size=(k, k))
        m *= rng.uniform(0.7, 0.95) / np.abs(np.linalg.eigvals(m)).max()
        return m, rng.normal(size=(k, channels)), rng.normal(size=(channels, k)), 0.3 * rng.normal(size=(channels, channels))

    v = weight(2, m) if "input" in sides else None
    w = weight(2, p) if "output" in sides else None

    def noisy(weight):
        a, b, c, d = weight
        q = len(d)
        return a, np.hstack([b, np.zeros((len(a), q))]), c, np.hstack([d, np.sqrt(SHARE / q) * h2(weight) * np.eye(q)])

    def transposed(g):
        return g[0].T, g[2].T, g[1].T, g[3].T

    v_noisy = noisy(v) if v else None
    w_noisy = transposed(noisy(transposed(w))) if w else None

    def error(r, v, w):
        e = minus(g, r + (zero,))
        e = after(e, v) if v else e
        return h2(after(w, e) if w else e)

    def unpack(x):
        a, b, c = np.split(x, [order * order, order * (order + m)])
        return a.reshape(order, order), b.reshape(order, m), c.reshape(p, order)

    def cost(x):
        r = unpack(x)
        if np.abs(np.linalg.eigvals(r[0])).max() >= 0.9999:
            return 1e6
        return error(r, v_noisy, w_noisy) ** 2

    p_own, q_own = lyapunov(a, g[1] @ g[1].T), lyapunov(a.T, g[2].T @ g[2])
    start = truncate(*g[:3], p_own, q_own, order)
    best = None
    for attempt in range(8):
        x = np.concatenate([m.ravel() for m in start]) + 0.1 * attempt * rng.normal(size=order * (order + m + p))
        found = scipy.optimize.minimize(cost, x, method="BFGS", options={"gtol": 1e-9, "maxiter": 4000})
        best = found if best is None or found.fun < best.fun else best
    optimum = unpack(best.x)
    return {
        "system": system_json(g),
        "input_weight": system_json(v) if v else None,
        "output_weight": system_json(w) if w else None,
        "order": order,
        "optimum": system_json(optimum + (zero,)),
        "optimal_error_with_noise": error(optimum, v_noisy, w_noisy),
        "optimal_error": error(optimum, v, w),
        "bt_error": error(start, v, w),
    }


def main():
    rng = np.random.default_rng(2)
    versions = {m.__name__: m.__version__ for m in (np, scipy, slycot, mpmath)}
    golden = {
        "made_by": "tests/golden/weighted/generate.py",
        "versions": versions,
        "weighted": [weighted_case(rng, 6, 2, 3, 3), weighted_case(rng, 5, 3, 1, 2), weighted_case(rng, 8, 1, 1, 4)],
        "band": [band_case(rng, 5, 2, 2, 2, 0.0, 0.2), band_case(rng, 4, 1, 3, 2, 0.5, 2.0)],
        "h2": [h2_case(rng, 6, 2, 2, 2), h2_case(rng, 5, 1, 1, 2), h2_case(rng, 6, 1, 2, 3)],
    }
    rng = np.random.default_rng(22)
    golden["weighted_h2"] = [
        weighted_h2_case(rng, 4, 1, 1, 1, ["input"]),
        weighted_h2_case(rng, 5, 2, 1, 2, ["input"]),
        weighted_h2_case(rng, 5, 1, 2, 2, ["output"]),
        weighted_h2_case(rng, 6, 2, 2, 2, ["input", "output"]),
    ]
    Path(__file__).with_name("weighted.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
