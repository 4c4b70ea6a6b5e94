"""``hankel.reduce`` and its companions against python-control and pyMOR, and what they take and refuse."""

import multiprocessing
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import hankel


def random_system(seed, states=None):
    """A stable system of random sizes with a random spectral radius."""
    rng = np.random.default_rng(seed)
    n = states or int(rng.integers(3, 25))
    m, p = (int(k) for k in rng.integers(1, 5, size=2))
    a = rng.standard_normal((n, n))
    a *= rng.uniform(0.3, 0.98) / np.abs(np.linalg.eigvals(a)).max()
    return a, rng.standard_normal((n, m)), rng.standard_normal((p, n)), rng.standard_normal((p, m)) * (seed % 2)


def reduced_of(reduction):
    return reduction.A, reduction.B, reduction.C, reduction.D


OMEGA = np.linspace(0.0, np.pi, 9)


@pytest.mark.parametrize("seed", range(50))
def test_the_libraries_agree(seed):
    control = pytest.importorskip("control")
    a, b, c, d = random_system(seed)
    system = control.ss(a, b, c, d, True)
    for kind, gramian in zip("co", hankel.gramians(system)):
        expected = control.gram(system, kind)
        np.testing.assert_allclose(gramian, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
    norm = hankel.hinf_norm(system)
    assert float(norm) == pytest.approx(control.linfnorm(system)[0], rel=1e-6)
    assert norm.value <= norm.upper <= norm.value * (1 + 1e-5)
    reduction = hankel.reduce(system, order=len(a) // 2)
    assert isinstance(reduction.system, control.StateSpace) and reduction.system.dt is True
    certificate = reduction.certificate
    assert certificate.holds and certificate.order == len(reduction.A) == len(a) // 2
    error = certificate.hinf_error
    assert certificate.lower_bound * (1 - 1e-9) <= error <= certificate.error_bound * (1 + 1e-6)
    # SLICOT's norm of a difference of systems can be too low, by 1 % for seed 5. A grid says that ours is not; that it is reached follows.
    slack = 1e-11 * float(norm)
    assert control.linfnorm(system - reduction.system)[0] <= error * (1 + 1e-6) + slack
    z = np.exp(1j * np.linspace(0, np.pi, 5001))[:, None, None]
    gains = [C @ np.linalg.solve(z * np.eye(len(A)) - A, B) + D for A, B, C, D in ((a, b, c, d), reduced_of(reduction))]
    assert np.linalg.norm(gains[0] - gains[1], ord=2, axis=(1, 2)).max() <= error * (1 + 1e-9) + slack
    peak = np.array([certificate.hinf_error_frequency])
    difference = hankel.System(a, b, c, d).frequency_response(peak) - hankel.System(*reduced_of(reduction)).frequency_response(peak)
    assert np.linalg.norm(difference[0], ord=2) == pytest.approx(error, rel=1e-8)
    assert hankel.verify(system, reduction)

    iosys = pytest.importorskip("pymor.models.iosys")
    from pymor.core.logger import set_log_levels
    from pymor.reductors.bt import BTReductor

    set_log_levels({"pymor": "ERROR"})
    full = iosys.LTIModel.from_matrices(a, b, c, d, sampling_time=1)
    values = hankel.singular_values(a, b, c, d)
    np.testing.assert_allclose(values, full.hsv(), rtol=0, atol=1e-9 * values[0])
    # The transfer function does not depend on coordinates; where two values are near, the reduced model does on rounding.
    order = len(a) // 2
    if values[order] < 0.99 * values[order - 1]:
        reduced = BTReductor(full).reduce(order)
        expected = np.stack([reduced.transfer_function.eval_tf(np.exp(1j * w)) for w in OMEGA])
        found = hankel.System(*reduced_of(reduction)).frequency_response(OMEGA)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7 * np.abs(expected).max())


@pytest.mark.parametrize("rule", [{"order": 5}, {"epsilon": 0.1}, {"energy": 0.9}, {"bound": 1.0}, {}])
def test_rules_choose_the_order(rule):
    a, b, c, _ = random_system(7, states=20)
    values = hankel.singular_values(a, b, c)
    bounds = 2 * np.append(np.cumsum(values[::-1])[::-1], 0.0)
    expected = {
        "order": lambda order: order,
        "epsilon": lambda epsilon: int((values >= epsilon * values[0]).sum()),
        "energy": lambda share: int(np.searchsorted(np.cumsum(values), share * values.sum()) + 1),
        "bound": lambda bound: int((bounds > bound).sum()),
    }
    ((name, value),) = (rule or {"epsilon": 0.01}).items()
    reduction = hankel.reduce(a, b, c, **rule)
    assert len(reduction.A) == expected[name](value) == reduction.certificate.order


@pytest.mark.parametrize("method", hankel.METHODS)
def test_every_method_makes_a_certificate(method):
    a, b, c, d = random_system(3, states=16)
    # Of a dense system modal truncation has the conversion in its bound.
    a = np.diag(np.linspace(-0.9, 0.95, 16)) if method == "modal" else a
    reduction = hankel.reduce(a, b, c, d, order=6, method=method)
    assert reduction.certificate.method == method and reduction.A.shape == (6, 6)
    omega = np.linspace(0, np.pi, 400)
    difference = hankel.System(a, b, c, d).frequency_response(omega) - reduction.system.frequency_response(omega)
    gains = np.linalg.norm(difference, ord=2, axis=(1, 2))
    assert 0.99 * reduction.certificate.hinf_error <= gains.max() <= reduction.certificate.hinf_error * (1 + 1e-9)


def test_systems_come_back_as_what_they_were():
    signal = pytest.importorskip("scipy.signal")
    a, b, c, d = random_system(5, states=8)
    system = signal.dlti(a, b, c, d, dt=0.25)
    reduced = hankel.reduce(system, order=3).system
    assert type(reduced) is type(system) and reduced.dt == 0.25 and reduced.A.shape == (3, 3)
    transfer = signal.dlti([1.0, 0.5], [1.0, -0.5, 0.06, 0.01], dt=1.0)
    reduced = hankel.reduce(transfer, order=2).system
    assert isinstance(reduced, signal.StateSpace) and reduced.dt == 1.0 and reduced.A.shape == (2, 2)
    for form in ((a, b, c), (a, b, c, d), hankel.System(a, b, c, d)):
        assert isinstance(hankel.reduce(form, order=2).system, hankel.System)
    control = pytest.importorskip("control")
    named = control.ss(a, b, c, d, 0.5, inputs=[f"in{i}" for i in range(b.shape[1])], name="plant")
    reduced = hankel.reduce(named, order=2).system
    assert (reduced.input_labels, reduced.dt, reduced.nstates) == (named.input_labels, 0.5, 2)


def test_systems_in_continuous_time_come_back_as_what_they_were():
    control, signal = pytest.importorskip("control"), pytest.importorskip("scipy.signal")
    for seed in range(10):
        a, b, c, d = random_system(seed)
        a = a - 1.5 * np.eye(len(a))
        system, order = control.ss(a, b, c, d), len(a) // 2
        for kind, gramian in zip("co", hankel.gramians(system)):
            expected = control.gram(system, kind)
            np.testing.assert_allclose(gramian, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
        norm = hankel.hinf_norm(system)
        assert float(norm) == pytest.approx(control.linfnorm(system)[0], rel=1e-6)
        response = hankel.System(a, b, c, d, dt=0).frequency_response(norm.frequency)[0]
        # At an infinite frequency the gain is that of D.
        assert np.linalg.norm(response if np.isfinite(norm.frequency) else d, 2) == pytest.approx(float(norm), rel=1e-6)
        reduction = hankel.reduce(system, order=order)
        assert isinstance(reduction.system, control.StateSpace) and reduction.system.dt == 0 and reduction.certificate.holds
        # Attained where it is said to be, and not below what slycot finds, which on some machines stops short of the peak.
        found, angle = reduction.certificate.hinf_error, reduction.certificate.hinf_error_frequency
        error = hankel.System(*control.ssdata(system - reduction.system), dt=0)
        gain = np.linalg.norm(error.frequency_response(reduction.rate * np.tan(angle / 2))[0], 2)
        assert found == pytest.approx(gain, rel=2e-4) and found >= (1 - 2e-4) * control.linfnorm(system - reduction.system)[0] - 1e-12
        assert hankel.verify(system, reduction)
        np.testing.assert_allclose(reduction.D, d, atol=1e-9 * max(1, np.abs(d).max()))
        # Theirs are roots of the eigenvalues of a product: small ones have half of the digits.
        expected = np.sort(control.hankel_singular_values(system).real)[::-1]
        np.testing.assert_allclose(hankel.singular_values(system), expected, rtol=0, atol=1e-7 * expected[0])
        reduced = hankel.reduce(signal.StateSpace(a, b, c, d), order=order).system
        assert isinstance(reduced, signal.lti) and reduced.dt is None
        again = hankel.reduce(hankel.System(a, b, c, d, dt=0), order=order).system
        assert again.dt == 0 and np.array_equal(again.A, reduced.A)


def test_a_system_in_continuous_time_is_not_its_four_matrices():
    system = hankel.System(np.diag([-0.5, -0.2]), np.ones((2, 1)), np.ones((1, 2)), dt=0)
    assert hankel.hinf_norm(system).value == pytest.approx(7.0, rel=1e-9)
    with pytest.raises(hankel.HankelError, match="in continuous time"):
        hankel.hinf_norm(*system)
    assert abs(system.frequency_response([0.0])[0, 0, 0]) == pytest.approx(7.0)


def test_h2_norms_in_continuous_time_may_be_infinite():
    strictly = hankel.System(np.array([[-0.5]]), np.ones((1, 1)), np.ones((1, 1)), np.zeros((1, 1)), dt=0)
    reduction = hankel.reduce(strictly, order=0)
    assert abs(reduction.certificate.h2_norm - 1) < 1e-12 and abs(reduction.certificate.h2_error - 1) < 1e-12
    direct = hankel.System(strictly.A, strictly.B, strictly.C, np.ones((1, 1)), dt=0)
    reduction = hankel.reduce(direct, order=0)
    assert reduction.certificate.h2_norm == np.inf and abs(reduction.certificate.h2_error - 1) < 1e-12
    assert hankel.verify(direct, reduction)
    assert hankel.Certificate.from_json(reduction.certificate.to_json()).h2_norm == np.inf


@pytest.mark.parametrize("continuous", [False, True])
def test_weights_lower_the_error_that_they_weigh(continuous):
    control = pytest.importorskip("control")
    better = 0
    for seed in range(6):
        a, b, c, _ = random_system(seed, states=10)
        a = a - 1.5 * np.eye(10) if continuous else a
        dt = 0 if continuous else True
        system = control.ss(a, b, c, np.zeros((len(c), b.shape[1])), dt)
        m = b.shape[1]
        pole = -0.1 if continuous else 0.95
        weight = control.ss(pole * np.eye(m), np.eye(m), np.eye(m), np.zeros((m, m)), dt)
        plain, weighted = (hankel.reduce(system, order=4, **more) for more in ({}, {"weight": weight}))
        facts = weighted.certificate.weighted
        error = control.linfnorm((system - weighted.system) * weight)[0]
        assert facts["holds"] and facts["hinf_error"] <= facts["error_bound"]
        assert facts["hinf_error"] == pytest.approx(error, rel=1e-3)
        assert hankel.verify(system, weighted, weight=weight) and plain.certificate.weighted is None
        better += error < control.linfnorm((system - plain.system) * weight)[0]
        with pytest.raises(hankel.HankelError, match="give weight="):
            hankel.verify(system, weighted)
    assert better >= 4


def test_a_state_of_harold_is_understood():
    class State:
        """The interface of harold's, which is not maintained for the numpy of today."""

        def __init__(self, a, b, c, d, dt=None):
            self.a, self.b, self.c, self.d = a, b, c, d
            self.SamplingSet, self.SamplingPeriod = ("R", None) if dt is None else ("Z", dt)

    State.__module__ = "harold._classes"
    a, b, c, d = random_system(6, states=8)
    reduced = hankel.reduce(State(a, b, c, d, 0.1), order=3).system
    assert type(reduced) is State and reduced.SamplingPeriod == 0.1 and reduced.a.shape == (3, 3)
    reduced = hankel.reduce(State(a - 2 * np.eye(8), b, c, d), order=3).system
    assert reduced.SamplingSet == "R" and reduced.a.shape == (3, 3)


def test_a_diagonal_and_other_layouts_of_memory_are_taken():
    rng = np.random.default_rng(1)
    poles, b, c = rng.uniform(-0.9, 0.9, 12), rng.standard_normal((12, 3)), rng.standard_normal((2, 12))
    values = hankel.singular_values(poles, b, c)
    for a, b_, c_ in [
        (np.diag(poles), b, c),
        (np.asfortranarray(np.diag(poles)), np.asfortranarray(b), c[::-1][::-1]),
        (np.diag(poles).tolist(), b.tolist(), c.tolist()),
    ]:
        np.testing.assert_allclose(hankel.singular_values(a, b_, c_), values, rtol=1e-12)
    integers = np.array([[0, 1], [0, 0]])
    assert hankel.singular_values(integers, [[0], [1]], [[1, 0]]) == pytest.approx([1, 1])
    single = [x.astype(np.float32) for x in (np.diag(poles), b, c)]
    np.testing.assert_allclose(hankel.singular_values(*single), values, rtol=1e-5)


def test_a_field_of_packed_records_is_read_right():
    a, b, c, _ = random_system(0, states=8)
    records = np.zeros(a.shape, [("value", "f8"), ("mark", "i4")])
    records["value"] = a
    assert np.array_equal(hankel.singular_values(records["value"], b, c), hankel.singular_values(a, b, c))


def test_a_diagonal_has_a_frequency_response():
    _, b, c, _ = random_system(0, states=5)
    poles = np.linspace(-0.5, 0.9, 5)
    full = hankel.System(np.diag(poles), b, c).frequency_response([0.1, 2.0])
    assert np.allclose(hankel.System(poles, b.tolist(), c).frequency_response([0.1, 2.0]), full)


def test_vectors_and_numbers_are_a_system_of_one_input_and_output():
    a, b, c, _ = random_system(0, states=8)
    full = hankel.reduce(a, b[:, :1], c[:1], [[0.5]], order=3)
    for given in ((a, b[:, 0], c[0], 0.5), (a, b[:, 0].tolist(), c[0].tolist(), np.array(0.5))):
        found = hankel.reduce(*given, order=3)
        for name in "ABCD":
            assert np.array_equal(getattr(found, name), getattr(full, name)), name
    single = hankel.reduce([[0.5]], [1.0, 2.0], [3.0], order=1)
    assert single.B.shape == (1, 2) and single.C.shape == (1, 1)
    of_object = hankel.System(a, b[:, 0], c[0], 0.5)
    assert np.array_equal(hankel.singular_values(of_object), hankel.singular_values(a, b[:, :1], c[:1]))
    assert of_object.frequency_response(OMEGA).shape == (len(OMEGA), 1, 1)


def test_sampling_times_have_to_agree():
    control = pytest.importorskip("control")
    a, b, c, d = random_system(0, states=8)
    system, same, other = (control.ss(a, b, c, d, dt) for dt in (0.5, 0.5, 0.1))
    m = b.shape[1]
    weight = lambda dt: control.ss(0.5 * np.eye(m), np.eye(m), np.eye(m), np.zeros((m, m)), dt)
    assert hankel.reduce(system, order=4, weight=weight(0.5)).system.dt == 0.5
    hankel.reduce(system, order=4, weight=weight(True))
    with pytest.raises(hankel.HankelError, match="sampling time dt is 0.1"):
        hankel.reduce(system, order=4, weight=weight(0.1))
    reduction = hankel.reduce(system, order=4)
    assert hankel.verify(same, reduction) and hankel.verify(same, reduction.system)
    with pytest.raises(hankel.HankelError, match="sampling time of one system is 0.1"):
        hankel.verify(other, reduction.system)


def test_systems_put_together_by_python_control_are_taken():
    control = pytest.importorskip("control")
    a, b, c, _ = random_system(0, states=8)
    one = control.ss(a, b[:, :1], c[:1], 0, 0.5, name="one", inputs="u", outputs="v")
    two = control.ss(0.5, 1, 1, 0, 0.5, name="two", inputs="v", outputs="y")
    together = control.interconnect([one, two], inputs="u", outputs="y")
    assert type(together) is not control.StateSpace and isinstance(together, control.StateSpace)
    reduced = hankel.reduce(together, order=3).system
    assert isinstance(reduced, control.StateSpace) and reduced.nstates == 3 and reduced.dt == 0.5


def test_results_can_be_compared_and_kept_in_sets():
    a, b, c, _ = random_system(0, states=8)
    reduction, other = hankel.reduce(a, b, c, order=4), hankel.reduce(a, b, c, order=5)
    again = hankel.Certificate.from_json(reduction.certificate.to_json())
    assert again == reduction.certificate != other.certificate and len({again, reduction.certificate}) == 1
    assert reduction == reduction != other and len({reduction.system, reduction.system}) == 1


def test_a_gain_of_scipy_is_stable():
    """scipy adds a state to it, at 0."""
    signal = pytest.importorskip("scipy.signal")
    gains = signal.TransferFunction([2.0], [1.0]), signal.ZerosPolesGain([], [], 2.0), signal.StateSpace([], [], [], [[2.0]])
    for gain in (*gains, signal.TransferFunction([2.0], [1.0], dt=0.5)):
        assert float(hankel.hinf_norm(gain)) == 2.0
    assert "no states" in refusal(gains[0])
    # As a weight, and an integrator that is not one of scipy's own is still refused.
    system = signal.StateSpace(-1.0, 1.0, 1.0, 0.0)
    assert hankel.reduce(system, order=0, weight=gains[0]).certificate.weighted["hinf_error"] == pytest.approx(2.0)
    assert "not stable" in refusal(signal.TransferFunction([1.0], [1.0, 0.0]))


def test_zeros_and_poles_are_those_that_were_given():
    """Multiplied out, the poles of these filters move, of the second one out of the circle."""
    signal = pytest.importorskip("scipy.signal")
    for order, band in ((4, (0.02, 0.022)), (4, (0.01, 0.011)), (6, (0.05, 0.055)), (7, (0.3, 0.5))):
        zeros, poles, gain = signal.butter(order, band, btype="band", output="zpk")
        plant = signal.dlti(zeros, poles, gain)
        reduction = hankel.reduce(plant, order=2 * order - 1)
        certificate = reduction.certificate
        omega = np.pi * np.concatenate([np.linspace(0.8 * band[0], 1.2 * band[1], 4001), [certificate.hinf_error_frequency / np.pi]])
        at = np.exp(1j * omega)[:, None]
        response = gain * np.prod(at - zeros, axis=1) / np.prod(at - poles, axis=1)
        reduced = hankel.System(reduction.A, reduction.B, reduction.C, reduction.D).frequency_response(omega)[:, 0, 0]
        error = np.abs(response - reduced).max()
        assert 0.999 * certificate.hinf_error <= error <= certificate.hinf_error_upper * (1 + 1e-6)
        assert certificate.hinf_norm == pytest.approx(1.0, rel=1e-6) and certificate.holds
        assert isinstance(reduction.system, signal.StateSpace) and hankel.verify(plant, reduction.system, certificate)
    for zeros, poles in (([0.3], [0.5, -0.2, 0.1]), ([0.3, -2.0], [0.5, 0.2 + 0.4j, 0.2 - 0.4j]), ([1j, -1j], [0.5, -0.2, 0.1])):
        plant = signal.dlti(zeros, poles, -2.0, dt=0.1)
        gain = -2.0 * np.prod(1.0 - np.array(zeros)) / np.prod(1.0 - np.array(poles))
        reduction = hankel.reduce(plant, order=2, method="spa")
        assert (reduction.C @ np.linalg.solve(np.eye(2) - reduction.A, reduction.B) + reduction.D).item() == pytest.approx(gain.real)
        assert reduction.system.dt == 0.1
    assert "comes without its complex conjugate" in refusal(signal.dlti([], [0.5 + 0.1j, 0.3], 1.0))
    assert "no more zeros than poles" in refusal(signal.dlti([0.1, 0.2], [0.5], 1.0))


def test_a_claim_is_a_certificate_about_what_is_given():
    a, b, c, _ = random_system(3, states=8)
    weight = hankel.System(0.5 * np.eye(b.shape[1]), np.eye(b.shape[1]), np.eye(b.shape[1]))
    plain, weighted = hankel.reduce(a, b, c, order=4), hankel.reduce(a, b, c, order=4, weight=weight)

    def problem(*args, **named):
        with pytest.raises(hankel.HankelError) as error:
            hankel.verify((a, b, c), *args, **named)
        return str(error.value)

    assert "str is not a Certificate; Certificate.from_json reads" in problem(plain.system, plain.certificate.to_json())
    assert "about errors under weights: give weight=" in problem(weighted)
    assert "claims nothing under a weight" in problem(plain, weight=weight)
    assert hankel.verify((a, b, c), plain) and hankel.verify((a, b, c), weighted, weight=weight)


def test_a_certificate_of_a_band_needs_no_weight(programs, tmp_path):
    a, b, c, _ = random_system(3, states=8)
    np.savez(tmp_path / "plant.npz", A=a, B=b, C=c, dt=1.0)
    command = [programs / "bt", "reduce", "plant.npz", "-o", "small.npz", "--order", "4", "--band", "0.1,1"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    certificate = hankel.Certificate.from_json((tmp_path / "small.npz.certificate.json").read_text())
    small = np.load(tmp_path / "small.npz")
    reduced = tuple(small[name] for name in "ABCD" if name in small)
    assert certificate.weighted is not None and hankel.verify((a, b, c), reduced, certificate)
    weight = hankel.System(0.5 * np.eye(b.shape[1]), np.eye(b.shape[1]), np.eye(b.shape[1]))
    with pytest.raises(hankel.HankelError, match="claims nothing under a weight"):
        hankel.verify((a, b, c), reduced, certificate, weight=weight)


def test_arguments_stay_as_they_are():
    a, b, c, d = random_system(9, states=10)
    before = [x.copy() for x in (a, b, c, d)]
    hankel.reduce(a, b, c, d, order=4)
    for x, y in zip((a, b, c, d), before):
        np.testing.assert_array_equal(x, y)


def refusal(*args, **options):
    with pytest.raises(hankel.HankelError) as caught:
        hankel.reduce(*args, **options)
    return str(caught.value)


def test_refusals_say_what_is_wrong():
    a, b, c, d = random_system(2, states=5)
    assert refusal(a, b, c, order=6) == "order 6 is larger than the 5 states of the system"
    assert "not stable" in refusal(2 * a / np.abs(np.linalg.eigvals(a)).max(), b, c)
    assert "must be between 0 and 1" in refusal(a, b, c, epsilon=2)
    assert "bt, bfsr" in refusal(a, b, c, method="balred")
    assert refusal(a, b[:3], c).startswith("B has shape (3, ")
    assert refusal(a[0:2], b, c) == "A has shape (2, 5), expected (2, 2)"
    assert refusal(a, b[0], c).startswith(f"B has shape ({b.shape[1]}, 1)")
    assert refusal(a, b[np.newaxis], c) == f"B has shape [1, 5, {b.shape[1]}], expected two dimensions"
    assert refusal(a, [[1.0], [1.0, 2.0]], c).startswith("B is not a matrix of numbers")
    assert refusal([[1.0], [1.0, 2.0]], b, c).startswith("A is not a matrix of numbers")
    assert refusal(a * np.nan, b, c) == "A holds NaN at row 0, column 0; every entry must be finite"
    assert refusal(a + 1j, b, c) == "A is complex; a system has real matrices"
    assert "C is missing" in refusal(a, b)
    assert "is not a system" in refusal("plant")
    assert "exclude each other" in refusal(a, b, c, order=1, bound=0.1)
    assert "not a whole number" in refusal(a, b, c, order=1.5)
    assert "must not be negative" in refusal(a, b, c, order=-1)
    assert refusal(a, b, c, order=2**70) == "order is out of range: no system has so many states"
    assert refusal(a, b, c, epsilon="0.1") == "epsilon = '0.1' is not a number"
    assert refusal(a, b, c, bound=1j) == "bound = 1j is not a number"
    assert "energy is out of range" in refusal(a, b, c, energy=10**400)
    assert "method = None is not a name; there are bt, bfsr" in refusal(a, b, c, method=None)
    assert refusal(hankel.System(a, b, c, dt="x")) == "dt = 'x' is not a number"
    assert "A is not a matrix of numbers" in refusal([[10**400]], [[1]], [[1]])
    assert "no states" in refusal(np.zeros((0, 0)), np.zeros((0, 1)), np.zeros((1, 0)))
    control = pytest.importorskip("control")
    assert "not stable: 1 of its poles" in refusal(control.ss(np.diag([-1.0, 0.0]), np.ones((2, 1)), np.ones((1, 2)), 0))
    assert "its dt is None" in refusal(control.ss(-0.5, 1, 1, 0, None))
    low = control.ss(-1, 1, 1, 0)
    assert "the weight" in refusal(a, b, c, weight=low) and "continuous time" in refusal(a, b, c, weight=low)
    assert "outputs, the system" in refusal(a, b, c, weight=([[0.5]], [[1.0]], np.ones((b.shape[1] + 1, 1))))
    assert "is not a system" in refusal(a, b, c, weight="low")


def test_false_claims_are_found():
    a, b, c, d = random_system(4, states=12)
    reduction = hankel.reduce(a, b, c, d, order=4)
    assert hankel.verify((a, b, c, d), reduction).passed
    other = hankel.reduce(a, b, c, d, order=3)
    found = hankel.verify((a, b, c, d), reduced_of(other), reduction.certificate)
    assert not found and any("hinf_error" in problem for problem in found.problems)
    worse = (reduction.A, 3 * reduction.B, reduction.C, reduction.D)
    assert not hankel.verify((a, b, c, d), worse)
    text = reduction.certificate.to_json()
    assert hankel.Certificate.from_json(text).to_json() == text
    with pytest.raises(hankel.HankelError, match="not the certificate"):
        hankel.Certificate.from_json("{}")


def test_other_threads_run_while_it_computes():
    a, b, c, _ = random_system(1, states=120)
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.perf_counter()
    hankel.reduce(a, b, c, order=20)
    end = time.perf_counter()
    done.set()
    thread.join()
    assert sum(start < t < end for t in ticks) >= 3


@pytest.mark.skipif(sys.platform != "linux", reason="children are forked on Linux alone")
def test_a_forked_child_computes():
    # Large enough to be divided among threads, which a child does not have of its parent.
    a, b, c, _ = random_system(1, states=300)
    hankel.gramians(a, b, c)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        values = pool.apply_async(hankel.singular_values, (a, b, c)).get(timeout=120)
    np.testing.assert_allclose(values, hankel.singular_values(a, b, c), rtol=0, atol=1e-9 * values[0])


def test_gramians_are_those_of_slow_poles_and_sampling_times_are_checked():
    one = np.ones((1, 1))
    slow = np.array([[1 - 1e-8]])
    np.testing.assert_allclose(hankel.gramians(slow, one, one)[0], 1 / (1 - slow**2), rtol=1e-7)
    np.testing.assert_allclose(hankel.singular_values(slow, one, one), [1 / (1 - slow[0, 0] ** 2)], rtol=1e-7)
    for dt in (-0.1, float("nan"), float("inf")):
        with pytest.raises(hankel.HankelError, match="must be a sampling time"):
            hankel.gramians(hankel.System(0.5 * one, one, one, 0 * one, dt))
    assert np.allclose(hankel.gramians(hankel.System(0.5 * one, one, one, 0 * one, np.True_))[0], 4 / 3)


def test_systems_of_other_sizes_are_not_compared():
    full = hankel.System(np.diag([0.5, 0.2]), np.ones((2, 1)), np.ones((1, 2)), np.zeros((1, 1)))
    other = hankel.System(np.diag([0.5]), np.ones((1, 2)), np.ones((1, 1)), np.zeros((1, 2)))
    with pytest.raises(hankel.HankelError):
        hankel.verify(full, other)


def test_a_bound_that_is_asked_for_holds_with_rounding():
    # Dense, with a pole so near the circle that rounding its entries moves the response by more than theory bounds the error by.
    v = np.sin(np.arange(1.0, 6.0))[:, None]
    q = np.eye(5) - 2 * (v @ v.T) / (v.T @ v)
    a, b, c = q @ np.diag([1 - 1e-10, 0.8, 0.5, 0.3, -0.2]) @ q, q @ np.ones((5, 1)), np.ones((1, 5)) @ q
    certificate = hankel.reduce(a, b, c, order=1).certificate
    theory = certificate.error_bound - certificate.details["rounding"]
    assert "with rounding it may be" in refusal(a, b, c, bound=1.1 * theory)
    assert hankel.reduce(a, b, c, bound=1.1 * certificate.error_bound).certificate.holds
