"""Reference values for plants: unstable ones, continuous time, and weights, bands and the H2 norm in continuous time.

    pip install numpy scipy mpmath slycot pymor
    python tests/golden/plants/generate.py

Reduced systems are those of SLICOT through slycot: AB09AD (balanced truncation), AB09MD and AB09ND (balanced truncation and singular
perturbation of the stable part). H2-optimal ones are pyMOR's, by IRKA and TSIA. Weighted Gramians in continuous time are formed from their
definitions by scipy, those of a band by quadrature; norms are those of SLICOT's AB13DD.
"""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pymor
import scipy
import scipy.integrate
import scipy.linalg
import slycot
from pymor.core.logger import set_log_levels
from pymor.models.iosys import LTIModel
from pymor.reductors.bt import BTReductor
from pymor.reductors.h2 import IRKAReductor, TSIAReductor

HERE = Path(__file__).parent
spec = importlib.util.spec_from_file_location("weighted", HERE.parent / "weighted" / "generate.py")
weighted = importlib.util.module_from_spec(spec)
spec.loader.exec_module(weighted)

FREQUENCIES = [0.0, 0.3, 1.0, 2.5]


def plant(rng, n, m, p, continuous, outside):
    """A random system, well conditioned; `outside` of its poles are not stable."""
    modulus = np.exp(-(10 ** rng.uniform(-1.5, 0.3, n)))
    poles = modulus * rng.choice([1, -1], n)
    if continuous:
        poles = np.log(modulus)
    for i in range(outside):
        poles[i] = rng.uniform(0.05, 0.5) + (0 if continuous else 1)
    blocks = np.diag(poles)
    # Two of the stable poles are a pair.
    re, im = (-0.2, 1.7) if continuous else (0.6, 0.5)
    blocks[-2:, -2:] = [[re, im], [-im, re]]
    turn = np.eye(n) + 0.3 * rng.normal(size=(n, n))
    a = turn @ blocks @ np.linalg.inv(turn)
    return a, turn @ rng.normal(size=(n, m)), rng.normal(size=(p, n)) @ np.linalg.inv(turn), rng.normal(size=(p, m))


def response(g, continuous):
    a, b, c, d = g
    at = [1j * w if continuous else np.exp(1j * w) for w in FREQUENCIES]
    values = [c @ np.linalg.solve(z * np.eye(len(a)) - a, b) + d for z in at]
    return [[[v.real, v.imag] for v in value.ravel()] for value in values]


def slicot_case(rng, routine, method, continuous, outside, order):
    n, m, p = 8, 2, 3
    a, b, c, d = plant(rng, n, m, p, continuous, outside)
    dico, alpha = ("C", 0.0) if continuous else ("D", 1.0)
    # Singular perturbation is balancing-free: with JOB = "B" slycot 0.7.1's discrete one does not keep the gain at frequency 0.
    job = "B" if method == "bt" else "N"
    if routine == "ab09ad":
        _, ar, br, cr, values = slycot.ab09ad(dico, job, "N", n, m, p, a, b, c, nr=order)
        reduced, ns = (ar, br, cr, d), n
    elif routine == "ab09md":
        _, ar, br, cr, ns, values = slycot.ab09md(dico, job, "N", n, m, p, a, b, c, alpha=alpha, nr=order)
        reduced = (ar, br, cr, d)
    else:
        _, ar, br, cr, dr, ns, values = slycot.ab09nd(dico, job, "N", n, m, p, a, b, c, d, alpha=alpha, nr=order)
        reduced = (ar, br, cr, dr)
    assert ns == n - outside and len(reduced[0]) == order
    return {
        "routine": routine,
        "method": method,
        "continuous": continuous,
        "system": weighted.system_json((a, b, c, d)),
        "order": order,
        "kept": outside,
        "values": weighted.rows(values[:ns]),
        "response": response(reduced, continuous),
    }


def h2_case(rng, n, m, p, order):
    """A system on which both iterations from balanced truncation on end at the same local optimum."""
    while True:
        a, b, c, _ = plant(rng, n, m, p, True, 0)
        full = LTIModel.from_matrices(a, b, c)
        balanced = BTReductor(full).reduce(order)
        errors = {"bt": (full - balanced).h2_norm()}
        for name, reductor in (("irka", IRKAReductor), ("tsia", TSIAReductor)):
            errors[name] = (full - reductor(full).reduce(balanced, tol=1e-12, maxit=60)).h2_norm()
        if abs(errors["irka"] / errors["tsia"] - 1) < 1e-3:
            return {"system": weighted.system_json((a, b, c, np.zeros((p, m)))), "order": order, "h2_errors": errors}


def hinf(g):
    a, b, c, d = g
    n, m, p = len(a), b.shape[1], c.shape[0]
    return slycot.ab13dd("C", "I", "N", "D", n, m, p, a, np.eye(n), b, c, d, tol=1e-12)[0]


def lyapunov(a, q):
    return scipy.linalg.solve_continuous_lyapunov(a, -q)


def weighted_case(rng, n, m, p, order):
    g = plant(rng, n, m, p, True, 0)[:3] + (np.zeros((p, m)),)
    v, w = plant(rng, 3, m, m, True, 0), plant(rng, 3, p, p, True, 0)
    gv, wg = weighted.after(g, v), weighted.after(w, g)
    p_enns = lyapunov(gv[0], gv[1] @ gv[1].T)[:n, :n]
    q_enns = lyapunov(wg[0].T, wg[2].T @ wg[2])[3:, 3:]
    reduced = weighted.truncate(*g[:3], p_enns, q_enns, order) + (g[3],)
    error = weighted.after(w, weighted.after(weighted.minus(g, reduced), v))
    return {
        "system": weighted.system_json(g),
        "input_weight": weighted.system_json(v),
        "output_weight": weighted.system_json(w),
        "order": order,
        "values": weighted.rows(weighted.balance(p_enns, q_enns)[3]),
        "weighted_error": hinf(error),
    }


def band_case(rng, n, m, p, order, low, high):
    """The modified Gramians of the image under the bilinear map, whose Gramians in a band are those of continuous time."""
    g = plant(rng, n, m, p, True, 0)[:3] + (np.zeros((p, m)),)
    a, b, c, _ = g

    def gramian(a, b):
        def entries(w):
            x = np.linalg.solve(1j * w * np.eye(n) - a, b)
            return (x @ x.conj().T).real.ravel()

        return scipy.integrate.quad_vec(entries, low, high, epsabs=1e-13, epsrel=1e-12)[0].reshape(n, n) / np.pi

    p_band, q_band = gramian(a, b), gramian(a.T, c.T)
    p_own, q_own = lyapunov(a, b @ b.T), lyapunov(a.T, c.T @ c)
    moduli = np.abs(np.linalg.eigvals(a))
    rate = float(np.sqrt(moduli.max() * moduli.min()))
    inverse = np.linalg.inv(rate * np.eye(n) - a)
    a_d, b_d, c_d = inverse @ (rate * np.eye(n) + a), np.sqrt(2 * rate) * inverse @ b, np.sqrt(2 * rate) * c @ inverse
    bh, k = weighted.modified(b_d, q_own, p_band - a_d @ p_band @ a_d.T)
    ch, l = weighted.modified(c_d.T, p_own, q_band - a_d.T @ q_band @ a_d)
    values = weighted.values_of(a_d, bh, ch.T) * np.linalg.norm(k, 2) * np.linalg.norm(l, 2)
    p_hat, q_hat = weighted.lyapunov(a_d, bh @ bh.T), weighted.lyapunov(a_d.T, ch @ ch.T)
    reduced = weighted.truncate(a, b, c, p_hat, q_hat, order) + (g[3],)
    ae, be, ce, _ = weighted.minus(g, reduced)
    grid = np.linspace(low, high, 20001)
    gains = [np.linalg.norm(ce @ np.linalg.solve(1j * w * np.eye(len(ae)) - ae, be), 2) for w in grid]
    return {
        "system": weighted.system_json(g),
        "band": [low, high],
        "order": order,
        "values": weighted.rows(values),
        "error_in_band": float(max(gains)),
    }


def main():
    set_log_levels({"pymor": "ERROR"})
    rng = np.random.default_rng(11)
    slicot = []
    for continuous in (True, False):
        slicot += [
            slicot_case(rng, "ab09ad", "bt", continuous, 0, 4),
            slicot_case(rng, "ab09ad", "bfsr", continuous, 0, 3),
            slicot_case(rng, "ab09md", "bt", continuous, 2, 5),
            slicot_case(rng, "ab09nd", "spa", continuous, 2, 5),
            slicot_case(rng, "ab09nd", "spa", continuous, 0, 4),
        ]
    versions = {module.__name__: module.__version__ for module in (np, scipy, slycot, pymor)}
    golden = {
        "made_by": "tests/golden/plants/generate.py",
        "versions": versions,
        "frequencies": FREQUENCIES,
        "slicot": slicot,
        "h2": [h2_case(np.random.default_rng(seed), 6, 1, 2, 3) for seed in (1, 2)],
        "weighted": [weighted_case(rng, 6, 2, 2, 3), weighted_case(rng, 7, 1, 3, 3)],
        "band": [band_case(rng, 4, 2, 2, 2, 0.0, 0.6), band_case(rng, 4, 2, 3, 2, 0.5, 3.0)],
    }
    (HERE / "plants.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
