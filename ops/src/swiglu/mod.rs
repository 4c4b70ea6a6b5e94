//! Gated unit: `y = silu(gate) * up`, `silu(x) = x / (1 + exp(-x))` (Shazeer, 2020).
//!
//! `gate` and `up` of one shape. With `p = sigmoid(gate)`: `d gate = g up p (1 + gate (1 - p))`, `d up = silu(gate) * g`.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
mod cpu;
mod gpu;

use crate::check;
use crate::dispatch::on_device;
use hankel_core::{Result, Tensor, autograd};

const NAME: &str = "swiglu";

/// `silu(gate) * up`, element by element.
///
/// # Errors
/// When shapes, element types or devices differ.
pub fn swiglu(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    check::float(NAME, gate)?;
    check::input(NAME, "up", up, gate.shape(), gate)?;
    let y = on_device!(gate, forward(gate, up))?;
    let saved_up = autograd::needs_gradient(gate).then(|| up.detach());
    let saved_gate = gate.detach();
    y.from_operator(NAME, &[Some(gate), Some(up)], move |g, wanted| {
        let [d_gate, d_up] = on_device!(g, backward(&saved_gate, saved_up.as_ref(), g, wanted[1]))?;
        Ok(vec![d_gate, d_up])
    })
}
