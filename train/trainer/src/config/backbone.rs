//! `[backbone]`: the transformer that adapters are attached to.

mod mistral;
mod tiny_gpt;

pub use mistral::{KeptInputs, MistralConfig, Quantize};
pub use tiny_gpt::{TinyGptConfig, model_directory};

use crate::settings::check::Checks;
use hankel_models::adapters::Placement;
use std::path::PathBuf;

/// `[backbone]`, by `kind`.
#[derive(Debug, Clone, PartialEq)]
pub enum BackboneConfig {
    /// `kind = "tiny_gpt"`.
    TinyGpt(TinyGptConfig),
    /// `kind = "mistral"`.
    Mistral(MistralConfig),
}

/// Values of `backbone.kind`.
pub const KINDS: &[&str] = &["tiny_gpt", "mistral"];

/// A backbone's own settings: those of its files, or of what will be drawn.
#[derive(Debug, Clone)]
pub enum Sizes {
    /// `kind = "tiny_gpt"`.
    TinyGpt(hankel_models::TinyGptConfig),
    /// `kind = "mistral"`.
    Mistral(hankel_models::MistralConfig),
}

impl Sizes {
    /// Where adapters can be attached.
    pub fn placement(&self) -> Placement {
        match self {
            Sizes::TinyGpt(c) => c.placement(),
            Sizes::Mistral(c) => c.placement(),
        }
    }
}

impl BackboneConfig {
    /// The value of `backbone.kind`.
    pub fn kind(&self) -> &'static str {
        match self {
            BackboneConfig::TinyGpt(_) => "tiny_gpt",
            BackboneConfig::Mistral(_) => "mistral",
        }
    }

    /// Where the weights are loaded from, if they are.
    pub fn path(&self) -> Option<&PathBuf> {
        match self {
            BackboneConfig::TinyGpt(c) => c.path.as_ref(),
            BackboneConfig::Mistral(c) => Some(&c.model),
        }
    }

    /// Whether the backbone can be trained before adapters are.
    pub fn can_be_pretrained(&self) -> bool {
        matches!(self, BackboneConfig::TinyGpt(_))
    }

    /// Whether the backbone is held fixed while adapters are trained.
    pub fn freeze(&self) -> bool {
        match self {
            BackboneConfig::TinyGpt(c) => c.freeze,
            BackboneConfig::Mistral(_) => true,
        }
    }

    /// Whether parameters of the backbone are trained together with an adapter.
    pub fn trains_with_adapter(&self) -> bool {
        match self {
            BackboneConfig::TinyGpt(c) => !c.freeze || c.train_head || c.train_embeddings,
            BackboneConfig::Mistral(_) => false,
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
            BackboneConfig::Mistral(c) => c.check(vocabulary, checks).map(Sizes::Mistral),
        }
    }
}
