//! Metrics of generated text.
//!
//! [`TextMetric`] names them all; the functions behind it are in the modules: [`rouge`] equals the `rouge-score` package,
//! [`longbench`] the ROUGE of LongBench (by the older `rouge` package, which differs), [`answers`] the F1 and exact match
//! of SQuAD that LongBench uses for questions, [`porter`] the stemmer.

pub(crate) mod answers;
pub(crate) mod longbench;
pub(crate) mod porter;
pub(crate) mod rouge;

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

/// Precision, recall and their harmonic mean.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct PrecisionRecall {
    /// Share of the prediction that is in the reference.
    pub precision: f64,
    /// Share of the reference that is in the prediction.
    pub recall: f64,
    /// Harmonic mean of both, 0 when both are 0.
    pub f1: f64,
}

impl PrecisionRecall {
    /// From the number of common elements and the sizes of both sides; empty sides give zeros.
    pub(crate) fn new(common: usize, prediction: usize, reference: usize) -> Self {
        let share = |of: usize| if of == 0 { 0.0 } else { common as f64 / of as f64 };
        let (precision, recall) = (share(prediction), share(reference));
        let sum = precision + recall;
        let f1 = if sum > 0.0 { 2.0 * precision * recall / sum } else { 0.0 };
        Self { precision, recall, f1 }
    }
}

/// A metric of a generated text against its references. A figure is between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TextMetric {
    /// F1 of words, as `rouge-score`.
    Rouge1,
    /// F1 of pairs of words, as `rouge-score`.
    Rouge2,
    /// F1 of the longest common subsequence, as `rouge-score`.
    RougeL,
    /// F1 of the union of longest common subsequences over lines, as `rouge-score`.
    RougeLSum,
    /// [`Rouge1`](Self::Rouge1) of stemmed words.
    Rouge1Stemmed,
    /// [`Rouge2`](Self::Rouge2) of stemmed words.
    Rouge2Stemmed,
    /// [`RougeL`](Self::RougeL) of stemmed words.
    RougeLStemmed,
    /// [`RougeLSum`](Self::RougeLSum) of stemmed words.
    RougeLSumStemmed,
    /// The ROUGE-L of LongBench, from its own package.
    LongBenchRougeL,
    /// F1 of words after the normalisation of SQuAD, as LongBench scores answers.
    TokenF1,
    /// Equality after the normalisation of SQuAD.
    ExactMatch,
    /// Recall of words: what the released code prints as ROUGE-1. Long predictions raise it; no F1.
    ReleasedRouge1Recall,
    /// Recall of pairs of words: what the released code prints as ROUGE-2.
    ReleasedRouge2Recall,
}

impl TextMetric {
    /// All metrics.
    pub const ALL: [Self; 13] = [
        Self::Rouge1,
        Self::Rouge2,
        Self::RougeL,
        Self::RougeLSum,
        Self::Rouge1Stemmed,
        Self::Rouge2Stemmed,
        Self::RougeLStemmed,
        Self::RougeLSumStemmed,
        Self::LongBenchRougeL,
        Self::TokenF1,
        Self::ExactMatch,
        Self::ReleasedRouge1Recall,
        Self::ReleasedRouge2Recall,
    ];

    /// The name used in configurations and result files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rouge1 => "rouge1",
            Self::Rouge2 => "rouge2",
            Self::RougeL => "rouge_l",
            Self::RougeLSum => "rouge_l_sum",
            Self::Rouge1Stemmed => "rouge1_stemmed",
            Self::Rouge2Stemmed => "rouge2_stemmed",
            Self::RougeLStemmed => "rouge_l_stemmed",
            Self::RougeLSumStemmed => "rouge_l_sum_stemmed",
            Self::LongBenchRougeL => "longbench_rouge_l",
            Self::TokenF1 => "token_f1",
            Self::ExactMatch => "exact_match",
            Self::ReleasedRouge1Recall => "released_rouge1_recall",
            Self::ReleasedRouge2Recall => "released_rouge2_recall",
        }
    }

    /// Whether it exists only to compare with figures that other software prints.
    pub const fn is_of_other_software(self) -> bool {
        matches!(self, Self::LongBenchRougeL | Self::ReleasedRouge1Recall | Self::ReleasedRouge2Recall)
    }

    /// The figure against one reference.
    fn against(self, prediction: &str, reference: &str) -> f64 {
        let plain = || (rouge::tokens(prediction, false), rouge::tokens(reference, false));
        let stemmed = || (rouge::tokens(prediction, true), rouge::tokens(reference, true));
        let n_gram = |(p, r): (Vec<String>, Vec<String>), n: usize| rouge::rouge_n(&p, &r, n);
        let lcs = |(p, r): (Vec<String>, Vec<String>)| rouge::rouge_l(&p, &r).f1;
        match self {
            Self::Rouge1 => n_gram(plain(), 1).f1,
            Self::Rouge2 => n_gram(plain(), 2).f1,
            Self::RougeL => lcs(plain()),
            Self::RougeLSum => rouge::rouge_l_sum(prediction, reference, false).f1,
            Self::Rouge1Stemmed => n_gram(stemmed(), 1).f1,
            Self::Rouge2Stemmed => n_gram(stemmed(), 2).f1,
            Self::RougeLStemmed => lcs(stemmed()),
            Self::RougeLSumStemmed => rouge::rouge_l_sum(prediction, reference, true).f1,
            Self::LongBenchRougeL => longbench::rouge_l(prediction, reference).map_or(0.0, |score| score.f1),
            Self::TokenF1 => answers::token_f1(prediction, reference),
            Self::ExactMatch => f64::from(answers::exact_match(prediction, reference)),
            Self::ReleasedRouge1Recall => n_gram(plain(), 1).recall,
            Self::ReleasedRouge2Recall => n_gram(plain(), 2).recall,
        }
    }

    /// The figure of a prediction: the best over its references, 0 without any.
    pub fn score<S: AsRef<str>>(self, prediction: &str, references: &[S]) -> f64 {
        references.iter().map(|reference| self.against(prediction, reference.as_ref())).fold(0.0, f64::max)
    }
}

impl fmt::Display for TextMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is not a metric.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no text metric {name:?}; there are {}", TextMetric::ALL.map(TextMetric::name).join(", "))]
pub struct UnknownMetric {
    /// The name as given.
    pub name: String,
}

impl FromStr for TextMetric {
    type Err = UnknownMetric;

    fn from_str(name: &str) -> Result<Self, UnknownMetric> {
        let found = Self::ALL.into_iter().find(|metric| metric.name() == name);
        found.ok_or_else(|| UnknownMetric { name: name.to_owned() })
    }
}

/// White space as Python's `str.split` sees it: Unicode's, and the four separators of ASCII.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Words between white space, as Python's `str.split`.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_space).filter(|word| !word.is_empty())
}
