//! Element by element.
//!
//! | operator | equation |
//! | --- | --- |
//! | [`add`] | z = x + y, both `[...]` of one shape |
//! | [`multiply`] | z = x * y |
//! | [`scale`] | y = c x |
//! | [`add_scaled`] | z = x + factor y, `factor` a tensor with one element |
//! | [`scale_rows`] | y_ij = factor_i x_ij, `x` `[n, m]`, `factor` `[n]` |
//! | [`scale_columns`] | y_ij = factor_j x_ij + bias_j, `x` `[..., m]`, `factor` and `bias` `[m]` |
//! | [`exp`] | y = e^x |
//! | [`expm1`] | y = e^x - 1 |
//! | [`softplus`] | y = ln(1 + e^x) |
//! | [`soft_cap`] | y = cap tanh(x / cap) |
//! | [`sin`], [`cos`] | y = sin x, y = cos x, x in radians |
//! | [`clamp`] | y = min(max(x, low), high); gradient 0 outside |

#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
mod cpu;
pub(crate) mod gpu;

use crate::check;
use crate::dispatch::on_device;
use crate::sums::{column_sums, dot};
use hankel_core::{Error, Result, Tensor, autograd};

/// A function of one element.
#[derive(Clone, Copy, PartialEq)]
enum Function {
    Exp,
    Expm1,
    Softplus,
    SoftCap(f64),
    Sin,
    Cos,
    Clamp(f64, f64),
}

impl Function {
    /// Whether the derivative is computed from the result, not from the argument.
    fn saves_result(self) -> bool {
        matches!(self, Function::Exp | Function::Expm1 | Function::SoftCap(_))
    }
}

/// `y = f(x)` with `d x = g f'(x)`.
fn map(operator: &'static str, x: &Tensor, f: Function) -> Result<Tensor> {
    check::float(operator, x)?;
    let y = on_device!(x, map(x, f))?;
    let saved = if f.saves_result() { y.clone() } else { x.detach() };
    y.from_operator(operator, &[Some(x)], move |g, _| Ok(vec![Some(on_device!(g, map_gradient(&g, &saved, f))?)]))
}

/// Sum of two tensors of one shape.
///
/// # Errors
/// When shapes, element types or devices differ.
pub fn add(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    const NAME: &str = "add";
    check::float(NAME, x)?;
    check::input(NAME, "y", y, x.shape(), x)?;
    on_device!(x, add(x, y))?.from_operator(NAME, &[Some(x), Some(y)], |g, wanted| {
        Ok(wanted.iter().map(|wanted| wanted.then(|| g.clone())).collect())
    })
}

/// Product of two tensors of one shape.
///
/// # Errors
/// When shapes, element types or devices differ.
pub fn multiply(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    const NAME: &str = "multiply";
    check::float(NAME, x)?;
    check::input(NAME, "y", y, x.shape(), x)?;
    let saved_y = autograd::needs_gradient(x).then(|| y.detach());
    let saved_x = autograd::needs_gradient(y).then(|| x.detach());
    on_device!(x, multiply(x, y))?.from_operator(NAME, &[Some(x), Some(y)], move |g, _| {
        let d_x = saved_y.map(|y| on_device!(g, multiply(&g, &y))).transpose()?;
        let d_y = saved_x.map(|x| on_device!(g, multiply(&g, &x))).transpose()?;
        Ok(vec![d_x, d_y])
    })
}

/// `factor` times a tensor.
///
/// # Errors
/// When the element type is not `f32` or `f64`.
pub fn scale(x: &Tensor, factor: f64) -> Result<Tensor> {
    const NAME: &str = "scale";
    check::float(NAME, x)?;
    on_device!(x, scale(x, factor))?
        .from_operator(NAME, &[Some(x)], move |g, _| Ok(vec![Some(on_device!(g, scale(&g, factor))?)]))
}

/// `x + factor y`, `x` and `y` of one shape, `factor` a tensor with one element: a gate that learns.
///
/// # Errors
/// When shapes, element types or devices differ, or the factor has more than one element.
pub fn add_scaled(x: &Tensor, y: &Tensor, factor: &Tensor) -> Result<Tensor> {
    const NAME: &str = "add_scaled";
    check::float(NAME, x)?;
    check::input(NAME, "y", y, x.shape(), x)?;
    if factor.elements() != 1 {
        return Err(Error::shape(NAME, format!("factor has shape {}, expected one element", factor.shape())));
    }
    check::input(NAME, "factor", factor, factor.shape(), x)?;
    let z = on_device!(x, add_scaled(x, y, factor))?;
    let saved_y = autograd::needs_gradient(factor).then(|| y.detach());
    let factor_saved = factor.detach();
    z.from_operator(NAME, &[Some(x), Some(y), Some(factor)], move |g, wanted| {
        let d_y = wanted[1].then(|| on_device!(g, times_scalar(&g, &factor_saved))).transpose()?;
        let d_factor = saved_y.map(|y| dot(&g, &y)?.reshape(factor_saved.shape())).transpose()?;
        Ok(vec![wanted[0].then_some(g), d_y, d_factor])
    })
}

/// Row `i` of a matrix `[n, m]` times `factor[i]`, `factor` `[n]`.
///
/// # Errors
/// When shapes, element types or devices do not fit.
pub fn scale_rows(x: &Tensor, factor: &Tensor) -> Result<Tensor> {
    const NAME: &str = "scale_rows";
    check::float(NAME, x)?;
    let &[n, _] = &x.shape()[..] else {
        return Err(Error::shape(NAME, format!("expected a matrix, found {}", x.shape())));
    };
    check::input(NAME, "factor", factor, &[n], x)?;
    let y = on_device!(x, scale_rows(x, factor))?;
    let saved_x = autograd::needs_gradient(factor).then(|| x.detach());
    let saved_factor = autograd::needs_gradient(x).then(|| factor.detach());
    y.from_operator(NAME, &[Some(x), Some(factor)], move |g, _| {
        let d_x = saved_factor.map(|factor| on_device!(g, scale_rows(&g, &factor))).transpose()?;
        let d_factor = saved_x.map(|x| on_device!(g, row_dots(&g, &x))).transpose()?;
        Ok(vec![d_x, d_factor])
    })
}

/// Column `j` of `x` `[..., m]` times `factor[j]`, plus `bias[j]` where there is a bias; both `[m]`.
///
/// # Errors
/// When shapes, element types or devices do not fit.
pub fn scale_columns(x: &Tensor, factor: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    const NAME: &str = "scale_columns";
    let m = x.shape().last();
    check::float(NAME, x)?;
    check::input(NAME, "factor", factor, &[m], x)?;
    if let Some(bias) = bias {
        check::input(NAME, "bias", bias, &[m], x)?;
    }
    let y = on_device!(x, scale_columns(x, factor, bias))?;
    let saved_x = autograd::needs_gradient(factor).then(|| x.detach());
    let saved_factor = autograd::needs_gradient(x).then(|| factor.detach());
    y.from_operator(NAME, &[Some(x), Some(factor), bias], move |g, wanted| {
        let d_x = saved_factor.map(|factor| on_device!(g, scale_columns(&g, &factor, None))).transpose()?;
        let d_factor = saved_x.map(|x| column_sums(&g, Some(&x))).transpose()?;
        let d_bias = wanted[2].then(|| column_sums(&g, None)).transpose()?;
        Ok(vec![d_x, d_factor, d_bias])
    })
}

/// `e^x`.
///
/// # Errors
/// When the element type is not `f32` or `f64`.
pub fn exp(x: &Tensor) -> Result<Tensor> {
    map("exp", x, Function::Exp)
}

/// `e^x - 1`, accurate near 0.
///
/// # Errors
/// When the element type is not `f32` or `f64`.
pub fn expm1(x: &Tensor) -> Result<Tensor> {
    map("expm1", x, Function::Expm1)
}

/// `ln(1 + e^x)`, without overflow.
///
/// # Errors
/// When the element type is not `f32` or `f64`.
pub fn softplus(x: &Tensor) -> Result<Tensor> {
    map("softplus", x, Function::Softplus)
}

/// `cap tanh(x / cap)`: nearly `x` where it is small, never beyond `cap` (logits of Gemma 2).
///
/// # Errors
/// When the element type is not `f32` or `f64`, or `cap` is not a positive number.
pub fn soft_cap(x: &Tensor, cap: f64) -> Result<Tensor> {
    if !check::is_cap(cap) {
        return Err(Error::invalid("soft_cap", format!("a cap of {cap}: it has to be a positive number")));
    }
    map("soft_cap", x, Function::SoftCap(cap))
}

/// `sin x`, `x` in radians.
///
/// # Errors
/// When the element type is not `f32` or `f64`.
pub fn sin(x: &Tensor) -> Result<Tensor> {
    map("sin", x, Function::Sin)
}

/// `cos x`, `x` in radians.
///
/// # Errors
/// When the element type is not `f32` or `f64`.
pub fn cos(x: &Tensor) -> Result<Tensor> {
    map("cos", x, Function::Cos)
}

/// Limits every element to `low ..= high`; NaN stays NaN. The gradient is 0 outside.
///
/// # Errors
/// When the element type is not `f32` or `f64`, or `low` is not at most `high`.
pub fn clamp(x: &Tensor, low: f64, high: f64) -> Result<Tensor> {
    if low.is_nan() || high.is_nan() || low > high {
        return Err(Error::invalid(
            "clamp",
            format!("limits {low} and {high}: the first has to be at most the second"),
        ));
    }
    map("clamp", x, Function::Clamp(low, high))
}
