//! ROUGE (Lin, 2004) as the `rouge-score` package computes it: lower-case words of a-z and 0-9, n-grams counted with
//! multiplicity, ROUGE-L over the whole text, ROUGE-Lsum over lines.

use std::collections::HashMap;

use super::{PrecisionRecall, porter};

/// Words of a text: lower case, everything outside a-z and 0-9 separates. With `stemming`, words of more than three
/// characters are reduced by [`porter::stem`].
pub(crate) fn tokens(text: &str, stemming: bool) -> Vec<String> {
    let lower = text.to_lowercase();
    let words = lower.split(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit()).filter(|word| !word.is_empty());
    words.map(|word| if stemming && word.len() > 3 { porter::stem(word) } else { word.to_owned() }).collect()
}

/// Overlap of the n-grams of two token sequences, `n >= 1`.
pub(crate) fn rouge_n<S: AsRef<str>>(prediction: &[S], reference: &[S], n: usize) -> PrecisionRecall {
    let n = n.max(1);
    let mut left: HashMap<Vec<&str>, usize> = HashMap::new();
    let grams = |tokens: &'_ [S]| tokens.len().saturating_sub(n - 1);
    for gram in reference.windows(n) {
        *left.entry(gram.iter().map(AsRef::as_ref).collect()).or_default() += 1;
    }
    let mut common = 0;
    for gram in prediction.windows(n) {
        let gram: Vec<&str> = gram.iter().map(AsRef::as_ref).collect();
        if let Some(count) = left.get_mut(&gram).filter(|count| **count > 0) {
            *count -= 1;
            common += 1;
        }
    }
    PrecisionRecall::new(common, grams(prediction), grams(reference))
}

/// Length of the longest common subsequence of two token sequences, relative to each.
pub(crate) fn rouge_l<S: AsRef<str>>(prediction: &[S], reference: &[S]) -> PrecisionRecall {
    // One row of the table is enough for the length.
    let mut row = vec![0_usize; prediction.len() + 1];
    for word in reference {
        let mut diagonal = 0;
        for (j, other) in prediction.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = if word.as_ref() == other.as_ref() { diagonal + 1 } else { above.max(row[j]) };
            diagonal = above;
        }
    }
    PrecisionRecall::new(row[prediction.len()], prediction.len(), reference.len())
}

/// Summary-level ROUGE-L: for each line of the reference, the union of its longest common subsequences with the lines of
/// the prediction; no word counts more often than it occurs on both sides.
pub(crate) fn rouge_l_sum(prediction: &str, reference: &str, stemming: bool) -> PrecisionRecall {
    let lines = |text: &str| -> Vec<Vec<String>> { text.split('\n').map(|line| tokens(line, stemming)).collect() };
    let (prediction, reference) = (lines(prediction), lines(reference));
    let count = |lines: &[Vec<String>]| {
        let mut counts: HashMap<String, usize> = HashMap::new();
        for word in lines.iter().flatten() {
            *counts.entry(word.clone()).or_default() += 1;
        }
        counts
    };
    let (mut in_prediction, mut in_reference) = (count(&prediction), count(&reference));
    let mut common = 0;
    for line in &reference {
        let mut union = vec![false; line.len()];
        for other in &prediction {
            for i in common_subsequence(line, other) {
                union[i] = true;
            }
        }
        for word in line.iter().zip(union).filter_map(|(word, shared)| shared.then_some(word)) {
            if let (Some(p), Some(r)) = (in_prediction.get_mut(word), in_reference.get_mut(word))
                && *p > 0
                && *r > 0
            {
                *p -= 1;
                *r -= 1;
                common += 1;
            }
        }
    }
    let size = |lines: &[Vec<String>]| lines.iter().map(Vec::len).sum();
    PrecisionRecall::new(common, size(&prediction), size(&reference))
}

/// Indices into `line` of a longest common subsequence with `other`. Which one of several is found follows the package:
/// on a tie of the table the walk back moves along `line`.
fn common_subsequence(line: &[String], other: &[String]) -> impl Iterator<Item = usize> {
    super::longbench::common(line, other, |without_own, without_other| without_own >= without_other)
}
