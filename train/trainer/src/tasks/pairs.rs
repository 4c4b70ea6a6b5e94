//! Pairs of answers to the same prompt, one preferred to the other.

use super::Batch;
use crate::results::metric;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The rewards of the two answers of a pair: `beta` times the log-likelihood beyond that of the reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// Of the preferred answer.
    pub chosen: f64,
    /// Of the other.
    pub rejected: f64,
    /// Strength of the reference.
    pub beta: f64,
}

impl Pair {
    /// The loss of direct preference optimization (Rafailov et al., 2023), in nats; with label smoothing that of its conservative form.
    pub fn loss(&self, smoothing: f64) -> f64 {
        let h = self.chosen - self.rejected;
        (1.0 - smoothing) * softplus(-h) + smoothing * softplus(h)
    }

    /// Derivatives of the loss with respect to the log-likelihoods of the chosen and of the rejected answer.
    pub fn slopes(&self, smoothing: f64) -> [f64; 2] {
        let h = self.chosen - self.rejected;
        // sigmoid(h) - 1 is -sigmoid(-h), without cancellation.
        let slope = self.beta * ((1.0 - smoothing) * -sigmoid(-h) + smoothing * sigmoid(h));
        [slope, -slope]
    }
}

/// `log(1 + exp(x))`.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// What an evaluation adds up over pairs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PairSums {
    pairs: u64,
    loss: f64,
    smoothed: f64,
    right: u64,
    chosen: f64,
    rejected: f64,
}

impl PairSums {
    /// The sums over `pairs`.
    pub fn of(pairs: &[Pair], smoothing: f64) -> Self {
        let mut sums = PairSums::default();
        for pair in pairs {
            sums.add(&PairSums {
                pairs: 1,
                loss: pair.loss(0.0),
                smoothed: pair.loss(smoothing),
                right: u64::from(pair.chosen > pair.rejected),
                chosen: pair.chosen,
                rejected: pair.rejected,
            });
        }
        sums
    }

    /// Adds the sums of other pairs.
    pub fn add(&mut self, more: &PairSums) {
        self.pairs += more.pairs;
        self.loss += more.loss;
        self.smoothed += more.smoothed;
        self.right += more.right;
        self.chosen += more.chosen;
        self.rejected += more.rejected;
    }

    /// Number of pairs.
    pub fn pairs(&self) -> u64 {
        self.pairs
    }

    /// Means over the pairs; the smoothed loss if it was `smoothed`.
    pub fn metrics(&self, smoothed: bool) -> BTreeMap<String, f64> {
        let mean = |sum: f64| sum / self.pairs as f64;
        let mut metrics = BTreeMap::from(
            [
                (metric::LOSS, mean(self.loss)),
                (metric::REWARD_ACCURACY, mean(self.right as f64)),
                (metric::REWARD_MARGIN, mean(self.chosen - self.rejected)),
                (metric::REWARD_CHOSEN, mean(self.chosen)),
                (metric::REWARD_REJECTED, mean(self.rejected)),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        if smoothed {
            metrics.insert(metric::LABEL_SMOOTHED_LOSS.to_owned(), mean(self.smoothed));
        }
        metrics
    }
}

impl Batch {
    /// Row-major places of the targets that count.
    pub fn counted(&self) -> Vec<usize> {
        (0..self.weights.len()).filter(|&place| self.weights[place] > 0.0).collect()
    }

    /// The number of the sequence that a row-major place is in: a row, or a document where they are packed.
    pub fn sequence_of(&self) -> impl Fn(usize) -> usize + '_ {
        |place| match self.documents.len() {
            0 | 1 => place / self.length.max(1),
            _ => self.documents.partition_point(|&start| start <= place) - 1,
        }
    }

    /// Sums of `values`, one for each place of [`Batch::counted`], over every sequence.
    pub fn of_sequences(&self, values: impl Iterator<Item = f64>) -> Vec<f64> {
        let mut sums = vec![0.0; self.document_count()];
        let sequence = self.sequence_of();
        self.counted().into_iter().zip(values).for_each(|(place, value)| sums[sequence(place)] += value);
        sums
    }

    /// The pairs of a batch whose sequences have these log-likelihoods, and `reference` without the adapter.
    pub fn pairs(&self, likelihoods: &[f64], reference: &[f64]) -> Vec<Pair> {
        let beta = self.preference.unwrap_or_default();
        let rewards: Vec<f64> = likelihoods.iter().zip(reference).map(|(own, other)| beta * (own - other)).collect();
        rewards.as_chunks().0.iter().map(|&[chosen, rejected]| Pair { chosen, rejected, beta }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::Sequence;

    #[test]
    fn slopes_are_derivatives_of_the_loss() {
        for (chosen, rejected) in [(0.0, 0.0), (2.0, -1.0), (-3.0, 4.0)] {
            for smoothing in [0.0, 0.2] {
                let at =
                    |likelihood: f64| Pair { chosen: chosen + 0.3 * likelihood, rejected, beta: 0.3 }.loss(smoothing);
                let numeric = (at(1e-5) - at(-1e-5)) / 2e-5;
                let [own, other] = Pair { chosen, rejected, beta: 0.3 }.slopes(smoothing);
                assert!((own - numeric).abs() < 1e-9 && own == -other, "{own} {numeric}");
            }
        }
        // No overflow far out.
        let far = Pair { chosen: -1e5, rejected: 1e5, beta: 1.0 };
        assert_eq!((far.loss(0.0), far.slopes(0.0)), (2e5, [-1.0, 1.0]));
        assert!((Pair { chosen: 0.0, rejected: 0.0, beta: 1.0 }.loss(0.0) - std::f64::consts::LN_2).abs() < 1e-15);
    }

    #[test]
    fn figures_by_hand() {
        let pairs = [(1.0, 0.0), (0.5, 2.0)].map(|(chosen, rejected)| Pair { chosen, rejected, beta: 0.1 });
        let mut sums = PairSums::of(&pairs[..1], 0.1);
        sums.add(&PairSums::of(&pairs[1..], 0.1));
        let metrics = sums.metrics(true);
        assert_eq!((metrics["reward_accuracy"], metrics["reward_margin"]), (0.5, -0.25));
        assert_eq!((metrics["reward_chosen"], metrics["reward_rejected"]), (0.75, 1.0));
        let expected = f64::midpoint((1.0 + (-1.0_f64).exp()).ln(), (1.0 + 1.5_f64.exp()).ln());
        assert!((metrics["loss"] - expected).abs() < 1e-15);
        assert!(metrics["label_smoothed_loss"] < expected);
        assert!(!sums.metrics(false).contains_key("label_smoothed_loss"));
    }

    /// Sums by sequence are the same packed and padded.
    #[test]
    fn sequences_of_a_batch() {
        let example = |n: usize| Sequence {
            tokens: vec![1; n],
            targets: vec![2; n],
            weights: (0..n).map(|i| f32::from(u8::from(i > 0))).collect(),
        };
        let examples = [example(3), example(2), example(4), example(2)];
        for batch in [Batch::packed(&examples), Batch::padded(&examples)] {
            let batch = Batch { preference: Some(0.5), ..batch };
            let values: Vec<f64> = (1..=batch.counted().len()).map(|i| i as f64).collect();
            let sums = batch.of_sequences(values.into_iter());
            assert_eq!(sums, [3.0, 3.0, 15.0, 7.0]);
            assert_eq!(batch.weight(), 2.0);
            let pairs = batch.pairs(&sums, &[1.0; 4]);
            assert_eq!(pairs.iter().map(|p| (p.chosen, p.rejected)).collect::<Vec<_>>(), [(1.0, 1.0), (7.0, 3.0)]);
        }
    }
}
