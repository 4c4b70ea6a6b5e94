//! Adapters: what is trained on a frozen backbone.
//!
//! A backbone offers *sites*. At a linear site an adapter changes one projection (`q_proj`, `up_proj` ...); at a stream site
//! (`attention`, `mlp`) it acts on the sequence after the sub-layer. An [`AdapterSet`] holds what is attached where; the
//! backbone asks it layer by layer and knows no adapter by name.

mod dynamics;
mod files;
mod hankel;
mod hrm;
mod lora;
mod placement;
mod truncation;

pub use crate::weights::{Discretization, HrmInput, HrmPreset as Preset, HrmSite as StreamSite};
pub use dynamics::{Coefficients, Dynamics, RateInit};
pub use hrm::{Hrm, HrmConfig, StreamInputs};
pub use lora::{LinearAdapter, LoraConfig};
pub use placement::{LinearSite, Placement};
pub use truncation::Truncated;

use crate::parameter::Parameter;
use hankel_core::{DType, Error, Result};
use std::collections::BTreeMap;

/// Which adapter is attached, and how.
#[derive(Debug, Clone, PartialEq)]
pub enum AdapterConfig {
    /// The backbone alone.
    None,
    /// Recurrent adapters at stream sites.
    Hrm(HrmConfig),
    /// Low-rank updates at linear sites.
    Lora(LoraConfig),
}

/// The adapters of one layer.
#[derive(Clone, Default)]
pub struct LayerAdapters {
    linear: BTreeMap<String, LinearAdapter>,
    stream: BTreeMap<StreamSite, Hrm>,
}

impl LayerAdapters {
    /// What is attached to a linear site.
    pub fn linear(&self, site: &str) -> Option<&LinearAdapter> {
        self.linear.get(site)
    }

    /// What is attached to a stream site.
    pub fn stream(&self, site: StreamSite) -> Option<&Hrm> {
        self.stream.get(&site)
    }

    /// All stream adapters, by site.
    pub fn streams(&self) -> impl Iterator<Item = (StreamSite, &Hrm)> {
        self.stream.iter().map(|(site, adapter)| (*site, adapter))
    }

    /// All adapted projections, by name.
    pub fn linears(&self) -> impl Iterator<Item = (&str, &LinearAdapter)> {
        self.linear.iter().map(|(site, adapter)| (site.as_str(), adapter))
    }
}

/// Everything attached to one backbone. Cloning shares the parameters.
#[derive(Clone)]
pub struct AdapterSet {
    config: AdapterConfig,
    layers: Vec<LayerAdapters>,
}

impl AdapterSet {
    /// Nothing attached.
    pub fn none(placement: &Placement) -> Self {
        AdapterSet { config: AdapterConfig::None, layers: vec![LayerAdapters::default(); placement.layers] }
    }

    /// Fresh adapters of `config` at all its sites, trainable.
    ///
    /// # Errors
    /// When a site does not exist in the backbone, or a size is out of range.
    pub fn new(config: &AdapterConfig, placement: &Placement, seed: u64) -> Result<Self> {
        let mut set = AdapterSet { config: config.clone(), ..Self::none(placement) };
        for (layer, adapters) in set.layers.iter_mut().enumerate() {
            match config {
                AdapterConfig::None => {}
                AdapterConfig::Hrm(config) => {
                    config.check().map_err(|problem| Error::invalid("hrm", problem))?;
                    for &site in &config.sites {
                        adapters.stream.insert(site, Hrm::new(config, placement.d_model, layer, site, seed)?);
                    }
                }
                AdapterConfig::Lora(config) => {
                    for site in placement.resolve(&config.targets)? {
                        adapters.linear.insert(site.name.clone(), LinearAdapter::new(config, site, layer, seed)?);
                    }
                }
            }
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

    /// Every parameter, layer by layer.
    pub fn parameters(&self) -> Vec<Parameter> {
        let layer = |layer: &LayerAdapters| -> Vec<Parameter> {
            let linear = layer.linear.values().flat_map(LinearAdapter::parameters);
            linear.chain(layer.stream.values().flat_map(Hrm::parameters)).collect()
        };
        self.layers.iter().flat_map(layer).collect()
    }

    /// Number of trainable values.
    pub fn trainable_count(&self) -> usize {
        crate::parameter::trainable_count(&self.parameters())
    }

    /// Converts every parameter to `dtype` (`f64` for gradient checks).
    ///
    /// # Errors
    /// When the type is not a float.
    pub fn to_dtype(&self, dtype: DType) -> Result<()> {
        self.parameters().iter().try_for_each(|parameter| parameter.to_dtype(dtype))
    }
}
