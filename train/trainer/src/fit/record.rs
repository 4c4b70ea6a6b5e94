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

/// The states of every adapted site along the first `sequences` of a split. Sequences of different lengths are cut to the
/// shortest.
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
    Ok(parts.into_iter().map(|((layer, site), parts)| join(layer, site, &parts)).collect())
}

fn join(layer: usize, site: StreamSite, parts: &[Tensor]) -> StateRecord {
    let steps = parts.iter().map(|part| part.shape()[1]).min().unwrap_or(0);
    let states = parts.first().map_or(0, |part| part.shape()[2]);
    let mut record = StateRecord { layer, site, shape: [0, steps, states], states: Vec::new() };
    for part in parts {
        record.shape[0] += part.shape()[0];
        let values = part.to_f64_vec();
        for sequence in values.chunks((part.shape()[1] * states).max(1)) {
            record.states.extend(sequence[..steps * states].iter().map(|&x| x as f32));
        }
    }
    record
}
