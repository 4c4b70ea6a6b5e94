//! Adapters: what is trained on a frozen backbone.
//!
//! A backbone offers *sites*. At a linear site an adapter changes one projection (`q_proj`, `up_proj` ...); at a stream site
//! (`attention`, `mlp`) it acts on the sequence after the sub-layer. An [`AdapterSet`] holds what is attached where; the
//! backbone asks it layer by layer and knows no adapter by name.

pub mod adalora;
mod budget;
mod dora;
mod dynamics;
mod exactness;
mod files;
mod hankel;
mod hrm;
mod ia3;
pub mod kinds;
mod linear_adapter;
mod lora;
mod merge;
mod peft;
mod placement;
pub mod stream;
mod truncation;

pub use crate::weights::{Discretization, HrmInput, HrmMode, HrmPreset as Preset, HrmSite as StreamSite};
pub use adalora::{AdaLora, AdaLoraConfig, Allocation, Schedule};
pub use budget::Budget;
pub use dora::Dora;
pub use dynamics::{Coefficients, Dynamics, RateInit};
pub use exactness::{Deviation, Exactness};
pub use hrm::{Hrm, HrmConfig, StreamInputs};
pub use ia3::{Ia3, Ia3Config};
pub use linear_adapter::LinearAdapter;
pub use lora::{Lora, LoraConfig};
pub use merge::{MergeReport, Merged};
pub use placement::{LinearSite, Placement};
pub use stream::{Memory, Place, Stream, StreamAdapter, StreamConfig, StreamKind, register};
pub use truncation::{Truncated, TruncationError};

use crate::parameter::Parameter;
use adalora::Allocator;
use hankel_core::{DType, Device, Error, Gradients, Result, Tensor};
use hankel_ops::{add, scale};
use std::collections::{BTreeMap, BTreeSet};
use stream::{Attached, Shared};

/// Which adapter is attached, and how.
#[derive(Debug, Clone, PartialEq)]
pub enum AdapterConfig {
    /// The backbone alone.
    None,
    /// Recurrent adapters at stream sites.
    Hrm(HrmConfig),
    /// Low-rank updates at linear sites: LoRA, rsLoRA, DoRA.
    Lora(LoraConfig),
    /// Low-rank updates whose ranks are shared out while training.
    AdaLora(AdaLoraConfig),
    /// Scales at linear sites.
    Ia3(Ia3Config),
    /// A registered kind at stream sites.
    Stream(StreamConfig),
}

/// The adapters of one layer.
#[derive(Clone, Default)]
pub struct LayerAdapters {
    linear: BTreeMap<String, LinearAdapter>,
    stream: BTreeMap<StreamSite, Stream>,
}

impl LayerAdapters {
    /// What is attached to a linear site.
    pub fn linear(&self, site: &str) -> Option<&LinearAdapter> {
        self.linear.get(site)
    }

    /// What is attached to a stream site.
    pub fn stream(&self, site: StreamSite) -> Option<&Stream> {
        self.stream.get(&site)
    }

    /// All stream adapters, by site.
    pub fn streams(&self) -> impl Iterator<Item = (StreamSite, &Stream)> {
        self.stream.iter().map(|(site, adapter)| (*site, adapter))
    }

    /// All adapted projections, by site.
    pub fn linears(&self) -> impl Iterator<Item = (&str, &LinearAdapter)> {
        self.linear.iter().map(|(site, adapter)| (site.as_str(), adapter))
    }
}

/// Everything attached to one backbone. Cloning shares the parameters.
#[derive(Clone)]
pub struct AdapterSet {
    config: AdapterConfig,
    layers: Vec<LayerAdapters>,
    allocator: Allocator,
}

impl AdapterSet {
    /// Nothing attached.
    pub fn none(placement: &Placement) -> Self {
        AdapterSet {
            config: AdapterConfig::None,
            layers: vec![LayerAdapters::default(); placement.layers],
            allocator: Allocator::default(),
        }
    }

    /// Fresh adapters of `config` at all its sites, trainable.
    ///
    /// # Errors
    /// When a site does not exist in the backbone, a size is out of range, or for DoRA, which starts from the backbone's
    /// weights: see [`AdapterSet::on`].
    pub fn new(config: &AdapterConfig, placement: &Placement, seed: u64) -> Result<Self> {
        match config {
            AdapterConfig::Lora(config) if config.dora => Err(dora::needs_weights()),
            _ => Self::build(config, placement, seed, |_, rank| rank),
        }
    }

    /// Fresh adapters of `config`, trainable, on a backbone with the sites of `placement` and the parameters `backbone`; the
    /// model computes what it did before.
    ///
    /// # Errors
    /// When a site does not exist in the backbone, or a size is out of range.
    pub fn on(config: &AdapterConfig, placement: &Placement, backbone: &[Parameter], seed: u64) -> Result<Self> {
        let set = Self::build(config, placement, seed, |_, rank| rank)?;
        for (path, adapter) in set.linears() {
            if let LinearAdapter::Dora(dora) = adapter {
                let name = format!("{path}.weight");
                let weight = backbone.iter().find(|parameter| parameter.name() == name);
                let missing = || Error::invalid("dora", format!("the backbone has no parameter {name}"));
                dora.start_at(&weight.ok_or_else(missing)?.tensor())?;
            }
        }
        Ok(set)
    }

    /// `rank` gives the rank of an AdaLoRA update from its path and the rank of the configuration.
    fn build(
        config: &AdapterConfig,
        placement: &Placement,
        seed: u64,
        rank: impl Fn(&str, usize) -> usize,
    ) -> Result<Self> {
        let mut set = AdapterSet { config: config.clone(), ..Self::none(placement) };
        let targets = match config {
            AdapterConfig::None => &[][..],
            AdapterConfig::Lora(config) => &config.targets,
            AdapterConfig::AdaLora(config) => &config.targets,
            AdapterConfig::Ia3(config) => &config.targets,
            AdapterConfig::Hrm(config) => {
                config.check().map_err(|problem| Error::invalid("hrm", problem))?;
                for (layer, adapters) in set.layers.iter_mut().enumerate() {
                    for &site in &config.sites {
                        let adapter = Hrm::new(config, placement.d_model, layer, site, seed)?;
                        adapters.stream.insert(site, Stream::Hrm(adapter));
                    }
                }
                &[]
            }
            AdapterConfig::Stream(config) => {
                config.check().map_err(|problem| Error::invalid("adapter", problem))?;
                let common = Shared::default();
                for (layer, adapters) in set.layers.iter_mut().enumerate() {
                    for &site in &config.sites {
                        let sizes = [layer, placement.d_model, config.length];
                        let place = Place::new(&config.kind, sizes, site, seed, &common);
                        adapters.stream.insert(site, Stream::Attached(Attached::new(config, &place)?));
                    }
                }
                &[]
            }
        };
        for (layer, site) in placement.select(targets)? {
            let adapter = match config {
                AdapterConfig::None | AdapterConfig::Hrm(_) | AdapterConfig::Stream(_) => continue,
                AdapterConfig::Lora(config) if config.dora => {
                    LinearAdapter::Dora(Dora::new(config, site, layer, seed)?)
                }
                AdapterConfig::Lora(config) => LinearAdapter::Lora(Lora::new(config, site, layer, seed)?),
                AdapterConfig::AdaLora(config) => {
                    let rank = rank(&site.path(layer), config.init_rank);
                    LinearAdapter::AdaLora(AdaLora::new(config, rank, site, layer, seed)?)
                }
                AdapterConfig::Ia3(config) => LinearAdapter::Ia3(Ia3::new(config, site, layer)?),
            };
            set.layers[layer].linear.insert(site.name.clone(), adapter);
        }
        Ok(set)
    }

    /// What it was made from.
    pub fn config(&self) -> &AdapterConfig {
        &self.config
    }

    /// The adapters of layer `index`.
    pub fn layer(&self, index: usize) -> &LayerAdapters {
        &self.layers[index]
    }

    /// The adapters of every layer.
    pub fn layers(&self) -> &[LayerAdapters] {
        &self.layers
    }

    /// All adapted projections with their paths (`model.layers.2.self_attn.q_proj`), layer by layer.
    pub fn linears(&self) -> impl Iterator<Item = (&str, &LinearAdapter)> {
        self.layers.iter().flat_map(LayerAdapters::linears).map(|(_, adapter)| (adapter.path(), adapter))
    }

    fn adalora(&self) -> Vec<&AdaLora> {
        let all = self.layers.iter().flat_map(LayerAdapters::linears);
        all.filter_map(|(_, adapter)| if let LinearAdapter::AdaLora(adapter) = adapter { Some(adapter) } else { None })
            .collect()
    }

    /// The term that the adapters add to the loss of each micro-batch: the orthogonality penalty of AdaLoRA; `None` where
    /// there is none.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn penalty(&self) -> Result<Option<Tensor>> {
        let AdapterConfig::AdaLora(config) = &self.config else { return Ok(None) };
        if config.orth_reg_weight == 0.0 {
            return Ok(None);
        }
        let mut sum: Option<Tensor> = None;
        let mut terms = 0;
        for term in self.adalora().into_iter().map(AdaLora::penalties) {
            for term in term? {
                terms += 1;
                sum = Some(sum.map_or(Ok(term.clone()), |sum| add(&sum, &term))?);
            }
        }
        sum.map(|sum| scale(&sum, config.orth_reg_weight / f64::from(terms))).transpose()
    }

    /// Whether [`AdapterSet::allocate`] does anything.
    pub fn allocates(&self) -> bool {
        matches!(self.config, AdapterConfig::AdaLora(_))
    }

    /// AdaLoRA's part of a training step, called after each optimizer step (numbered from 0) with the gradients it used and
    /// the factor that it put on them (the mean over micro-batches, clipping): updates the scores and, by the schedule,
    /// gives the ranks to the projections that need them. `None` for any other adapter.
    ///
    /// # Errors
    /// When a gradient is missing.
    pub fn allocate(&self, step: usize, gradients: &Gradients, factor: f64) -> Result<Option<Allocation>> {
        let AdapterConfig::AdaLora(config) = &self.config else { return Ok(None) };
        self.allocator.step(config, &self.adalora(), step, gradients, factor).map(Some)
    }

    /// What a resumed training needs beside parameters and the optimizer's moments, by name: AdaLoRA's scores and masks;
    /// empty for any other adapter.
    ///
    /// # Errors
    /// Never for a set made by this module.
    pub fn training_state(&self) -> Result<BTreeMap<String, Tensor>> {
        self.allocator.save()
    }

    /// Takes back what [`AdapterSet::training_state`] gave.
    ///
    /// # Errors
    /// When it is the state of other adapters.
    pub fn restore_training_state(&self, saved: &BTreeMap<String, Tensor>) -> Result<()> {
        self.allocator.restore(&self.adalora(), saved)
    }

    /// Whether adapters of a registered kind were truncated; such are for use, not for training.
    pub fn is_truncated(&self) -> bool {
        let mut streams = self.layers.iter().flat_map(LayerAdapters::streams);
        streams.any(|(_, stream)| matches!(stream, Stream::Attached(attached) if attached.is_truncated()))
    }

    /// Whether there is something to truncate: HRM, or a kind that gives its system.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn can_be_truncated(&self) -> Result<bool> {
        for (_, stream) in self.layers.iter().flat_map(LayerAdapters::streams) {
            match stream {
                Stream::Attached(attached) if attached.is_truncated() || attached.example()?.is_none() => {
                    return Ok(false);
                }
                _ => {}
            }
        }
        Ok(self.layers.iter().any(|layer| !layer.stream.is_empty()))
    }

    /// Every parameter once, layer by layer.
    pub fn parameters(&self) -> Vec<Parameter> {
        let layer = |layer: &LayerAdapters| -> Vec<Parameter> {
            let linear = layer.linear.values().flat_map(LinearAdapter::parameters);
            linear.chain(layer.stream.values().flat_map(Stream::parameters)).collect()
        };
        let mut all: Vec<Parameter> = self.layers.iter().flat_map(layer).collect();
        if matches!(self.config, AdapterConfig::Stream(_)) {
            // Layers may have parameters in common.
            let mut seen = BTreeSet::new();
            all.retain(|parameter| seen.insert(parameter.name().to_owned()));
        }
        all
    }

    /// The same adapters with every gate held at `gate`; everything else is shared with this set.
    ///
    /// # Errors
    /// When there is no gate to hold.
    pub fn with_gates(&self, gate: f64) -> Result<Self> {
        let mut held = self.clone();
        for stream in held.layers.iter_mut().flat_map(|layer| layer.stream.values_mut()) {
            *stream = stream.with_gate(gate)?;
        }
        if held.layers.iter().all(|layer| layer.stream.is_empty()) {
            return Err(Error::invalid("gates", "these adapters have no gate"));
        }
        Ok(held)
    }

    /// Number of trainable values.
    pub fn trainable_count(&self) -> usize {
        crate::parameter::trainable_count(&self.parameters())
    }

    /// Converts every parameter to `dtype` (`f64` for gradient checks).
    ///
    /// # Errors
    /// When the type is not a float, or a dense state matrix is not stable once it is rounded to it.
    pub fn to_dtype(&self, dtype: DType) -> Result<()> {
        self.parameters().iter().try_for_each(|parameter| parameter.to_dtype(dtype))?;
        let streams = self.layers.iter().flat_map(LayerAdapters::streams);
        streams.filter_map(|(_, stream)| stream.hrm()).try_for_each(|hrm| hrm.dynamics.check_stable())
    }

    /// Moves every parameter to `device`.
    ///
    /// # Errors
    /// As [`Parameter::to_device`].
    pub fn to_device(&self, device: Device) -> Result<()> {
        self.parameters().iter().try_for_each(|parameter| parameter.to_device(device))
    }

    /// Where the parameters are; the CPU without any.
    pub fn device(&self) -> Device {
        self.parameters().first().map_or(Device::Cpu, |parameter| parameter.tensor().device())
    }
}
