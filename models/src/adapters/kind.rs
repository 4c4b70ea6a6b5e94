//! What is asked of a kind of adapter, whatever it is: the interface between the registry and everything else.

use super::config::AdapterConfig;
use super::{AdapterSet, Placement};
use crate::settings::{Key, SettingsError, Table};
use crate::weights;
use hankel_core::Result;
use std::any::TypeId;
use std::fmt;
use std::path::Path;

/// What defaults of settings depend on.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Sites and widths of the backbone.
    pub placement: &'a Placement,
    /// Tokens of a training sequence.
    pub length: usize,
    /// Optimizer steps of the training, when they are known.
    pub steps: Option<u64>,
    /// Whether the backbone has learnt something that an adapter must not disturb as it begins.
    pub pretrained: bool,
}

/// Kinds of sites at which a kind attaches adapters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sites {
    /// Projections of the backbone.
    Linear,
    /// The residual stream, behind a gate.
    Stream,
}

/// A kind without its types. [`crate::adapters::LinearKind`] and [`crate::adapters::StreamKind`] are how one is written.
pub(crate) trait AnyKind: Send + Sync {
    fn name(&self) -> &'static str;
    fn id(&self) -> TypeId;
    fn about(&self) -> &'static str;
    fn sites(&self) -> Sites;
    /// The setting that a budget is solved for.
    fn size(&self) -> Option<&'static str>;
    /// Settings of which one must be given, unless there is a budget.
    fn required(&self) -> &'static [&'static str];
    fn keys(&self) -> Vec<Key>;
    /// Settings in full, of those `given` and defaults.
    fn complete(&self, given: &Table, context: &Context<'_>) -> std::result::Result<Table, SettingsError>;
    /// Checks complete settings.
    fn check(&self, settings: &Table, context: &Context<'_>) -> std::result::Result<(), SettingsError>;
    /// Keys of complete settings that a resolved configuration leaves out unless they were given.
    fn open(&self, settings: &Table, context: &Context<'_>) -> &'static [&'static str];
    /// Keys without an effect beside complete settings, each with what is to be said where it is given.
    fn idle(&self, _settings: &Table) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }
    /// Settings of the larger adapter that it begins as a truncation of, if it does.
    fn begins_from(&self, _settings: &Table) -> Option<Table> {
        None
    }
    /// Sizes are multiples of this.
    fn size_step(&self, settings: &Table) -> usize;
    /// Settings with the size changed.
    fn with_size(&self, settings: &Table, size: usize) -> std::result::Result<Table, SettingsError>;
    /// Number of trainable values.
    fn count(&self, config: &AdapterConfig, placement: &Placement) -> Result<u64>;
    /// The settings in a few words.
    fn describe(&self, settings: &Table) -> String;
    /// Puts fresh adapters into an empty set.
    fn attach(&self, set: &mut AdapterSet, config: &AdapterConfig, placement: &Placement, seed: u64) -> Result<()>;
    /// Whether an `adapter_config.json` is one of this kind.
    fn owns(&self, file: &Table) -> bool;
    fn save(
        &self,
        set: &AdapterSet,
        config: &AdapterConfig,
        directory: &Path,
        base_model: Option<&str>,
    ) -> weights::Result<()>;
    fn load(&self, directory: &Path, file: &Table, placement: &Placement, length: usize)
    -> weights::Result<AdapterSet>;
}

/// A registered kind of adapter.
#[derive(Clone, Copy)]
pub struct Kind(pub(super) &'static dyn AnyKind);

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.0.id() == other.0.id()
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Kind {
    /// The value of `adapter.kind`.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// One sentence for the documentation; empty for kinds that have none.
    pub fn about(self) -> &'static str {
        self.0.about()
    }

    /// Where its adapters are.
    pub fn sites(self) -> Sites {
        self.0.sites()
    }

    /// Whether its adapters add to the stream through a gate.
    pub fn has_gate(self) -> bool {
        self.sites() == Sites::Stream
    }

    /// The setting that a budget of parameters is solved for.
    pub fn size(self) -> Option<&'static str> {
        self.0.size()
    }

    /// Its settings with their documentation.
    pub fn keys(self) -> Vec<Key> {
        self.0.keys()
    }

    /// Checks that every value given is of its setting's type.
    ///
    /// # Errors
    /// The first setting that there is not, or that takes no such value.
    pub fn check_types(self, given: &Table, context: &Context<'_>) -> std::result::Result<(), SettingsError> {
        for (key, value) in given {
            let keys = self.keys();
            if !keys.iter().any(|known| known.name == *key) {
                let known: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
                return Err(SettingsError::new(key, format!("is not a setting here; there are {}", known.join(", "))));
            }
            // One at a time: others may be missing yet.
            let complete = self.0.complete(&Table::from_iter([(key.clone(), value.clone())]), context);
            // Flattened settings do not know their key.
            complete.map_err(|error| {
                if error.key.starts_with(key.as_str()) { error } else { SettingsError::new(key, error.problem) }
            })?;
        }
        Ok(())
    }

    /// The settings in full, `given` ones and defaults, checked.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn configure(self, given: &Table, context: &Context<'_>) -> std::result::Result<AdapterConfig, SettingsError> {
        let settings = self.0.complete(given, context)?;
        self.0.check(&settings, context)?;
        Ok(AdapterConfig::from_table(self, settings, context.length))
    }

    /// Checks that every setting that is given has an effect beside the others. One with the value that it has by default, which a
    /// resolved configuration may name, is as good as left out.
    ///
    /// # Errors
    /// The first setting that has none.
    pub fn check_effects(self, given: &Table, context: &Context<'_>) -> std::result::Result<(), SettingsError> {
        let complete = self.0.complete(given, context)?;
        for (key, problem) in self.0.idle(&complete) {
            let mut others = given.clone();
            if others.remove(key).is_some() {
                let by_default = self.0.complete(&others, context)?;
                SettingsError::unless(complete.get(key) == by_default.get(key), key, || problem.to_owned())?;
            }
        }
        Ok(())
    }

    /// The settings that a resolved configuration writes out: complete ones, but for those that stay open until a training
    /// begins, and those without a value or an effect.
    ///
    /// # Errors
    /// As [`Kind::configure`].
    pub fn resolve(self, given: &Table, context: &Context<'_>) -> std::result::Result<Table, SettingsError> {
        let complete = self.0.complete(given, context)?;
        let open = self.0.open(&complete, context);
        let keys = self.keys();
        let written =
            |key: &str| keys.iter().any(|known| known.name == key) && (given.contains_key(key) || !open.contains(&key));
        Ok(complete.into_iter().filter(|(key, value)| written(key) && !value.is_null()).collect())
    }

    /// Checks that a size is given in one way: by itself or by a budget.
    ///
    /// # Errors
    /// When there is none, there are two, or there is nothing to solve a budget for.
    pub fn check_size(self, given: &Table, budget: Option<u64>) -> std::result::Result<(), SettingsError> {
        let required = self.0.required();
        let Some(budget) = budget else {
            let alternatives: Vec<String> = required.iter().skip(1).map(|key| format!("or `{key}` ")).collect();
            let is_given = required.is_empty() || required.iter().any(|key| given.contains_key(*key));
            return SettingsError::unless(is_given, required.first().unwrap_or(&""), || {
                format!("{}or `budget` must be given", alternatives.concat())
            });
        };
        let Some(size) = self.size() else {
            return Err(SettingsError::new(
                "budget",
                format!("is not for `kind = {:?}`, which has no size", self.name()),
            ));
        };
        SettingsError::unless(!given.contains_key(size), "budget", || {
            format!("and `{size}` are both given: keep one")
        })?;
        SettingsError::unless(budget > 0, "budget", || format!("must be at least 1, found {budget}"))
    }
}
