//! What is asked of a reduction, and how it can fail.

use super::weighting::LayerWeights;
use hankel_files::{RecordedStates, Sensitivities, WeightFile};
use hankel_lti::weighted::Band;
use hankel_lti::{GramianSource, LtiError, Method, OrderRule};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;

/// What can go wrong with the reduction of an adapter.
#[derive(Debug, Error)]
pub enum ReduceError {
    /// A failure in one layer.
    #[error("{label}: {reason}")]
    Layer {
        /// `layer 3`.
        label: String,
        /// What happened there.
        reason: LtiError,
    },
    /// A failure that concerns no single layer.
    #[error(transparent)]
    System(#[from] LtiError),
    /// An error that rounding makes larger than the bound that orders were chosen by.
    #[error("{0}")]
    Excess(String),
    /// Two adapters, or an adapter and a file, that do not belong together.
    #[error("{0}")]
    Mismatch(String),
}

/// Result of this module.
pub type Result<T> = std::result::Result<T, ReduceError>;

/// How the orders of all layers are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderChoice {
    /// The same rule in every layer on its own.
    PerLayer(OrderRule),
    /// So many states over all layers, placed so that the sum of the bounds is least.
    Budget(usize),
    /// The fewest states over all layers for which the sum of the bounds is at most this.
    TotalBound(f64),
}

impl Default for OrderChoice {
    fn default() -> Self {
        Self::PerLayer(OrderRule::default())
    }
}

/// Gramians to use for the reduction of every layer.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Gramians {
    /// The infinite-horizon ones.
    #[default]
    Analytic,
    /// Those of so many steps.
    TimeLimited(usize),
    /// From recorded states, by the label of the layer (`layer 3`).
    Empirical(BTreeMap<String, RecordedStates>),
    /// Under the weights of the options, with a bound.
    Weighted,
    /// Under the weights of the options as they are, without a bound.
    Enns,
    /// Of a band of frequencies.
    FrequencyLimited(Band),
}

impl Gramians {
    /// Their name in certificates.
    pub fn source(&self) -> GramianSource {
        match self {
            Self::Analytic => GramianSource::Analytic,
            Self::TimeLimited(steps) => GramianSource::TimeLimited(*steps),
            Self::Empirical(_) => GramianSource::Empirical,
            Self::Weighted => GramianSource::Weighted,
            Self::Enns => GramianSource::Enns,
            Self::FrequencyLimited(band) => GramianSource::FrequencyLimited(*band),
        }
    }
}

/// Settings of a reduction.
#[derive(Debug, Clone, Default)]
pub struct ReduceOptions {
    /// How the smaller systems are made.
    pub method: Method,
    /// How large they are.
    pub orders: OrderChoice,
    /// From which Gramians.
    pub gramians: Gramians,
    /// What errors are weighted by.
    pub weights: LayerWeights,
    /// What an error of each layer costs a task: states are shared out over layers by it.
    pub task: Option<(Sensitivities, WeightFile)>,
}
