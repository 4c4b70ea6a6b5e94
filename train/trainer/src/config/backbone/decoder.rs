//! `kind = "decoder"`.

use super::Checks;
use hankel_core::{DType, Device};
use hankel_models::decoder::{self, LoadOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A decoder of a published family in the Hugging Face layout. It is always held fixed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DecoderConfig {
    /// Directory with `config.json` and `model.safetensors` or its shards with their index.
    pub model: PathBuf,
    /// Quantise the projections to 4 bits while loading: `nf4`. Projections that are stored in 4 bits stay as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantize: Option<Quantize>,
    /// Keep only the input of each layer for the backward pass and compute the layer again there: much less memory for
    /// another forward pass of time. When not given: true on a GPU; on a CPU under Linux, true if a step would otherwise take more than
    /// half of the available memory.
    /// Results are the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recompute: Option<bool>,
    /// Element type in which those inputs are kept: `bf16` is half the memory of long sequences. That of the activations when
    /// not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_inputs: Option<KeptInputs>,
}

/// Values of `backbone.kept_inputs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeptInputs {
    /// 8 bits of precision in the range of single precision.
    Bf16,
}

/// Values of `backbone.quantize` and `--quantize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Quantize {
    /// 4-bit normal floats in blocks of 64, scales quantised as well.
    Nf4,
}

impl DecoderConfig {
    /// How the files are read, to `device`.
    pub fn load_options(&self, device: Device) -> LoadOptions {
        LoadOptions { quantize: self.quantize.is_some(), device }
    }

    /// Whether layers are computed again, where that is said.
    pub fn recompute(&self) -> Option<bool> {
        self.recompute.or(self.kept_inputs.map(|_| true))
    }

    /// Element type in which the inputs of layers are kept, when it is not that of the activations.
    pub fn kept(&self) -> Option<DType> {
        self.kept_inputs.map(|KeptInputs::Bf16| DType::BF16)
    }

    pub(super) fn check(&self, vocabulary: usize, checks: &mut Checks<'_>) -> Option<decoder::DecoderConfig> {
        checks.require("kept_inputs", self.recompute != Some(false) || self.kept_inputs.is_none(), || {
            "is for `backbone.recompute = true`, without which more than the inputs of layers is kept".to_owned()
        });
        match decoder::DecoderConfig::load(&self.model) {
            Ok(settings) => {
                let own = settings.vocabulary;
                checks.require("model", own >= vocabulary, || {
                    format!("holds a model with a vocabulary of {own}, but the task has one of {vocabulary}")
                });
                Some(settings)
            }
            Err(error) => {
                checks.unusable_files("model", format!("cannot be used: {error}"));
                None
            }
        }
    }
}
