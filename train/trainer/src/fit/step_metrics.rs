//! Losses and gradient norms of steps, on the device that computed them until they are asked for.

use hankel_core::{Device, Result, Tensor};
use hankel_ops::{add, concat_time, scale};

/// Loss and gradient norm of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StepMetrics {
    /// Number of the step, from 1.
    pub step: u64,
    /// The minimised loss, mean over the targets of the step.
    pub loss: f64,
    /// Global gradient norm before clipping.
    pub gradient_norm: f64,
}

impl StepMetrics {
    /// Whether both are finite.
    pub(super) fn is_finite(&self) -> bool {
        self.loss.is_finite() && self.gradient_norm.is_finite()
    }
}

/// StepMetrics that were not read yet.
#[derive(Default)]
pub(super) struct PendingMetrics {
    steps: Vec<Pending>,
    /// The norm of the latest step, or NaN if an earlier one was not finite.
    guard: Option<Tensor>,
}

struct Pending {
    step: u64,
    /// Of each batch, the parts of its loss.
    losses: Vec<Vec<Tensor>>,
    norm: Tensor,
}

impl PendingMetrics {
    /// Adds the figures of step `step`. Returns the norm to update parameters with: once the norm of a step is not finite, neither is that
    /// of any later step, so that no parameter changes until the host has read the figures.
    ///
    /// # Errors
    /// Those of the operators.
    pub(super) fn push(&mut self, step: u64, losses: Vec<Vec<Tensor>>, norm: Tensor) -> Result<Tensor> {
        let guard = match &self.guard {
            // Zero times what is not finite is not a number.
            Some(before) => add(&norm, &scale(before, 0.0)?)?,
            None => norm.clone(),
        };
        self.guard = Some(guard.clone());
        self.steps.push(Pending { step, losses, norm });
        Ok(guard)
    }

    /// The figures of all steps since the last call, read from the device together.
    ///
    /// # Errors
    /// When the device has failed.
    pub(super) fn read(&mut self) -> Result<Vec<StepMetrics>> {
        let steps = std::mem::take(&mut self.steps);
        self.guard = None;
        let scalars = steps.iter().flat_map(|step| step.losses.iter().flatten().chain([&step.norm]));
        let mut values = fetch(&scalars.collect::<Vec<_>>())?.into_iter();
        let mut next = || values.next().unwrap_or(f64::NAN);
        let figures = steps.iter().map(|step| {
            let loss = step.losses.iter().fold(0.0, |sum, parts| sum + parts.iter().fold(0.0, |sum, _| sum + next()));
            StepMetrics { step: step.step, loss, gradient_norm: next() }
        });
        Ok(figures.collect())
    }
}

/// The values of tensors with one element.
fn fetch(scalars: &[&Tensor]) -> Result<Vec<f64>> {
    let there: Vec<Tensor> =
        scalars.iter().filter(|scalar| scalar.gpu().is_some()).map(|s| s.reshape([1, 1, 1])).collect::<Result<_>>()?;
    let mut read = Vec::new();
    if !there.is_empty() {
        read = concat_time(&there.iter().collect::<Vec<_>>())?.to_device(Device::Cpu)?.to_f64_vec();
    }
    let mut read = read.into_iter();
    let value = |scalar: &&Tensor| match scalar.gpu() {
        Some(_) => Ok(read.next().unwrap_or(f64::NAN)),
        None => scalar.item(),
    };
    scalars.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hankel_core::gpu::for_tests;

    #[test]
    fn figures_are_read_together_and_the_guard_stays_down() {
        let devices = [Some(Device::Cpu), for_tests().map(Device::Gpu)];
        for device in devices.into_iter().flatten() {
            let scalar = |x: f32| Tensor::scalar(x).to_device(device).unwrap();
            let mut unread = PendingMetrics::default();
            let mut guards = Vec::new();
            for (step, norm) in [1.0, 2.0, f32::INFINITY, 3.0].into_iter().enumerate() {
                let losses = vec![vec![scalar(step as f32), scalar(0.5)], vec![scalar(10.0)]];
                guards.push(unread.push(step as u64 + 1, losses, scalar(norm)).unwrap().item().unwrap());
            }
            assert_eq!(guards[..2], [1.0, 2.0]);
            assert!(!guards[2].is_finite() && !guards[3].is_finite());
            let figures = unread.read().unwrap();
            let expected = |step: u64, gradient_norm| StepMetrics { step, loss: step as f64 + 9.5, gradient_norm };
            assert_eq!(figures[..2], [expected(1, 1.0), expected(2, 2.0)]);
            assert!(!figures[2].is_finite() && figures[3] == expected(4, 3.0));
            assert_eq!(unread.push(5, vec![vec![scalar(1.0)]], scalar(7.0)).unwrap().item().unwrap(), 7.0);
            assert_eq!(unread.read().unwrap(), [StepMetrics { step: 5, loss: 1.0, gradient_norm: 7.0 }]);
            assert!(unread.read().unwrap().is_empty());
        }
    }
}
