//! States of recurrent adapters along real data, for empirical Gramians (R7).

use super::batches::unpadded;
use super::model::Model;
use crate::results::Split;
use crate::tasks::Task;
use anyhow::{Result, bail};
use hankel_core::{Device, Tensor};
use hankel_models::Pass;
use hankel_models::weights::{StateRecord, StreamSite};
use std::collections::BTreeMap;

/// The states of every adapted site along the first `sequences` of a split. A record has sequences of one length: of different ones it
/// has the length that keeps most steps, and leaves out what is shorter and what is behind it, which is told.
///
/// # Errors
/// When the model has no recurrent adapters, and those of the operators.
pub fn record_states(
    model: &Model,
    task: &dyn Task,
    split: Split,
    sequences: usize,
    batch_size: usize,
) -> Result<Vec<StateRecord>> {
    let mut parts: BTreeMap<(usize, StreamSite), Vec<Tensor>> = BTreeMap::new();
    for batch in unpadded(task, split, sequences, batch_size) {
        let (_, batch) = batch?;
        let mut trajectories = Vec::new();
        model.read(&batch, Pass { trajectories: Some(&mut trajectories), ..Pass::evaluation() })?;
        for trajectory in trajectories {
            let states = trajectory.states.to_device(Device::Cpu)?;
            parts.entry((trajectory.layer, trajectory.site)).or_default().push(states);
        }
    }
    if parts.is_empty() {
        bail!("there are no states to record: only those of an HRM are");
    }
    let lengths: Vec<usize> = parts.values().next().into_iter().flatten().flat_map(lengths_of).collect();
    let (steps, kept) = common_length(&lengths);
    let (all, recorded) = (lengths.iter().sum::<usize>(), steps * kept);
    if recorded < all {
        tell!(
            "note: {} of {} steps are not recorded: a record has sequences of one length, here {steps}, and {} of {} are shorter",
            all - recorded,
            all,
            lengths.len() - kept,
            lengths.len()
        );
    }
    Ok(parts.into_iter().map(|((layer, site), parts)| join(layer, site, &parts)).collect())
}

/// The lengths of the sequences of a batch.
fn lengths_of(part: &Tensor) -> impl Iterator<Item = usize> {
    std::iter::repeat_n(part.shape()[1], part.shape()[0])
}

/// The length that keeps most steps where sequences are cut to it and shorter ones left out, and how many are kept.
fn common_length(lengths: &[usize]) -> (usize, usize) {
    let mut longest_first = lengths.to_vec();
    longest_first.sort_unstable_by(|a, b| b.cmp(a));
    let choices = longest_first.into_iter().zip(1..);
    choices.max_by_key(|(length, kept)| length * kept).unwrap_or_default()
}

fn join(layer: usize, site: StreamSite, parts: &[Tensor]) -> StateRecord {
    let (steps, kept) = common_length(&parts.iter().flat_map(lengths_of).collect::<Vec<_>>());
    let states = parts.first().map_or(0, |part| part.shape()[2]);
    let mut record = StateRecord { layer, site, shape: [kept, steps, states], states: Vec::new() };
    for part in parts.iter().filter(|part| part.shape()[1] >= steps) {
        let values = part.to_f64_vec();
        for sequence in values.chunks((part.shape()[1] * states).max(1)) {
            record.states.extend(sequence[..steps * states].iter().map(|&x| x as f32));
        }
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_that_keeps_most_steps() {
        assert_eq!(common_length(&[64, 64, 33]), (64, 2));
        assert_eq!(common_length(&[29, 5]), (29, 1));
        assert_eq!(common_length(&[30, 29, 28, 1]), (28, 3));
        assert_eq!(common_length(&[]), (0, 0));
        let part = |shape: [usize; 3]| {
            Tensor::from_vec((0..shape.iter().product()).map(|x| x as f32).collect(), shape).unwrap()
        };
        let record = join(0, StreamSite::Mlp, &[part([2, 3, 1]), part([1, 1, 1]), part([1, 4, 1])]);
        assert_eq!(record.shape, [3, 3, 1]);
        assert_eq!(record.states, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 1.0, 2.0]);
    }
}
