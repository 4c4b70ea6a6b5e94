//! One pass over the elements each.

use super::Function;
use crate::dispatch::for_float;
use hankel_core::{Buffer, Float, Result, Tensor, parallel};

/// `f` of each element.
fn each<T: Float>(x: &Tensor, f: impl Fn(T) -> T + Sync) -> Result<Tensor> {
    let source = x.data::<T>()?;
    let mut out = Buffer::unspecified(source.len());
    parallel::for_rows(&mut out, 1, |first, piece| {
        piece.iter_mut().zip(&source[first..]).for_each(|(y, &x)| *y = f(x));
    });
    Tensor::from_buffer(out, x.shape())
}

/// `f` of each pair of elements.
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

pub(super) fn map(x: &Tensor, f: Function) -> Result<Tensor> {
    for_float!(x, "map", T => match f {
        Function::Exp => each::<T>(x, T::exp),
        Function::Expm1 => each::<T>(x, T::exp_m1),
        Function::Softplus => each::<T>(x, |x| x.max(0.0) + (-x.abs()).exp().ln_1p()),
        Function::SoftCap(cap) => each::<T>(x, |x| T::of(cap) * (x / T::of(cap)).tanh()),
        Function::Sin => each::<T>(x, T::sin),
        Function::Cos => each::<T>(x, T::cos),
        Function::Clamp(low, high) => {
            let (low, high) = (T::of(low), T::of(high));
            // NaN stays NaN.
            each::<T>(x, |x| if x < low { low } else if x > high { high } else { x })
        }
    })
}

/// `g f'(x)`; `saved` is `f(x)` where [`Function::saves_result`], otherwise `x`.
pub(super) fn map_gradient(g: &Tensor, saved: &Tensor, f: Function) -> Result<Tensor> {
    for_float!(g, "map", T => match f {
        Function::Exp => zip::<T>(g, saved, |g, y| g * y),
        Function::Expm1 => zip::<T>(g, saved, |g, y| g * (y + 1.0)),
        Function::Softplus => zip::<T>(g, saved, |g, x| g * (1.0 / (1.0 + (-x).exp()))),
        Function::SoftCap(cap) => zip::<T>(g, saved, |g, y| g * (1.0 - (y / T::of(cap)) * (y / T::of(cap)))),
        Function::Sin => zip::<T>(g, saved, |g, x| g * x.cos()),
        Function::Cos => zip::<T>(g, saved, |g, x| -g * x.sin()),
        Function::Clamp(low, high) => {
            let (low, high) = (T::of(low), T::of(high));
            zip::<T>(g, saved, |g, x| g * if x >= low && x <= high { 1.0 } else { 0.0 })
        }
    })
}

pub(super) fn add(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    for_float!(x, "add", T => zip::<T>(x, y, |x, y| x + y))
}

pub(super) fn multiply(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    for_float!(x, "multiply", T => zip::<T>(x, y, |x, y| x * y))
}

pub(super) fn scale(x: &Tensor, factor: f64) -> Result<Tensor> {
    for_float!(x, "scale", T => {
        let factor = T::of(factor);
        each::<T>(x, |x| factor * x)
    })
}

/// `x` times the element of `factor`.
pub(super) fn times_scalar(x: &Tensor, factor: &Tensor) -> Result<Tensor> {
    for_float!(x, "times_scalar", T => {
        let factor = factor.data::<T>()?[0];
        each::<T>(x, |x| factor * x)
    })
}

/// `x` plus `y` times the element of `factor`.
pub(super) fn add_scaled(x: &Tensor, y: &Tensor, factor: &Tensor) -> Result<Tensor> {
    for_float!(x, "add_scaled", T => {
        let factor = factor.data::<T>()?[0];
        zip::<T>(x, y, |x, y| x + factor * y)
    })
}

pub(super) fn scale_rows(x: &Tensor, factor: &Tensor) -> Result<Tensor> {
    let m = x.shape().last().max(1);
    for_float!(x, "scale_rows", T => {
        let (source, factor) = (x.data::<T>()?, factor.data::<T>()?);
        let mut out = Buffer::<T>::unspecified(source.len());
        for ((y, x), &factor) in out.chunks_mut(m).zip(source.chunks(m)).zip(factor) {
            y.iter_mut().zip(x).for_each(|(y, &x)| *y = x * factor);
        }
        Tensor::from_buffer(out, x.shape())
    })
}

/// The inner product of each row of `g` with that of `x`, both `[n, m]`: `[n]`.
pub(super) fn row_dots(g: &Tensor, x: &Tensor) -> Result<Tensor> {
    let (n, m) = (x.shape()[0], x.shape()[1]);
    for_float!(g, "scale_rows", T => {
        let (g, x) = (g.data::<T>()?, x.data::<T>()?);
        let dot = |i: usize| g[i * m..][..m].iter().zip(&x[i * m..][..m]).map(|(&g, &x)| (g * x).f64()).sum::<f64>();
        Tensor::from_vec((0..n).map(|i| T::of(dot(i))).collect(), [n])
    })
}

pub(super) fn scale_columns(x: &Tensor, factor: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let m = x.shape().last();
    for_float!(x, "scale_columns", T => {
        let (source, factor) = (x.data::<T>()?, factor.data::<T>()?);
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
    })
}
