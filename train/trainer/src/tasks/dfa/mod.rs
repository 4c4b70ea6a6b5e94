//! Predict the state of a deterministic finite automaton.

mod config;

#[cfg(test)]
pub(crate) use config::MaxWindow;
pub(crate) use config::{DfaConfig, DfaVariant};

use super::automaton::Automaton;
use super::drawn::symbols;
use super::settings::TaskSettings as _;
use super::{Row, Task};
use crate::results::{Split, TaskResult, metric};
use hankel_core::Random;
use std::sync::OnceLock;

/// Tables that are tried for `max_window`, and the distance of their seeds.
const TRIED: u64 = 1000;
const STRIDE: u64 = 1000;
/// Symbols over which `max_window` is tested, whatever `length` is: runs that differ in length have the same table.
const RULE_LENGTH: usize = 256;

/// The task `dfa`. Tokens: the states 0..k, then the symbols; final-state adds a separator and a token to spare.
pub(crate) struct Dfa {
    config: DfaConfig,
    /// The table of a run, or none when every example has its own.
    automaton: Option<Automaton>,
    data_seed: u64,
    description: OnceLock<TaskResult>,
}

impl Dfa {
    /// The task of a resolved configuration.
    pub(crate) fn new(config: &DfaConfig) -> Self {
        let automaton = match (config.variant, &config.transitions) {
            (DfaVariant::FinalState, _) => None,
            (DfaVariant::PerPosition, Some(table)) => Some(Automaton::new(table.clone())),
            (DfaVariant::PerPosition, None) => Some(drawn(config, config.table_seed.unwrap_or(0))),
        };
        let (data_seed, description) = (config.sequences.seed(), OnceLock::new());
        Dfa { config: config.clone(), automaton, data_seed, description }
    }

    /// The seed of the first table that `max_window` allows, when it is given, and a line that tells how it was found. Tables whose
    /// state the first symbols decide for good are not allowed either.
    ///
    /// Tried are `table_seed`, `table_seed + 1000`, `table_seed + 2000` and so on, so that seeds that differ by less than 1000 never
    /// end with the same one; a seed that was found finds itself.
    ///
    /// # Errors
    /// When none of 1000 tables is allowed.
    pub(crate) fn choose_table(config: &DfaConfig) -> Result<Option<(u64, String)>, String> {
        let Some(rule) = config.max_window else { return Ok(None) };
        let (first, w) = (config.table_seed.unwrap_or(0), rule.symbols);
        let mut least = f64::INFINITY;
        for step in 0..TRIED {
            let seed = first.saturating_add(step * STRIDE).min(i64::MAX as u64);
            let table = drawn(config, seed);
            if !table.forgets_its_beginning() {
                continue;
            }
            let accuracy = table.window_accuracy(RULE_LENGTH, w);
            if accuracy <= rule.accuracy {
                let told = format!(
                    "task.table_seed = {seed}: the best predictor from the last {w} symbols is right at {accuracy:.4} of \
                     {RULE_LENGTH} positions, at most {} was asked for; {step} of those from table_seed = {first} on were \
                     passed over",
                    rule.accuracy
                );
                return Ok(Some((seed, told)));
            }
            least = least.min(accuracy);
        }
        Err(format!(
            "allows none of {TRIED} tables, of table_seed = {first}, {}, ...: the best predictor from the last {w} symbols is \
             right at {least:.4} of {RULE_LENGTH} positions or more, not {}; raise `accuracy`, or take more `states`",
            first.saturating_add(STRIDE),
            rule.accuracy
        ))
    }

    /// What is known of the task without learning.
    fn facts(&self) -> TaskResult {
        let (k, length) = (self.config.states, self.config.length);
        let mut result = TaskResult {
            kind: "dfa".to_owned(),
            primary_metric: metric::ACCURACY.to_owned(),
            sequence_length: self.sequence_length(),
            vocabulary: self.vocabulary(),
            ..TaskResult::default()
        };
        if let Some(automaton) = &self.automaton {
            result.description =
                format!("state of a DFA with {k} states after every one of {length} symbols, one table for the run");
            result.baselines = automaton.baselines(length);
            result.transition_table = Some(automaton.table().to_vec());
        } else {
            result.description = format!("last state of a DFA with {k} states, a table per example, {length} symbols");
            let sequences = self.config.sequences.validation_sequences;
            let finals = (0..sequences).map(|index| {
                let automaton = self.own_table(Split::Validation, index);
                let drawn = symbols(self.data_seed, "dfa", Split::Validation, index, self.config.symbols);
                drawn.take(length).fold(0, |state, symbol| automaton.step(state, symbol))
            });
            let mut counts = vec![0_usize; k];
            finals.for_each(|state| counts[state as usize] += 1);
            let best = counts.into_iter().max().unwrap_or(0);
            result.baselines.insert("constant".to_owned(), best as f64 / sequences as f64);
        }
        result
    }

    fn separator(&self) -> u32 {
        (self.config.states + self.config.symbols) as u32
    }

    /// The table of an example, when every example has its own.
    fn own_table(&self, split: Split, index: usize) -> Automaton {
        let name = format!("dfa.table.{}", split.name());
        let random = Random::new(self.config.table_seed.unwrap_or(0), &name, index as u64);
        Automaton::draw(self.config.table, self.config.states, self.config.symbols, &random)
    }
}

/// The table that a seed draws for a run.
fn drawn(config: &DfaConfig, seed: u64) -> Automaton {
    Automaton::draw(config.table, config.states, config.symbols, &Random::new(seed, "dfa.table", 0))
}

impl Task for Dfa {
    fn vocabulary(&self) -> usize {
        self.config.vocabulary()
    }

    fn sequence_length(&self) -> usize {
        self.config.sequence_length()
    }

    fn sequences(&self, split: Split) -> usize {
        self.config.sequences.count(split)
    }

    fn example(&self, split: Split, index: usize, row: Row<'_>) {
        let states = self.config.states as u32;
        let drawn = symbols(self.data_seed, "dfa", split, index, self.config.symbols).take(self.config.length);
        let mut state = 0;
        if let Some(automaton) = &self.automaton {
            for (place, symbol) in drawn.enumerate() {
                state = automaton.step(state, symbol);
                row.tokens[place] = states + symbol;
                row.targets[place] = state;
                row.weights[place] = 1.0;
            }
        } else {
            let automaton = self.own_table(split, index);
            let entries = automaton.table().iter().flatten().copied();
            let mut written = row.tokens.iter_mut();
            entries.chain([self.separator()]).zip(&mut written).for_each(|(token, slot)| *slot = token);
            for symbol in drawn {
                state = automaton.step(state, symbol);
                if let Some(slot) = written.next() {
                    *slot = states + symbol;
                }
            }
            let last = row.tokens.len() - 1;
            row.tokens[last] = self.separator();
            row.targets[last] = state;
            row.weights[last] = 1.0;
        }
    }

    fn text(&self, token: u32) -> String {
        let (states, token) = (self.config.states, token as usize);
        match token.checked_sub(states) {
            None => format!("s{token}"),
            Some(symbol) if symbol < self.config.symbols => match char::from_digit(symbol as u32 + 10, 36) {
                Some(letter) => letter.to_string(),
                None => format!("x{symbol}"),
            },
            Some(symbol) if symbol == self.config.symbols => "|".to_owned(),
            Some(_) => "?".to_owned(),
        }
    }

    fn describe(&self) -> TaskResult {
        self.description.get_or_init(|| self.facts()).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::settings::GeneratedData;

    #[test]
    fn per_position() {
        let config = DfaConfig {
            length: 20,
            table_seed: Some(1),
            sequences: GeneratedData { data_seed: Some(2), ..GeneratedData::default() },
            ..DfaConfig::default()
        };
        let task = Dfa::new(&config);
        let batch = task.batch(Split::Train, &[3, 5]).unwrap();
        assert_eq!((task.vocabulary(), batch.tokens.len(), batch.weight()), (6, 40, 40.0));
        let automaton = task.automaton.as_ref().unwrap();
        for (tokens, targets) in batch.tokens.chunks(20).zip(batch.targets.chunks(20)) {
            let mut state = 0;
            for (&token, &target) in tokens.iter().zip(targets) {
                assert!((4..6).contains(&token));
                state = automaton.step(state, token - 4);
                assert_eq!(state, target);
            }
        }
        assert_ne!(batch.tokens[..20], batch.tokens[20..]);
        assert_eq!(task.batch(Split::Train, &[5]).unwrap().tokens, batch.tokens[20..]);
        assert_ne!(task.batch(Split::Validation, &[5]).unwrap().tokens, batch.tokens[20..]);
        // Another table on the same sequences.
        let other = Dfa::new(&DfaConfig { table_seed: Some(3), ..config });
        assert_eq!(other.batch(Split::Train, &[3, 5]).unwrap().tokens, batch.tokens);
        assert_ne!(other.automaton, task.automaton);
    }

    #[test]
    fn final_state() {
        let config = DfaConfig {
            variant: DfaVariant::FinalState,
            length: 10,
            sequences: GeneratedData { validation_sequences: 400, ..GeneratedData::default() },
            ..DfaConfig::default()
        };
        let task = Dfa::new(&config);
        assert_eq!((task.vocabulary(), task.sequence_length()), (8, 2 * 4 + 1 + 10 + 1));
        let batch = task.batch(Split::Validation, &[0, 1]).unwrap();
        assert_eq!(batch.weight(), 2.0);
        for row in 0..2 {
            let tokens = &batch.tokens[row * 20..][..20];
            let table: Vec<Vec<u32>> = tokens[..8].chunks(2).map(<[u32]>::to_vec).collect();
            assert_eq!((tokens[8], tokens[19]), (6, 6));
            let automaton = Automaton::new(table);
            let last = tokens[9..19].iter().fold(0, |state, &token| automaton.step(state, token - 4));
            assert_eq!((batch.targets[row * 20 + 19], batch.weights[row * 20 + 19]), (last, 1.0));
        }
        assert_ne!(batch.tokens[..8], batch.tokens[20..28], "every example has its own table");
        let constant = task.describe().baselines["constant"];
        assert!(constant > 0.2 && constant < 0.6, "{constant}");
    }

    #[test]
    fn tables_by_a_rule() {
        let rule = |symbols, accuracy| Some(MaxWindow { symbols, accuracy });
        let mut config = DfaConfig { max_window: rule(4, 0.7), length: 32, ..DfaConfig::default() };
        let base = config.clone();
        // A table whose first symbol decides for good counts as one that asks for no memory.
        let accuracy = |seed| {
            let table = drawn(&base, seed);
            if table.forgets_its_beginning() { table.window_accuracy(RULE_LENGTH, 4) } else { 1.0 }
        };
        let mut taken = Vec::new();
        for first in 0..5 {
            config.table_seed = Some(first);
            let (seed, told) = Dfa::choose_table(&config).unwrap().unwrap();
            assert!(accuracy(seed) <= 0.7 && seed % STRIDE == first, "{told}");
            assert!((first..seed).step_by(STRIDE as usize).all(|earlier| accuracy(earlier) > 0.7), "{told}");
            assert!(told.contains(&format!("task.table_seed = {seed}: ")), "{told}");
            // A seed that was found finds itself.
            config.table_seed = Some(seed);
            assert_eq!(Dfa::choose_table(&config).unwrap().unwrap().0, seed);
            let longer = DfaConfig { length: 512, table_seed: Some(first), ..config.clone() };
            assert_eq!(Dfa::choose_table(&longer).unwrap().unwrap().0, seed, "every length has the same table");
            taken.push(seed);
        }
        assert!(taken.iter().any(|&seed| seed >= STRIDE), "some of the tables are trivial: {taken:?}");
        config.max_window = rule(4, 0.2);
        let message = Dfa::choose_table(&config).unwrap_err();
        assert!(message.contains("allows none of 1000 tables") && message.contains("raise `accuracy`"), "{message}");
    }

    #[test]
    fn facts() {
        let config = DfaConfig {
            transitions: Some(vec![vec![3, 2], vec![2, 1], vec![1, 0], vec![0, 0]]),
            length: 128,
            ..DfaConfig::default()
        };
        let facts = Dfa::new(&config).describe();
        assert!((facts.baselines["window_8"] - 0.699).abs() < 6e-4);
        assert_eq!(facts.baselines.len(), 10);
        assert_eq!(facts.transition_table, config.transitions);
    }
}
