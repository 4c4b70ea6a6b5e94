//! Predict the quantised output of a linear system from its input: a task whose memory is known.
//!
//! Independent uniform symbols, as numbers of mean 0 and variance 1, go through a random stable all-pass system of order r. After every symbol its
//! output is to be told, as one of a few classes that are equally frequent. No system with fewer states is near it (see `all_pass`), so r is the
//! order that the task needs.

mod all_pass;
mod config;

pub(crate) use config::LinearSystemConfig;

use super::automaton::WINDOWS;
use super::drawn::symbols;
use super::settings::TaskSettings as _;
use super::{Row, Task};
use crate::results::{Split, TaskResult, metric};
use all_pass::AllPass;
use hankel_core::Random;
use std::collections::BTreeMap;

/// Most contexts that such a predictor counts.
const CONTEXTS: usize = 1 << 16;
/// Sequences by which the classes are made equally frequent, and by which windows are counted.
const SAMPLE: usize = 2000;
/// Outputs that are kept for it at most.
const MOST_OUTPUTS: usize = 1 << 24;

/// The task `linear-system`. Tokens: the symbols, then the classes.
pub(crate) struct LinearSystemTask {
    config: LinearSystemConfig,
    system: AllPass,
    /// Where one class ends and the next begins.
    limits: Vec<f64>,
    data_seed: u64,
}

impl LinearSystemTask {
    /// The task of a resolved configuration.
    pub(crate) fn new(config: &LinearSystemConfig) -> Self {
        let seed = config.system_seed.unwrap_or(0);
        let poles = Random::new(seed, "linear-system.poles", 0);
        let system = AllPass::draw(config.order, (config.min_radius, config.max_radius), &poles);
        let mut task =
            LinearSystemTask { config: config.clone(), system, limits: Vec::new(), data_seed: config.sequences.seed() };
        let sample = |index| task.outputs(&task.drawn(seed, "linear-system.sample", Split::Train, index));
        let sequences = SAMPLE.min(MOST_OUTPUTS / config.length).max(1);
        let mut outputs: Vec<f64> = (0..sequences).flat_map(|index| sample(index).split_off(config.washout)).collect();
        outputs.sort_by(f64::total_cmp);
        let levels = config.levels;
        task.limits = (1..levels).map(|level| outputs[level * outputs.len() / levels]).collect();
        task
    }

    fn drawn(&self, seed: u64, name: &str, split: Split, index: usize) -> Vec<u32> {
        symbols(seed, name, split, index, self.config.symbols).take(self.config.length).collect()
    }

    fn outputs(&self, symbols: &[u32]) -> Vec<f64> {
        let k = self.config.symbols as f64;
        // Variance of the uniform distribution over 0 ... k - 1.
        let (mean, deviation) = ((k - 1.0) / 2.0, ((k * k - 1.0) / 12.0).sqrt());
        let input: Vec<f64> = symbols.iter().map(|&symbol| (f64::from(symbol) - mean) / deviation).collect();
        self.system.output(&input)
    }

    /// The symbols of an example and their targets.
    fn sequence(&self, split: Split, index: usize) -> (Vec<u32>, Vec<u32>) {
        let input = self.drawn(self.data_seed, "linear-system", split, index);
        let outputs = if self.config.shuffled_targets {
            self.outputs(&self.drawn(self.data_seed, "linear-system.other", split, index))
        } else {
            self.outputs(&input)
        };
        let first = self.config.symbols as u32;
        let class = |output: &f64| first + self.limits.partition_point(|limit| limit <= output) as u32;
        (input, outputs.iter().map(class).collect())
    }

    /// The cross entropy, on the validation split, of the frequencies of classes behind the last 0 to 8 symbols, counted on training sequences with
    /// one of each added.
    fn baselines(&self) -> BTreeMap<String, f64> {
        let LinearSystemConfig { symbols, levels, washout, .. } = self.config;
        let sample = |split: Split| -> Vec<_> {
            (0..SAMPLE.min(self.sequences(split))).map(|index| self.sequence(split, index)).collect()
        };
        let (train, validation) = (sample(Split::Train), sample(Split::Validation));
        let counted = |window: usize| -> Option<(String, f64)> {
            let contexts = symbols.checked_pow(window as u32).filter(|contexts| *contexts <= CONTEXTS)?;
            // Positions before which there are fewer symbols are counted as if the missing ones were the first symbol.
            let places = |sequences: &[(Vec<u32>, Vec<u32>)], each: &mut dyn FnMut(usize, usize)| {
                for (input, targets) in sequences {
                    let mut context = 0;
                    for (place, (&symbol, &target)) in input.iter().zip(targets).enumerate() {
                        context = if window == 0 { 0 } else { (context * symbols + symbol as usize) % contexts };
                        if place >= washout {
                            each(context, target as usize - symbols);
                        }
                    }
                }
            };
            let mut counts = vec![1.0_f64; contexts * levels];
            places(&train, &mut |context, class| counts[context * levels + class] += 1.0);
            let (mut loss, mut targets) = (0.0, 0.0);
            places(&validation, &mut |context, class| {
                let own = &counts[context * levels..][..levels];
                loss -= (own[class] / own.iter().sum::<f64>()).ln();
                targets += 1.0;
            });
            Some((format!("window_{window}"), loss / targets))
        };
        (0..=WINDOWS).filter_map(counted).collect()
    }
}

impl Task for LinearSystemTask {
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
        let (input, targets) = self.sequence(split, index);
        row.tokens.copy_from_slice(&input);
        row.targets.copy_from_slice(&targets);
        row.weights.fill(1.0);
        row.weights[..self.config.washout].fill(0.0);
    }

    fn text(&self, token: u32) -> String {
        match token.checked_sub(self.config.symbols as u32) {
            None => token.to_string(),
            Some(class) => format!("y{class}"),
        }
    }

    fn describe(&self) -> TaskResult {
        let LinearSystemConfig { order, levels, length, shuffled_targets, washout, .. } = self.config;
        let counted = if washout > 0 { format!(" but the first {washout}") } else { String::new() };
        let control = if shuffled_targets { ", of other inputs (control)" } else { "" };
        TaskResult {
            kind: "linear-system".to_owned(),
            primary_metric: metric::LOSS.to_owned(),
            sequence_length: self.sequence_length(),
            vocabulary: self.vocabulary(),
            description: format!(
                "output of a random all-pass system of order {order} in {levels} classes after every one of {length} symbols{counted}{control}"
            ),
            baselines: self.baselines(),
            ..TaskResult::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::Batch;

    fn batch(config: &LinearSystemConfig, sequences: usize) -> (Batch, TaskResult) {
        let task = LinearSystemTask::new(config);
        (task.batch(Split::Validation, &(0..sequences).collect::<Vec<_>>()).unwrap(), task.describe())
    }

    #[test]
    fn classes_are_equally_frequent_and_follow_the_system() {
        let config = LinearSystemConfig { order: 5, symbols: 3, ..LinearSystemConfig::default() };
        let (batch, facts) = batch(&config, 200);
        let mut counts = [0.0; 4];
        batch.targets.iter().for_each(|&target| counts[target as usize - 3] += 1.0);
        assert!(counts.iter().all(|count| (count / batch.weight() - 0.25).abs() < 0.02), "{counts:?}");
        assert!(batch.tokens.iter().all(|&token| token < 3) && facts.vocabulary == 7);
        // Recomputed with the sums of the definition, from the poles of the cascade.
        let task = LinearSystemTask::new(&config);
        let (input, targets) = task.sequence(Split::Validation, 3);
        assert_eq!(&batch.targets[3 * 64..4 * 64], &targets[..]);
        let mut impulse = vec![0.0; 64];
        impulse[0] = 1.0;
        let response = task.system.output(&impulse);
        let mut checked = 0;
        for t in 0..64 {
            let y: f64 =
                (0..=t).map(|lag| response[lag] * (f64::from(input[t - lag]) - 1.0) / (8.0_f64 / 12.0).sqrt()).sum();
            // The first outputs have few values, and a limit may be one of them.
            if task.limits.iter().all(|limit| (limit - y).abs() > 1e-9) {
                let below = task.limits.iter().filter(|limit| **limit < y).count() as u32;
                assert_eq!(targets[t], 3 + below, "{t}");
                checked += 1;
            }
        }
        assert!(checked > 55, "{checked}");
    }

    /// A window knows what a system of low order remembers, little of one of high order, and nothing of targets of other inputs.
    #[test]
    fn windows_know_less_of_higher_orders() {
        let known = |order: usize, shuffled_targets: bool| {
            let config = LinearSystemConfig { order, shuffled_targets, ..LinearSystemConfig::default() };
            let task = LinearSystemTask::new(&config);
            let facts = task.describe().baselines;
            facts["window_0"] - facts["window_8"]
        };
        assert!(known(2, false) > 0.5 && known(2, false) > known(24, false) + 0.3);
        assert!(known(2, true).abs() < 0.02);
    }

    /// At rest the first outputs of a system of high order are near 0, so that the position tells something of targets of other inputs. Behind
    /// the washout it tells nothing.
    #[test]
    fn targets_of_other_inputs_depend_on_the_position_until_the_washout() {
        let known = |washout: usize| {
            let config =
                LinearSystemConfig { order: 16, length: 96, shuffled_targets: true, washout, ..Default::default() };
            let (batch, facts) = batch(&config, 400);
            assert_eq!(batch.weight(), (400 * (96 - washout)) as f64);
            // The entropy of the classes at each place, counted on the same sequences, which is a little too low.
            let at = |place: usize| {
                let mut counts = [0.0; 4];
                (0..400).for_each(|index| counts[batch.targets[index * 96 + place] as usize - 2] += 1.0);
                counts.iter().filter(|n| **n > 0.0).map(|n| -n / 400.0 * (n / 400.0_f64).ln()).sum::<f64>()
            };
            let mean = (washout..96).map(at).sum::<f64>() / (96 - washout) as f64;
            facts.baselines["window_0"] - mean
        };
        assert!(known(0) > 0.05 && known(48) < 0.01, "{} {}", known(0), known(48));
    }
}
