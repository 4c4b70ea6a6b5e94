//! The backbone without adapters, and the parameter values that every stage starts from.

use super::model::Model;
use super::replaced::warn_of_replaced;
use super::transformer::Transformer;
use crate::config::{BackboneConfig, Config, NO_DOUBLES, Precision, model_directory};
use crate::parallel::of_this_process;
use anyhow::{Context, Result, bail, ensure};
use hankel_core::gpu::{self, GpuFacts};
use hankel_core::{DType, Device, Error, Tensor};
use hankel_models::decoder::{CONFIG_FILE, LoadOptions, stored_weight};
use hankel_models::gguf::is_gguf;
use hankel_models::weights::TRAINED_BACKBONE_FILE;
use hankel_models::{AdapterSet, Backbone, Decoder, TinyGpt, TinyGptConfig};
use hankel_ops::linear::check_precision;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Once;

/// A backbone and the values of its parameters from which every stage starts.
pub struct BackboneSnapshot {
    backbone: Transformer,
    values: Vec<Tensor>,
    dtype: DType,
    device: Device,
    /// Where the model was loaded from.
    origin: Option<PathBuf>,
}

/// Opens the device `name` for computing in `precision`; a GPU's tensors may take `memory` GiB. `{local_rank}` stands for the
/// number of this process on its machine.
///
/// # Errors
/// When there is no such device, or it does not compute in that type.
pub fn open_device(name: &str, memory: Option<f64>, precision: Precision) -> Result<Device> {
    let device = Device::open(&of_this_process(name)).context("`device` cannot be used")?;
    if let Some(gpu) = device.gpu() {
        ensure!(precision != Precision::F64, "`precision` {NO_DOUBLES}");
        let is_hardware = |facts: &&GpuFacts| facts.kind != "software";
        let cards = gpu::devices().into_iter().filter(is_hardware).count();
        ensure!(
            name == of_this_process(name) || is_hardware(&gpu.facts()) || cards == 0,
            "`device` cannot be used: {} is {}, a driver in software: start as many processes on this machine as it has cards ({cards})",
            of_this_process(name),
            gpu.facts().name
        );
        warn_of_software(gpu.facts());
        gpu.set_budget(memory.map(|memory| (memory * f64::from(1 << 30)) as u64));
    }
    check_precision(device, precision.of_products()).context("`precision` cannot be used")?;
    Ok(device)
}

/// Says once that a driver computes on the CPU: `gpu` takes one where there is no card.
fn warn_of_software(facts: &GpuFacts) {
    static SAID: Once = Once::new();
    if facts.kind == "software" {
        SAID.call_once(|| {
            tell!("warning: {} is a driver in software: it computes on the CPU, and slower than `cpu`", facts.name);
        });
    }
}

impl BackboneSnapshot {
    /// The backbone of a resolved configuration: random, or loaded from the directory that it names.
    ///
    /// # Errors
    /// When files are missing, damaged or of another model; when the device cannot be used or has no room.
    pub fn new(config: &Config) -> Result<Self> {
        let device = open_device(&config.device, config.gpu_memory, config.precision)?;
        let backbone = match &config.backbone {
            BackboneConfig::TinyGpt(c) => {
                let settings = c
                    .settings(config.task.vocabulary(), config.longest())
                    .map_err(|(key, problem)| anyhow::anyhow!("`backbone.{key}` {problem}"))?;
                Transformer::TinyGpt(match &c.path {
                    None => TinyGpt::new(&settings, config.seed)?,
                    Some(path) => load(&model_directory(path), &settings)?,
                })
            }
            BackboneConfig::Decoder(c) => {
                let model = Decoder::load(&c.model, c.load_options(device))?;
                Transformer::Decoder { model, recompute: c.recompute(), fits: false, kept: c.kept() }
            }
        };
        Self::of(backbone, config.precision, device, config.backbone.path().map(PathBuf::as_path))
    }

    /// The backbone that a run trained or drew, with the dropout of its configuration.
    ///
    /// # Errors
    /// As [`BackboneSnapshot::new`].
    pub fn from_directory(config: &Config, directory: &Path) -> Result<Self> {
        let BackboneConfig::TinyGpt(c) = &config.backbone else { return Self::new(config) };
        let settings = TinyGptConfig { dropout: c.model.dropout, ..TinyGpt::load_config(directory)? };
        let device = open_device(&config.device, config.gpu_memory, config.precision)?;
        Self::of(Transformer::TinyGpt(load(directory, &settings)?), config.precision, device, Some(directory))
    }

    /// The backbone of a finished or unfinished run: the one in its directory, or the one it was loaded from.
    ///
    /// # Errors
    /// As [`BackboneSnapshot::new`].
    pub fn from_run(config: &Config, run: &Path) -> Result<Self> {
        let own = run.join("backbone");
        ensure!(
            own.is_dir() || config.pretrain.is_none(),
            "{} has no backbone yet, since its pretraining has not ended: continue it with `train fit --resume`",
            run.display()
        );
        if own.is_dir() {
            return Self::from_directory(config, &own);
        }
        warn_of_replaced(config, run);
        Self::new(config)
    }

    /// The model in a GGUF file, or in a directory of its own, of whatever kind its `config.json` says; `quantize` as in
    /// [`crate::config::DecoderConfig`].
    ///
    /// # Errors
    /// When files are missing, damaged or of an unknown kind, or the device has no room.
    pub fn from_model(directory: &Path, quantize: bool, precision: Precision, device: Device) -> Result<Self> {
        if is_gguf(directory) || model_type(directory)? != "tiny_gpt" {
            let model = Decoder::load(directory, LoadOptions { quantize, device })?;
            let backbone = Transformer::Decoder { model, recompute: None, fits: false, kept: None };
            return Self::of(backbone, precision, device, Some(directory));
        }
        if quantize {
            bail!("{}: a tiny_gpt is not quantised", directory.display());
        }
        Self::of(Transformer::TinyGpt(TinyGpt::load(directory)?), precision, device, Some(directory))
    }

    fn of(backbone: Transformer, precision: Precision, device: Device, origin: Option<&Path>) -> Result<Self> {
        let dtype = precision.dtype();
        backbone.compute_in(dtype)?;
        backbone.to_device(device)?;
        let origin = origin.map(Path::to_owned);
        let mut snapshot = BackboneSnapshot { backbone, values: Vec::new(), dtype, device, origin };
        snapshot.update();
        Ok(snapshot)
    }

    /// Replaces the stored values by the present ones.
    pub fn update(&mut self) {
        // Shares the memory until a stage trains a parameter.
        self.values = self.backbone.parameters().iter().map(|parameter| parameter.tensor().detach()).collect();
    }

    /// Where everything is computed.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The backbone itself.
    pub fn backbone(&self) -> &Transformer {
        &self.backbone
    }

    /// Restores the stored values and freezes the backbone.
    ///
    /// # Errors
    /// When values cannot be put back.
    pub fn reset(&self) -> hankel_core::Result<()> {
        for (parameter, value) in self.backbone.parameters().iter().zip(&self.values) {
            parameter.set_trainable(false)?;
            parameter.set(value)?;
        }
        Ok(())
    }

    /// The restored, frozen backbone with `adapters`.
    ///
    /// # Errors
    /// When values cannot be put back.
    pub fn with_adapters(&self, adapters: AdapterSet) -> hankel_core::Result<Model> {
        self.reset()?;
        adapters.to_dtype(self.dtype)?;
        adapters.to_device(self.device)?;
        Ok(Model { backbone: self.backbone.clone(), adapters })
    }

    /// Makes what adapters that were read need of the weights as they are stored.
    ///
    /// # Errors
    /// When they are for other weights.
    pub(super) fn complete(&self, adapters: &AdapterSet) -> hankel_core::Result<()> {
        adapters.check_backbone(&self.backbone.parameters())?;
        adapters.complete(&stored_in(self.origin.as_deref()))
    }

    /// The backbone with the saved adapter in `directory`, for sequences of `length` tokens, and whatever of the backbone
    /// was trained with it.
    ///
    /// # Errors
    /// When files are missing, damaged or of another backbone.
    pub fn with_saved_adapter(&self, directory: &Path, length: usize) -> Result<Model> {
        let placement = self.backbone.placement();
        let bare = directory.join(TRAINED_BACKBONE_FILE).is_file() && !directory.join("adapter_config.json").is_file();
        let adapters =
            if bare { AdapterSet::none(&placement) } else { AdapterSet::load(directory, &placement, length)? };
        self.complete(&adapters).with_context(|| directory.display().to_string())?;
        let model = self.with_adapters(adapters)?;
        model.load_trained_backbone(directory)?;
        Ok(model)
    }
}

/// Weights by name as a model directory or file has them.
pub(super) fn stored_in(origin: Option<&Path>) -> impl Fn(&str) -> hankel_core::Result<Tensor> + Sync {
    move |name| {
        let origin = origin.unwrap_or_else(|| Path::new(""));
        stored_weight(origin, name).map_err(|error| Error::invalid("adapter", error.to_string()))
    }
}

/// What `config.json` of a model directory says the model is.
fn model_type(directory: &Path) -> Result<Value> {
    let path = directory.join(CONFIG_FILE);
    let text = hankel_io::input::read(&path)?;
    let config: serde_json::Map<String, Value> =
        serde_json::from_slice(&text).with_context(|| format!("{} is malformed", path.display()))?;
    Ok(config.get("model_type").cloned().unwrap_or_default())
}

/// Loads a model and gives it other settings that do not change its shape (dropout).
fn load(directory: &Path, settings: &TinyGptConfig) -> Result<TinyGpt> {
    let stored = TinyGpt::load(directory)?;
    if stored.config() == settings {
        return Ok(stored);
    }
    let model = TinyGpt::new(settings, 0)?;
    for (parameter, value) in model.parameters().iter().zip(stored.parameters()) {
        // Doubles stay doubles.
        parameter.to_dtype(value.tensor().dtype())?;
        parameter.set(&value.tensor())?;
    }
    Ok(model)
}
