"""The two evaluations of the recurrences of ``hankel.torch`` against each other, and their gradients against differences."""

import os

import pytest

if not os.environ.get("HANKEL_REQUIRE_TORCH"):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")

import torch

from hankel.torch import scan


def poles(real, pairs):
    generator = torch.Generator().manual_seed(real + 10 * pairs)
    rate = torch.rand(real + pairs, generator=generator, dtype=torch.float64) + 1e-3
    angle = 3 * torch.rand(pairs, generator=generator, dtype=torch.float64)
    sign = torch.tensor([-1.0 if i % 2 else 1.0 for i in range(real)])
    return scan.Modal(rate, angle, sign)


def noise(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)), dtype=torch.float64)


@pytest.mark.parametrize(("real", "pairs"), [(3, 0), (0, 2), (2, 3)])
@pytest.mark.parametrize("begins", ["zero", "state"])
def test_both_evaluations_agree(real, pairs, begins):
    modal, d = poles(real, pairs), real + 2 * pairs
    u, initial = noise(2, 17, d), noise(2, d) if begins == "state" else None
    expected = scan.scan(u, modal, initial, "sequential")
    torch.testing.assert_close(scan.scan(u, modal, initial, "fft"), expected, rtol=0, atol=1e-12)
    dense = scan.Dense(modal.matrix())
    torch.testing.assert_close(scan.scan(u, dense, initial, "auto"), expected, rtol=0, atol=1e-12)
    # In two parts, the state carried.
    first = scan.scan(u[:, :5], modal, initial, "fft")
    second = scan.scan(u[:, 5:], modal, first[:, -1], "fft")
    torch.testing.assert_close(torch.cat([first, second], dim=1), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 7, 16])
def test_varying_poles(steps):
    a, u, initial = torch.tanh(noise(2, steps, 3)), noise(2, steps, 3).flip(0), noise(2, 3)
    expected = scan.varying_scan(a, u, initial, "sequential")
    torch.testing.assert_close(scan.varying_scan(a, u, initial, "auto"), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("path", ["fft", "sequential"])
def test_gradients_are_those_of_differences(path):
    sign = poles(2, 2).sign

    def states(u, rate, angle, initial):
        return scan.scan(u, scan.Modal(rate, angle, sign), initial, path)

    modal = poles(2, 2)
    inputs = [t.requires_grad_() for t in (noise(2, 6, 6), modal.rate, modal.angle, noise(2, 6))]
    assert torch.autograd.gradcheck(states, inputs)
    varying = [t.requires_grad_() for t in (torch.tanh(noise(1, 5, 2)), noise(1, 5, 2), noise(1, 2))]
    assert torch.autograd.gradcheck(lambda a, u, s: scan.varying_scan(a, u, s, path), varying)


def test_one_large_input_does_not_spoil_the_others():
    """Where a convolution in single precision would be off by 1e-7 of the largest input, everywhere."""
    modal, u = poles(3, 1), noise(1, 64, 5).float()
    u[:, 40] *= 1e6
    expected = scan.scan(u.double(), modal, None, "sequential")[:, :40]
    torch.testing.assert_close(scan.scan(u, modal, None, "fft")[:, :40].double(), expected, rtol=1e-5, atol=1e-6)


def test_unknown_evaluations_are_refused():
    with pytest.raises(ValueError, match="auto, fft, sequential"):
        scan.check("chunked")
