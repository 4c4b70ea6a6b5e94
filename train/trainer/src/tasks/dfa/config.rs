//! Settings of `dfa`.

use super::{Dfa, RULE_LENGTH};
use crate::settings::check::Checks;
use crate::tasks::automaton::{Automaton, TableKind};
use crate::tasks::settings::{GeneratedData, TaskSettings, TokenKind, generated};
use crate::tasks::{Task, TaskError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most transitions that the search for a table follows for each.
const MAX_SEARCH: f64 = 2e7;

/// Where a sequence's targets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DfaVariant {
    /// One fixed transition table per run; the state is predicted after every symbol.
    #[default]
    PerPosition,
    /// The form of the released code: a table per example, written out before the symbols; the last state is
    /// predicted.
    FinalState,
}

/// A rule for tables: the best predictor that sees the last `symbols` symbols must be right at `accuracy` of the positions at
/// most. Many random tables forget within a few symbols, and then nothing is learned about memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MaxWindow {
    /// Symbols that the predictor sees, w.
    pub symbols: usize,
    /// Its accuracy at most.
    pub accuracy: f64,
}

/// Deterministic finite automaton: predict its state from the symbols it reads. It starts in state 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DfaConfig {
    /// Where the targets are.
    pub variant: DfaVariant,
    /// Number of states, k.
    pub states: usize,
    /// Size of the alphabet.
    pub symbols: usize,
    /// How tables are drawn.
    pub table: TableKind,
    /// Seed of the table; the run's seed if not given. Tables and weights can thus vary apart.
    pub table_seed: Option<u64>,
    /// Take only a table whose state cannot be predicted from its last symbols. `table_seed` is then the first seed that is tried; a
    /// resolved configuration has the seed that was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_window: Option<MaxWindow>,
    /// The table itself, `[state][symbol]`, instead of a drawn one.
    pub transitions: Option<Vec<Vec<u32>>>,
    /// Symbols in a sequence, T.
    pub length: usize,
    /// The sequences.
    #[serde(skip)]
    pub sequences: GeneratedData,
}

impl Default for DfaConfig {
    fn default() -> Self {
        DfaConfig {
            variant: DfaVariant::PerPosition,
            states: 4,
            symbols: 2,
            table: TableKind::Random,
            table_seed: None,
            max_window: None,
            transitions: None,
            length: 64,
            sequences: GeneratedData::default(),
        }
    }
}

impl DfaConfig {
    /// Values of `task.kind`.
    pub(in crate::tasks) const KINDS: &[&str] = &["dfa"];
}

impl TaskSettings for DfaConfig {
    fn kind(&self) -> &'static str {
        Self::KINDS[0]
    }

    generated!();

    fn sequence_length(&self) -> usize {
        match self.variant {
            DfaVariant::PerPosition => self.length,
            DfaVariant::FinalState => {
                self.states.saturating_mul(self.symbols).saturating_add(self.length).saturating_add(2)
            }
        }
    }

    /// A token for each state, then one for each symbol, then (final-state) the separator and one to spare, as released.
    fn vocabulary(&self) -> usize {
        self.states.saturating_add(self.symbols) + if self.variant == DfaVariant::FinalState { 2 } else { 0 }
    }

    fn token_kind(&self) -> TokenKind {
        TokenKind::Symbols
    }

    fn check(&self, checks: &mut Checks<'_>) {
        self.sequences.check(self.length, checks);
        checks.at_least("states", self.states, 1);
        checks.at_most("states", self.states, 4096);
        checks.at_least("symbols", self.symbols, 1);
        checks.at_most("symbols", self.symbols, 4096);
        if let Some(rule) = self.max_window {
            let mut checks = checks.inside("max_window");
            let drawn = self.variant == DfaVariant::PerPosition && self.transitions.is_none();
            checks.require("", drawn, || "is for a table that is drawn once for the run".to_owned());
            checks.require("accuracy", rule.accuracy > 0.0 && rule.accuracy <= 1.0, || {
                format!("must be above 0 and at most 1, found {}", rule.accuracy)
            });
            let work = Automaton::window_work(self.states, self.symbols, RULE_LENGTH, rule.symbols);
            checks.require("symbols", work <= MAX_SEARCH, || {
                format!(
                    "= {} makes every table take {work:.0e} transitions: at most {MAX_SEARCH:.0e} are taken",
                    rule.symbols
                )
            });
        }
        if let Some(table) = &self.transitions {
            checks.require(
                "transitions",
                table.len() == self.states && table.iter().all(|row| row.len() == self.symbols),
                || format!("must have {} rows (states) of {} entries (symbols)", self.states, self.symbols),
            );
            checks.require("transitions", table.iter().flatten().all(|&next| (next as usize) < self.states), || {
                format!("must hold states 0 to {}", self.states.saturating_sub(1))
            });
            checks.require("table", self.table == TableKind::Random, || {
                "is how a table is drawn, and `transitions` gives one".to_owned()
            });
            checks.require("transitions", self.variant == DfaVariant::PerPosition, || {
                "is for `variant = \"per-position\"`: the other variant draws a table for each example".to_owned()
            });
        }
    }

    /// Looks for the table that `max_window` allows.
    fn resolve(&mut self, seed: u64) -> Result<Option<String>, (&'static str, String)> {
        self.table_seed.get_or_insert(seed);
        self.sequences.resolve(seed);
        let found = Dfa::choose_table(self).map_err(|message| ("max_window", message))?;
        Ok(found.map(|(table_seed, note)| {
            self.table_seed = Some(table_seed);
            note
        }))
    }

    fn build(&self) -> Result<Box<dyn Task>, TaskError> {
        Ok(Box::new(Dfa::new(self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::documented::{assert_documented, keys, values};

    #[test]
    fn settings_are_documented() {
        let keys = [keys::<DfaConfig>(), keys::<MaxWindow>()];
        assert_documented(&keys, &[values::<DfaVariant>(), values::<TableKind>()]);
    }
}
