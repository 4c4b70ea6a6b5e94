//! What is tried on a trained adapter, besides its evaluation as it is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An evaluation with every gate held at a value, all else as trained.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProbeConfig {
    /// The value.
    pub gate: f64,
}

impl ProbeConfig {
    /// The probe in words: `gate = 0.1`.
    pub fn describe(self) -> String {
        format!("gate = {}", self.gate)
    }

    /// Name of the row: `hrm-gate-0.1`.
    pub fn row_name(self, full: &str) -> String {
        format!("{full}-gate-{}", self.gate)
    }
}

/// A comparison of the evaluations of the recurrence with the recurrence in f64 (R3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExactnessConfig {
    /// Number of random sequences of the task's length, at most 100,000.
    pub sequences: usize,
}

impl ExactnessConfig {
    /// The time grows with the number: a zero too many is refused rather than waited for.
    pub const MOST: usize = 100_000;
}

impl Default for ExactnessConfig {
    fn default() -> Self {
        ExactnessConfig { sequences: 100 }
    }
}
