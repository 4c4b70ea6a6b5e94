//! Weights of the layers' errors, and the Gramians that follow.

use super::analysis::LayerAnalysis;
use super::options::{ReduceError, Result};
use hankel_files::{WeightFile, WeightSet};
use hankel_lti::weighted::{Emphasis, Weighted, WeightedFacts, Weights};
use hankel_lti::{Bound, GramianSource, LinearSystem, LtiError, Method};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Weights of input and output for all layers; none by default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LayerWeights {
    /// Of the inputs.
    pub input: Option<(WeightSet, WeightFile)>,
    /// Of the outputs.
    pub output: Option<(WeightSet, WeightFile)>,
}

/// The files of the weights that a certificate is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightFiles {
    /// Of the inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<WeightFile>,
    /// Of the outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<WeightFile>,
}

impl LayerWeights {
    /// The files they came from; `None` without weights.
    pub fn files(&self) -> Option<WeightFiles> {
        let file = |side: &Option<(WeightSet, WeightFile)>| side.as_ref().map(|side| side.1.clone());
        let files = WeightFiles { input: file(&self.input), output: file(&self.output) };
        (files != WeightFiles::default()).then_some(files)
    }

    /// The weights of a layer.
    ///
    /// # Errors
    /// A file that has none for this layer.
    pub fn of(&self, label: &str) -> hankel_lti::Result<Weights> {
        let side = |side: &Option<(WeightSet, WeightFile)>| {
            let Some((set, file)) = side else { return Ok(None) };
            set.of(label)
                .cloned()
                .map(Some)
                .ok_or_else(|| LtiError::Unsupported(format!("{} has no weight for this layer", file.file)))
        };
        Ok(Weights { input: side(&self.input)?, output: side(&self.output)? })
    }
}

/// What the errors of a layer are weighted by.
#[derive(Debug, Clone)]
pub struct Weighting {
    /// Weights, or a band.
    pub emphasis: Emphasis,
    /// The Gramians that follow, if the reduction is based on them.
    pub gramians: Option<Weighted>,
}

impl Weighting {
    /// Bound of the ungated weighted error at `order` states, where theory gives one.
    pub fn bound(&self, method: Method, order: usize) -> Option<f64> {
        let gramians = self.gramians.as_ref().filter(|_| method.bound() == Bound::HankelSingularValues);
        gramians.and_then(|gramians| gramians.bound(order))
    }

    /// Measures the weighted error of a reduced layer; `method` is that whose bound it has, if there is one.
    pub(super) fn measure(
        &self,
        layer: &LayerAnalysis,
        reduced: &LinearSystem,
        method: Option<Method>,
    ) -> hankel_lti::Result<WeightedFacts> {
        let values = self.gramians.as_ref().map_or(&[][..], |gramians| gramians.spectrum.values());
        let bound = method.and_then(|method| self.bound(method, reduced.states()));
        WeightedFacts::measure((&layer.system, reduced), layer.gate, &self.emphasis, (values, bound), layer.map())
    }
}

/// Adds to every layer its weights, if there are any, and the Gramians that `source` makes of them.
///
/// # Errors
/// A weight that is missing or does not fit, by the name of the layer.
pub fn weigh(layers: Vec<LayerAnalysis>, source: GramianSource, weights: &LayerWeights) -> Result<Vec<LayerAnalysis>> {
    layers.into_par_iter().map(|layer| weigh_layer(layer, source, weights)).collect()
}

pub(super) fn weigh_layer(
    layer: LayerAnalysis,
    source: GramianSource,
    weights: &LayerWeights,
) -> Result<LayerAnalysis> {
    let of_layer = weights.of(&layer.label);
    let of_layer = of_layer.map_err(|reason| ReduceError::Layer { label: layer.label.clone(), reason })?;
    weigh_with(layer, source, &of_layer)
}

/// As [`weigh`] for one layer and weights that come from no file.
///
/// # Errors
/// A weight that does not fit, by the name of the layer.
pub fn weigh_with(mut layer: LayerAnalysis, source: GramianSource, weights: &Weights) -> Result<LayerAnalysis> {
    let weighting = weighting(&layer, source, weights);
    layer.weighting = weighting.map_err(|reason| ReduceError::Layer { label: layer.label.clone(), reason })?;
    Ok(layer)
}

fn weighting(
    layer: &LayerAnalysis,
    source: GramianSource,
    of_layer: &Weights,
) -> hankel_lti::Result<Option<Weighting>> {
    let (system, spectrum) = (&layer.system, &layer.spectrum);
    let gramians = match source {
        _ if system.states() == 0 => None,
        GramianSource::Weighted | GramianSource::Enns if of_layer.is_empty() => {
            return Err(LtiError::Unsupported("weighted Gramians need a weight of the input or of the output".into()));
        }
        GramianSource::FrequencyLimited(_) if !of_layer.is_empty() => {
            return Err(LtiError::Unsupported("errors are measured in a band or under weights, not both".into()));
        }
        GramianSource::Weighted => Some(Weighted::modified(system, spectrum, of_layer)?),
        GramianSource::Enns => Some(Weighted::enns(system, &layer.factors, of_layer)?),
        GramianSource::FrequencyLimited(band) => Some(Weighted::band(system, spectrum, band)?),
        GramianSource::Analytic | GramianSource::TimeLimited(_) | GramianSource::Empirical => None,
    };
    let emphasis = match source {
        GramianSource::FrequencyLimited(band) => Emphasis::Band(band),
        _ if of_layer.is_empty() => return Ok(None),
        _ => Emphasis::Weights(of_layer.clone()),
    };
    Ok(Some(Weighting { emphasis, gramians }))
}
