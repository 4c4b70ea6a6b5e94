//! Truncated versions of a trained adapter: saved beside it with a certificate, evaluated as rows of their own.

use super::batches::unpadded;
use super::model::{Model, save_with};
use super::rows::{count_parameters, layer_states};
use crate::config::TruncateConfig;
use crate::results::{AdapterResult, LayerResult, Split};
use crate::tasks::{Batch, Task};
use anyhow::{Context, Result};
use hankel_core::Error;
use hankel_io::Existing;
use hankel_models::adapters::stream::Calibration;
use hankel_models::adapters::{Truncated, TruncationError};
use hankel_models::lti::varying::Controllability;
use hankel_models::reduce::{AdapterReduction, CERTIFICATE_FILE, ReduceOptions};
use hankel_models::weights::TRAINED_BACKBONE_FILE;
use hankel_models::{Parameter, Pass, SiteInput};
use std::path::Path;

/// A truncated adapter on the same backbone, and what is known about it before evaluation.
pub(super) struct TruncatedRow {
    /// The backbone with the truncated adapter.
    pub model: Model,
    /// The row without its scores.
    pub row: AdapterResult,
    /// States of every layer before and after.
    pub orders: (Vec<usize>, Vec<usize>),
}

/// Truncates the adapters of `model` and saves them, with the certificate, to `directory`, if one is given.
///
/// # Errors
/// When the adapter is not recurrent or cannot be reduced by this rule, or the directory cannot be written.
pub(super) fn truncate(
    model: &Model,
    full: &AdapterResult,
    rule: TruncateConfig,
    length: usize,
    directory: Option<&Path>,
    base_model: &str,
) -> Result<TruncatedRow> {
    let reduced = truncate_adapters(model, &full.name, rule, length, base_model)?;
    let truncated = Model { backbone: model.backbone.clone(), adapters: reduced.adapters.clone() };
    if let Some(directory) = directory {
        let trained = trained_backbone(&truncated, &full.name, directory)?;
        let trained: Vec<_> = trained.iter().map(|bytes| (TRAINED_BACKBONE_FILE, &**bytes)).collect();
        save_truncated(&reduced, directory, &trained)?;
    }
    let AdapterReduction { adapter, certificate, .. } = &reduced.reduction;
    let layers = adapter.layers.iter().zip(&certificate.layers).map(|(layer, certified)| {
        let facts = &certified.facts;
        LayerResult {
            layer: layer.layer,
            site: layer.site.name().to_owned(),
            order: facts.order,
            gate: Some(facts.gate),
            hankel_singular_values: facts.hankel_singular_values.clone(),
            spectral_radius: Some(facts.reduced_spectral_radius),
            error_bound: facts.error_bound,
            hinf_error: Some(facts.hinf_error),
            h2_error: Some(facts.h2_error),
            hinf_norm: Some(facts.hinf_norm),
            ..LayerResult::default()
        }
    });
    let layers = layers.collect();
    let row = row(&truncated, full, rule, layers);
    Ok(TruncatedRow { model: truncated, row, orders: reduced.orders() })
}

/// Why the adapter cannot be truncated by a rule, if `error` says so: to try again would be of no use.
///
/// # Errors
/// `error` itself, where it is one of the device or the disk.
pub(super) fn refusal(error: anyhow::Error) -> Result<String> {
    match error.downcast_ref() {
        None | Some(TruncationError::Tensor(Error::Gpu { .. } | Error::GpuMemory { .. })) => Err(error),
        Some(reason) => Ok(reason.to_string()),
    }
}

/// What a row says about a truncated model, but for its scores.
fn row(truncated: &Model, full: &AdapterResult, rule: TruncateConfig, layers: Vec<LayerResult>) -> AdapterResult {
    let mut parameters = count_parameters(truncated);
    // What was trained together with the full adapter was not trained again.
    parameters.trainable = 0;
    AdapterResult {
        name: rule.row_name(&full.name),
        kind: full.kind.clone(),
        truncated_from: Some(full.name.clone()),
        truncation_rule: Some(rule.describe()),
        parameters,
        scan: full.scan.clone(),
        layers,
        settings: format!("{}, {}", full.settings, rule.describe()),
        ..AdapterResult::default()
    }
}

/// The head or more that was trained with the full adapter belongs to the truncated one, too.
fn trained_backbone(model: &Model, full: &str, directory: &Path) -> Result<Option<Vec<u8>>> {
    let trained = model.backbone.parameters().into_iter().find(Parameter::is_trainable);
    let read = |parameter: Parameter| {
        let from = directory.with_file_name(full).join(TRAINED_BACKBONE_FILE);
        hankel_io::input::read(&from).with_context(|| parameter.name().to_owned())
    };
    trained.map(read).transpose()
}

/// Sequences of the training split that Gramians are averaged along, and of the validation split for the error.
const SEQUENCES: usize = 64;

/// As [`truncate`] for adapters that vary in time: by Gramians averaged along training data, with the error of every layer's
/// output measured on validation data.
///
/// # Errors
/// When the kind gives no system, or the directory cannot be written.
pub(super) fn truncate_along_data(
    model: &Model,
    task: &dyn Task,
    full: &AdapterResult,
    rule: TruncateConfig,
    directory: Option<&Path>,
    base_model: &str,
) -> Result<TruncatedRow> {
    let explain = || format!("truncating `{}` by {}", full.name, rule.describe());
    let mut calibration = Calibration::new(&model.adapters, Controllability::default()).with_context(explain)?;
    read_inputs(model, task, Split::Train, |inputs| calibration.add(inputs))?;
    let per_layer =
        rule.rule().with_context(|| format!("{}: it has no total over layers, since it varies in time", explain()))?;
    let mut truncation = calibration.truncate(per_layer).with_context(explain)?;
    read_inputs(model, task, Split::Validation, |inputs| truncation.measure(inputs))?;
    let truncated = Model { backbone: model.backbone.clone(), adapters: truncation.adapters.clone() };
    if let Some(directory) = directory {
        let certificate = serde_json::to_vec_pretty(&truncation.certificate)?;
        let trained = trained_backbone(&truncated, &full.name, directory)?;
        let trained = trained.iter().map(|bytes| (TRAINED_BACKBONE_FILE, &**bytes));
        let files: Vec<(&str, &[u8])> = std::iter::once((CERTIFICATE_FILE, &*certificate)).chain(trained).collect();
        save_with(&truncation.adapters, directory, base_model, &files)?;
    }
    let gates = layer_states(&truncated.adapters);
    let layers = truncation.certificate.layers.iter().zip(gates).map(|(facts, state)| LayerResult {
        layer: facts.layer,
        site: facts.site.name().to_owned(),
        order: facts.order,
        gate: state.gate,
        output_error: Some(facts.measured_error),
        ..LayerResult::default()
    });
    let mut row = row(&truncated, full, rule, layers.collect());
    let worst = truncation.certificate.layers.iter().fold(0.0, |worst: f64, layer| worst.max(layer.measured_error));
    row.settings = format!("{}, output error up to {worst:.2e} measured on held-out data (not a bound)", row.settings);
    Ok(TruncatedRow { model: truncated, row, orders: truncation.orders() })
}

/// Calls `f` with what the stream adapters read on the first sequences of a split, batch by batch.
fn read_inputs(
    model: &Model,
    task: &dyn Task,
    split: Split,
    mut f: impl FnMut(&[SiteInput]) -> Result<(), TruncationError>,
) -> Result<()> {
    for batch in calibration_batches(task, split) {
        let (batch, mut inputs) = (batch?, Vec::new());
        model.read(&batch, Pass { inputs: Some(&mut inputs), ..Pass::evaluation() })?;
        f(&inputs)?;
    }
    Ok(())
}

/// The first sequences of a split, batch by batch.
pub(super) fn calibration_batches(task: &dyn Task, split: Split) -> impl Iterator<Item = Result<Batch>> {
    unpadded(task, split, SEQUENCES, 16).map(|batch| Ok(batch?.1))
}

/// Truncates the adapters of `model`, trained under `name`.
pub(super) fn truncate_adapters(
    model: &Model,
    name: &str,
    rule: TruncateConfig,
    length: usize,
    base_model: &str,
) -> Result<Truncated> {
    let method = rule.method.unwrap_or_default();
    let options = ReduceOptions { method, orders: rule.choice(), ..ReduceOptions::default() };
    let truncated = model.adapters.truncate(&options, &model.backbone.placement(), length, Some(base_model));
    truncated.with_context(|| format!("truncating `{name}` by {}", rule.describe()))
}

/// Saves truncated adapters with their certificate and further files (name, content), replacing what is there.
pub(super) fn save_truncated(truncated: &Truncated, directory: &Path, files: &[(&str, &[u8])]) -> Result<()> {
    let json = serde_json::to_vec_pretty(&truncated.reduction.certificate)?;
    let files: Vec<(&str, &[u8])> = std::iter::once((CERTIFICATE_FILE, &*json)).chain(files.iter().copied()).collect();
    Ok(truncated.reduction.adapter.save_with(directory, &files, Existing::Replace)?)
}
