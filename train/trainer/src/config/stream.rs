//! Adapters of registered kinds: the settings that every kind has, and the kind's own, which only it knows.

use super::check::Checks;
use super::de::{read, read_value, unknown_key};
use super::error::ConfigError;
use super::tree::{Entry, Node, Table};
use super::{adapter, low_rank};
use hankel_models::adapters::{self, HrmInput, Placement, StreamSite, stream};
use hankel_models::{AdapterConfig as Settings, AdapterSet};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// `kind = ...` of a registered kind.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamConfig {
    /// The kind.
    pub kind: &'static str,
    /// Settings that every kind has.
    pub common: StreamSettings,
    /// The kind's own; complete once the configuration is resolved.
    pub own: Map<String, Value>,
}

/// Settings that every registered kind has.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamSettings {
    /// Number of parameters to solve the kind's size for, instead of giving it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<u64>,
    /// Sites: `mlp`, `attention`, or a list of both.
    #[serde(deserialize_with = "low_rank::one_or_many")]
    pub sites: Option<Vec<StreamSite>>,
    /// What the adapter reads.
    pub input: Option<HrmInput>,
    /// Initial gate.
    pub gate_init: Option<f64>,
    /// Whether the gate is trained.
    pub train_gate: Option<bool>,
}

const COMMON: &[&str] = &["budget", "sites", "input", "gate_init", "train_gate"];

impl StreamConfig {
    /// Reads the table of an adapter of this kind.
    pub(super) fn read(node: &Node, path: &str, kind: stream::Kind) -> Result<Self, ConfigError> {
        let keys = kind.keys();
        let mut known: Vec<&str> = keys.iter().map(String::as_str).collect();
        known.extend(COMMON.iter().chain(adapter::COMMON_KEYS));
        let entries = || node.as_table(path).map(|table| table.0.iter());
        if let Some(entry) = entries()?.find(|entry| !known.contains(&entry.key.as_str())) {
            return Err(unknown_key(&format!("{path}.{}", entry.key), &entry.origin, &known));
        }
        let common: Vec<Entry> = entries()?.filter(|entry| COMMON.contains(&entry.key.as_str())).cloned().collect();
        let common = read(&Table(common), &node.origin, path, &[])?;
        let mut own = Map::new();
        for Entry { key, origin, node } in entries()?.filter(|entry| keys.contains(&entry.key)) {
            let inside = format!("{path}.{key}");
            let value = Map::from_iter([(key.clone(), read_value(node, &inside)?)]);
            kind.settings(&value)
                .map_err(|error| ConfigError::new(Some(origin.clone()), format!("`{inside}`: {}", error.problem)))?;
            own.extend(value);
        }
        Ok(StreamConfig { kind: kind.name, common, own })
    }

    /// Whether nothing is set that a saved adapter determines itself.
    pub(super) fn is_bare(&self) -> bool {
        self.common == StreamSettings::default() && self.own.is_empty()
    }

    pub(super) fn check(&self, length: usize, placement: &Placement, checks: &mut Checks<'_>) {
        if let Some(sites) = &self.common.sites {
            adapter::check_sites(sites, placement, checks);
        }
        checks.require("gate_init", self.common.gate_init.is_none_or(f64::is_finite), || "must be finite".to_owned());
        let size = stream::kind(self.kind).and_then(|kind| kind.size);
        if let Some(budget) = self.common.budget {
            checks.at_least("budget", budget, 1);
            match size {
                None => checks.require("budget", false, || format!("is not for `kind = {:?}`", self.kind)),
                Some(key) => checks
                    .require("budget", !self.own.contains_key(key), || format!("and `{key}` are both given: keep one")),
            }
        }
        // What only the kind itself can judge is found by making one.
        let one = Settings::Stream(self.settings(length));
        if let Err(error) = AdapterSet::new(&one, &Placement { layers: 1, ..placement.clone() }, 0) {
            checks.require("kind", false, || format!("cannot be made as configured: {error}"));
        }
    }

    /// Whether the kind gives its system.
    pub(super) fn can_be_truncated(&self, length: usize, placement: &Placement) -> bool {
        let one = Settings::Stream(self.settings(length));
        let set = AdapterSet::new(&one, &Placement { layers: 1, ..placement.clone() }, 0);
        set.and_then(|set| set.can_be_truncated()).unwrap_or(false)
    }

    /// The settings of the model for sequences of `length` tokens.
    pub(super) fn settings(&self, length: usize) -> adapters::StreamConfig {
        let defaults = adapters::StreamConfig::new(self.kind, length);
        let StreamSettings { sites, input, gate_init, train_gate, .. } = self.common.clone();
        adapters::StreamConfig {
            sites: sites.unwrap_or(defaults.sites),
            input: input.unwrap_or(defaults.input),
            gate_init: gate_init.unwrap_or(defaults.gate_init),
            train_gate: train_gate.unwrap_or(defaults.train_gate),
            settings: self.own.clone(),
            ..defaults
        }
    }

    /// Puts a size in the place of a budget.
    pub(super) fn set_size(&mut self, size: usize) {
        if let Some(key) = stream::kind(self.kind).and_then(|kind| kind.size) {
            self.own.insert(key.to_owned(), size.into());
        }
        self.common.budget = None;
    }

    /// Writes out every setting.
    pub(super) fn resolve(&mut self, length: usize) {
        if let Some(Ok(all)) = stream::kind(self.kind).map(|kind| kind.settings(&self.own)) {
            self.own = all;
        }
        let settings = self.settings(length);
        self.common = StreamSettings {
            budget: self.common.budget,
            sites: Some(settings.sites),
            input: Some(settings.input),
            gate_init: Some(settings.gate_init),
            train_gate: Some(settings.train_gate),
        };
    }
}
