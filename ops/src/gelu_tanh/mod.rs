//! Gaussian error linear unit, by its approximation with a hyperbolic tangent (Hendrycks and Gimpel, 2016; `approximate="tanh"` of PyTorch):
//!
//! ```text
//! y = x/2 (1 + tanh(u/2)) = x s,    s = sigmoid(u),    u = 2 sqrt(2 / pi) (x + 0.044715 x^3)
//! ```
//!
//! Any shape. The gradient is `g (s + x s (1 - s) u')`.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
mod cpu;
mod gpu;

use crate::check;
use crate::dispatch::on_device;
use hankel_core::{Result, Tensor, autograd};

const NAME: &str = "gelu_tanh";

/// `x sigmoid(u)`, element by element.
///
/// # Errors
/// When the element type is not `f32` or `f64`.
pub fn gelu_tanh(x: &Tensor) -> Result<Tensor> {
    check::float(NAME, x)?;
    let (y, saved) = on_device!(x, forward(x, autograd::needs_gradient(x)))?;
    y.from_operator(NAME, &[Some(x)], move |g, _| Ok(vec![Some(on_device!(g, backward(&saved, g))?)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_one_and_far_values_have_finite_slopes() {
        let x: Vec<f64> = (-60..=60).map(|i| f64::from(i) / 4.0).collect();
        let y = gelu_tanh(&Tensor::from_vec(x.clone(), [x.len()]).unwrap()).unwrap().to_f64_vec();
        for (x, y) in x.iter().zip(y) {
            let expected = 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh());
            assert!((y - expected).abs() < 1e-14, "{x}: {y} {expected}");
        }
        let far = Tensor::from_vec(vec![-1e30_f32, -100.0, 100.0, 1e30], [4]).unwrap().parameter().unwrap();
        let y = gelu_tanh(&far).unwrap();
        assert_eq!(y.to_f64_vec(), [0.0, 0.0, 100.0, f64::from(1e30_f32)]);
        let gradients = y.backward_with(Tensor::full([4], 1.0_f32)).unwrap();
        assert_eq!(gradients.get(&far).unwrap().to_f64_vec(), [0.0, 0.0, 1.0, 1.0]);
    }
}
