//! The tables of language.md: means over seeds, and differences from HRM with their intervals and Holm's correction over all of them.

use super::recomputed::{beyond, quantile};
use super::{page, root, says};
use crate::claims::convergence::{is_level, still_to_fall};
use crate::{Cell, read_results};
use hankel_trainer::format::thousands;
use hankel_trainer::results::{AdapterResult, Scores};
use std::fmt::Write;

/// Right answers over texts as long as those trained on, those of the test split, and what was forgotten.
type Measure = fn(&AdapterResult) -> f64;
const AS_TRAINED: Measure = |row| primary(&row.validation);
const SCORE: Measure = |row| primary(row.test.as_ref().unwrap());
const FORGETTING: Measure = |row| row.validation.get("forgetting").unwrap();
const MOST_PROBABLE: Measure = |row| row.test.as_ref().unwrap().get("accuracy_log_likelihood").unwrap();
const LOSS: Measure = |row| row.test.as_ref().unwrap().get("loss").unwrap();
const ALL: [Measure; 3] = [AS_TRAINED, SCORE, FORGETTING];

fn primary(scores: &Scores) -> f64 {
    ["exact_match", "rouge1", "accuracy"].into_iter().find_map(|metric| scores.get(metric)).unwrap()
}

struct Study {
    /// In the order of their seeds.
    cells: Vec<Cell>,
    seeds: usize,
    /// Of the points in the tables.
    label: &'static str,
    axis: &'static str,
    points: &'static [&'static str],
    names: &'static [&'static str],
}

impl Study {
    /// The rows of several scales are one table.
    fn read(experiment: &str, scales: &[&str], names: &'static [&'static str]) -> Self {
        let mut cells = read_results(&root().join("docs/results/language")).unwrap();
        cells.retain(|cell| {
            cell.id.experiment == experiment && cell.id.scale.as_deref().is_some_and(|own| scales.contains(&own))
        });
        cells.sort_by_key(|cell| cell.id.axis("seed").map(str::to_owned));
        let (label, axis, points): (_, _, &[&str]) = match (experiment, scales[0]) {
            ("turns", "small") => ("memory", "memory", &["everything", "states"]),
            ("turns", _) => ("memory", "memory", &["states"]),
            ("documents", "quality") => ("task quality, length 1024, weights", "weights", &["gguf"]),
            ("documents", "qmsum-nf4") => ("task qmsum, length 1024, weights", "weights", &["nf4"]),
            ("entities", "nf4") => ("weights", "weights", &["nf4"]),
            ("documents", _) => ("task qmsum, length 1024, weights", "weights", &["gguf"]),
            _ => ("weights", "weights", &["gguf"]),
        };
        let seeds = if label.contains("quality") { 5 } else { 3 };
        assert_eq!(cells.len(), seeds * points.len() * scales.len());
        Study { cells, seeds, label, axis, points, names }
    }

    fn rows(&self, point: &str, name: &str) -> Vec<&AdapterResult> {
        let cells = self.cells.iter().filter(|cell| cell.id.axis(self.axis) == Some(point));
        let rows = cells.filter_map(|cell| cell.result.as_ref().unwrap().rows.iter().find(|row| row.name == name));
        rows.collect()
    }

    fn values(&self, point: &str, name: &str, measure: Measure) -> Vec<f64> {
        let values: Vec<f64> = self.rows(point, name).into_iter().map(measure).collect();
        assert_eq!(values.len(), self.seeds, "{point} {name}");
        values
    }

    /// A difference from HRM, the half of its interval, and its two-sided p: that of a sign test for seeds that are the same.
    fn compared(&self, point: &str, name: &str, measure: Measure) -> [f64; 3] {
        let [own, hrm] = [name, "hrm"].map(|name| self.values(point, name, measure));
        let differences: Vec<f64> = own.iter().zip(hrm).map(|(own, hrm)| own - hrm).collect();
        let (middle, error) = (mean(&differences), error(&differences));
        let p = match (error > 1e-12, middle == 0.0) {
            (true, _) => beyond((middle / error).abs(), self.seeds - 1),
            (false, true) => 1.0,
            (false, false) => 0.5_f64.powi(self.seeds as i32 - 1),
        };
        [middle, quantile(self.seeds - 1) * error, p]
    }

    /// Whether the loss of a row still falls at the end, on average over the seeds; `None` where the last fifth has one evaluation.
    fn is_learning(&self, point: &str, name: &str) -> Option<bool> {
        let loss = |row: &AdapterResult| row.validation.get("loss").unwrap();
        let (mut to_fall, mut gained) = (0.0, 0.0);
        for (row, none) in self.rows(point, name).into_iter().zip(self.rows(point, "none")) {
            let training = row.training.as_ref().unwrap();
            to_fall += still_to_fall(&training.curve, training.steps)?.max(0.0);
            gained += loss(none) - loss(row);
        }
        Some(!is_level(to_fall, gained))
    }

    fn tables_are_on(&self, page: &str) {
        let pairs = || self.points.iter().flat_map(|point| self.names.iter().map(move |name| (*point, *name)));
        let compared = || pairs().filter(|(_, name)| *name != "hrm");
        let measures = |name: &str| if name == "none" { &ALL[..2] } else { &ALL[..] };
        let p: Vec<f64> = compared()
            .flat_map(|(point, name)| measures(name).iter().map(move |measure| self.compared(point, name, *measure)[2]))
            .collect();
        for (point, name) in pairs() {
            let figures =
                [AS_TRAINED, SCORE, LOSS].map(|measure| format!("{:.3}", mean(&self.values(point, name, measure))));
            let forgetting = mean(&self.values(point, name, FORGETTING));
            let parameters = thousands(self.rows(point, name)[0].parameters.adapter);
            let mut notes = Vec::new();
            if name != "none" {
                let gained: f64 = self.values(point, name, SCORE).iter().sum::<f64>()
                    - self.values(point, "none", SCORE).iter().sum::<f64>();
                notes.extend((gained <= 0.0).then_some("no better than none"));
                notes.extend(match self.is_learning(point, name) {
                    None => Some("no curve"),
                    Some(is_learning) => is_learning.then_some("still learning"),
                });
            }
            let note = notes.join("; ");
            let (label, figures) = (self.label, figures.join(" | "));
            says(
                page,
                &format!("| {label} {point} | {name} | {parameters} |  | {figures} | {forgetting:+.3} | {note} |"),
            );
        }
        for (point, name) in compared() {
            let mut line = format!("| {} {point} | {name} |", self.label);
            for measure in measures(name) {
                let [middle, half, own] = self.compared(point, name, *measure);
                // Of those that are at most as large, the largest times how many are at least that large.
                let least = p.iter().filter(|other| **other <= own);
                let corrected = least.map(|other| other * p.iter().filter(|more| *more >= other).count() as f64);
                let corrected = corrected.fold(0.0, f64::max).min(1.0);
                let (low, high, own) = (middle - half, middle + half, shown(own));
                write!(line, " {middle:+.3} ({low:+.3} to {high:+.3}) | {own} | {corrected:.3} |").unwrap();
            }
            if measures(name).len() < ALL.len() {
                line += "  |  |  |";
            }
            let [middle, half, own] = self.compared(point, name, LOSS);
            let (low, high, own) = (middle - half, middle + half, shown(own));
            write!(line, " {middle:+.3} ({low:+.3} to {high:+.3}) | {own} |").unwrap();
            assert!(page.lines().any(|found| found.starts_with(&line)), "not on the page: {line}");
        }
    }
}

/// A p of the tables.
fn shown(p: f64) -> String {
    if p < 1e-4 { "< 0.0001".to_owned() } else { format!("{p:.4}") }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The standard error of the mean.
fn error(values: &[f64]) -> f64 {
    let (n, middle) = (values.len() as f64, mean(values));
    (values.iter().map(|x| (x - middle).powi(2)).sum::<f64>() / (n - 1.0) / n).sqrt()
}

/// In a sentence.
fn tells(page: &str, words: &str) {
    assert!(page.contains(words), "not on the page: {words}");
}

/// A mean with its 95 % interval.
fn interval(values: &[f64]) -> String {
    let (middle, half) = (mean(values), quantile(values.len() - 1) * error(values));
    format!("{middle:.3} ({:.3} to {:.3})", middle - half, middle + half)
}

#[test]
fn turns_are_their_result() {
    for scale in ["small", "smollm2"] {
        Study::read("turns", &[scale], &["none", "hrm", "delta", "lora"]).tables_are_on(&page("language.md"));
    }
    let study = Study::read("turns", &["small"], &[]);
    let [hrm, lora] = ["hrm", "lora"].map(|name| interval(&study.values("everything", name, SCORE)));
    tells(&page("language.md"), &format!("HRM has {hrm}, LoRA {lora}."));
}

#[test]
fn meetings_are_their_result() {
    let names = &["none", "hrm", "lora", "dora", "adalora", "lora-mlp"];
    let study = Study::read("documents", &["qmsum", "qmsum-rivals"], names);
    study.tables_are_on(&page("language.md"));
    // What the page says of every seed.
    let is_less_than_hrm = |name: &&&str, measure: Measure| {
        let [own, hrm] = [**name, "hrm"].map(|name| study.values("gguf", name, measure));
        own.iter().zip(hrm).all(|(own, hrm)| *own < hrm)
    };
    let less = |measure: Measure| names[2..].iter().filter(|name| is_less_than_hrm(name, measure)).count();
    assert_eq!((less(LOSS), less(FORGETTING)), (3, 4));
    assert!(!is_less_than_hrm(&&"adalora", LOSS));
    let [middle, half, p] = study.compared("gguf", "lora-mlp", LOSS);
    let said = format!("LoRA on the MLP by {:.3} ({:.3} to {:.3})", -middle, -middle - half, half - middle);
    tells(&page("language.md"), &said);
    let differences = 5 + 14;
    assert!(p * f64::from(differences) < 0.05, "{p}");
}

#[test]
fn weights_in_nf4_are_their_result() {
    for (experiment, scale) in [("entities", "nf4"), ("documents", "qmsum-nf4")] {
        Study::read(experiment, &[scale], &["none", "hrm", "lora"]).tables_are_on(&page("language.md"));
    }
}

#[test]
fn articles_are_their_result() {
    let page = page("language.md");
    let study = Study::read("documents", &["quality"], &["none", "hrm", "lora", "dora", "adalora", "lora-mlp"]);
    study.tables_are_on(&page);
    // Over folds, for guessing, which is right in 0.25.
    let said = study.names.iter().map(|name| format!("`{name}` {}", interval(&study.values("gguf", name, SCORE))));
    let said = said.collect::<Vec<_>>().join(", ");
    tells(&page, &said);
    let said =
        study.names.iter().map(|name| format!("`{name}` {}", interval(&study.values("gguf", name, MOST_PROBABLE))));
    let said = said.collect::<Vec<_>>().join(", ");
    tells(&page, &format!("{said}: every interval holds 0.25."));
    // Two tokens, of which one is certain.
    let guessing = 4.0_f64.ln() / 2.0;
    let trained = &study.names[1..];
    let least = trained.iter().map(|name| mean(&study.values("gguf", name, LOSS))).fold(f64::MAX, f64::min);
    assert!(least > guessing);
    tells(&page, &format!("has a loss of {guessing:.3}."));
    tells(&page, &format!("{least:.3} at best."));
    let letters = std::fs::read_to_string(root().join("docs/results/language/documents-quality-letters.txt")).unwrap();
    let letters: Vec<serde_json::Value> = letters.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // Shares of the answers of each fold that are a letter, or the most frequent one.
    let shares = |name: &str, letter: Option<&str>| -> f64 {
        let of_row = letters.iter().filter(|line| line["row"] == name).map(|line| line["letters"].as_object().unwrap());
        let count = |value: &serde_json::Value| value.as_f64().unwrap();
        let shares: Vec<f64> = of_row
            .map(|counts| {
                let most = counts.values().map(count).fold(0.0, f64::max);
                letter.map_or(most, |letter| count(&counts[letter])) / counts.values().map(count).sum::<f64>()
            })
            .collect();
        assert_eq!(shares.len(), study.seeds);
        mean(&shares)
    };
    let own = |of: fn(f64, f64) -> f64| trained.iter().map(|name| shares(name, None)).reduce(of).unwrap();
    let [low, high] = [f64::min, f64::max].map(own);
    tells(&page, &format!("gives one letter in {low:.2} to {high:.2} of the answers of a fold"));
    let constant = ["A", "B", "C", "D"].map(|letter| shares("right", Some(letter))).into_iter().fold(0.0, f64::max);
    tells(&page, &format!("one letter for all answers is right in up to {constant:.3}"));
}

#[test]
fn entities_are_their_result() {
    let names = &["none", "hrm", "householder-2", "lora", "dora", "adalora", "lora-mlp"];
    let page = page("language.md");
    let study = Study::read("entities", &["full"], names);
    study.tables_are_on(&page);
    // By the rule of state.md: the loss of guessing, among five boxes, in place of what was gained.
    let still_learn = |name: &str| {
        let rows =
            study.cells.iter().flat_map(|cell| &cell.result.as_ref().unwrap().rows).filter(|row| row.name == name);
        let fall = rows.map(|row| {
            let training = row.training.as_ref().unwrap();
            let end = (training.steps, row.validation.get("loss").unwrap());
            still_to_fall(&[&training.curve[..], &[end]].concat(), training.steps).unwrap()
        });
        fall.filter(|fall| !is_level(*fall, 5.0_f64.ln())).count()
    };
    assert_eq!(["hrm", "householder-2", "adalora", "lora-mlp"].map(still_learn), [0; 4]);
    assert_eq!(["lora", "dora"].map(still_learn), [1; 2]);
    tells(&page, "LoRA and DoRA were in one seed each, no other row in any.");
    let [own, none] = ["lora", "none"].map(|name| study.values("gguf", name, AS_TRAINED));
    let better: Vec<f64> = own.iter().zip(none).map(|(own, none)| own - none).collect();
    let p = beyond(mean(&better) / error(&better), 2);
    tells(&page, &format!("LoRA by {}; p = {p:.3})", interval(&better).trim_end_matches(')')));
    let rules = std::fs::read_to_string(root().join("docs/results/language/entities-rules.txt")).unwrap();
    let of = |file: &str| {
        let line = rules.lines().find(|line| line.starts_with(file)).unwrap();
        let mut figures = line.split([' ', ',']).filter(|word| word.starts_with("0."));
        [figures.next().unwrap(), figures.next().unwrap()]
    };
    let ([still, last], [still_64, last_64]) = (of("entities-validation"), of("entities-test-64"));
    for said in [
        format!("right in {still} of the texts of 1 to 8 swaps and in {still_64} of"),
        format!("in {last} and {last_64} ([printed]"),
    ] {
        assert!(page.contains(&said), "{said}");
    }
    // As trained, against the rule that nothing was moved: Student's t with two degrees of freedom.
    let against = |name: &str| {
        let rows =
            study.cells.iter().flat_map(|cell| &cell.result.as_ref().unwrap().rows).filter(|row| row.name == name);
        let values: Vec<f64> = rows.map(|row| row.validation.get("exact_match").unwrap()).collect();
        let (center, error) = (mean(&values), error(&values));
        let t = (center - still.parse::<f64>().unwrap()) / error;
        assert_eq!(values.len(), 3);
        (center - quantile(2) * error, center + quantile(2) * error, beyond(t, 2))
    };
    let [hrm, lora] = ["hrm", "lora"].map(against);
    let said = format!(
        "(HRM {:.2} to {:.2}, p = {:.3}; LoRA {:.2} to {:.2}, p = {:.2})",
        hrm.0, hrm.1, hrm.2, lora.0, lora.1, lora.2
    );
    assert!(page.contains(&said), "{said}");
}

/// A page that says that a hypothesis holds says it where the rules of the audit do.
#[test]
fn verdicts_are_those_of_the_audit() {
    let (audit, page) = (page("reproduction.md"), page("language.md"));
    let verdict = |id: &str| {
        let line = audit.lines().find(|line| line.starts_with(&format!("| [{id}](language.md): "))).unwrap();
        line.split("**").nth(1).unwrap().to_owned()
    };
    let confirmed: Vec<String> =
        crate::hypotheses::claims().into_iter().map(|claim| claim.id).filter(|id| verdict(id) == "confirmed").collect();
    assert_eq!(confirmed, ["M1", "E1-hrm", "E1-lora", "E1-hrm-rule", "D4-qmsum"]);
    for holds in ["(M1):", "(E1, in part:", "(D4, holds"] {
        assert!(page.contains(holds), "{holds}");
    }
    let held: Vec<&str> =
        page.split(", holds").filter_map(|before| before.rsplit('(').next()).filter(|id| id.len() == 2).collect();
    assert_eq!(held, ["D4"]);
    // The rule that nothing was moved.
    let bar = crate::hypotheses::claims().into_iter().find(|claim| claim.id == "E1-hrm-rule").unwrap().expect.bar();
    let rules = std::fs::read_to_string(root().join("docs/results/language/entities-rules.txt")).unwrap();
    let of_rule = rules.lines().find(|line| line.starts_with("entities-validation")).unwrap();
    let share: f64 = of_rule.split([' ', ',']).find(|word| word.starts_with("0.")).unwrap().parse().unwrap();
    assert_eq!(bar, format!("above {share}"));
}
