//! What counting can reach: predictors of the next token from the few before it.
//!
//! An order-n model knows how often each token followed each run of n tokens in the training part. Its probabilities are
//! interpolated with those of order n - 1, by Witten and Bell (I. H. Witten and T. C. Bell, The zero-frequency problem, 1991):
//! `P_n(c | h) = (N(hc) + D(h) P_{n-1}(c | h')) / (N(h) + D(h))`, where N counts, D(h) is the number of different tokens that
//! followed h, h' is h without its first token, and `P_{-1}` is uniform. Its prediction is the token that followed h most often,
//! or h' where h never occurred.

use rayon::prelude::*;
use std::collections::BTreeMap;

/// The highest order: predictors see up to this many tokens.
pub(super) const HIGHEST_ORDER: usize = 3;
/// Tokens that are counted together.
const LENGTH: usize = HIGHEST_ORDER + 1;
/// Bits of a token in a key.
const BITS: u32 = 16;
/// Positions that are sorted at once.
const CHUNK: usize = 1 << 20;

/// A run of tokens packed into a number, the last one lowest, with its count.
type Gram = (u64, u64);

/// How often every run of 1 to 4 tokens occurs, sorted by the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ngrams {
    /// Runs of length 1, 2, ...; every position counts once in each, with the three tokens behind it.
    runs: [Vec<Gram>; LENGTH],
    vocabulary: usize,
}

/// What the predictors of orders 0 to 3 reach.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Reached {
    /// Mean cross entropy in bits.
    pub bits: f64,
    /// Share of the targets predicted exactly.
    pub accuracy: f64,
}

impl Ngrams {
    /// Counts the runs within each of `pieces`, whose tokens are below `vocabulary` (at most 2^16).
    pub(super) fn count<T: Copy + Into<u64> + Sync>(pieces: &[&[T]], vocabulary: usize) -> Self {
        let chunks = pieces.par_iter().flat_map_iter(|piece| {
            let starts = (0..(piece.len() + 1).saturating_sub(LENGTH)).step_by(CHUNK);
            starts.map(move |start| &piece[start..piece.len().min(start + CHUNK + HIGHEST_ORDER)])
        });
        let longest = chunks.map(sorted).reduce(Vec::new, |a, b| merged(&a, &b));
        let mut runs: [Vec<Gram>; LENGTH] = Default::default();
        for length in (0..HIGHEST_ORDER).rev() {
            let longer = if length + 1 == HIGHEST_ORDER { &longest } else { &runs[length + 1] };
            runs[length] = totals(longer.iter().map(|&(key, count)| (key >> BITS, count)));
        }
        runs[HIGHEST_ORDER] = longest;
        Ngrams { runs, vocabulary }
    }

    /// What orders 0 to 3 reach on `windows`: in each, every token but the first is predicted from those before it.
    pub(super) fn evaluate<T: Copy + Into<u64> + Sync>(&self, windows: &[&[T]]) -> [Reached; LENGTH] {
        let sums: Vec<[Reached; LENGTH]> = windows.par_iter().map(|window| self.sums(window)).collect();
        let targets: usize = windows.iter().map(|window| window.len().saturating_sub(1)).sum();
        let mut all = [Reached::default(); LENGTH];
        for sum in sums {
            for (all, sum) in all.iter_mut().zip(sum) {
                all.bits += sum.bits / targets as f64;
                all.accuracy += sum.accuracy / targets as f64;
            }
        }
        all
    }

    /// One of the two figures of [`Ngrams::evaluate`] by name: `order_0` to `order_3`.
    pub(super) fn baselines<T: Copy + Into<u64> + Sync>(
        &self,
        windows: &[&[T]],
        figure: fn(&Reached) -> f64,
    ) -> BTreeMap<String, f64> {
        self.evaluate(windows).iter().enumerate().map(|(order, all)| (format!("order_{order}"), figure(all))).collect()
    }

    fn sums<T: Copy + Into<u64>>(&self, window: &[T]) -> [Reached; LENGTH] {
        let mut sums = [Reached::default(); LENGTH];
        for place in 1..window.len() {
            let target: u64 = window[place].into();
            let (mut probability, mut best) = (1.0 / self.vocabulary as f64, None);
            for (order, sum) in sums.iter_mut().enumerate() {
                if order <= place {
                    let context =
                        window[place - order..place].iter().fold(0, |key, &token| (key << BITS) | token.into());
                    let following = self.following(order, context);
                    if let Some((mode, share)) = predict(following, target, probability) {
                        (probability, best) = (share, Some(mode));
                    }
                }
                sum.bits -= probability.log2();
                sum.accuracy += f64::from(u8::from(best == Some(target)));
            }
        }
        sums
    }

    /// The runs that begin with the `order` tokens of `context` and have one more.
    fn following(&self, order: usize, context: u64) -> &[Gram] {
        let runs = &self.runs[order];
        let first = runs.partition_point(|&(key, _)| key >> BITS < context);
        &runs[first..first + runs[first..].partition_point(|&(key, _)| key >> BITS == context)]
    }
}

/// The most frequent token among `following` and the probability of `target`, or nothing if there are none.
fn predict(following: &[Gram], target: u64, lower: f64) -> Option<(u64, f64)> {
    let token = |key: u64| key & ((1 << BITS) - 1);
    // Of equally frequent ones the first.
    let mode = following.iter().rev().max_by_key(|&&(_, count)| count)?.0;
    let all: u64 = following.iter().map(|&(_, count)| count).sum();
    let found = following.iter().find(|&&(key, _)| token(key) == target).map_or(0, |&(_, count)| count);
    let distinct = following.len() as f64;
    Some((token(mode), (found as f64 + distinct * lower) / (all as f64 + distinct)))
}

/// The runs of four tokens in `part`.
fn sorted<T: Copy + Into<u64>>(part: &[T]) -> Vec<Gram> {
    let pack = |run: &[T]| run.iter().fold(0, |key, &token| (key << BITS) | token.into());
    let mut keys: Vec<u64> = part.windows(LENGTH).map(pack).collect();
    keys.sort_unstable();
    totals(keys.into_iter().map(|key| (key, 1)))
}

/// Neighbours with the same key as one.
fn totals(grams: impl Iterator<Item = Gram>) -> Vec<Gram> {
    let mut all: Vec<Gram> = Vec::new();
    for (key, count) in grams {
        match all.last_mut() {
            Some(last) if last.0 == key => last.1 += count,
            _ => all.push((key, count)),
        }
    }
    all
}

/// Two sorted lists as one.
fn merged(a: &[Gram], b: &[Gram]) -> Vec<Gram> {
    let (mut i, mut j) = (0, 0);
    totals(std::iter::from_fn(|| {
        let left = i < a.len() && (j == b.len() || a[i].0 <= b[j].0);
        let from = if left { (a, &mut i) } else { (b, &mut j) };
        let gram = from.0.get(*from.1)?;
        *from.1 += 1;
        Some(*gram)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hankel_core::Random;
    use std::collections::HashMap;

    fn text(seed: u64, length: usize, symbols: usize) -> Vec<u8> {
        let random = Random::new(seed, "ngram", 0);
        (0..length as u64).map(|place| random.below(place, symbols) as u8).collect()
    }

    #[test]
    fn counts_are_those_of_a_map() {
        let pieces = [text(1, 500, 3), text(2, 2, 3), text(3, 90, 3)];
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let counted = Ngrams::count(&pieces, 3);
        for length in 1..=LENGTH {
            let mut expected = HashMap::<Vec<u8>, u64>::new();
            pieces
                .iter()
                .flat_map(|p| p.windows(LENGTH))
                .for_each(|w| *expected.entry(w[..length].into()).or_default() += 1);
            assert_eq!(counted.runs[length - 1].len(), expected.len());
            for (run, count) in expected {
                let key = run.iter().fold(0, |key, &token| (key << BITS) | u64::from(token));
                assert!(counted.runs[length - 1].contains(&(key, count)), "{run:?}");
            }
        }
        // In parts and merged.
        let long = text(4, 3000, 4);
        let parts = merged(&sorted(&long[..1003]), &sorted(&long[1000..]));
        assert_eq!(parts, sorted(&long));
    }

    #[test]
    fn probabilities_sum_to_one() {
        let train = text(5, 200, 4);
        let counted = Ngrams::count(&[&train[..]], 6);
        for context in [[0_u8, 1, 2], [3, 3, 5], [5, 5, 5]] {
            let mut sums = [0.0; LENGTH];
            for target in 0..6_u8 {
                let [a, b, c] = context;
                // Only the last position of the window counts: the others are those of a shorter one.
                let [long, short] = [&[a, b, c, target][..], &[a, b, c]].map(|window| counted.sums(window));
                let each = long.iter().zip(short).map(|(long, short)| (short.bits - long.bits).exp2());
                sums.iter_mut().zip(each).for_each(|(sum, p)| *sum += p);
            }
            assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-12), "{context:?}: {sums:?}");
        }
    }

    #[test]
    fn what_is_to_be_expected() {
        // Period 3: one token of context says everything, none a third.
        let periodic: Vec<u8> = (0..3000).map(|i| [7, 1, 4][i % 3]).collect();
        let reached = Ngrams::count(&[&periodic[..]], 256).evaluate(&[&periodic[..300]]);
        assert!((reached[0].bits - 3_f64.log2()).abs() < 0.01 && (reached[0].accuracy - 1.0 / 3.0).abs() < 0.01);
        for reached in &reached[1..] {
            assert!(reached.bits < 0.02 && reached.accuracy == 1.0, "{reached:?}");
        }
        // Independent tokens: more context is no help, and costs little.
        let random = text(6, 100_000, 4);
        let reached = Ngrams::count(&[&random[..90_000]], 4).evaluate(&[&random[90_000..]]);
        assert!(reached.iter().all(|reached| (reached.bits - 2.0).abs() < 0.01), "{reached:?}");
        // A token that never occurred can still come.
        let reached = Ngrams::count(&[&random[..]], 256).evaluate(&[&[9_u8, 9, 9][..]]);
        assert!(reached.iter().all(|reached| reached.bits.is_finite() && reached.accuracy == 0.0), "{reached:?}");
    }
}
