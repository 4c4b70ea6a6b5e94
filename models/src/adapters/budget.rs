//! A number of parameters and the size that comes nearest to it.

use super::AdapterConfig;

/// A budget and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    /// The settings with the size filled in.
    pub config: AdapterConfig,
    /// The setting that was solved for, the kind's size: `state_dim`, `rank`, `init_rank`, `planes`, `heads`, or that of a registered kind.
    pub key: &'static str,
    /// Its value.
    pub size: usize,
    /// The number of parameters that was asked for.
    pub budget: u64,
    /// The number of trainable values there will be.
    pub parameters: u64,
}

impl Budget {
    /// `parameters / budget - 1`.
    pub fn difference(&self) -> f64 {
        self.parameters as f64 / self.budget as f64 - 1.0
    }
}
