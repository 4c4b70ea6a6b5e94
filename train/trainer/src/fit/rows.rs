//! What a row of the result says about an adapter besides its scores.

use super::model::{Model, roles};
use crate::config::{AdapterConfig, AdapterMethod};
use crate::results::{LayerResult, LayerState, ParameterCounts};
use anyhow::Result;
use hankel_models::adapters::{LinearAdapter, Stream};
use hankel_models::reduce::analyse;
use hankel_models::reduce::hrm::linear_system;
use hankel_models::weights::HrmLayerFile;
use hankel_models::{AdapterSet, Parameter};

/// Numbers of values by role.
pub(super) fn count_parameters(model: &Model) -> ParameterCounts {
    let (embeddings, head) = roles(&*model.backbone);
    let mut counts = ParameterCounts::default();
    for parameter in model.backbone.parameters() {
        let n = parameter.elements() as u64;
        if !parameter.is_trainable() {
            counts.frozen += n;
        } else if parameter.name() == head {
            counts.head += n;
        } else if embeddings.contains(parameter.name()) {
            counts.embeddings += n;
        } else {
            counts.backbone += n;
        }
    }
    for parameter in model.adapters.parameters() {
        let n = parameter.elements() as u64;
        counts.adapter += n;
        if !parameter.is_trainable() {
            counts.frozen += n;
        }
    }
    let trainable = model.parameters().into_iter().filter(Parameter::is_trainable);
    counts.trainable = trainable.map(|parameter| parameter.elements() as u64).sum();
    counts
}

/// Gates and poles of every stream adapter, for the log.
pub(super) fn layer_states(adapters: &AdapterSet) -> Vec<LayerState> {
    let Ok(file) = adapters.to_hrm_file(None) else {
        let gate = |(layer, stream): (usize, &Stream)| LayerState {
            layer,
            site: stream.site().name().to_owned(),
            gate: Some(stream.gate()),
            ..LayerState::default()
        };
        return adapters.streams().map(gate).collect();
    };
    let state = |layer: &HrmLayerFile| {
        let modes = linear_system(layer, file.config.discretization).ok().and_then(|system| system.a().modes());
        let radii = modes.iter().flatten().map(|mode| mode.polar().0);
        let (low, high) = radii.fold((f64::INFINITY, 0.0), |(low, high), r| (f64::min(low, r), f64::max(high, r)));
        LayerState {
            layer: layer.layer,
            site: layer.site.name().to_owned(),
            gate: Some(layer.gate),
            pole_range: (low <= high).then_some((low, high)),
            ..LayerState::default()
        }
    };
    file.layers.iter().map(state).collect()
}

/// Orders, gates and Hankel singular values of every adapted site.
///
/// # Errors
/// When a recurrence has values for which they do not exist.
pub(super) fn layer_results(adapters: &AdapterSet) -> Result<Vec<LayerResult>> {
    let mut results = Vec::new();
    if let Ok(file) = adapters.to_hrm_file(None) {
        for (layer, analysis) in file.layers.iter().zip(analyse(&file)?) {
            results.push(LayerResult {
                layer: layer.layer,
                site: layer.site.name().to_owned(),
                order: layer.state_dim,
                gate: Some(layer.gate),
                hankel_singular_values: analysis.hankel_singular_values(),
                spectral_radius: Some(analysis.system.spectral_radius()?),
                ..LayerResult::default()
            });
        }
    } else {
        results.extend(adapters.streams().map(|(layer, stream)| LayerResult {
            layer,
            site: stream.site().name().to_owned(),
            order: stream.state_dim(),
            gate: Some(stream.gate()),
            ..LayerResult::default()
        }));
    }
    for (layer, attached) in adapters.layers().iter().enumerate() {
        let site = |(site, adapter): (&str, &dyn LinearAdapter)| LayerResult {
            layer,
            site: site.to_owned(),
            order: adapter.rank().unwrap_or(0),
            ..LayerResult::default()
        };
        results.extend(attached.linears().map(site));
    }
    Ok(results)
}

/// The adapter in a few words.
pub(super) fn describe(adapter: &AdapterConfig, adapters: &AdapterSet) -> String {
    let loaded = adapter.path.as_ref().map_or_else(String::new, |path| format!(", from {}", path.display()));
    let words = match (adapters.config(), &adapter.method) {
        (Some(config), _) => config.describe(),
        (None, AdapterMethod::Full) => "every parameter of the backbone".to_owned(),
        (None, AdapterMethod::None) => "backbone alone".to_owned(),
        (None, AdapterMethod::Adapter(_)) => String::new(),
    };
    words + &loaded
}

/// How the recurrence is evaluated, if it is one.
pub(super) fn scan_of(adapters: &AdapterSet) -> Option<String> {
    let (_, stream) = adapters.streams().next()?;
    let path = stream.adapter().recurrence().ok()??.path;
    Some(format!("{path:?}").to_lowercase())
}
