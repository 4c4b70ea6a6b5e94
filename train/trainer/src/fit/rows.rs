//! What a row of the result says about an adapter besides its scores.

use super::model::{Model, roles};
use crate::config::{AdapterConfig, AdapterMethod};
use crate::results::{LayerResult, LayerState, ParameterCounts};
use anyhow::Result;
use hankel_models::adapters::stream::kind;
use hankel_models::adapters::{AdapterConfig as Settings, HrmMode, LinearAdapter, Stream, StreamSite};
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
    let Settings::Hrm(config) = adapters.config() else {
        let gate = |(layer, site, adapter): (usize, StreamSite, &Stream)| LayerState {
            layer,
            site: site_name(site).to_owned(),
            gate: Some(adapter.gate()),
            ..LayerState::default()
        };
        return streams(adapters).map(gate).collect();
    };
    let file = adapters.to_hrm_file(config, None);
    let state = |layer: &HrmLayerFile| {
        let modes = linear_system(layer, file.config.discretization).ok().and_then(|system| system.a().modes());
        let radii = modes.iter().flatten().map(|mode| mode.polar().0);
        let (low, high) = radii.fold((f64::INFINITY, 0.0), |(low, high), r| (f64::min(low, r), f64::max(high, r)));
        LayerState {
            layer: layer.layer,
            site: site_name(layer.site).to_owned(),
            gate: Some(layer.gate),
            pole_range: (low <= high).then_some((low, high)),
            ..LayerState::default()
        }
    };
    file.layers.iter().map(state).collect()
}

fn streams(adapters: &AdapterSet) -> impl Iterator<Item = (usize, StreamSite, &Stream)> {
    let layers = adapters.layers().iter().enumerate();
    layers.flat_map(|(layer, attached)| attached.streams().map(move |(site, adapter)| (layer, site, adapter)))
}

/// Orders, gates and Hankel singular values of every adapted site.
///
/// # Errors
/// When a recurrence has values for which they do not exist.
pub(super) fn layer_results(adapters: &AdapterSet) -> Result<Vec<LayerResult>> {
    let mut results = Vec::new();
    if let Settings::Hrm(config) = adapters.config() {
        let file = adapters.to_hrm_file(config, None);
        for (layer, analysis) in file.layers.iter().zip(analyse(&file)?) {
            results.push(LayerResult {
                layer: layer.layer,
                site: site_name(layer.site).to_owned(),
                order: layer.state_dim,
                gate: Some(layer.gate),
                hankel_singular_values: analysis.hankel_singular_values(),
                spectral_radius: Some(analysis.system.spectral_radius()?),
                ..LayerResult::default()
            });
        }
    }
    if let Settings::Stream(_) = adapters.config() {
        results.extend(streams(adapters).map(|(layer, site, adapter)| LayerResult {
            layer,
            site: site_name(site).to_owned(),
            order: adapter.state_dim(),
            gate: Some(adapter.gate()),
            ..LayerResult::default()
        }));
    }
    for (layer, attached) in adapters.layers().iter().enumerate() {
        let site = |(site, adapter): (&str, &LinearAdapter)| LayerResult {
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
    let words = match adapters.config() {
        Settings::None => match adapter.method {
            AdapterMethod::Full(_) => "every parameter of the backbone".to_owned(),
            AdapterMethod::None(_) => "backbone alone".to_owned(),
            _ => String::new(),
        },
        Settings::Hrm(c) => {
            let sites: Vec<&str> = c.sites.iter().map(|&site| site_name(site)).collect();
            let mode = if c.mode == HrmMode::Positive { String::new() } else { format!("{} poles, ", c.mode.name()) };
            format!("d = {}, {:?} preset, {mode}{}", c.state_dim, c.preset, sites.join(" + ")).to_lowercase()
        }
        Settings::Lora(c) => format!("r = {}, {}", c.rank, c.targets.join(" + ")),
        Settings::AdaLora(c) => {
            format!("r = {}, mean {} at the end, {}", c.init_rank, c.target_rank, c.targets.join(" + "))
        }
        Settings::Ia3(c) => c.targets.join(" + "),
        Settings::Stream(c) => {
            let sites: Vec<&str> = c.sites.iter().map(|&site| site_name(site)).collect();
            let size =
                kind(&c.kind).and_then(|kind| kind.size).and_then(|key| Some(format!("{key} = {}, ", c.size(key)?)));
            format!("{}{}", size.unwrap_or_default(), sites.join(" + "))
        }
    };
    words + &loaded
}

/// The name of a site in configurations and tables.
pub(super) fn site_name(site: StreamSite) -> &'static str {
    match site {
        StreamSite::Attention => "attention",
        StreamSite::Mlp => "mlp",
    }
}
