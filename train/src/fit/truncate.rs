//! Truncated versions of a trained adapter: saved beside it with a certificate, evaluated as rows of their own.

use super::model::Model;
use super::rows::{count_parameters, site_name};
use crate::config::TruncateConfig;
use crate::results::{AdapterResult, LayerResult};
use anyhow::{Context, Result};
use hankel_models::adapters::Truncated;
use hankel_models::reduce::{AdapterReduction, CERTIFICATE_FILE, OrderChoice, ReduceOptions};
use hankel_models::weights::TRAINED_BACKBONE_FILE;
use hankel_models::weights::atomic::{Existing, write_file};
use std::path::Path;

/// A truncated adapter on the same backbone, and what is known about it before evaluation.
pub struct TruncatedRow {
    /// The backbone with the truncated adapter.
    pub model: Model,
    /// The row without its scores.
    pub row: AdapterResult,
    /// States of every layer before and after.
    pub orders: (Vec<usize>, Vec<usize>),
}

/// Truncates the adapters of `model` and saves them, with the certificate, to `directory`.
///
/// # Errors
/// When the adapter is not recurrent or cannot be reduced by this rule, or the directory cannot be written.
pub fn truncate(
    model: &Model,
    full: &AdapterResult,
    rule: TruncateConfig,
    length: usize,
    directory: &Path,
    base_model: &str,
) -> Result<TruncatedRow> {
    let reduced = truncate_adapters(model, &full.name, rule, length, base_model)?;
    save_truncated(&reduced, directory)?;
    let truncated = Model { backbone: model.backbone.clone(), adapters: reduced.adapters.clone() };
    if let Some(parameter) = model.backbone.parameters().iter().find(|parameter| parameter.is_trainable()) {
        // The head or more was trained with the full adapter and belongs to the truncated one, too.
        let from = directory.with_file_name(&full.name).join(TRAINED_BACKBONE_FILE);
        let bytes =
            std::fs::read(&from).with_context(|| format!("cannot read {} ({})", from.display(), parameter.name()))?;
        write_file(&directory.join(TRAINED_BACKBONE_FILE), &bytes)?;
    }
    let AdapterReduction { adapter, certificate, .. } = &reduced.reduction;
    let layers = adapter.layers.iter().zip(&certificate.layers).map(|(layer, certified)| {
        let facts = &certified.facts;
        LayerResult {
            layer: layer.layer,
            site: site_name(layer.site).to_owned(),
            order: facts.order,
            gate: Some(facts.gate),
            hankel_singular_values: facts.hankel_singular_values.clone(),
            spectral_radius: Some(facts.reduced_spectral_radius),
            error_bound: facts.error_bound,
            hinf_error: Some(facts.hinf_error),
            h2_error: Some(facts.h2_error),
            hinf_norm: Some(facts.hinf_norm),
        }
    });
    let layers: Vec<LayerResult> = layers.collect();
    let mut parameters = count_parameters(&truncated);
    // What was trained together with the full adapter was not trained again.
    parameters.trainable = 0;
    let row = AdapterResult {
        name: row_name(&full.name, rule),
        kind: full.kind.clone(),
        truncated_from: Some(full.name.clone()),
        truncation_rule: Some(rule.describe()),
        parameters,
        scan: full.scan.clone(),
        layers,
        settings: format!("{}, {}", full.settings, rule.describe()),
        ..AdapterResult::default()
    };
    Ok(TruncatedRow { model: truncated, row, orders: reduced.orders() })
}

/// Truncates the adapters of `model`, trained under `name`.
pub fn truncate_adapters(
    model: &Model,
    name: &str,
    rule: TruncateConfig,
    length: usize,
    base_model: &str,
) -> Result<Truncated> {
    let method = rule.method.unwrap_or_default();
    let options = ReduceOptions { method, orders: OrderChoice::PerLayer(rule.rule()), ..ReduceOptions::default() };
    let truncated = model.adapters.truncate(&options, &model.backbone.placement(), length, Some(base_model));
    truncated.with_context(|| format!("truncating `{name}` by {}", rule.describe()))
}

/// Saves truncated adapters with their certificate, replacing what is there.
pub fn save_truncated(truncated: &Truncated, directory: &Path) -> Result<()> {
    let json = serde_json::to_vec_pretty(&truncated.reduction.certificate)?;
    Ok(truncated.reduction.adapter.save_with(directory, &[(CERTIFICATE_FILE, &json)], Existing::Replace)?)
}

/// Name of the row and directory: `hrm-epsilon-0.01`, `hrm-order-6-svd`.
pub fn row_name(full: &str, rule: TruncateConfig) -> String {
    let rule = rule.describe().replace(" = ", "-").replace(", method", "");
    format!("{full}-{rule}")
}
