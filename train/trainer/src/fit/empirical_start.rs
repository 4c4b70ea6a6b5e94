//! The start of adapters that begin as a truncation by data (`init = "empirical-bt"`).

use super::backbone_snapshot::BackboneSnapshot;
use super::truncate::calibration_batches;
use crate::results::Split;
use crate::tasks::Task;
use anyhow::{Context, Result};
use hankel_models::{AdapterSet, Pass};

/// The adapters `set` as they begin: as they are, or truncated from larger ones that have read training sequences on the backbone as
/// it is before the training. The same on every process, and again when the run is resumed.
///
/// # Errors
/// When a layer cannot be truncated, and those of the operators.
pub(super) fn started(
    set: AdapterSet,
    name: &str,
    seed: u64,
    snapshot: &BackboneSnapshot,
    task: &dyn Task,
) -> Result<AdapterSet> {
    let placement = snapshot.backbone().placement();
    let Some(mut start) = set.empirical_start(&placement, seed)? else { return Ok(set) };
    let model = snapshot.with_adapters(start.adapters().clone())?;
    let mut read = 0;
    for batch in calibration_batches(task, Split::Train) {
        let (batch, mut trajectories) = (batch?, Vec::new());
        model.read(&batch, Pass { trajectories: Some(&mut trajectories), ..Pass::evaluation() })?;
        start.add(&trajectories).with_context(|| format!("the start of `{name}`"))?;
        read += batch.sequences;
    }
    let begun = start.finish(&placement).with_context(|| format!("the start of `{name}`"))?;
    let states = |set: &AdapterSet| {
        set.streams().map(|(_, stream)| stream.state_dim().to_string()).collect::<Vec<_>>().join(" ")
    };
    tell!(
        "{name}: begins as the balanced truncation of adapters of {} states to {}, by Gramians of {read} training sequences",
        states(&model.adapters),
        states(&begun)
    );
    Ok(begun)
}
