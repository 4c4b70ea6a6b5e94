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
//! | [`clamp`] | y = min(max(x, low), high); gradient 0 outside |

#[doc(hidden)]
pub mod cases;
mod gpu;

pub(crate) use gpu::times_scalar;

use crate::check;
use crate::dispatch::for_float;
use hankel_core::{Buffer, Error, Float, Result, Tensor, autograd, parallel};

fn map<T: Float>(x: &Tensor, f: impl Fn(T) -> T + Sync) -> Result<Tensor> {
    let source = x.data::<T>()?;
    let mut out = Buffer::unspecified(source.len());
    parallel::for_rows(&mut out, 1, |first, piece| {
        piece.iter_mut().zip(&source[first..]).for_each(|(y, &x)| *y = f(x));
    });
    Tensor::from_buffer(out, x.shape())
}

fn zip<T: Float>(x: &Tensor, y: &Tensor, f: impl Fn(T, T) -> T + Sync) -> Result<Tensor> {
    let (left, right) = (x.data::<T>()?, y.data::<T>()?);
    let mut out = Buffer::unspecified(left.len());
    parallel::for_rows(&mut out, 1, |first, piece| {
        for ((z, &x), &y) in piece.iter_mut().zip(&left[first..]).zip(&right[first..]) {
            *z = f(x, y);
        }
    });
    Tensor::from_buffer(out, x.shape())
}

/// `y = value(x)`, with `derivative(x, y)`.
fn unary<T: Float>(
    operator: &'static str,
    x: &Tensor,
    value: impl Fn(T) -> T + Sync,
    derivative: impl Fn(T, T) -> T + Sync + Send + 'static,
) -> Result<Tensor> {
    let y = map(x, value)?;
    let (saved_x, saved_y) = (x.detach(), y.clone());
    y.from_operator(operator, &[Some(x)], move |g, _| {
        let slope = zip(&saved_x, &saved_y, &derivative)?;
        Ok(vec![Some(zip(&g, &slope, |g: T, d| g * d)?)])
    })
}

/// Sum of two tensors of one shape.
///
/// # Errors
/// When shapes or element types differ.
pub fn add(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    check::shape("add", "y", y, x.shape())?;
    check::dtype("add", "y", y, x.dtype())?;
    if let Some(gpu) = x.gpu() {
        return gpu::add(gpu, x, y);
    }
    for_float!(x, "add", T => zip::<T>(x, y, |x, y| x + y))?.from_operator("add", &[Some(x), Some(y)], |g, wanted| {
        Ok(wanted.iter().map(|&w| w.then(|| g.clone())).collect())
    })
}

/// Product of two tensors of one shape.
///
/// # Errors
/// When shapes or element types differ.
pub fn multiply(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    check::shape("multiply", "y", y, x.shape())?;
    check::dtype("multiply", "y", y, x.dtype())?;
    if let Some(gpu) = x.gpu() {
        return gpu::multiply(gpu, x, y);
    }
    let (saved_x, saved_y) = (x.detach(), y.detach());
    for_float!(x, "multiply", T => {
        zip::<T>(x, y, |x, y| x * y)?.from_operator("multiply", &[Some(x), Some(y)], move |g, wanted| {
            let product = |wanted: bool, y: &Tensor| wanted.then(|| zip::<T>(&g, y, |g, y| g * y)).transpose();
            Ok(vec![product(wanted[0], &saved_y)?, product(wanted[1], &saved_x)?])
        })
    })
}

/// `factor` times a tensor.
///
/// # Errors
/// When the element type is not `f32` or `f64`.
pub fn scale(x: &Tensor, factor: f64) -> Result<Tensor> {
    if let Some(gpu) = x.gpu() {
        return gpu::map(gpu, "scale", gpu::Function::Scale, [factor, 0.0], x);
    }
    for_float!(x, "scale", T => {
        let c = T::of(factor);
        map::<T>(x, |x| c * x)?.from_operator("scale", &[Some(x)], move |g, _| Ok(vec![Some(map::<T>(&g, |g| c * g)?)]))
    })
}

/// `x + factor y`, `x` and `y` of one shape, `factor` a tensor with one element: a gate that learns.
///
/// # Errors
/// When shapes or element types differ, or the factor has more than one element.
pub fn add_scaled(x: &Tensor, y: &Tensor, factor: &Tensor) -> Result<Tensor> {
    check::shape("add_scaled", "y", y, x.shape())?;
    check::dtype("add_scaled", "y", y, x.dtype())?;
    check::dtype("add_scaled", "factor", factor, x.dtype())?;
    if let (Some(gpu), 1) = (x.gpu(), factor.elements()) {
        return gpu::add_scaled(gpu, x, y, factor);
    }
    let c = factor.item()?;
    for_float!(x, "add_scaled", T => {
        let c = T::of(c);
        let saved_y = autograd::needs_gradient(factor).then(|| y.detach());
        let shape = factor.shape().clone();
        zip::<T>(x, y, |x, y| x + c * y)?.from_operator("add_scaled", &[Some(x), Some(y), Some(factor)], move |g, wanted| {
            let dy = wanted[1].then(|| map::<T>(&g, |g| c * g)).transpose()?;
            let dot = |y: Tensor| -> Result<Tensor> {
                let products = g.data::<T>()?.iter().zip(y.data::<T>()?).map(|(&g, &y)| (g * y).f64());
                Ok(Tensor::full(&shape, T::of(products.sum())))
            };
            let dfactor = saved_y.map(dot).transpose()?;
            Ok(vec![wanted[0].then(|| g.clone()), dy, dfactor])
        })
    })
}

/// Row `i` of a matrix `[n, m]` times `factor[i]`, `factor` `[n]`.
///
/// # Errors
/// When shapes or element types do not fit.
pub fn scale_rows(x: &Tensor, factor: &Tensor) -> Result<Tensor> {
    let &[n, m] = &x.shape()[..] else {
        return Err(Error::shape("scale_rows", format!("expected a matrix, found {}", x.shape())));
    };
    check::shape("scale_rows", "factor", factor, &[n])?;
    check::dtype("scale_rows", "factor", factor, x.dtype())?;
    if let Some(gpu) = x.gpu() {
        return gpu::scale_rows(gpu, x, factor);
    }
    for_float!(x, "scale_rows", T => {
        fn rows<T: Float>(x: &Tensor, factor: &Tensor) -> Result<Tensor> {
            let m = x.shape().last().max(1);
            let mut out = x.data::<T>()?.to_vec();
            for (row, &f) in out.chunks_mut(m).zip(factor.data::<T>()?) {
                row.iter_mut().for_each(|x| *x *= f);
            }
            Tensor::from_vec(out, x.shape())
        }
        let (saved_x, saved_factor) = (x.detach(), factor.detach());
        rows::<T>(x, factor)?.from_operator("scale_rows", &[Some(x), Some(factor)], move |g, wanted| {
            let dx = wanted[0].then(|| rows::<T>(&g, &saved_factor)).transpose()?;
            let product = g.data::<T>()?.iter().zip(saved_x.data::<T>()?).map(|(&g, &x)| g * x).collect::<Vec<_>>();
            let sums = (0..n).map(|i| product[i * m..(i + 1) * m].iter().copied().sum::<T>()).collect();
            Ok(vec![dx, wanted[1].then(|| Tensor::from_vec(sums, [n])).transpose()?])
        })
    })
}

/// Column `j` of `x` `[..., m]` times `factor[j]`, plus `bias[j]` where there is a bias; both `[m]`.
///
/// # Errors
/// When shapes or element types do not fit.
pub fn scale_columns(x: &Tensor, factor: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let m = x.shape().last();
    for (name, vector) in [("factor", Some(factor)), ("bias", bias)] {
        if let Some(vector) = vector {
            check::shape("scale_columns", name, vector, &[m])?;
            check::dtype("scale_columns", name, vector, x.dtype())?;
        }
    }
    if let Some(gpu) = x.gpu() {
        return gpu::scale_columns(gpu, x, factor, bias);
    }
    for_float!(x, "scale_columns", T => {
        let out = columns::<T>(x, factor, bias)?;
        let saved_x = autograd::needs_gradient(factor).then(|| x.detach());
        let saved_factor = autograd::needs_gradient(x).then(|| factor.detach());
        out.from_operator("scale_columns", &[Some(x), Some(factor), bias], move |g, wanted| {
            let dx = saved_factor.map(|factor| columns::<T>(&g, &factor, None)).transpose()?;
            let data = g.data::<T>()?;
            let dfactor = saved_x.map(|x| column_sums::<T>(data, Some(x.data()?), m)).transpose()?;
            let dbias = if wanted[2] { Some(column_sums::<T>(data, None, m)?) } else { None };
            Ok(vec![dx, dfactor, dbias])
        })
    })
}

fn columns<T: Float>(x: &Tensor, factor: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let (source, factor, m) = (x.data::<T>()?, factor.data::<T>()?, x.shape().last());
    let bias = bias.map(Tensor::data::<T>).transpose()?;
    let mut out = Buffer::unspecified(source.len());
    parallel::for_rows(&mut out, m, |first, piece| {
        for (y, x) in piece.chunks_mut(m).zip(source[first * m..].chunks(m)) {
            y.iter_mut().zip(x).zip(factor).for_each(|((y, &x), &f)| *y = f * x);
            if let Some(bias) = bias {
                y.iter_mut().zip(bias).for_each(|(y, &b)| *y += b);
            }
        }
    });
    Tensor::from_buffer(out, x.shape())
}

/// The sums over rows of `g`, or of `g x`, in the order of the rows; columns are shared out among threads.
fn column_sums<T: Float>(g: &[T], x: Option<&[T]>, m: usize) -> Result<Tensor> {
    const COLUMNS: usize = 64;
    let mut sums = Buffer::<T>::zeros(m);
    parallel::for_row_blocks(&mut sums, 1, COLUMNS, |first, sums| {
        for row in (0..g.len()).step_by(m.max(1)) {
            let range = row + first..row + first + sums.len();
            match x {
                Some(x) => {
                    let products = g[range.clone()].iter().zip(&x[range]);
                    sums.iter_mut().zip(products).for_each(|(s, (&g, &x))| *s += g * x);
                }
                None => sums.iter_mut().zip(&g[range]).for_each(|(s, &g)| *s += g),
            }
        }
    });
    Tensor::from_buffer(sums, [m])
}

/// `e^x`.
///
/// # Errors
/// When the element type is not `f32` or `f64`.
pub fn exp(x: &Tensor) -> Result<Tensor> {
    if let Some(gpu) = x.gpu() {
        return gpu::map(gpu, "exp", gpu::Function::Exp, [0.0; 2], x);
    }
    for_float!(x, "exp", T => unary::<T>("exp", x, T::exp, |_, y| y))
}

/// `e^x - 1`, accurate near 0.
///
/// # Errors
/// When the element type is not `f32` or `f64`.
pub fn expm1(x: &Tensor) -> Result<Tensor> {
    if let Some(gpu) = x.gpu() {
        return gpu::map(gpu, "expm1", gpu::Function::Expm1, [0.0; 2], x);
    }
    for_float!(x, "expm1", T => unary::<T>("expm1", x, T::exp_m1, |_, y| y + 1.0))
}

/// `ln(1 + e^x)`, without overflow.
///
/// # Errors
/// When the element type is not `f32` or `f64`.
pub fn softplus(x: &Tensor) -> Result<Tensor> {
    if let Some(gpu) = x.gpu() {
        return gpu::map(gpu, "softplus", gpu::Function::Softplus, [0.0; 2], x);
    }
    for_float!(x, "softplus", T => unary::<T>(
        "softplus",
        x,
        |x| x.max(0.0) + (-x.abs()).exp().ln_1p(),
        |x, _| 1.0 / (1.0 + (-x).exp()),
    ))
}

/// Limits every element to `low ..= high`; the gradient is 0 outside.
///
/// # Errors
/// When the element type is not `f32` or `f64`.
pub fn clamp(x: &Tensor, low: f64, high: f64) -> Result<Tensor> {
    if let Some(gpu) = x.gpu() {
        return gpu::map(gpu, "clamp", gpu::Function::Clamp, [low, high], x);
    }
    for_float!(x, "clamp", T => {
        let (low, high) = (T::of(low), T::of(high));
        let inside = move |x: T, _| if x >= low && x <= high { 1.0 } else { 0.0 };
        // What is no number stays so.
        unary::<T>("clamp", x, |x| if x < low { low } else if x > high { high } else { x }, inside)
    })
}
