//! Pieces of a sequence `[batch, T, width]`: a range of steps, one sequence after another, and steps in another order.

//! [`narrow_time`] is PyTorch's `narrow`, [`concat_time`] its `cat`, both along time. Each is the other's gradient: that of a
//! range is padded with zeros, that of a part is its range. [`select_time`] puts steps in another order, with zeros where nothing
//! is selected; its gradient is the selection that puts every step back, so that a step that is selected twice counts once
//! ([`Selection::new`]).

#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
mod cpu;
pub(crate) mod gpu;

use crate::check;
use crate::dispatch::on_device;
use hankel_core::gpu::GpuBuffer;
use hankel_core::{Error, Result, Tensor};
use std::sync::{Arc, OnceLock};

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

/// No step, in a [`Selection`].
pub const NO_STEP: u32 = u32::MAX;

/// Which steps of a sequence are selected, in which order. Cloning shares them, and their copy on the GPU.
#[derive(Clone)]
pub struct Selection {
    /// A step of the sequence for each step of the selection.
    steps: Arc<Steps>,
    /// A step of the selection for each step of the sequence.
    back: Arc<Steps>,
}

/// Steps, and their copy on the GPU once it was needed: an upload takes as long as many launches.
struct Steps {
    steps: Vec<u32>,
    on_gpu: OnceLock<Arc<GpuBuffer>>,
}

impl Steps {
    fn new(steps: Vec<u32>) -> Arc<Self> {
        Arc::new(Steps { steps, on_gpu: OnceLock::new() })
    }
}

impl Selection {
    /// `steps` of a sequence of `total`, and zeros for [`NO_STEP`]. A step may be repeated, as padding for example:
    /// its gradient is that of its first place alone, and the repeats count as constants.
    ///
    /// # Errors
    /// When a step is beyond the end.
    pub fn new(steps: Vec<u32>, total: usize) -> Result<Self> {
        let beyond = |step: &&u32| **step != NO_STEP && **step as usize >= total;
        match steps.iter().find(beyond) {
            Some(step) => Err(Error::shape(SELECT, format!("step {step} of a sequence of {total}"))),
            None => Ok(Self::of(steps, total)),
        }
    }

    fn of(steps: Vec<u32>, total: usize) -> Self {
        let mut back = vec![NO_STEP; total];
        for (place, &step) in steps.iter().enumerate().rev().filter(|(_, step)| **step != NO_STEP) {
            back[step as usize] = place as u32;
        }
        Selection { steps: Steps::new(steps), back: Steps::new(back) }
    }

    /// The selection that puts every selected step back, from its first place; those that were not selected are zeros.
    #[must_use]
    pub fn inverse(&self) -> Self {
        Self::of(self.back.steps.clone(), self.steps.steps.len())
    }
}

const SELECT: &str = "select_time";

/// The selected steps of every sequence, `[batch, steps of the selection, width]`.
///
/// # Errors
/// When the selection is of sequences of another length, or the element type is not `f32` or `f64`.
pub fn select_time(x: &Tensor, selection: &Selection) -> Result<Tensor> {
    let [_, total, _] = sizes(SELECT, x)?;
    check::float(SELECT, x)?;
    let expected = selection.back.steps.len();
    if total != expected {
        let problem = format!("a selection from {expected} steps, of a sequence of {total}");
        return Err(Error::shape(SELECT, problem));
    }
    let y = on_device!(x, select(x, &selection.steps))?;
    let back = Arc::clone(&selection.back);
    y.from_operator(SELECT, &[Some(x)], move |g, _| Ok(vec![Some(on_device!(g, select(&g, &back))?)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_is_selected_again_is_a_constant() {
        let x = Tensor::from_vec(vec![1.0, 2.0, 3.0], [1, 3, 1]).unwrap().parameter().unwrap();
        let selection = Selection::new(vec![2, 0, 0, NO_STEP], 3).unwrap();
        let y = select_time(&x, &selection).unwrap();
        assert_eq!(y.to_f64_vec(), [3.0, 1.0, 1.0, 0.0]);
        let gradients = y.backward_with(Tensor::from_vec(vec![5.0, 7.0, 11.0, 13.0], [1, 4, 1]).unwrap()).unwrap();
        assert_eq!(gradients.get(&x).unwrap().to_f64_vec(), [7.0, 0.0, 5.0]);
        let padded = y.detach().parameter().unwrap();
        let unpadded = select_time(&padded, &selection.inverse()).unwrap();
        assert_eq!(unpadded.to_f64_vec(), [1.0, 0.0, 3.0]);
        let gradients = unpadded.backward_with(Tensor::from_vec(vec![5.0, 7.0, 11.0], [1, 3, 1]).unwrap()).unwrap();
        assert_eq!(gradients.get(&padded).unwrap().to_f64_vec(), [11.0, 5.0, 0.0, 0.0]);
        assert!(Selection::new(vec![3], 3).is_err());
    }
}
