//! A model that generates, and what a run has of its own and a model is told.

use anyhow::{Result, bail, ensure};
use hankel_models::{AdapterSet, Sampling, Tokenizer, TurnStart};
use hankel_trainer::config::Quantize;
use hankel_trainer::fit::{BackboneSnapshot, Model};
use std::path::Path;

/// Length for which the scan of an adapter that does not say is chosen.
pub const LENGTH: usize = 512;

#[derive(Debug, clap::Args)]
pub struct ModelArgs {
    /// Quantise the model while loading. For a model only: a run uses its own `backbone.quantize`
    #[arg(long, value_enum)]
    quantize: Option<Quantize>,
    /// Text that begins a turn, for example `<|im_start|>user`: attention and positions restart there, and only the memory of a
    /// recurrent adapter carries over what came before. For a model only: a run uses its own `task.turn_start`
    #[arg(long, value_name = "TEXT")]
    pub turn_start: Option<String>,
}

impl ModelArgs {
    /// Whether the model is quantised while it is loaded.
    pub fn quantizes(&self) -> bool {
        self.quantize.is_some()
    }

    /// Refuses what a run has of its own.
    pub fn ensure_none(&self, run: &Path) -> Result<()> {
        for (option, is_given) in [("--turn-start", self.turn_start.is_some()), ("--quantize", self.quantizes())] {
            ensure!(!is_given, "{option} is for a model; the run {} has its own", run.display());
        }
        Ok(())
    }

    /// What begins a turn of a model.
    pub fn turn_start(&self, model: &Path) -> Result<Option<TurnStart>> {
        let Some(text) = &self.turn_start else { return Ok(None) };
        let start = TurnStart::new(&Tokenizer::load(model)?, text)?;
        ensure!(start.is_some(), "--turn-start {text:?} has no tokens");
        Ok(start)
    }
}

/// The backbone with the adapter in a directory, or alone.
pub fn attach(snapshot: &BackboneSnapshot, adapter: Option<&Path>, length: usize) -> Result<Model> {
    match adapter {
        Some(directory) => snapshot.with_saved_adapter(directory, length),
        None => Ok(snapshot.with_adapters(AdapterSet::none(&snapshot.backbone().placement()))?),
    }
}

/// How tokens are drawn, checked; errors name the options.
pub fn checked(sampling: Sampling) -> Result<Sampling> {
    if let Err(problem) = sampling.check() {
        bail!("--{}", problem.replace("top_p", "top-p").replace("repetition_penalty", "repetition-penalty"));
    }
    Ok(sampling)
}
