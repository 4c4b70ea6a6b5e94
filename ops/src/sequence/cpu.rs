//! Copies of whole ranges, and of steps one by one.

use super::{NO_STEP, SELECT, Steps};
use crate::dispatch::for_float;
use hankel_core::{Buffer, Float, Result, Tensor, parallel};

/// Steps `first .. first + steps`.
pub(super) fn narrow(x: &Tensor, first: usize, steps: usize) -> Result<Tensor> {
    let [batch, total, width] = [x.shape()[0], x.shape()[1], x.shape()[2]];
    for_float!(x, "narrow_time", T => {
        let mut out = Buffer::<T>::unspecified(batch * steps * width);
        copy(x.data()?, &mut out, [total, steps], [first, 0], steps, width);
        Tensor::from_buffer(out, [batch, steps, width])
    })
}

/// Zeros of `total` steps, but `x` from step `first` on.
pub(super) fn pad(x: &Tensor, first: usize, total: usize) -> Result<Tensor> {
    let [batch, steps, width] = [x.shape()[0], x.shape()[1], x.shape()[2]];
    for_float!(x, "narrow_time", T => {
        let mut out = Buffer::<T>::zeros(batch * total * width);
        copy(x.data()?, &mut out, [steps, total], [0, first], steps, width);
        Tensor::from_buffer(out, [batch, total, width])
    })
}

/// All parts, of `total` steps together.
pub(super) fn concat(parts: &[&Tensor], total: usize) -> Result<Tensor> {
    let [batch, width] = [parts[0].shape()[0], parts[0].shape()[2]];
    for_float!(parts[0], "concat_time", T => {
        let mut out = Buffer::<T>::unspecified(batch * total * width);
        let mut first = 0;
        for part in parts {
            let steps = part.shape()[1];
            copy(part.data()?, &mut out, [steps, total], [0, first], steps, width);
            first += steps;
        }
        Tensor::from_buffer(out, [batch, total, width])
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

/// Steps `steps` of every sequence, zeros for none.
pub(super) fn select(x: &Tensor, steps: &Steps) -> Result<Tensor> {
    let steps = &steps.steps;
    let [batch, total, width] = [x.shape()[0], x.shape()[1], x.shape()[2]];
    for_float!(x, SELECT, T => {
        let data = x.data::<T>()?;
        let mut out = Buffer::<T>::unspecified(batch * steps.len() * width);
        parallel::for_rows(&mut out, width, |first, rows| {
            for (row, place) in rows.chunks_exact_mut(width).zip(first..) {
                match steps[place % steps.len()] {
                    NO_STEP => row.fill(T::default()),
                    step => {
                        let from = place / steps.len() * total + step as usize;
                        row.copy_from_slice(&data[from * width..][..width]);
                    }
                }
            }
        });
        Tensor::from_buffer(out, [batch, steps.len(), width])
    })
}
