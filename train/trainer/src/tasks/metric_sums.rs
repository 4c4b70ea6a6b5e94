//! Sums over the target tokens of an evaluation.

use super::{Batch, PairSums};
use crate::results::{Scores, metric};
use serde::{Deserialize, Serialize};

/// What an evaluation adds up, in double precision and in the order of the data.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricSums {
    loss: f64,
    smoothed: Option<f64>,
    weight: f64,
    correct: f64,
    tokens: u64,
    sequences: u64,
    text_bytes: u64,
    /// Of pairs of answers, in place of what is known of their tokens.
    pairs: Option<PairSums>,
    /// Sum of weights and of correct weights in each quarter of the sequence.
    quarters: [(f64, f64); 4],
    /// Sum of weights and of correct weights of the first target of every sequence, of the second, the next two, the next four and so on.
    octaves: Vec<(f64, f64)>,
}

/// The prediction at one target token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenPrediction {
    /// Cross entropy in nats.
    pub loss: f64,
    /// Label-smoothed cross entropy in nats.
    pub smoothed: f64,
    /// The most probable token.
    pub predicted: u32,
}

impl MetricSums {
    /// Sums that include the label-smoothed loss.
    pub fn with_smoothing(smoothing: f64) -> Self {
        MetricSums { smoothed: (smoothing > 0.0).then_some(0.0), ..MetricSums::default() }
    }

    /// Adds a batch; `predictions` holds one entry for each position with a weight above 0, in order.
    pub fn add(&mut self, batch: &Batch, predictions: impl IntoIterator<Item = TokenPrediction>) {
        let targets = batch.weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0);
        let (mut row, mut nth) = (0, 0_usize);
        for ((place, &weight), token) in targets.zip(predictions) {
            let weight = f64::from(weight);
            if place / batch.length != row {
                (row, nth) = (place / batch.length, 0);
            }
            let octave = (usize::BITS - nth.leading_zeros()) as usize;
            nth += 1;
            if self.octaves.len() <= octave {
                self.octaves.resize(octave + 1, (0.0, 0.0));
            }
            let octave = &mut self.octaves[octave];
            octave.0 += weight;
            let quarter = &mut self.quarters[(place % batch.length) * 4 / batch.length];
            self.loss += weight * token.loss;
            self.weight += weight;
            quarter.0 += weight;
            // A class that is chosen among NaN is no answer.
            if token.loss.is_finite() && token.predicted == batch.targets[place] {
                self.correct += weight;
                quarter.1 += weight;
                octave.1 += weight;
            }
            if let Some(sum) = &mut self.smoothed {
                *sum += weight * token.smoothed;
            }
            self.tokens += 1;
        }
        self.sequences += batch.document_count() as u64;
        self.text_bytes += batch.text_bytes;
    }

    /// Adds pairs of answers, in whose figures the number of their tokens is of no account.
    pub fn add_pairs(&mut self, batch: &Batch, sums: &PairSums) {
        self.tokens += batch.counted().len() as u64;
        self.sequences += sums.pairs();
        self.pairs.get_or_insert_default().add(sums);
    }

    /// Adds the sums of what comes behind.
    pub fn merge(&mut self, behind: &MetricSums) {
        self.loss += behind.loss;
        self.weight += behind.weight;
        self.correct += behind.correct;
        self.tokens += behind.tokens;
        self.sequences += behind.sequences;
        self.text_bytes += behind.text_bytes;
        if let Some(pairs) = &behind.pairs {
            self.pairs.get_or_insert_default().add(pairs);
        }
        if let (Some(sum), Some(more)) = (&mut self.smoothed, behind.smoothed) {
            *sum += more;
        }
        if self.octaves.len() < behind.octaves.len() {
            self.octaves.resize(behind.octaves.len(), (0.0, 0.0));
        }
        for (octave, more) in self.octaves.iter_mut().zip(&behind.octaves) {
            *octave = (octave.0 + more.0, octave.1 + more.1);
        }
        for (quarter, more) in self.quarters.iter_mut().zip(behind.quarters) {
            *quarter = (quarter.0 + more.0, quarter.1 + more.1);
        }
    }

    /// Accuracy over the first 1, 2, 4, 8 ... targets of every sequence, up to the last of them.
    pub fn accuracy_to(&self) -> impl Iterator<Item = (usize, f64)> {
        let sums = self.octaves.iter().scan((0.0, 0.0), |sum: &mut (f64, f64), octave| {
            *sum = (sum.0 + octave.0, sum.1 + octave.1);
            Some(*sum)
        });
        sums.enumerate().map(|(octave, (weight, correct))| (1 << octave, correct / weight))
    }

    /// Mean cross entropy in nats.
    pub fn mean_loss(&self) -> f64 {
        self.loss / self.weight
    }

    /// Cross entropy in bits per byte of text, where the task counts bytes and every target weighs 1.
    pub fn bits_per_byte(&self) -> Option<f64> {
        (self.text_bytes > 0).then(|| self.loss / std::f64::consts::LN_2 / self.text_bytes as f64)
    }

    /// Mean label-smoothed cross entropy in nats, when it was summed.
    pub fn mean_smoothed(&self) -> Option<f64> {
        self.smoothed.map(|sum| sum / self.weight)
    }

    /// Loss and accuracy, accuracy by quarter of the sequence where there are targets in all quarters, and the
    /// label-smoothed loss under its own name.
    pub fn scores(&self) -> Scores {
        let mut scores = Scores { tokens: self.tokens, sequences: self.sequences, ..Scores::default() };
        if let Some(pairs) = &self.pairs {
            scores.metrics = pairs.metrics(self.smoothed.is_some());
            return scores;
        }
        let mut put = |name: &str, value: f64| scores.metrics.insert(name.to_owned(), value);
        put(metric::LOSS, self.mean_loss());
        put(metric::ACCURACY, self.correct / self.weight);
        if self.quarters.iter().all(|quarter| quarter.0 > 0.0) {
            for (i, (weight, correct)) in self.quarters.iter().enumerate() {
                put(&format!("{}{}", metric::ACCURACY_QUARTER, i + 1), correct / weight);
            }
        }
        if let Some(smoothed) = self.mean_smoothed() {
            put(metric::LABEL_SMOOTHED_LOSS, smoothed);
        }
        scores
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weighted_means() {
        let batch = Batch {
            tokens: vec![0; 8],
            targets: vec![1, 1, 1, 1, 0, 0, 0, 0],
            weights: vec![1.0, 0.0, 2.0, 1.0, 0.0, 1.0, 1.0, 0.0],
            ..Batch::blank(2, 4)
        };
        let evaluated = |loss, predicted| TokenPrediction { loss, smoothed: 2.0 * loss, predicted };
        let mut sums = MetricSums::with_smoothing(0.1);
        sums.add(
            &batch,
            [evaluated(1.0, 1), evaluated(2.0, 0), evaluated(3.0, 1), evaluated(4.0, 0), evaluated(5.0, 1)],
        );
        let mut twice = sums.clone();
        twice.merge(&sums);
        assert_eq!((twice.mean_loss(), twice.mean_smoothed()), (sums.mean_loss(), sums.mean_smoothed()));
        assert_eq!((twice.scores().tokens, twice.scores().sequences), (10, 4));
        let scores = sums.scores();
        assert_eq!(scores.get(metric::LOSS), Some((1.0 + 4.0 + 3.0 + 4.0 + 5.0) / 6.0));
        assert_eq!(scores.get(metric::ACCURACY), Some(3.0 / 6.0));
        assert_eq!(scores.get(metric::LABEL_SMOOTHED_LOSS), Some(34.0 / 6.0));
        assert_eq!(scores.get("accuracy_quarter_3"), Some(0.0));
        assert_eq!(scores.get("accuracy_quarter_4"), Some(1.0));
        assert_eq!((scores.tokens, scores.sequences), (5, 2));
    }
}
