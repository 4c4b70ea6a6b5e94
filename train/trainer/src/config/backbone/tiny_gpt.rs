//! `kind = "tiny_gpt"`.

use super::Checks;
use crate::config::schema::names;
use hankel_models::linear::NormKind;
use hankel_models::tiny_gpt::Init;
use hankel_models::{TinyGpt, tiny_gpt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// A small GPT with learned positions. Fields left out take the paper's values (4 layers of width 128, 4 heads), or those
/// of the files at `path`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TinyGptConfig {
    /// Directory with `config.json` and `model.safetensors`, or a run directory that trained a backbone; random weights
    /// when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Number of layers.
    pub layers: Option<usize>,
    /// Width of the residual stream.
    pub d_model: Option<usize>,
    /// Attention heads.
    pub heads: Option<usize>,
    /// Width inside the MLP; 4 d_model when not given.
    pub d_ff: Option<usize>,
    /// Number of learned positions; the task's length when not given.
    pub context: Option<usize>,
    /// Normalisation.
    #[schemars(schema_with = "names::<NormKind>")]
    pub norm: Option<NormKind>,
    /// Whether the head uses the embedding matrix.
    pub tied_embeddings: Option<bool>,
    /// Whether linear layers and norms have biases.
    pub biases: Option<bool>,
    /// How random weights are drawn: `gpt2` or `normal`.
    #[schemars(schema_with = "names::<Init>")]
    pub init: Option<Init>,
    /// Standard deviation of random weights.
    pub init_std: Option<f64>,
    /// Dropout of embeddings, attention output and MLP output while training.
    pub dropout: f64,
    /// Whether the backbone is held fixed while adapters are trained. `false` trains it together with the adapter, afresh
    /// for each adapter (the released protocol).
    pub freeze: bool,
    /// Whether the head of a frozen backbone is trained with the adapter.
    pub train_head: bool,
    /// Whether the embeddings of a frozen backbone are trained with the adapter.
    pub train_embeddings: bool,
}

impl Default for TinyGptConfig {
    fn default() -> Self {
        TinyGptConfig {
            path: None,
            layers: None,
            d_model: None,
            heads: None,
            d_ff: None,
            context: None,
            norm: None,
            tied_embeddings: None,
            biases: None,
            init: None,
            init_std: None,
            dropout: 0.0,
            freeze: true,
            train_head: false,
            train_embeddings: false,
        }
    }
}

impl TinyGptConfig {
    /// The model's own settings, for a vocabulary and a longest sequence.
    ///
    /// # Errors
    /// The key and the problem, when the files at `path` cannot be read or contradict what is configured.
    pub fn settings(
        &self,
        vocabulary: usize,
        longest: usize,
    ) -> Result<tiny_gpt::TinyGptConfig, (&'static str, String)> {
        let Some(path) = &self.path else {
            let defaults = tiny_gpt::TinyGptConfig::default();
            let d_model = self.d_model.unwrap_or(defaults.d_model);
            return Ok(tiny_gpt::TinyGptConfig {
                layers: self.layers.unwrap_or(defaults.layers),
                d_model,
                heads: self.heads.unwrap_or(defaults.heads),
                d_ff: self.d_ff.unwrap_or(d_model.saturating_mul(4)),
                vocabulary,
                context: self.context.unwrap_or(longest),
                norm: self.norm.unwrap_or(defaults.norm),
                biases: self.biases.unwrap_or(defaults.biases),
                tied_embeddings: self.tied_embeddings.unwrap_or(defaults.tied_embeddings),
                dropout: self.dropout,
                init: self.init.unwrap_or(defaults.init),
                init_std: self.init_std.unwrap_or(defaults.init_std),
            });
        };
        let stored = TinyGpt::load_config(&model_directory(path))
            .map_err(|error| ("path", format!("cannot be used: {error}")))?;
        if stored.vocabulary != vocabulary {
            let problem = format!(
                "holds a model with a vocabulary of {}, but the task has one of {vocabulary}",
                stored.vocabulary
            );
            return Err(("path", problem));
        }
        agrees("layers", self.layers, stored.layers)?;
        agrees("d_model", self.d_model, stored.d_model)?;
        agrees("heads", self.heads, stored.heads)?;
        agrees("d_ff", self.d_ff, stored.d_ff)?;
        agrees("context", self.context, stored.context)?;
        agrees("biases", self.biases, stored.biases)?;
        agrees("tied_embeddings", self.tied_embeddings, stored.tied_embeddings)?;
        if self.norm.is_some_and(|norm| norm != stored.norm) {
            return Err(("norm", format!("differs from that of the model at {}: leave it out", path.display())));
        }
        Ok(tiny_gpt::TinyGptConfig { dropout: self.dropout, ..stored })
    }

    pub(super) fn write_out(&mut self, settings: &tiny_gpt::TinyGptConfig) {
        self.layers = Some(settings.layers);
        self.d_model = Some(settings.d_model);
        self.heads = Some(settings.heads);
        self.d_ff = Some(settings.d_ff);
        self.context = Some(settings.context);
        self.norm = Some(settings.norm);
        self.tied_embeddings = Some(settings.tied_embeddings);
        self.biases = Some(settings.biases);
        self.init = Some(settings.init);
        self.init_std = Some(settings.init_std);
    }

    pub(super) fn check(
        &self,
        vocabulary: usize,
        longest: usize,
        checks: &mut Checks<'_>,
    ) -> Option<tiny_gpt::TinyGptConfig> {
        let sizes = [("layers", self.layers), ("d_model", self.d_model), ("heads", self.heads), ("d_ff", self.d_ff)];
        for (key, value) in sizes {
            checks.at_least(key, value.unwrap_or(1), 1);
            checks.at_most(key, value.unwrap_or(1), 1 << 20);
        }
        checks.fraction("dropout", self.dropout);
        checks.positive("init_std", self.init_std.unwrap_or(1.0));
        let settings = match self.settings(vocabulary, longest) {
            Ok(settings) => settings,
            Err((key, problem)) => {
                let missing =
                    self.path.as_ref().is_some_and(|path| TinyGpt::load_config(&model_directory(path)).is_err());
                if missing {
                    checks.unusable_files(key, problem);
                } else {
                    checks.require(key, false, || problem);
                }
                return None;
            }
        };
        let (width, heads) = (settings.d_model, settings.heads);
        checks.require(
            if self.heads.is_some() { "heads" } else { "d_model" },
            heads > 0 && width.is_multiple_of(heads),
            || format!("does not fit: d_model = {width} cannot be split over {heads} heads"),
        );
        let key = if self.context.is_some() || self.path.is_none() { "context" } else { "path" };
        checks.require(key, settings.context >= longest, || {
            let has = if key == "path" { "holds a model with a context of" } else { "is" };
            format!(
                "{has} {} tokens, but sequences of the task have {longest}: shorten `task.length`",
                settings.context
            )
        });
        Some(settings)
    }
}

fn agrees<T: PartialEq + Display + Copy>(
    key: &'static str,
    given: Option<T>,
    stored: T,
) -> Result<(), (&'static str, String)> {
    match given {
        Some(given) if given != stored => {
            Err((key, format!("is {given}, but the model at `path` has {stored}: leave it out")))
        }
        _ => Ok(()),
    }
}

/// A model's own directory, for a path that may name the run that trained it.
pub fn model_directory(path: &Path) -> PathBuf {
    let inside = path.join("backbone");
    if inside.join("config.json").is_file() { inside } else { path.to_owned() }
}
