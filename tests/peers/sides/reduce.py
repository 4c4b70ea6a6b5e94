"""Balanced truncation by scipy and by pyMOR."""

import numpy as np
from safetensors.numpy import load_file


def begin(threads):
    import scipy

    return {"numpy": np.__version__, "scipy": scipy.__version__}


def square_root(a, b, c, order, controllability, observability):
    """Balanced truncation from the Gramians: factors, their singular values, projections (Laub et al., 1987)."""
    r, q = np.linalg.cholesky(controllability), np.linalg.cholesky(observability)
    u, sigma, vt = np.linalg.svd(q.T @ r)
    root = sigma[:order] ** -0.5
    left = (u[:, :order] * root).T @ q.T
    right = r @ (vt[:order].T * root)
    return sigma, left @ a @ right, left @ b, c @ right


def by_lyapunov(a, b, c, order):
    """Any state matrix: what scipy has for it."""
    from scipy.linalg import solve_discrete_lyapunov

    return square_root(a, b, c, order, solve_discrete_lyapunov(a, b @ b.T), solve_discrete_lyapunov(a.T, c.T @ c))


def by_division(a, b, c, order):
    """A diagonal state matrix, for someone who knows that its equations solve themselves."""
    poles = np.diag(a)
    weight = 1 / (1 - np.outer(poles, poles))
    return square_root(a, b, c, order, b @ b.T * weight, c.T @ c * weight)


def by_pymor(a, b, c, order):
    from pymor.core.logger import set_log_levels
    from pymor.models.iosys import LTIModel
    from pymor.reductors.bt import BTReductor

    set_log_levels({"pymor": "ERROR"})
    full = LTIModel.from_matrices(a, b, c, sampling_time=1)
    reduced = BTReductor(full).reduce(order, projection="sr")
    return full.hsv(), *reduced.to_matrices()[:3]


WAYS = {"lyapunov": by_lyapunov, "division": by_division, "pymor": by_pymor}


class Program:
    def __init__(self, settings, inputs):
        tensors = load_file(inputs)
        self.layers = [[tensors[f"{name}.{layer}"] for name in "abc"] for layer in range(settings["layers"])]
        self.order = settings["order"]
        self.reduce = WAYS[settings["way"]]

    def compare(self, outputs):
        """Hankel singular values relative to the largest of their layer, and responses of the reduced systems."""
        ours = load_file(outputs)
        differences = {"Hankel singular values": 0.0, "responses": 0.0}
        for number, system in enumerate(self.layers):
            sigma, *reduced = self.reduce(*system, self.order)
            expected = ours[f"sigma.{number}"]
            apart = np.abs(sigma - expected).max() / expected[0]
            differences["Hankel singular values"] = max(differences["Hankel singular values"], apart)
            own, other = response(*reduced), response(*(ours[f"{name}.{number}"] for name in "abc"))
            apart = np.linalg.norm(own - other) / np.linalg.norm(other)
            differences["responses"] = max(differences["responses"], apart)
        return {name: float(value) for name, value in differences.items()}

    def run(self, report):
        report.time("reduce", lambda: [self.reduce(*system, self.order) for system in self.layers])


def response(a, b, c):
    """What follows an impulse in each of 16 inputs after 1, 2, 10 and 100 steps, at 16 outputs."""
    return np.stack([c[:16] @ np.linalg.matrix_power(a, steps) @ b[:, :16] for steps in (0, 1, 9, 99)])
