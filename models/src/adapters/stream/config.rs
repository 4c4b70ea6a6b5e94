//! Settings of a registered kind: those that every kind has, and its own.

use crate::weights::{HrmInput, HrmSite as StreamSite};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Which kind is attached, and how. [`StreamConfig::new`] fills in the defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamConfig {
    /// Name under which it is registered.
    pub kind: String,
    /// Where the adapters are.
    pub sites: Vec<StreamSite>,
    /// What they read.
    pub input: HrmInput,
    /// Initial gate.
    pub gate_init: f64,
    /// Whether the gate learns.
    pub train_gate: bool,
    /// Length of the training sequences, by which initial rates are chosen.
    pub length: usize,
    /// The kind's own settings; what is not there has its default.
    pub settings: Map<String, Value>,
}

impl StreamConfig {
    /// `kind` after the MLP of every layer, reading the residual stream, behind a gate that starts at 0.1.
    pub fn new(kind: impl Into<String>, length: usize) -> Self {
        StreamConfig {
            kind: kind.into(),
            sites: vec![StreamSite::Mlp],
            input: HrmInput::Residual,
            gate_init: 0.1,
            train_gate: true,
            length,
            settings: Map::new(),
        }
    }

    /// The same with a setting of the kind's own.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.settings.insert(key.to_owned(), value.into());
        self
    }

    /// The setting `key` as a whole number, if it is one.
    pub fn size(&self, key: &str) -> Option<u64> {
        self.settings.get(key).and_then(Value::as_u64)
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        if self.sites.is_empty() {
            return Err("sites must name attention, mlp or both".to_owned());
        }
        if !self.gate_init.is_finite() {
            return Err(format!("gate_init = {} is not finite", self.gate_init));
        }
        Ok(())
    }
}
