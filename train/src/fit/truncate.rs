//! Truncated versions of a trained adapter: saved beside it with a certificate, evaluated as rows of their own.

use super::model::Model;
use super::rows::{count_parameters, site_name};
use crate::config::TruncateConfig;
use crate::results::{AdapterResult, LayerResult};
use anyhow::{Context, Result, bail};
use hankel_models::AdapterSet;
use hankel_models::adapters::AdapterConfig as Settings;
use hankel_models::reduce::{AdapterReduction, CERTIFICATE_FILE, OrderChoice, ReduceOptions, reduce_adapter};
use hankel_models::weights::TRAINED_BACKBONE_FILE;
use hankel_models::weights::atomic::{Existing, write_file};
use std::path::Path;

/// A truncated adapter on the same backbone, and what is known about it before evaluation.
pub struct Truncated {
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
) -> Result<Truncated> {
    let Settings::Hrm(config) = model.adapters.config() else { bail!("only recurrent adapters can be truncated") };
    let file = model.adapters.to_hrm_file(config, Some(base_model));
    let options = ReduceOptions { orders: OrderChoice::PerLayer(rule.rule()), ..ReduceOptions::default() };
    let AdapterReduction { adapter, mut certificate, .. } = reduce_adapter(&file, &options)
        .with_context(|| format!("truncating `{}` by {}", full.name, rule.describe()))?;
    certificate.full = Some(file.to_bytes().hashes());
    let json = serde_json::to_vec_pretty(&certificate)?;
    adapter.save_with(directory, &[(CERTIFICATE_FILE, &json)], Existing::Replace)?;

    let adapters =
        AdapterSet::of_hrm_file(&adapter, &model.backbone.placement(), length).map_err(anyhow::Error::msg)?;
    adapters.to_dtype(model.backbone.head().tensor().dtype())?;
    let truncated = Model { backbone: model.backbone.clone(), adapters };
    if let Some(parameter) = model.backbone.parameters().iter().find(|parameter| parameter.is_trainable()) {
        // The head or more was trained with the full adapter and belongs to the truncated one, too.
        let from = directory.with_file_name(&full.name).join(TRAINED_BACKBONE_FILE);
        let bytes =
            std::fs::read(&from).with_context(|| format!("cannot read {} ({})", from.display(), parameter.name()))?;
        write_file(&directory.join(TRAINED_BACKBONE_FILE), &bytes)?;
    }
    let layers = file.layers.iter().zip(&certificate.layers).map(|(layer, certified)| {
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
    let orders = (file.layers.iter().map(|layer| layer.state_dim).collect(), layers.iter().map(|l| l.order).collect());
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
    Ok(Truncated { model: truncated, row, orders })
}

/// Name of the row and directory: `hrm-epsilon-0.01`.
pub fn row_name(full: &str, rule: TruncateConfig) -> String {
    format!("{full}-{}", rule.describe().replace(" = ", "-"))
}
