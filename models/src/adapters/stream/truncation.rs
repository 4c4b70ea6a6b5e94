//! Truncation of adapters that vary in time: by Gramians averaged along calibration data, with an error measured on other data.

use super::system::{Reduction, coefficients};
use super::{Stream, StreamSite};
use crate::adapters::kind::Sites;
use crate::adapters::{AdapterSet, LayerAdapters, TruncationError};
use crate::lti::varying::{Controllability, VaryingGramians};
use crate::lti::{HankelSpectrum, LtiError, OrderRule};
use crate::pass::SiteInput;
use crate::reduce::ReduceError;
use crate::weights::hrm_file::layer_label;
use faer::MatRef;
use hankel_core::no_grad;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

type Result<T> = std::result::Result<T, TruncationError>;

/// Gramians of the adapters of a set, averaged along what they read.
pub struct Calibration {
    set: AdapterSet,
    kind: String,
    controllability: Controllability,
    sums: BTreeMap<(usize, StreamSite), (VaryingGramians, usize)>,
}

/// Truncated adapters, which can be used and saved but not trained.
pub struct StreamTruncation {
    /// The adapters.
    pub adapters: AdapterSet,
    /// What is known about them.
    pub certificate: StreamCertificate,
    full: AdapterSet,
}

/// Contents of `certificate.json` of such an adapter. It has no bounds: none is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamCertificate {
    /// Version of this format.
    pub format: u32,
    /// Version of the program that wrote it.
    pub version: String,
    /// What the numbers mean.
    pub note: String,
    /// The kind of adapter.
    pub kind: String,
    /// How the orders were chosen.
    pub rule: OrderRule,
    /// Which controllability Gramian was averaged.
    pub controllability: Controllability,
    /// Layer by layer.
    pub layers: Vec<StreamLayerCertificate>,
}

/// What is known about one layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamLayerCertificate {
    /// Index of the layer.
    pub layer: usize,
    /// Its site.
    pub site: StreamSite,
    /// States of the full adapter.
    pub states: usize,
    /// States kept.
    pub order: usize,
    /// Singular values of the averaged pair of Gramians, times the gate, descending. Those of a system that does not vary are
    /// its Hankel singular values.
    pub averaged_singular_values: Vec<f64>,
    /// Tokens that the Gramians were averaged over.
    pub calibration_tokens: usize,
    /// Tokens of held-out data that the error was measured on.
    pub measured_tokens: usize,
    /// `sqrt(sum |y - y_r|^2 / sum |y|^2)` over them, for the same input: measured, not a bound.
    pub measured_error: f64,
    /// Largest `|y - y_r|` of any token in units of the largest `|y|`: measured, not a bound.
    pub measured_largest_error: f64,
    #[serde(skip)]
    sums: Sums,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Sums {
    error: f64,
    output: f64,
    largest_error: f64,
    largest_output: f64,
}

const NOTE: &str = "These adapters vary in time, so no bound of the error is known. The errors are measured on held-out data, \
                    each layer by itself on what it read in the full model; they are not a guarantee for other data.";

fn mismatch(problem: impl Into<String>) -> TruncationError {
    ReduceError::Mismatch(problem.into()).into()
}

fn stream_of(set: &AdapterSet, layer: usize, site: StreamSite) -> Result<&Stream> {
    let stream = set.layers().get(layer).and_then(|layer| layer.stream(site));
    stream.ok_or_else(|| mismatch(format!("{} has no adapter", layer_label(layer, site))))
}

impl Calibration {
    /// No data yet, for the adapters of `set`.
    ///
    /// # Errors
    /// When there are none, they are not on the stream, or they were truncated before.
    pub fn new(set: &AdapterSet, controllability: Controllability) -> Result<Self> {
        let Some(config) = set.config().filter(|config| config.kind().sites() == Sites::Stream) else {
            return Err(mismatch("only adapters on the stream are truncated along data"));
        };
        if set.is_truncated() {
            return Err(mismatch("these adapters are truncated already"));
        }
        Ok(Calibration {
            set: set.clone(),
            kind: config.kind().name().to_owned(),
            controllability,
            sums: BTreeMap::new(),
        })
    }

    /// Adds what the adapters read, as [`Pass::inputs`](crate::Pass::inputs) records it.
    ///
    /// # Errors
    /// When an adapter has no [`system`](super::StreamAdapter::system), or has coefficients that are not finite.
    pub fn add(&mut self, inputs: &[SiteInput]) -> Result<()> {
        for SiteInput { layer, site, x } in inputs {
            let label = || layer_label(*layer, *site);
            let system = no_grad(|| Ok::<_, TruncationError>(stream_of(&self.set, *layer, *site)?.adapter.system(x)?))?;
            let Some(system) = system else {
                return Err(mismatch(format!("{}: this kind gives no system to truncate", label())));
            };
            let d = system.rate.shape()[2];
            let of_layer = |reason| ReduceError::Layer { label: label(), reason };
            let (sum, tokens) = self.sums.entry((*layer, *site)).or_insert_with(|| (VaryingGramians::new(d), 0));
            let sequences = system.along();
            sum.add(&sequences.iter().map(coefficients).collect::<Vec<_>>()).map_err(of_layer)?;
            if self.controllability == Controllability::Recorded {
                let states = no_grad(|| system.states(x, None))?.to_f64_vec();
                let rows = MatRef::from_row_major_slice(&states, states.len() / d.max(1), d);
                sum.add_states(rows).map_err(of_layer)?;
            }
            *tokens += x.shape().rows();
        }
        Ok(())
    }

    /// Truncates every layer by `rule`. The errors are 0 until [`StreamTruncation::measure`] has seen data.
    ///
    /// # Errors
    /// When a layer has no data, the rule asks for a bound or is out of range, or the Gramians are not finite.
    pub fn truncate(self, rule: OrderRule) -> Result<StreamTruncation> {
        if matches!(rule, OrderRule::Bound(_)) {
            let problem = "no error bound is known for systems that vary in time: choose epsilon, order or energy";
            return Err(mismatch(problem));
        }
        let sites = |(layer, adapters): (usize, &LayerAdapters)| {
            adapters.streams().map(move |(site, _)| (layer, site)).collect::<Vec<_>>()
        };
        let mut all = self.set.layers().iter().enumerate().flat_map(sites);
        if let Some((layer, site)) = all.find(|place| !self.sums.contains_key(place)) {
            return Err(mismatch(format!("{} has no calibration data", layer_label(layer, site))));
        }
        let mut certificate = StreamCertificate {
            format: 1,
            version: env!("CARGO_PKG_VERSION").into(),
            note: NOTE.into(),
            kind: self.kind,
            rule,
            controllability: self.controllability,
            layers: Vec::new(),
        };
        let mut adapters = self.set.clone();
        for ((layer, site), (sum, tokens)) in self.sums {
            let of_layer = |reason: LtiError| ReduceError::Layer { label: layer_label(layer, site), reason };
            let stream = stream_of(&self.set, layer, site)?;
            let Some(system) = stream.example()? else { continue };
            let (b, c) = (system.b.to_f64_vec(), system.c.to_f64_vec());
            let (d, width) = (system.b.shape()[0], system.b.shape()[1]);
            let b = MatRef::from_row_major_slice(&b, d, width);
            let factors = sum.finish(b, MatRef::from_row_major_slice(&c, width, d), self.controllability);
            let spectrum = HankelSpectrum::new(&factors.map_err(of_layer)?).map_err(of_layer)?;
            let gate = stream.gate.tensor().to_f64_vec()[0].abs();
            let values: Vec<f64> = spectrum.values().iter().map(|s| gate * s).collect();
            let rank = if gate == 0.0 { 0 } else { spectrum.rank() };
            let order = rule.choose(&values, rank, |_| f64::INFINITY).map_err(of_layer)?;
            let (left, right) = spectrum.projections(order).map_err(of_layer)?;
            let reduced = Stream { reduction: Some(Arc::new(Reduction { left, right })), ..stream.clone() };
            adapters.layers[layer].stream.insert(site, reduced);
            certificate.layers.push(StreamLayerCertificate {
                layer,
                site,
                states: d,
                order,
                averaged_singular_values: values,
                calibration_tokens: tokens,
                measured_tokens: 0,
                measured_error: 0.0,
                measured_largest_error: 0.0,
                sums: Sums::default(),
            });
        }
        Ok(StreamTruncation { adapters, certificate, full: self.set })
    }
}

impl StreamTruncation {
    /// Measures the error of every layer's output on further data, which should be other than the calibration's.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn measure(&mut self, inputs: &[SiteInput]) -> Result<()> {
        for SiteInput { layer, site, x } in inputs {
            let output = |set| no_grad(|| Ok::<_, TruncationError>(stream_of(set, *layer, *site)?.output(x, None)?));
            let ((full, _), (reduced, _)) = (output(&self.full)?, output(&self.adapters)?);
            let entry = self.certificate.layers.iter_mut().find(|l| (l.layer, l.site) == (*layer, *site));
            let Some(entry) = entry else { continue };
            let width = x.shape().last().max(1);
            let sums = &mut entry.sums;
            for (y, r) in full.to_f64_vec().chunks(width).zip(reduced.to_f64_vec().chunks(width)) {
                let output: f64 = y.iter().map(|y| y * y).sum();
                let error: f64 = y.iter().zip(r).map(|(y, r)| (y - r) * (y - r)).sum();
                (sums.output, sums.error) = (sums.output + output, sums.error + error);
                sums.largest_output = sums.largest_output.max(output.sqrt());
                sums.largest_error = sums.largest_error.max(error.sqrt());
            }
            let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
            entry.measured_tokens += x.shape().rows();
            entry.measured_error = share(sums.error, sums.output).sqrt();
            entry.measured_largest_error = share(sums.largest_error, sums.largest_output);
        }
        Ok(())
    }

    /// Orders of the layers before and after.
    pub fn orders(&self) -> (Vec<usize>, Vec<usize>) {
        let layers = self.certificate.layers.iter();
        layers.map(|layer| (layer.states, layer.order)).unzip()
    }
}
