//! `[backbone]`: the transformer that adapters are attached to.

mod decoder;
mod tiny_gpt;

pub use decoder::{DecoderConfig, KeptInputs, Quantize};
pub use tiny_gpt::{TinyGptConfig, model_directory};

use crate::settings::check::Checks;
use hankel_models::adapters::Placement;
use std::path::PathBuf;

/// `[backbone]`, by `kind`.
#[derive(Debug, Clone, PartialEq)]
pub enum BackboneConfig {
    /// `kind = "tiny_gpt"`.
    TinyGpt(TinyGptConfig),
    /// `kind = "decoder"`.
    Decoder(DecoderConfig),
}

/// Values of `backbone.kind`; the last two are other names of `decoder`.
pub const KINDS: &[&str] = &["tiny_gpt", "decoder", "mistral", "llama"];

/// A backbone's own settings: those of its files, or of what will be drawn.
#[derive(Debug, Clone)]
pub enum Sizes {
    /// `kind = "tiny_gpt"`.
    TinyGpt(hankel_models::TinyGptConfig),
    /// `kind = "decoder"`.
    Decoder(Box<hankel_models::DecoderConfig>),
}

impl Sizes {
    /// Where adapters can be attached.
    pub fn placement(&self) -> Placement {
        match self {
            Sizes::TinyGpt(c) => c.placement(),
            Sizes::Decoder(c) => c.placement(),
        }
    }
}

impl BackboneConfig {
    /// The value of `backbone.kind`.
    pub fn kind(&self) -> &'static str {
        match self {
            BackboneConfig::TinyGpt(_) => "tiny_gpt",
            BackboneConfig::Decoder(_) => "decoder",
        }
    }

    /// Where the weights are loaded from, if they are.
    pub fn path(&self) -> Option<&PathBuf> {
        match self {
            BackboneConfig::TinyGpt(c) => c.path.as_ref(),
            BackboneConfig::Decoder(c) => Some(&c.model),
        }
    }

    /// Whether the backbone can be trained before adapters are.
    pub fn can_be_pretrained(&self) -> bool {
        matches!(self, BackboneConfig::TinyGpt(_))
    }

    /// Whether nothing of the backbone changes while adapters are trained.
    pub fn is_fixed(&self) -> bool {
        match self {
            BackboneConfig::TinyGpt(c) => c.freeze && !c.train_head && !c.train_embeddings,
            BackboneConfig::Decoder(_) => true,
        }
    }

    /// Writes out every setting.
    pub(super) fn resolve(&mut self, sizes: &Sizes) {
        if let (BackboneConfig::TinyGpt(c), Sizes::TinyGpt(settings)) = (self, sizes) {
            c.write_out(settings);
        }
    }

    /// Checks what was written against itself, the task and the files it names, and gives the model's settings.
    pub(super) fn check(&self, vocabulary: usize, longest: usize, checks: &mut Checks<'_>) -> Option<Sizes> {
        match self {
            BackboneConfig::TinyGpt(c) => c.check(vocabulary, longest, checks).map(Sizes::TinyGpt),
            BackboneConfig::Decoder(c) => c.check(vocabulary, checks).map(Box::new).map(Sizes::Decoder),
        }
    }
}
