//! Metrics of generated text.
//!
//! [`TextMetric`] names them all, a new one is a line in `text_metrics!`. The functions behind it are in the modules:
//! [`rouge`] equals the `rouge-score` package, [`longbench`] the ROUGE of LongBench (by the older `rouge` package, which
//! differs), [`answers`] the F1 and exact match of SQuAD that LongBench uses for questions, [`porter`] the stemmer.

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

/// What is known of a metric.
struct Definition {
    name: &'static str,
    /// The figure of a prediction against one reference.
    against: fn(&str, &str) -> f64,
    is_of_other_software: bool,
}

impl Definition {
    const fn new(name: &'static str, against: fn(&str, &str) -> f64) -> Self {
        Definition { name, against, is_of_other_software: false }
    }
}

/// Metrics with their names and functions, and which fields of [`Definition`] are true.
macro_rules! text_metrics {
    ($($(#[$doc:meta])* $variant:ident($name:literal, $against:expr $(, $flag:ident)*),)*) => {
        /// A metric of a generated text against its references. A figure is between 0 and 1.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum TextMetric {
            $($(#[$doc])* $variant,)*
        }

        impl TextMetric {
            /// All metrics.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            const fn definition(self) -> Definition {
                match self {
                    $(Self::$variant => Definition { $($flag: true,)* ..Definition::new($name, $against) },)*
                }
            }
        }
    };
}

text_metrics! {
    /// F1 of words, as `rouge-score`.
    Rouge1("rouge1", |p, r| n_gram(&plain(p, r), 1).f1),
    /// F1 of pairs of words, as `rouge-score`.
    Rouge2("rouge2", |p, r| n_gram(&plain(p, r), 2).f1),
    /// F1 of the longest common subsequence, as `rouge-score`.
    RougeL("rouge_l", |p, r| subsequence(&plain(p, r)).f1),
    /// F1 of the union of longest common subsequences over lines, as `rouge-score`.
    RougeLSum("rouge_l_sum", |p, r| rouge::rouge_l_sum(p, r, false).f1),
    /// [`Rouge1`](Self::Rouge1) of stemmed words.
    Rouge1Stemmed("rouge1_stemmed", |p, r| n_gram(&stemmed(p, r), 1).f1),
    /// [`Rouge2`](Self::Rouge2) of stemmed words.
    Rouge2Stemmed("rouge2_stemmed", |p, r| n_gram(&stemmed(p, r), 2).f1),
    /// [`RougeL`](Self::RougeL) of stemmed words.
    RougeLStemmed("rouge_l_stemmed", |p, r| subsequence(&stemmed(p, r)).f1),
    /// [`RougeLSum`](Self::RougeLSum) of stemmed words.
    RougeLSumStemmed("rouge_l_sum_stemmed", |p, r| rouge::rouge_l_sum(p, r, true).f1),
    /// The ROUGE-L of LongBench, from its own package.
    LongBenchRougeL(
        "longbench_rouge_l", |p, r| longbench::rouge_l(p, r).map_or(0.0, |score| score.f1), is_of_other_software
    ),
    /// F1 of words after the normalisation of SQuAD, as LongBench scores answers.
    TokenF1("token_f1", answers::token_f1),
    /// Equality after the normalisation of SQuAD.
    ExactMatch("exact_match", |p, r| f64::from(answers::exact_match(p, r))),
    /// Recall of words: what the released code prints as ROUGE-1. Long predictions raise it; no F1.
    ReleasedRouge1Recall("released_rouge1_recall", |p, r| n_gram(&plain(p, r), 1).recall, is_of_other_software),
    /// Recall of pairs of words: what the released code prints as ROUGE-2.
    ReleasedRouge2Recall("released_rouge2_recall", |p, r| n_gram(&plain(p, r), 2).recall, is_of_other_software),
}

fn plain(prediction: &str, reference: &str) -> [Vec<String>; 2] {
    [prediction, reference].map(|text| rouge::tokens(text, false))
}

fn stemmed(prediction: &str, reference: &str) -> [Vec<String>; 2] {
    [prediction, reference].map(|text| rouge::tokens(text, true))
}

fn n_gram([prediction, reference]: &[Vec<String>; 2], n: usize) -> PrecisionRecall {
    rouge::rouge_n(prediction, reference, n)
}

fn subsequence([prediction, reference]: &[Vec<String>; 2]) -> PrecisionRecall {
    rouge::rouge_l(prediction, reference)
}

impl TextMetric {
    /// The name used in configurations and result files.
    pub const fn name(self) -> &'static str {
        self.definition().name
    }

    /// Whether it exists only to compare with figures that other software prints.
    pub const fn is_of_other_software(self) -> bool {
        self.definition().is_of_other_software
    }

    /// The figure of a prediction: the best over its references, 0 without any.
    pub fn score<S: AsRef<str>>(self, prediction: &str, references: &[S]) -> f64 {
        let against = self.definition().against;
        references.iter().map(|reference| against(prediction, reference.as_ref())).fold(0.0, f64::max)
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
