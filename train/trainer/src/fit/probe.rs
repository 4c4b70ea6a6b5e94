//! Probes of a trained adapter: rows of their own, evaluated but not saved.

use super::model::Model;
use super::rows::{count_parameters, layer_results};
use crate::config::ProbeConfig;
use crate::results::{AdapterResult, LayerResult};
use anyhow::{Context, Result};
use hankel_models::AdapterSet;

/// The model with every gate held at the probe's value, and its row without the scores.
///
/// # Errors
/// When the adapters have no gate.
pub(super) fn hold_gates(model: &Model, full: &AdapterResult, probe: ProbeConfig) -> Result<(Model, AdapterResult)> {
    let adapters = model.adapters.with_gates(probe.gate);
    let adapters = adapters.with_context(|| format!("probing `{}` with {}", full.name, probe.describe()))?;
    let held = Model { backbone: model.backbone.clone(), adapters };
    let mut parameters = count_parameters(&held);
    parameters.trainable = 0;
    let row = AdapterResult {
        name: probe.row_name(&full.name),
        kind: full.kind.clone(),
        probed_from: Some(full.name.clone()),
        probe: Some(probe.describe()),
        parameters,
        scan: full.scan.clone(),
        layers: layer_results(&held.adapters)?,
        settings: format!("{}, {} held", full.settings, probe.describe()),
        ..AdapterResult::default()
    };
    Ok((held, row))
}

/// Measures how exactly the recurrence of every layer is evaluated (R3), on `sequences` random sequences.
///
/// # Errors
/// Those of the operators.
pub(super) fn measure_exactness(
    adapters: &AdapterSet,
    layers: &mut [LayerResult],
    (sequences, length): (usize, usize),
    seed: u64,
) -> Result<()> {
    for (layer, (_, stream)) in layers.iter_mut().zip(adapters.streams()) {
        let recurrence = stream.adapter().recurrence()?;
        layer.exactness = recurrence.map(|recurrence| recurrence.exactness(sequences, length, seed)).transpose()?;
    }
    Ok(())
}
