//! Settings of `linear-system`.

use super::LinearSystemTask;
use crate::settings::check::Checks;
use crate::tasks::settings::{GeneratedData, TaskSettings, TokenKind, generated};
use crate::tasks::{Task, TaskError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Highest order of a system.
const MAX_ORDER: usize = 256;

/// The quantised output of a random stable system of known order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LinearSystemConfig {
    /// States of the system, r.
    pub order: usize,
    /// Kinds of input symbols.
    pub symbols: usize,
    /// Classes of the output.
    pub levels: usize,
    /// Smallest modulus of a pole.
    pub min_radius: f64,
    /// Largest modulus of a pole.
    pub max_radius: f64,
    /// Seed of the poles; the run's seed if not given.
    pub system_seed: Option<u64>,
    /// Control: the targets are computed from other inputs, so only their dependence on the position can be learned. After a `washout` of
    /// a few times `order` symbols, they hardly depend on the position.
    pub shuffled_targets: bool,
    /// Symbols at the beginning whose targets do not count. The system begins at rest, so that the first outputs depend on the position:
    /// those of about `order` symbols.
    pub washout: usize,
    /// Symbols in a sequence, T.
    pub length: usize,
    /// The sequences.
    #[serde(skip)]
    pub sequences: GeneratedData,
}

impl Default for LinearSystemConfig {
    fn default() -> Self {
        LinearSystemConfig {
            order: 4,
            symbols: 2,
            levels: 4,
            min_radius: 0.5,
            max_radius: 0.9,
            system_seed: None,
            shuffled_targets: false,
            washout: 0,
            length: 64,
            sequences: GeneratedData::default(),
        }
    }
}

impl LinearSystemConfig {
    /// Values of `task.kind`.
    pub(in crate::tasks) const KINDS: &[&str] = &["linear-system"];
}

impl TaskSettings for LinearSystemConfig {
    fn kind(&self) -> &'static str {
        Self::KINDS[0]
    }

    generated!();

    fn sequence_length(&self) -> usize {
        self.length
    }

    /// The symbols, then the classes.
    fn vocabulary(&self) -> usize {
        self.symbols.saturating_add(self.levels)
    }

    fn token_kind(&self) -> TokenKind {
        TokenKind::Symbols
    }

    fn check(&self, checks: &mut Checks<'_>) {
        self.sequences.check(self.length, checks);
        checks.at_least("order", self.order, 1);
        checks.at_most("order", self.order, MAX_ORDER);
        for (key, count) in [("symbols", self.symbols), ("levels", self.levels)] {
            checks.at_least(key, count, 2);
            checks.at_most(key, count, 4096);
        }
        let (washout, length) = (self.washout, self.length);
        checks.require("washout", washout < length, || {
            format!("must be below `length` = {length}, or no target counts; found {washout}")
        });
        checks.fraction("max_radius", self.max_radius);
        let (low, high) = (self.min_radius, self.max_radius);
        checks.require("min_radius", low > 0.0 && low <= high, || {
            format!("must be above 0 and at most `max_radius` = {high}, found {low}")
        });
    }

    fn resolve(&mut self, seed: u64) -> Result<Option<String>, (&'static str, String)> {
        self.system_seed.get_or_insert(seed);
        self.sequences.resolve(seed);
        Ok(None)
    }

    fn build(&self) -> Result<Box<dyn Task>, TaskError> {
        Ok(Box::new(LinearSystemTask::new(self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::documented::{assert_documented, keys};

    #[test]
    fn settings_are_documented() {
        assert_documented(&[keys::<LinearSystemConfig>()], &[]);
    }
}
