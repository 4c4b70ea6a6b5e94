//! The ROUGE of LongBench, by the `rouge` package: case and punctuation count, sentences end at full stops, and words and
//! n-grams are *sets*, so that repetition costs nothing. Its figures are not those of [`rouge`](super::rouge).
//!
//! The package gives up (and LongBench then counts 0) when a side has no sentence, and for very long sentences, where
//! its recursion exceeds the limit of Python; here those are scored like any other.

use std::collections::HashSet;

use super::{PrecisionRecall, words};

/// Added to the denominator of F1 by the package.
const EPSILON: f64 = 1e-8;

fn score(common: usize, prediction: usize, reference: usize) -> PrecisionRecall {
    let PrecisionRecall { precision, recall, .. } = PrecisionRecall::new(common, prediction, reference);
    PrecisionRecall { precision, recall, f1: 2.0 * (precision * recall / (precision + recall + EPSILON)) }
}

/// Sentences as lists of words. A sentence of white space alone holds one empty word, as in the package.
fn sentences(text: &str) -> Vec<Vec<&str>> {
    let split = |sentence| {
        let found: Vec<&str> = words(sentence).collect();
        if found.is_empty() { vec![""] } else { found }
    };
    text.split('.').filter(|sentence| !sentence.is_empty()).map(split).collect()
}

/// Summary-level ROUGE-L on sets of words. `None` when a side has no sentence.
pub(crate) fn rouge_l(prediction: &str, reference: &str) -> Option<PrecisionRecall> {
    let (prediction, reference) = (sentences(prediction), sentences(reference));
    if prediction.is_empty() || reference.is_empty() {
        return None;
    }
    let mut union: HashSet<&str> = HashSet::new();
    for sentence in &reference {
        for other in &prediction {
            union.extend(common_subsequence(sentence, other));
        }
    }
    let distinct = |sentences: &[Vec<&str>]| sentences.iter().flatten().collect::<HashSet<_>>().len();
    Some(score(union.len(), distinct(&prediction), distinct(&reference)))
}

/// A longest common subsequence; on a tie of the table the walk back moves along `other`, as in the package.
fn common_subsequence<'a>(sentence: &[&'a str], other: &[&str]) -> Vec<&'a str> {
    common(sentence, other, |without_own, without_other| without_own > without_other).map(|i| sentence[i]).collect()
}

/// Indices into `a` of a longest common subsequence with `b`, the last one first. Where several exist, `leave` decides: given the lengths
/// without the last word of `a` and without that of `b`, it says whether to drop the word of `a`. The table is kept as one bit for each
/// pair of words.
pub(super) fn common<A: AsRef<str>, B: AsRef<str>>(
    a: &[A],
    b: &[B],
    leave: impl Fn(u32, u32) -> bool,
) -> impl Iterator<Item = usize> {
    let mut left_out = vec![0_u64; (a.len() * b.len()).div_ceil(64)];
    let (mut before, mut row) = (vec![0_u32; b.len() + 1], vec![0_u32; b.len() + 1]);
    let equal = |i: usize, j: usize| a[i].as_ref() == b[j].as_ref();
    for i in 0..a.len() {
        for j in 0..b.len() {
            row[j + 1] = if equal(i, j) { before[j] + 1 } else { before[j + 1].max(row[j]) };
            let at = i * b.len() + j;
            left_out[at / 64] |= u64::from(leave(before[j + 1], row[j])) << (at % 64);
        }
        std::mem::swap(&mut before, &mut row);
    }
    let (mut i, mut j) = (a.len(), b.len());
    let mut out = Vec::new();
    while i > 0 && j > 0 {
        let at = (i - 1) * b.len() + j - 1;
        if equal(i - 1, j - 1) {
            (i, j) = (i - 1, j - 1);
            out.push(i);
        } else if left_out[at / 64] >> (at % 64) & 1 == 1 {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    out.into_iter()
}

/// LongBench's score of a classification: 1 over the number of classes that the prediction names, if the right one is
/// among them. A class that is a part of the right one's name does not count, with the package's own slip: behind one that
/// was taken out, the next is not looked at.
pub(crate) fn classification(prediction: &str, reference: &str, classes: &[String]) -> f64 {
    let mut named: Vec<&str> = classes.iter().map(String::as_str).filter(|class| prediction.contains(class)).collect();
    let mut i = 0;
    while i < named.len() {
        if reference.contains(named[i]) && named[i] != reference {
            named.remove(i);
        }
        i += 1;
    }
    if named.contains(&reference) { 1.0 / named.len() as f64 } else { 0.0 }
}

/// LongBench's score of a retrieval: the share of the numbers in the prediction that are the reference's (`Paragraph 7`).
pub(crate) fn retrieval(prediction: &str, reference: &str) -> f64 {
    let wanted = reference.split_once("Paragraph ").and_then(|(_, rest)| numbers(rest).next());
    wanted.map_or(0.0, |wanted| share(prediction, wanted))
}

/// LongBench's score of a count: the share of the numbers in the prediction that are the reference.
pub(crate) fn count(prediction: &str, reference: &str) -> f64 {
    share(prediction, reference)
}

fn numbers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty())
}

fn share(prediction: &str, wanted: &str) -> f64 {
    let all = numbers(prediction).count();
    if all == 0 { 0.0 } else { numbers(prediction).filter(|number| *number == wanted).count() as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_numbers() {
        let classes = ["Group", "Group or organization", "City", "Other city"].map(str::to_owned);
        let score = |prediction: &str, reference: &str| classification(prediction, reference, &classes);
        assert_eq!(score("Group or organization of people", "Group or organization"), 1.0);
        assert_eq!(score("City, Group", "City"), 0.5);
        assert_eq!(score("nothing", "City"), 0.0);
        assert_eq!(retrieval("Paragraph 3, not 4", "Paragraph 3"), 0.5);
        assert_eq!(retrieval("none", "Paragraph 3"), 0.0);
        assert_eq!(retrieval("3", "unnumbered"), 0.0);
        assert_eq!(count("There are 13.", "13"), 1.0);
    }
}
