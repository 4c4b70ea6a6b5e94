//! What a row of the result says about an adapter besides its scores.

use super::model::{Model, roles};
use crate::config::{AdapterConfig, AdapterMethod};
use crate::results::{LayerResult, LayerState, ParameterCounts};
use anyhow::Result;
use hankel_models::adapters::{LinearAdapter, Stream};
use hankel_models::reduce::{LayerAnalysis, ReduceError};
use hankel_models::weights::hrm_file::layer_label;
use hankel_models::{AdapterSet, Parameter, Role};
use rayon::prelude::*;

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
        counts.adapter += if parameter.role() == Role::Start { 0 } else { n };
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
    let state = |(layer, stream): (usize, &Stream)| {
        let poles = stream.adapter().poles();
        let radii = poles.iter().map(|pole| pole.polar().0);
        let (low, high) = radii.fold((f64::INFINITY, 0.0), |(low, high), r| (f64::min(low, r), f64::max(high, r)));
        LayerState {
            layer,
            site: stream.site().name().to_owned(),
            gate: Some(stream.gate()),
            pole_range: (low <= high).then_some((low, high)),
            ..LayerState::default()
        }
    };
    adapters.streams().map(state).collect()
}

/// Orders, gates and Hankel singular values of every adapted site.
///
/// # Errors
/// When a recurrence has values for which they do not exist.
pub(super) fn layer_results(adapters: &AdapterSet) -> Result<Vec<LayerResult>> {
    let streams: Vec<(usize, &Stream)> = adapters.streams().collect();
    let result = |&(layer, stream): &(usize, &Stream)| {
        let result = LayerResult {
            layer,
            site: stream.site().name().to_owned(),
            order: stream.state_dim(),
            gate: Some(stream.gate()),
            ..LayerResult::default()
        };
        let Some(system) = stream.adapter().linear_system() else { return Ok(result) };
        let label = layer_label(layer, stream.site());
        let system = system.map_err(|reason| ReduceError::Layer { label: label.clone(), reason })?;
        let analysis = LayerAnalysis::new(label, system, stream.gate())?;
        Ok(LayerResult {
            hankel_singular_values: analysis.hankel_singular_values(),
            spectral_radius: Some(analysis.system.spectral_radius()),
            input_alignment: analysis.input_alignment()?,
            ..result
        })
    };
    let mut results = streams.par_iter().map(result).collect::<Result<Vec<_>>>()?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::fit::BackboneSnapshot;
    use hankel_models::adapters::Context;

    /// A rank is as many parameters wherever its factors begin.
    #[test]
    fn what_an_adapter_starts_from_is_not_counted() {
        let count = |init: &str| {
            let text = format!(
                "[task]\nkind = \"parity\"\nlength = 8\n[backbone]\nlayers = 1\nd_model = 8\nheads = 2\n[[adapter]]\n\
                 kind = \"lora\"\nrank = 2\ntargets = \"all-linear\"\ninit = \"{init}\"\n"
            );
            let (config, _) = Config::load(&text, "t.toml", &[]).unwrap();
            let snapshot = BackboneSnapshot::new(&config).unwrap();
            let placement = snapshot.backbone().placement();
            let context = Context { placement: &placement, length: 8, steps: Some(5), pretrained: false };
            let settings = config.adapter[0].method.settings(&context).unwrap().unwrap();
            let adapters = AdapterSet::on(&settings, &placement, &snapshot.backbone().parameters(), 0).unwrap();
            let model = snapshot.with_adapters(adapters).unwrap();
            (count_parameters(&model).adapter, model.adapters.parameters().len())
        };
        let (zero, pissa) = (count("zero"), count("pissa"));
        assert_eq!((pissa.0, pissa.1), (zero.0, 2 * zero.1));
    }
}
