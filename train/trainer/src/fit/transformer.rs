//! The backbones that can be configured.

use anyhow::{Result, bail};
use hankel_core::{DType, Device};
use hankel_models::{Backbone, Decoder, Pass, StepKey, TinyGpt};
use std::ops::Deref;
use std::path::Path;

/// The transformer of a run; what both kinds offer is reached as a [`Backbone`]. Cloning shares the parameters.
#[derive(Clone)]
pub enum Transformer {
    /// A small GPT, which can be trained as well.
    TinyGpt(TinyGpt),
    /// A decoder of a published family, always frozen.
    Decoder {
        /// The model.
        model: Decoder,
        /// Whether layers are computed again in the backward pass, where that is said.
        recompute: Option<bool>,
        /// Whether there is memory for a step that keeps what all layers compute; it decides where `recompute` does not.
        fits: bool,
        /// Element type in which their inputs are kept until then; that of the activations when not given.
        kept: Option<DType>,
    },
}

impl Deref for Transformer {
    type Target = dyn Backbone;

    fn deref(&self) -> &Self::Target {
        match self {
            Transformer::TinyGpt(model) => model,
            Transformer::Decoder { model, .. } => model,
        }
    }
}

impl Transformer {
    /// A training step's pass.
    pub fn training_pass(&self, key: StepKey) -> Pass<'static> {
        let recompute = self.recomputes(self.device() != Device::Cpu);
        match *self {
            Transformer::TinyGpt(_) => Pass::training(key),
            Transformer::Decoder { kept, .. } => Pass { recompute, kept, ..Pass::training(key) },
        }
    }

    /// Whether layers are computed again in the backward pass, on a GPU or in main memory.
    pub(super) fn recomputes(&self, on_gpu: bool) -> bool {
        match *self {
            Transformer::TinyGpt(_) => false,
            Transformer::Decoder { recompute, fits, .. } => recompute.unwrap_or(on_gpu || !fits),
        }
    }

    /// Prepares the parameters for computing in `dtype`. Weights that are widened inside the products stay as they are
    /// stored when that loses nothing.
    ///
    /// # Errors
    /// When the type is not a float.
    pub fn compute_in(&self, dtype: DType) -> hankel_core::Result<()> {
        match self {
            Transformer::Decoder { .. } if dtype == DType::F32 => Ok(()),
            _ => self.to_dtype(dtype),
        }
    }

    /// Writes what was trained or drawn to `directory`.
    ///
    /// # Errors
    /// When it cannot be written, or the model was read from files and never changes.
    pub fn save(&self, directory: &Path) -> Result<()> {
        match self {
            Transformer::TinyGpt(model) => Ok(model.save(directory)?),
            Transformer::Decoder { .. } => bail!("a decoder is not written: it is that of `backbone.model`"),
        }
    }
}
