//! Inverted dropout: `y = x * m / (1 - p)`, where `m` is 1 with probability `1 - p`.
//!
//! The mask is a function of the element's index in a [`Random`] stream, so nothing is saved for the gradient, a
//! recomputed region sees the same mask, and every device draws the same one: element `i` is kept when word `i` of the
//! stream is at least `p 2^32`. The gradient is the same map of the output's gradient.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
mod cpu;
mod gpu;

use crate::check;
use crate::dispatch::on_device;
use hankel_core::{Error, Random, Result, Tensor};

const NAME: &str = "dropout";

/// Drops elements with probability `p` and scales the others by `1 / (1 - p)`; `p = 0` is the identity.
///
/// # Errors
/// When `p` is not in `0 <= p < 1`, or the element type is not `f32` or `f64`.
pub fn dropout(x: &Tensor, p: f64, random: Random) -> Result<Tensor> {
    check::float(NAME, x)?;
    if !(0.0..1.0).contains(&p) {
        return Err(Error::invalid(NAME, format!("probability {p} is not in 0 <= p < 1")));
    }
    if p == 0.0 {
        return Ok(x.clone());
    }
    let y = on_device!(x, forward(x, p, &random))?;
    y.from_operator(NAME, &[Some(x)], move |g, _| Ok(vec![Some(on_device!(g, forward(&g, p, &random))?)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_right_share_and_the_mean() {
        let x = Tensor::full([100_000], 1.0_f32);
        let y = dropout(&x, 0.3, Random::new(3, "d", 9)).unwrap();
        let kept = y.data::<f32>().unwrap().iter().filter(|&&y| y != 0.0).count();
        assert!((kept as f64 / 1e5 - 0.7).abs() < 0.01);
        assert!((y.to_f64_vec().iter().sum::<f64>() / 1e5 - 1.0).abs() < 0.01);
        for p in [-0.1, 1.0, f64::NAN] {
            assert!(dropout(&x, p, Random::new(3, "d", 9)).is_err());
        }
    }
}
