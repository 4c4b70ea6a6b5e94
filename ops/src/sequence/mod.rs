//! Pieces of a sequence `[batch, T, width]`: a range of steps, and one sequence after another.

#[doc(hidden)]
pub mod cases;
mod gpu;

use crate::check;
use crate::dispatch::for_float;
use hankel_core::{Buffer, Error, Float, Result, Tensor};

fn sizes(operator: &'static str, x: &Tensor) -> Result<[usize; 3]> {
    let &[batch, steps, width] = &x.shape()[..] else {
        return Err(Error::shape(operator, format!("expected [batch, T, width], found {}", x.shape())));
    };
    Ok([batch, steps, width])
}

/// Steps `first .. first + steps` of every sequence, `[batch, steps, width]`.
///
/// # Errors
/// When the range goes beyond the end.
pub fn narrow_time(x: &Tensor, first: usize, steps: usize) -> Result<Tensor> {
    let [batch, total, width] = sizes("narrow_time", x)?;
    if first + steps > total {
        let problem = format!("steps {first}..{} of a sequence of {total}", first + steps);
        return Err(Error::shape("narrow_time", problem));
    }
    if let Some(gpu) = x.gpu() {
        return gpu::narrow(gpu, x, [batch, total, width], first, steps);
    }
    for_float!(x, "narrow_time", T => {
        let mut out = Buffer::<T>::unspecified(batch * steps * width);
        copy(x.data()?, &mut out, [total, steps], [first, 0], steps, width);
        Tensor::from_buffer(out, [batch, steps, width])?.from_operator("narrow_time", &[Some(x)], move |g, _| {
            let mut dx = Buffer::<T>::zeros(batch * total * width);
            copy(g.data()?, &mut dx, [steps, total], [0, first], steps, width);
            Ok(vec![Some(Tensor::from_buffer(dx, [batch, total, width])?)])
        })
    })
}

/// The parts one after the other, `[batch, sum of their steps, width]`.
///
/// # Errors
/// When there is none, or batch, width or element type differ.
pub fn concat_time(parts: &[&Tensor]) -> Result<Tensor> {
    let first = parts.first().ok_or_else(|| Error::shape("concat_time", "nothing to lay end to end"))?;
    let [batch, _, width] = sizes("concat_time", first)?;
    let mut places = Vec::with_capacity(parts.len());
    let mut total = 0;
    for part in parts {
        let [_, steps, _] = sizes("concat_time", part)?;
        check::shape("concat_time", "a part", part, &[batch, steps, width])?;
        check::dtype("concat_time", "a part", part, first.dtype())?;
        places.push((total, steps));
        total += steps;
    }
    if let Some(gpu) = first.gpu() {
        return gpu::concat(gpu, parts, [batch, total, width], places);
    }
    for_float!(first, "concat_time", T => {
        let mut out = Buffer::<T>::unspecified(batch * total * width);
        for (part, &(first, steps)) in parts.iter().zip(&places) {
            copy(part.data()?, &mut out, [steps, total], [0, first], steps, width);
        }
        let inputs: Vec<_> = parts.iter().copied().map(Some).collect();
        Tensor::from_buffer(out, [batch, total, width])?.from_operator("concat_time", &inputs, move |g, wanted| {
            let part = |(&(first, steps), &wanted): (&(usize, usize), &bool)| {
                if !wanted {
                    return Ok(None);
                }
                let mut part = Buffer::<T>::unspecified(batch * steps * width);
                copy(g.data()?, &mut part, [total, steps], [first, 0], steps, width);
                Tensor::from_buffer(part, [batch, steps, width]).map(Some)
            };
            places.iter().zip(wanted).map(part).collect()
        })
    })
}

/// Copies `steps` steps of every sequence; sequences have `lengths` steps and the ranges begin at `first` (from, to).
fn copy<T: Float>(from: &[T], to: &mut [T], lengths: [usize; 2], first: [usize; 2], steps: usize, width: usize) {
    let n = steps * width;
    if n == 0 {
        return;
    }
    for (from, to) in from.chunks(lengths[0] * width).zip(to.chunks_mut(lengths[1] * width)) {
        to[first[1] * width..][..n].copy_from_slice(&from[first[0] * width..][..n]);
    }
}
