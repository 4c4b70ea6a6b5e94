//! Deterministic finite automata and what can be known of their state without learning.

use hankel_core::Random;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Largest window of the predictors that need no training.
pub(super) const WINDOWS: usize = 8;
/// A window predictor is left out where it would take longer than this many transitions.
const MOST_WORK: f64 = 2e8;

/// How transition tables are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TableKind {
    /// Every entry uniform and independent.
    #[default]
    Random,
    /// Every symbol permutes the states, so that nothing is ever forgotten.
    Permutation,
}

/// A transition table; the automaton starts in state 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Automaton {
    table: Vec<Vec<u32>>,
}

impl Automaton {
    /// The automaton with this table, `[state][symbol]`.
    pub(crate) fn new(table: Vec<Vec<u32>>) -> Self {
        Automaton { table }
    }

    /// A table drawn from `random`.
    pub(crate) fn draw(kind: TableKind, states: usize, symbols: usize, random: &Random) -> Self {
        let mut table = vec![vec![0; symbols]; states];
        for symbol in 0..symbols {
            let mut order: Vec<usize> = (0..states).collect();
            for state in (0..states).rev() {
                let draw = (symbol * states + state) as u64;
                table[state][symbol] = match kind {
                    TableKind::Random => random.below(draw, states) as u32,
                    TableKind::Permutation => {
                        order.swap(state, random.below(draw, state + 1));
                        order[state] as u32
                    }
                };
            }
        }
        Automaton { table }
    }

    /// The table, `[state][symbol]`.
    pub(crate) fn table(&self) -> &[Vec<u32>] {
        &self.table
    }

    /// The state after reading `symbol` in `state`.
    pub(crate) fn step(&self, state: u32, symbol: u32) -> u32 {
        self.table[state as usize][symbol as usize]
    }

    /// Accuracy of the best predictor of the state after each of `length` random symbols that sees the position and the
    /// last `window` symbols: exact, by following the distribution of states. `window = 0` is the best constant for each
    /// position.
    pub(crate) fn window_accuracy(&self, length: usize, window: usize) -> f64 {
        let symbols = self.table[0].len();
        let mut words = 1_usize;
        for _ in 0..window.min(length) {
            words *= symbols;
        }
        let mut before = vec![0.0; self.table.len()];
        before[0] = 1.0;
        let mut total = 0.0;
        for position in 0..length {
            let seen = position + 1;
            if seen <= window {
                total += 1.0;
                continue;
            }
            // `before` is the distribution of the state just before the window.
            before = self.advance(&before, None);
            let sum: f64 = (0..words)
                .map(|word| {
                    let mut rest = word;
                    let mut states = before.clone();
                    for _ in 0..window {
                        states = self.advance(&states, Some(rest % symbols));
                        rest /= symbols;
                    }
                    states.iter().copied().fold(0.0, f64::max)
                })
                .sum();
            total += sum / words as f64;
        }
        total / length as f64
    }

    /// Transitions that [`Automaton::window_accuracy`] follows, roughly; with `window = 0` also those of
    /// [`Automaton::constant_accuracy`].
    pub(crate) fn window_work(states: usize, symbols: usize, length: usize, window: usize) -> f64 {
        let words = (symbols as f64).powi(window.min(length) as i32);
        length as f64 * states as f64 * (symbols as f64 + words * (window + 1) as f64)
    }

    /// Whether there is a state that can be reached from every reachable state. If not, symbols near the beginning decide for good
    /// among which states it moves from then on.
    pub(crate) fn forgets_its_beginning(&self) -> bool {
        let mut predecessors = vec![Vec::new(); self.table.len()];
        for (state, row) in self.table.iter().enumerate() {
            row.iter().for_each(|&to| predecessors[to as usize].push(state));
        }
        let successors = |state: usize| self.table[state].iter().map(|&to| to as usize).collect::<Vec<_>>();
        let reached = closure(0, &vec![false; self.table.len()], successors);
        // Search backwards along transitions. The last state that starts a new search is the only candidate that all others may reach.
        let (mut found, mut last) = (vec![false; self.table.len()], 0);
        for state in (0..self.table.len()).filter(|&state| reached[state]) {
            if !found[state] {
                found = closure(state, &found, |state| predecessors[state].clone());
                last = state;
            }
        }
        let leading = closure(last, &vec![false; self.table.len()], |state| predecessors[state].clone());
        (0..self.table.len()).all(|state| leading[state] || !reached[state])
    }

    /// Accuracy of the best single guess for all positions.
    pub(crate) fn constant_accuracy(&self, length: usize) -> f64 {
        let mut states = vec![0.0; self.table.len()];
        let mut sums = states.clone();
        states[0] = 1.0;
        for _ in 0..length {
            states = self.advance(&states, None);
            sums.iter_mut().zip(&states).for_each(|(sum, p)| *sum += p);
        }
        sums.iter().copied().fold(0.0, f64::max) / length as f64
    }

    /// Accuracies of the constant predictor and of windows of 0 to 8 symbols, exact.
    pub(crate) fn baselines(&self, length: usize) -> BTreeMap<String, f64> {
        let (states, symbols) = (self.table.len(), self.table[0].len());
        let feasible = |window: &usize| Self::window_work(states, symbols, length, *window) <= MOST_WORK;
        let window = |window| (format!("window_{window}"), self.window_accuracy(length, window));
        let mut baselines: BTreeMap<String, f64> = (0..=WINDOWS).filter(feasible).map(window).collect();
        if feasible(&0) {
            baselines.insert("constant".to_owned(), self.constant_accuracy(length));
        }
        baselines
    }

    /// The distribution of the next state, after `symbol` or after a uniform one.
    fn advance(&self, states: &[f64], symbol: Option<usize>) -> Vec<f64> {
        let mut next = vec![0.0; states.len()];
        for (row, &p) in self.table.iter().zip(states) {
            match symbol {
                Some(symbol) => next[row[symbol] as usize] += p,
                None => row.iter().for_each(|&to| next[to as usize] += p / row.len() as f64),
            }
        }
        next
    }
}

/// `marked` with all states marked too that `neighbours` lead to from `start`.
fn closure(start: usize, marked: &[bool], neighbours: impl Fn(usize) -> Vec<usize>) -> Vec<bool> {
    let (mut marked, mut open) = (marked.to_vec(), vec![start]);
    marked[start] = true;
    while let Some(state) = open.pop() {
        for next in neighbours(state) {
            if !std::mem::replace(&mut marked[next], true) {
                open.push(next);
            }
        }
    }
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table_0() -> Automaton {
        Automaton::new(vec![vec![3, 2], vec![2, 1], vec![1, 0], vec![0, 0]])
    }

    #[test]
    fn window_baselines_of_the_reference_table() {
        // An independent implementation's figures for this table at T = 128.
        let expected = [(0, 0.314), (1, 0.388), (2, 0.458), (3, 0.512), (4, 0.557), (6, 0.635), (8, 0.699)];
        for (window, accuracy) in expected {
            let found = table_0().window_accuracy(128, window);
            assert!((found - accuracy).abs() < 6e-4, "w = {window}: {found} instead of {accuracy}");
        }
    }

    #[test]
    fn windows_agree_with_counting_every_word() {
        let automaton = Automaton::draw(TableKind::Random, 3, 2, &Random::new(4, "t", 0));
        let length = 6_usize;
        for window in 0..=length {
            // For each position and window content, the most frequent state over all 2^length words.
            let mut counts = std::collections::HashMap::<(usize, Vec<u32>), [u32; 3]>::new();
            for word in 0..1_u32 << length {
                let symbols: Vec<u32> = (0..length).map(|i| (word >> i) & 1).collect();
                let mut state = 0;
                for position in 0..length {
                    state = automaton.step(state, symbols[position]);
                    let seen = symbols[(position + 1).saturating_sub(window)..=position].to_vec();
                    counts.entry((position, seen)).or_default()[state as usize] += 1;
                }
            }
            let right: u32 = counts.values().map(|states| states.iter().max().unwrap()).sum();
            let exact = f64::from(right) / f64::from((1 << length) * length as u32);
            assert!((automaton.window_accuracy(length, window) - exact).abs() < 1e-12, "w = {window}");
        }
        assert!(automaton.constant_accuracy(length) <= automaton.window_accuracy(length, 0) + 1e-12);
    }

    #[test]
    fn means_over_random_tables() {
        // Reference: 0.549 +- 0.24 (w = 0) and 0.689 +- 0.21 (w = 1) over 100 tables, k = 4, T = 64. Four standard errors
        // of the difference of two such means are 0.14 and 0.12.
        let tables: Vec<Automaton> =
            (0..100).map(|seed| Automaton::draw(TableKind::Random, 4, 2, &Random::new(seed, "t", 0))).collect();
        for (window, expected, slack) in [(0, 0.549, 0.14), (1, 0.689, 0.12)] {
            let mean = tables.iter().map(|table| table.window_accuracy(64, window)).sum::<f64>() / 100.0;
            assert!((mean - expected).abs() < slack, "w = {window}: {mean}");
        }
    }

    #[test]
    fn what_the_first_symbols_decide_for_good() {
        let settles = |table: &[[u32; 2]]| Automaton::new(table.iter().map(|row| row.to_vec()).collect());
        assert!(!settles(&[[1, 2], [1, 1], [2, 2], [0, 0]]).forgets_its_beginning());
        assert!(table_0().forgets_its_beginning());
        // A beginning that does not come back, and states that are never reached.
        assert!(settles(&[[1, 2], [2, 1], [1, 2], [3, 3]]).forgets_its_beginning());
        assert!(settles(&[[0, 0]]).forgets_its_beginning());
        // By the definition, on small tables.
        for seed in 0..300 {
            let automaton = Automaton::draw(TableKind::Random, 5, 2, &Random::new(seed, "t", 0));
            let successors = |state: usize| automaton.table()[state].iter().map(|&to| to as usize).collect::<Vec<_>>();
            let from = |state| closure(state, &[false; 5], successors);
            let reached = from(0);
            let common = (0..5).any(|to| (0..5).all(|state| !reached[state] || from(state)[to]));
            assert_eq!(automaton.forgets_its_beginning(), common, "{:?}", automaton.table());
        }
    }

    #[test]
    fn permutation_tables_permute() {
        for seed in 0..20 {
            let automaton = Automaton::draw(TableKind::Permutation, 5, 3, &Random::new(seed, "t", 0));
            for symbol in 0..3 {
                let mut column: Vec<u32> = automaton.table().iter().map(|row| row[symbol]).collect();
                column.sort_unstable();
                assert_eq!(column, [0, 1, 2, 3, 4]);
            }
        }
    }
}
