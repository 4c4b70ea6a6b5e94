//! Scores of generated answers.

use super::formats::{LONGBENCH_SCORE, Measure, TextFormat, check_dataset, measure};
use crate::metrics::TextMetric;
use crate::results::metric;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the accuracy of the most probable option.
pub(super) const ACCURACY_LOG_LIKELIHOOD: &str = "accuracy_log_likelihood";

/// A line of `predictions.jsonl`: a generated answer with its references.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The adapter that was evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// The question.
    #[serde(default)]
    pub id: String,
    /// The document it is about.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub document: String,
    /// What was generated.
    pub prediction: String,
    /// Acceptable answers.
    pub references: Vec<String>,
    /// LongBench: the data set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<String>,
    /// LongBench: all classes of a classification.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub all_classes: Vec<String>,
    /// Labels to choose from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Log-likelihood of each, in nats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log_likelihoods: Vec<f64>,
    /// The scores of this line.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<String, f64>,
}

impl Prediction {
    /// Whether LongBench's own metric can score it.
    ///
    /// # Errors
    /// Says what the line lacks.
    pub fn check_dataset(&self) -> Result<(), String> {
        let dataset = self.dataset.as_deref().ok_or("has no `dataset`, which decides the metric")?;
        check_dataset(dataset, &self.all_classes)
    }
}

/// How answers of a task are scored.
#[derive(Debug, Clone, PartialEq)]
pub struct Scoring {
    /// The data set.
    pub format: &'static TextFormat,
    /// Metrics of the text.
    pub metrics: Vec<TextMetric>,
    /// Whether answers are generated at all.
    pub generate: bool,
}

impl Scoring {
    /// The metric by which adapters are compared.
    pub fn primary_metric(&self) -> &'static str {
        let usual = self.format.figure.or_else(|| self.metrics.first().map(|first| first.name()));
        usual.filter(|_| self.generate).unwrap_or(metric::LOSS)
    }

    /// The scores of a prediction, each between 0 and 1.
    pub fn score(&self, line: &Prediction) -> BTreeMap<String, f64> {
        let mut scores = BTreeMap::new();
        let mut put = |name: &str, value: f64| scores.insert(name.to_owned(), value);
        for metric in &self.metrics {
            put(metric.name(), metric.score(&line.prediction, &line.references));
        }
        if self.format.has_choices {
            let right = |label: Option<&str>| {
                f64::from(
                    label.is_some_and(|label| line.references.iter().any(|r| r.trim().eq_ignore_ascii_case(label))),
                )
            };
            let chosen = choice(&line.prediction, &line.options);
            put(metric::ACCURACY, right(chosen.as_deref()));
            let best = (0..line.log_likelihoods.len())
                .reduce(|best, i| if line.log_likelihoods[i] > line.log_likelihoods[best] { i } else { best });
            if let Some(best) = best {
                put(ACCURACY_LOG_LIKELIHOOD, right(line.options.get(best).map(String::as_str)));
            }
        }
        if let Some((by, text)) = line.dataset.as_deref().and_then(|dataset| measure(dataset, &line.prediction)) {
            let by: Measure = by;
            put(LONGBENCH_SCORE, by.score(text, &line.references, &line.all_classes));
        }
        scores
    }

    /// Means over predictions, and for LongBench the mean of each data set. A score that some lines lack is the mean of
    /// those that have it.
    pub fn means<'a>(&self, lines: impl Iterator<Item = &'a Prediction>) -> BTreeMap<String, f64> {
        let mut sums: BTreeMap<String, (f64, usize)> = BTreeMap::new();
        let mut datasets = 0;
        for line in lines {
            for (name, value) in &line.scores {
                let mut add = |name: String| {
                    let sum = sums.entry(name).or_default();
                    *sum = (sum.0 + value, sum.1 + 1);
                };
                if let Some(dataset) = line.dataset.as_ref().filter(|_| name == LONGBENCH_SCORE) {
                    add(format!("{LONGBENCH_SCORE}_{dataset}"));
                    datasets += 1;
                }
                add(name.clone());
            }
        }
        let mut means: BTreeMap<String, f64> =
            sums.into_iter().map(|(name, (sum, n))| (name, sum / n as f64)).collect();
        if datasets > 0 {
            // LongBench averages data sets, not examples.
            let prefix = format!("{LONGBENCH_SCORE}_");
            let own: Vec<f64> =
                means.iter().filter(|(name, _)| name.starts_with(&prefix)).map(|(_, mean)| *mean).collect();
            means.insert(LONGBENCH_SCORE.to_owned(), own.iter().sum::<f64>() / own.len() as f64);
        }
        means
    }
}

/// The label that a text names: the first that stands alone (`B`, `(b)`, `The answer is C.`). Without labels, A to Z, of which `I` is a
/// word unless it is all there is.
pub(super) fn choice(text: &str, labels: &[String]) -> Option<String> {
    let words = || text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let is_alone = words().nth(1).is_none();
    let known = |word: &str| {
        if labels.is_empty() {
            let is_letter = word.len() == 1 && word.as_bytes()[0].is_ascii_alphabetic();
            return (is_letter && (is_alone || !word.eq_ignore_ascii_case("i"))).then(|| word.to_ascii_uppercase());
        }
        labels.iter().find(|label| label.eq_ignore_ascii_case(word)).cloned()
    };
    // A small letter inside a sentence is a word ("a dog"), at its beginning it is an answer.
    let first = words().next().and_then(known);
    first.or_else(|| words().filter(|word| word.chars().all(char::is_uppercase)).find_map(known))
}

#[cfg(test)]
mod tests {
    use super::super::formats::{longbench, quality};
    use super::*;

    fn labels() -> Vec<String> {
        ["A", "B", "C", "D"].map(str::to_owned).to_vec()
    }

    #[test]
    fn choices() {
        for (text, expected) in [
            (" B", Some("B")),
            ("b) because", Some("B")),
            ("(C)", Some("C")),
            ("The answer is D.", Some("D")),
            ("The answer is a dog, so C", Some("C")),
            ("E", None),
            ("", None),
            ("none of them", None),
            ("BCD", None),
        ] {
            assert_eq!(choice(text, &labels()).as_deref(), expected, "{text:?}");
        }
        for (text, expected) in [("e.", "E"), ("I think it is B", "B"), ("(i)", "I")] {
            assert_eq!(choice(text, &[]).as_deref(), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn accuracies() {
        let scoring = Scoring { format: &quality::FORMAT, metrics: vec![], generate: true };
        let line = Prediction {
            prediction: " B".into(),
            references: vec!["C".into()],
            options: labels(),
            log_likelihoods: vec![-3.0, -1.0, -0.5, -9.0],
            ..Prediction::default()
        };
        let scores = scoring.score(&line);
        assert_eq!((scores["accuracy"], scores[ACCURACY_LOG_LIKELIHOOD]), (0.0, 1.0));
        let right = Prediction { prediction: "C".into(), log_likelihoods: vec![], ..line.clone() };
        let lines = [&line, &right].map(|line| Prediction { scores: scoring.score(line), ..line.clone() });
        let means = scoring.means(lines.iter());
        assert_eq!((means["accuracy"], means[ACCURACY_LOG_LIKELIHOOD]), (0.5, 1.0));
    }

    #[test]
    fn longbench_scores_by_data_set() {
        let scoring = Scoring { format: &longbench::FORMAT, metrics: vec![], generate: true };
        let line = |dataset: &str, prediction: &str, reference: &str| {
            let line = Prediction {
                dataset: Some(dataset.into()),
                prediction: prediction.into(),
                references: vec![reference.into(), "another thing".into()],
                all_classes: vec!["Food".into(), "Fast food".into(), "Animal".into()],
                ..Prediction::default()
            };
            Prediction { scores: scoring.score(&line), ..line }
        };
        let lines = [
            line("hotpotqa", "The red cat", "red cat"),
            line("trec", "\nAnimal\nFood", "Animal"),
            line("trec", "Fast food", "Animal"),
            line("passage_count", "5 or 6", "5"),
            line("passage_retrieval_en", "Paragraph 3", "Paragraph 3"),
        ];
        assert_eq!(lines.each_ref().map(|line| line.scores[LONGBENCH_SCORE]), [1.0, 1.0, 0.0, 0.5, 1.0]);
        let means = scoring.means(lines.iter());
        assert_eq!(means["longbench_score_trec"], 0.5);
        assert_eq!(means[LONGBENCH_SCORE], (1.0 + 0.5 + 0.5 + 1.0) / 4.0);
    }
}
