//! Pieces of a sequence `[batch, T, width]`: a range of steps, and one sequence after another.

//! [`narrow_time`] is PyTorch's `narrow`, [`concat_time`] its `cat`, both along time. Each is the other's gradient: that of a
//! range is padded with zeros, that of a part is its range.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
mod cpu;
pub(crate) mod gpu;

use crate::check;
use crate::dispatch::on_device;
use hankel_core::{Error, Result, Tensor};

fn sizes(operator: &'static str, x: &Tensor) -> Result<[usize; 3]> {
    let &[batch, steps, width] = &x.shape()[..] else {
        return Err(Error::shape(operator, format!("expected [batch, T, width], found {}", x.shape())));
    };
    Ok([batch, steps, width])
}

/// Steps `first .. first + steps` of every sequence, `[batch, steps, width]`.
///
/// # Errors
/// When the range goes beyond the end, or the element type is not `f32` or `f64`.
pub fn narrow_time(x: &Tensor, first: usize, steps: usize) -> Result<Tensor> {
    const NAME: &str = "narrow_time";
    let [_, total, _] = sizes(NAME, x)?;
    check::float(NAME, x)?;
    if first.saturating_add(steps) > total {
        let problem = format!("{steps} steps from step {first} on, of a sequence of {total}");
        return Err(Error::shape(NAME, problem));
    }
    let y = on_device!(x, narrow(x, first, steps))?;
    y.from_operator(NAME, &[Some(x)], move |g, _| Ok(vec![Some(on_device!(g, pad(&g, first, total))?)]))
}

/// The parts one after the other, `[batch, sum of their steps, width]`.
///
/// # Errors
/// When there is none, or batch, width, element type or device differ.
pub fn concat_time(parts: &[&Tensor]) -> Result<Tensor> {
    const NAME: &str = "concat_time";
    let one = *parts.first().ok_or_else(|| Error::shape(NAME, "expected at least one part"))?;
    let [batch, _, width] = sizes(NAME, one)?;
    check::float(NAME, one)?;
    let mut ranges = Vec::with_capacity(parts.len());
    let mut total = 0;
    for part in parts {
        let [_, steps, _] = sizes(NAME, part)?;
        check::input(NAME, "a part", part, &[batch, steps, width], one)?;
        ranges.push((total, steps));
        total += steps;
    }
    let inputs: Vec<_> = parts.iter().copied().map(Some).collect();
    on_device!(one, concat(parts, total))?.from_operator(NAME, &inputs, move |g, wanted| {
        let of_part = |(&(first, steps), wanted): (&(usize, usize), &bool)| {
            wanted.then(|| on_device!(g, narrow(&g, first, steps))).transpose()
        };
        ranges.iter().zip(wanted.iter()).map(of_part).collect()
    })
}
