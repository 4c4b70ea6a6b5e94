//! Adapters: what is trained on a frozen backbone.
//!
//! A backbone offers *sites*. At a linear site an adapter changes one projection (`q_proj`, `up_proj` ...); at a stream site
//! (`attention`, `mlp`) it acts on the sequence after the sub-layer. An [`AdapterSet`] holds what is attached where; the
//! backbone asks it layer by layer and knows no adapter by name.
//!
//! Every *kind* of adapter is a folder here and a line in the registry. [`LinearKind`] is what a kind of projections says of
//! itself, [`StreamKind`] what one on the stream says; nothing outside the registry knows a kind by its name.

pub mod adalora;
mod budget;
mod config;
pub mod delta;
pub mod dora;
pub mod hankel_shared;
pub mod householder;
pub mod hrm;
pub mod ia3;
mod kind;
pub mod linear;
pub mod lora;
mod placement;
mod registry;
pub mod rotation;
pub mod selective;
mod shared;
pub mod state_offset;
pub mod stream;

pub use crate::weights::{Discretization, HrmMode, HrmPreset, StreamInput, StreamSite};
pub use adalora::{AdaLora, AdaLoraConfig, Schedule};
pub use budget::Budget;
pub use config::AdapterConfig;
pub use delta::Delta;
pub use dora::Dora;
pub use hankel_shared::HankelShared;
pub use householder::Householder;
pub use hrm::{
    Deviation, Dynamics, EmpiricalStart, Exactness, Hrm, HrmConfig, HrmInit, RateInit, Truncated, TruncationError,
};
pub use ia3::{Ia3, Ia3Config};
pub use kind::{Context, Kind, Sites};
pub use linear::merge::{MergeReport, Merged};
pub use linear::{Allocation, LinearAdapter, LinearContext, LinearKind, StoredWeight};
pub use lora::{Lora, LoraConfig, LoraInit};
pub use placement::{LinearSite, Placement};
pub use registry::{COMMON_KEYS, kind, kinds, register, register_linear, replacement};
pub use rotation::Rotation;
pub use selective::Selective;
pub use state_offset::StateOffset;
pub use stream::{Memory, Recurrence, SiteContext, Stream, StreamAdapter, StreamInputs, StreamKind};

use crate::parameter::Parameter;
use crate::settings::Table;
use crate::weights::hrm_file::CONFIG_FILE;
use crate::weights::{self, WeightsError};
use hankel_core::{DType, Device, Error, Gradients, Result, Tensor};
use linear::SharedTraining;
use rayon::prelude::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// The adapters of one layer.
#[derive(Clone, Default)]
pub struct LayerAdapters {
    linear: BTreeMap<String, Arc<dyn LinearAdapter>>,
    stream: BTreeMap<StreamSite, Stream>,
}

impl LayerAdapters {
    /// What is attached to a linear site.
    pub fn linear(&self, site: &str) -> Option<&dyn LinearAdapter> {
        self.linear.get(site).map(|adapter| &**adapter)
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
    pub fn linears(&self) -> impl Iterator<Item = (&str, &dyn LinearAdapter)> {
        self.linear.iter().map(|(site, adapter)| (site.as_str(), &**adapter))
    }
}

/// Everything attached to one backbone. Cloning shares the parameters.
#[derive(Clone)]
pub struct AdapterSet {
    config: Option<AdapterConfig>,
    layers: Vec<LayerAdapters>,
    training: Option<Arc<dyn SharedTraining>>,
}

impl AdapterSet {
    /// Nothing attached.
    pub fn none(placement: &Placement) -> Self {
        AdapterSet { config: None, layers: vec![LayerAdapters::default(); placement.layers], training: None }
    }

    /// Fresh adapters of `config` at all its sites, trainable.
    ///
    /// # Errors
    /// When a site does not exist in the backbone, a size is out of range, or the kind starts from the backbone's weights: see
    /// [`AdapterSet::on`].
    pub fn new(config: &AdapterConfig, placement: &Placement, seed: u64) -> Result<Self> {
        let set = Self::build(config, placement, seed)?;
        if set.linears().any(|(_, adapter)| adapter.needs_weight()) {
            let problem = "these adapters start from the backbone's weights: make the set with AdapterSet::on";
            return Err(Error::invalid(config.kind().name(), problem));
        }
        Ok(set)
    }

    /// Fresh adapters of `config`, trainable, on a backbone with the sites of `placement` and the parameters `backbone`. On
    /// projections the model computes what it did before; on the stream where C, or the gate, begins at 0.
    ///
    /// # Errors
    /// When a site does not exist in the backbone, a size is out of range, or a weight that the kind starts from is missing,
    /// not finite or too small for the rank. LoftQ needs [`AdapterSet::on_stored`].
    pub fn on(config: &AdapterConfig, placement: &Placement, backbone: &[Parameter], seed: u64) -> Result<Self> {
        let unknown = |name: &str| {
            let problem = format!("{name} is known only as it is quantised: make the set with AdapterSet::on_stored");
            Err(Error::invalid("adapter", problem))
        };
        Self::on_stored(config, placement, (backbone, &unknown), seed)
    }

    /// As [`AdapterSet::on`], with weights as they are stored, by name, for adapters that start from what quantising lost (LoftQ).
    ///
    /// # Errors
    /// As [`AdapterSet::on`], and those of `stored`.
    pub fn on_stored(
        config: &AdapterConfig,
        placement: &Placement,
        (backbone, stored): (&[Parameter], &(dyn Fn(&str) -> Result<Tensor> + Sync)),
        seed: u64,
    ) -> Result<Self> {
        let set = Self::build(config, placement, seed)?;
        set.check_backbone(backbone)?;
        let start = |(path, adapter): (&str, &dyn LinearAdapter)| {
            let name = format!("{path}.weight");
            let weight = backbone.iter().find(|parameter| parameter.name() == name);
            let missing = || Error::invalid("adapter", format!("the backbone has no parameter {name}"));
            adapter.start_at(&weight.ok_or_else(missing)?.tensor(), &|| stored(&name))
        };
        let started: Vec<_> = set.linears().filter(|(_, adapter)| adapter.needs_weight()).collect();
        started.into_par_iter().try_for_each(start)?;
        Ok(set)
    }

    /// Whether the adapters are for weights such as those of `backbone`.
    ///
    /// # Errors
    /// When they make up for a quantisation (LoftQ) that there is not.
    pub fn check_backbone(&self, backbone: &[Parameter]) -> Result<()> {
        for (path, _) in self.linears().filter(|(_, adapter)| adapter.needs_nf4()) {
            let name = format!("{path}.weight");
            let found = backbone.iter().find(|parameter| parameter.name() == name).map(Parameter::tensor);
            if let Some(weight) = found.filter(|weight| weight.dtype() != DType::Nf4) {
                let problem = format!(
                    "LoftQ makes up for what 4-bit quantisation loses, and {name} is {}: quantise the model while it is loaded \
                     (`backbone.quantize = \"nf4\"`, `--quantize nf4`)",
                    weight.dtype()
                );
                return Err(Error::invalid("lora", problem));
            }
        }
        Ok(())
    }

    /// Makes what depends on the weights as they are stored, given by name, and is in no file: after reading adapters from a directory
    /// or a checkpoint. Nothing for most kinds.
    ///
    /// # Errors
    /// Those of `stored`, and when a weight is stored in blocks.
    pub fn complete(&self, stored: &(dyn Fn(&str) -> Result<Tensor> + Sync)) -> Result<()> {
        let all: Vec<_> = self.linears().collect();
        all.into_par_iter().try_for_each(|(path, adapter)| adapter.complete(&|| stored(&format!("{path}.weight"))))
    }

    fn build(config: &AdapterConfig, placement: &Placement, seed: u64) -> Result<Self> {
        let mut set = AdapterSet { config: Some(config.clone()), ..Self::none(placement) };
        config.kind().0.attach(&mut set, config, placement, seed)?;
        Ok(set)
    }

    /// Writes the directory, all or nothing, replacing one that is there. Nothing is written for no adapter.
    ///
    /// # Errors
    /// When it cannot be written; what was there is still there then.
    pub fn save(&self, directory: &Path, base_model: Option<&str>) -> weights::Result<()> {
        self.config.as_ref().map_or(Ok(()), |config| config.kind().0.save(self, config, directory, base_model))
    }

    /// Reads a directory for a backbone with the sites of `placement`; `length` is that of sequences, on which defaults depend
    /// that a file does not have. Everything is trainable afterwards but state matrices in dense form, adapters truncated along
    /// data, gates and steps that the file says are not trained, and the factors that LoftQ quantised with. What is stored in f64 is f64, and so are recurrent adapters with a reduced layer; other parameters are f32.
    /// [`AdapterSet::to_dtype`] rounds to the type that is computed in.
    ///
    /// # Errors
    /// When a file is missing or malformed, the adapter is of an unknown kind, or it was made for another backbone.
    pub fn load(directory: &Path, placement: &Placement, length: usize) -> weights::Result<Self> {
        let path = directory.join(CONFIG_FILE);
        let fail = |reason: String| WeightsError::content(&path, reason);
        let bytes = hankel_io::input::read(&path)?;
        let file: Table = serde_json::from_slice(&bytes).map_err(|e| fail(e.to_string()))?;
        if let Some(kind) = kinds().into_iter().find(|kind| kind.0.owns(&file)) {
            return kind.0.load(directory, &file, placement, length);
        }
        let text = |key: &str| file.get(key).and_then(Value::as_str);
        Err(fail(match (text("peft_type"), text("kind")) {
            (None, _) => "there is no peft_type: this is not an adapter".to_owned(),
            (Some("STREAM"), Some(kind)) => registry::unknown(kind),
            (Some(other), _) => {
                let all = kinds();
                let names: Vec<&str> = all.iter().map(|kind| kind.name()).collect();
                format!("peft_type {other:?} is not supported; there are {}", names.join(", "))
            }
        }))
    }

    /// What it was made from; `None` without adapters.
    pub fn config(&self) -> Option<&AdapterConfig> {
        self.config.as_ref()
    }

    /// The adapters of layer `index`.
    ///
    /// # Panics
    /// When there are not so many layers.
    pub fn layer(&self, index: usize) -> &LayerAdapters {
        &self.layers[index]
    }

    /// The adapters of every layer.
    pub fn layers(&self) -> &[LayerAdapters] {
        &self.layers
    }

    /// All adapted projections with their paths (`model.layers.2.self_attn.q_proj`), layer by layer.
    pub fn linears(&self) -> impl Iterator<Item = (&str, &dyn LinearAdapter)> {
        self.layers.iter().flat_map(LayerAdapters::linears).map(|(_, adapter)| (adapter.path(), adapter))
    }

    /// The term that the adapters add to the loss of an optimizer step, once for all its micro-batches, such as the orthogonality
    /// penalty of AdaLoRA; `None` where there is none.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn penalty(&self) -> Result<Option<Tensor>> {
        self.training.as_ref().map_or(Ok(None), |training| training.penalty())
    }

    /// Whether [`AdapterSet::allocate`] does anything.
    pub fn allocates(&self) -> bool {
        self.training.as_ref().is_some_and(|training| training.allocates())
    }

    /// What a kind does after each optimizer step (numbered from 0) with the gradients that it used and the factor that it put on
    /// them (the mean over micro-batches, clipping): AdaLoRA gives the ranks to the projections that need them. `None` for kinds
    /// that do nothing.
    ///
    /// # Errors
    /// When a gradient is missing.
    pub fn allocate(&self, step: usize, gradients: &Gradients, factor: f64) -> Result<Option<Allocation>> {
        self.training.as_ref().map_or(Ok(None), |training| training.step(step, gradients, factor))
    }

    /// Ends a training, however many steps it had, before its adapters are evaluated and saved: AdaLoRA allocates its ranks for the last
    /// time where it has not, and what is not kept is 0. Gives the ranks if they were allocated; `None` for kinds that do nothing.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn end_training(&self) -> Result<Option<Allocation>> {
        self.training.as_ref().map_or(Ok(None), |training| training.end())
    }

    /// What a resumed training needs beside parameters and the optimizer's moments, by name; empty for most kinds.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn training_state(&self) -> Result<BTreeMap<String, Tensor>> {
        self.training.as_ref().map_or(Ok(BTreeMap::new()), |training| training.save())
    }

    /// Takes back what [`AdapterSet::training_state`] gave.
    ///
    /// # Errors
    /// When it is the state of other adapters.
    pub fn restore_training_state(&self, saved: &BTreeMap<String, Tensor>) -> Result<()> {
        match &self.training {
            Some(training) => training.restore(saved),
            None if saved.is_empty() => Ok(()),
            None => Err(Error::invalid("adapter", "the saved state is that of other adapters")),
        }
    }

    /// Refuses a model of another number of layers.
    pub(crate) fn check_layers(&self, layers: usize) -> Result<()> {
        if self.layers.len() == layers {
            return Ok(());
        }
        let problem = format!("these adapters are for {} layers, the model has {layers}", self.layers.len());
        Err(Error::invalid("adapter", problem))
    }

    /// Whether adapters were truncated along data; such are for use, not for training.
    pub fn is_truncated(&self) -> bool {
        self.streams().any(|(_, stream)| stream.is_truncated())
    }

    /// All stream adapters with their layers.
    pub fn streams(&self) -> impl Iterator<Item = (usize, &Stream)> {
        let layers = self.layers.iter().enumerate();
        layers.flat_map(|(layer, adapters)| adapters.streams().map(move |(_, stream)| (layer, stream)))
    }

    /// Whether all are linear recurrences with constant coefficients, whose exactness can be measured.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn is_recurrent(&self) -> Result<bool> {
        let mut any = false;
        for (_, stream) in self.streams() {
            any = true;
            if stream.adapter().recurrence()?.is_none() {
                return Ok(false);
            }
        }
        Ok(any)
    }

    /// Whether all are systems whose coefficients change along their input, which are truncated along data.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn is_varying(&self) -> Result<bool> {
        let mut any = false;
        for (_, stream) in self.streams() {
            any = true;
            if stream.is_truncated() || stream.example()?.is_none() {
                return Ok(false);
            }
        }
        Ok(any)
    }

    /// Every parameter once, layer by layer.
    pub fn parameters(&self) -> Vec<Parameter> {
        let layer = |layer: &LayerAdapters| -> Vec<Parameter> {
            let linear = layer.linear.values().flat_map(|adapter| adapter.parameters());
            linear.chain(layer.stream.values().flat_map(Stream::parameters)).collect()
        };
        let mut all: Vec<Parameter> = self.layers.iter().flat_map(layer).collect();
        // Layers may have parameters in common.
        let mut seen = BTreeSet::new();
        all.retain(|parameter| seen.insert(parameter.name().to_owned()));
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
        self.streams().try_for_each(|(_, stream)| stream.adapter().check_rounded())
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
