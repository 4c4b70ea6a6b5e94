//! Gaussian error linear unit (Hendrycks and Gimpel, 2016), exact and by its approximation with a hyperbolic tangent (`approximate="tanh"` of PyTorch).
//!
//! ```text
//! gelu       y = x Φ(x)                          gradient g (Φ(x) + x φ(x))
//! gelu_tanh  y = x/2 (1 + tanh(u/2)) = x s       gradient g (s + x s (1 - s) u')
//!            s = sigmoid(u),    u = 2 sqrt(2 / pi) (x + 0.044715 x^3)
//! ```
//!
//! `Φ` is the normal distribution function, `φ` its density. Any shape.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
mod cpu;
mod gpu;

use crate::check;
use crate::dispatch::on_device;
use hankel_core::{Result, Tensor, autograd};

/// Which function of the two.
#[derive(Clone, Copy)]
enum Form {
    Exact,
    Tanh,
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Form::Exact => "gelu",
            Form::Tanh => "gelu_tanh",
        }
    }
}

/// `x Φ(x)`, element by element.
///
/// # Errors
/// When the element type is not `f32` or `f64`.
pub fn gelu(x: &Tensor) -> Result<Tensor> {
    of_form(Form::Exact, x)
}

/// `x sigmoid(u)`, element by element.
///
/// # Errors
/// When the element type is not `f32` or `f64`.
pub fn gelu_tanh(x: &Tensor) -> Result<Tensor> {
    of_form(Form::Tanh, x)
}

fn of_form(form: Form, x: &Tensor) -> Result<Tensor> {
    check::float(form.name(), x)?;
    let (y, saved) = on_device!(x, forward(form, x, autograd::needs_gradient(x)))?;
    y.from_operator(form.name(), &[Some(x)], move |g, _| Ok(vec![Some(on_device!(g, backward(form, &saved, g))?)]))
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
