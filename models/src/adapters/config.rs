//! A kind and its settings in full: what a set of adapters is made from.

use super::kind::Kind;
use super::linear::{LinearEntry, LinearKind};
use super::stream::{StreamEntry, StreamKind};
use super::{Budget, Placement};
use crate::settings::{self, SettingsError, Table};
use hankel_core::{Error, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Steps of the largest size that a budget is solved with.
const MOST_STEPS: usize = 1 << 20;

/// Which adapters are attached, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct AdapterConfig {
    kind: Kind,
    settings: Table,
    length: usize,
}

impl AdapterConfig {
    /// Adapters of `K` with these settings.
    ///
    /// # Panics
    /// When the settings are not a struct with named fields.
    pub fn linear<K: LinearKind>(settings: &K::Settings) -> Self {
        let settings = settings::write(settings).expect("settings are structs");
        AdapterConfig { kind: LinearEntry::<K>::kind(), settings, length: 0 }
    }

    /// Adapters of `K` with these settings after the MLP of every layer, as on a backbone that is not pretrained;
    /// [`AdapterConfig::with`] changes where they are.
    ///
    /// # Panics
    /// When the settings are not a struct with named fields.
    pub fn stream<K: StreamKind>(settings: &K::Settings) -> Self {
        let own = settings::write(settings).expect("settings are structs");
        let mut table = settings::write(&K::site_defaults(settings, false)).expect("settings are structs");
        table.extend(own);
        AdapterConfig { kind: StreamEntry::<K>::kind(), settings: table, length: 0 }
    }

    pub(super) fn from_table(kind: Kind, settings: Table, length: usize) -> Self {
        AdapterConfig { kind, settings, length }
    }

    /// The same for training sequences of `length` tokens, by which initial rates are chosen.
    pub fn for_length(self, length: usize) -> Self {
        AdapterConfig { length, ..self }
    }

    /// The same with another setting.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.settings.insert(key.to_owned(), value.into());
        self
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Length of the training sequences; 0 when nothing depends on it.
    pub fn length(&self) -> usize {
        self.length
    }

    /// All settings.
    pub fn settings(&self) -> &Table {
        &self.settings
    }

    /// The settings of type `S` among them.
    ///
    /// # Errors
    /// When they are not of this type.
    pub fn read<S: DeserializeOwned>(&self) -> std::result::Result<S, SettingsError> {
        settings::read(&self.settings)
    }

    /// The settings in a few words: `r = 4, q_proj + v_proj`.
    pub fn describe(&self) -> String {
        self.kind.0.describe(&self.settings)
    }

    /// Number of trainable values on a backbone with the sites of `placement`: the shapes that are really there, narrower
    /// keys and values of grouped queries included.
    ///
    /// # Errors
    /// When a target matches nothing, or a setting is out of range.
    pub fn parameter_count(&self, placement: &Placement) -> Result<u64> {
        self.kind.0.count(self, placement)
    }

    /// Solves for the size with which [`AdapterConfig::parameter_count`] is nearest to `budget`, at least 1. Other settings stay
    /// as they are, unless they cannot be with that size.
    ///
    /// # Errors
    /// When a target matches nothing, the kind has no size, or its adapters of the sizes next to the budget cannot be made.
    pub fn solve_budget(&self, placement: &Placement, budget: u64) -> Result<Budget> {
        if budget == 0 {
            return Err(Error::invalid("budget", "a budget must be at least 1"));
        }
        let Some(key) = self.kind.size() else {
            let problem = format!("adapters of kind {:?} have no size to solve for", self.kind.name());
            return Err(Error::invalid("budget", problem));
        };
        let step = self.kind.0.size_step(&self.settings);
        let of_size = |size: usize| {
            let settings = self.kind.0.with_size(&self.settings, size);
            let settings = settings.map_err(|error| Error::invalid("budget", error.to_string()))?;
            Ok::<_, Error>(AdapterConfig { settings, ..self.clone() })
        };
        let count = |steps: usize| of_size(steps * step)?.parameter_count(placement);
        // What is too large to be made is above any budget.
        let fits = |steps: usize| count(steps).is_ok_and(|parameters| parameters <= budget);
        // The count grows with the size: doubled until it is above the budget, then halved in between.
        let (mut below, mut above) = (1, 2);
        while above <= MOST_STEPS && fits(above) {
            (below, above) = (above, (2 * above).min(MOST_STEPS + 1));
        }
        while above - below > 1 {
            let middle = usize::midpoint(below, above);
            if fits(middle) {
                below = middle;
            } else {
                above = middle;
            }
        }
        let (low, high) = (count(below)?, count(above)?);
        let (steps, parameters) =
            if high.abs_diff(budget) < low.abs_diff(budget) { (above, high) } else { (below, low) };
        let size = steps * step;
        Ok(Budget { config: of_size(size)?, key, size, budget, parameters })
    }
}
