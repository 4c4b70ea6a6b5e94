//! `kind = "tiny_gpt"`.

use super::Checks;
use crate::settings::ConfigError;
use crate::settings::de::{keys, read};
use crate::settings::error::Origin;
use crate::settings::tree::Table;
use hankel_models::TinyGpt;
use hankel_models::TinyGptConfig as ModelConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A small GPT with learned positions. Settings of the model that are left out take the paper's values (4 layers of width
/// 128, 4 heads), or those of the files at `path`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TinyGptConfig {
    /// Directory with `config.json` and `model.safetensors`, or a run directory that trained a backbone; random weights
    /// when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Whether the backbone is held fixed while adapters are trained. `false` trains it together with the adapter, afresh
    /// for each adapter (the released protocol).
    pub freeze: bool,
    /// Whether the head of a frozen backbone is trained with the adapter.
    pub train_head: bool,
    /// Whether the embeddings of a frozen backbone are trained with the adapter.
    pub train_embeddings: bool,
    /// Settings of the model, of which the keys in `given` count.
    #[serde(skip)]
    pub model: ModelConfig,
    /// Keys of `model` that are written; the others follow from the files at `path`, or from the task and the paper.
    #[serde(skip)]
    pub given: Vec<&'static str>,
}

/// Never taken from files.
const DROPOUT: &str = "dropout";
/// What files at `path` need not agree with: how weights were drawn is past.
const FREE: [&str; 3] = [DROPOUT, "init", "init_std"];

impl Default for TinyGptConfig {
    fn default() -> Self {
        TinyGptConfig {
            path: None,
            freeze: true,
            train_head: false,
            train_embeddings: false,
            model: ModelConfig::default(),
            given: vec![DROPOUT],
        }
    }
}

impl TinyGptConfig {
    /// The keys of the model that a configuration can give: the vocabulary is the task's.
    pub fn model_keys() -> Vec<&'static str> {
        keys::<ModelConfig>().into_iter().filter(|key| *key != "vocabulary").collect()
    }

    /// Reads `[backbone]`.
    ///
    /// # Errors
    /// Names the key and its line.
    pub(crate) fn read(table: &Table, origin: &Origin) -> Result<Self, ConfigError> {
        let of_the_model = Self::model_keys();
        let own: Self = read(table, origin, "backbone", &[&["kind"], &of_the_model[..]].concat())?;
        let model = read(table, origin, "backbone", &[&["kind"], &keys::<Self>()[..]].concat())?;
        let given = of_the_model.into_iter().filter(|key| *key == DROPOUT || table.get(key).is_some()).collect();
        Ok(TinyGptConfig { model, given, ..own })
    }

    /// As it is written to a file.
    pub fn to_table(&self) -> toml::Table {
        const STRUCT: &str = "settings are structs of TOML values";
        let own = toml::Table::try_from(self).expect(STRUCT);
        let model = toml::Table::try_from(&self.model).expect(STRUCT);
        let given = model.into_iter().filter(|(key, _)| self.given.contains(&key.as_str()));
        own.into_iter().chain(given).collect()
    }

    /// The model's own settings, for a vocabulary and a longest sequence.
    ///
    /// # Errors
    /// The key and the problem, when the files at `path` cannot be read or contradict what is configured.
    pub fn settings(&self, vocabulary: usize, longest: usize) -> Result<ModelConfig, (&'static str, String)> {
        let model = &self.model;
        let Some(path) = &self.path else {
            let or = |key, given: usize, default| if self.given.contains(&key) { given } else { default };
            return Ok(ModelConfig {
                vocabulary,
                d_ff: or("d_ff", model.d_ff, model.d_model.saturating_mul(4)),
                context: or("context", model.context, longest),
                ..model.clone()
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
        let values = |model| serde_json::to_value(model).expect("settings are values of JSON");
        let (has, asked) = (values(&stored), values(model));
        match self.given.iter().find(|key| !FREE.contains(key) && has[**key] != asked[**key]) {
            Some(key) => {
                let problem = format!("is {}, but the model at `path` has {}: leave it out", asked[*key], has[*key]);
                Err((key, problem))
            }
            None => Ok(ModelConfig { dropout: model.dropout, ..stored }),
        }
    }

    pub(super) fn write_out(&mut self, settings: &ModelConfig) {
        self.model = settings.clone();
        self.given = Self::model_keys();
    }

    pub(super) fn check(&self, vocabulary: usize, longest: usize, checks: &mut Checks<'_>) -> Option<ModelConfig> {
        let ModelConfig { layers, d_model, heads, d_ff, context, dropout, init_std, .. } = self.model;
        // d_ff is four times d_model where it is not given, and written out so.
        const MOST: usize = 1 << 20;
        let limits = [
            ("layers", layers, MOST),
            ("d_model", d_model, MOST),
            ("heads", heads, MOST),
            ("d_ff", d_ff, 4 * MOST),
            ("context", context, 16 * MOST),
        ];
        for (key, value, most) in limits {
            checks.at_least(key, value, 1);
            checks.at_most(key, value, most);
        }
        checks.fraction("dropout", dropout);
        checks.positive("init_std", init_std);
        let given = |key| self.given.contains(&key);
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
            if given("heads") { "heads" } else { "d_model" },
            heads > 0 && width.is_multiple_of(heads),
            || format!("does not fit: d_model = {width} cannot be split over {heads} heads"),
        );
        let key = if given("context") || self.path.is_none() { "context" } else { "path" };
        checks.require(key, settings.context >= longest, || {
            let has = if key == "path" { "holds a model with a context of" } else { "is" };
            format!(
                "{has} {} tokens, but sequences of the task have {longest}: shorten `task.length`",
                settings.context
            )
        });
        // Adapters are not judged on sizes that cannot be.
        limits.iter().all(|(_, value, most)| (1..=*most).contains(value)).then_some(settings)
    }
}

/// A model's own directory, for a path that may name the run that trained it.
pub fn model_directory(path: &Path) -> PathBuf {
    let inside = path.join("backbone");
    if inside.join("config.json").is_file() { inside } else { path.to_owned() }
}
