//! Studies: sweeps over grids of configurations, what their cells measured, and what that says about the paper's claims.
//!
//! A sweep leaves in each cell's run directory which experiment it belongs to and its grid point ([`CellId`],
//! `cell.json`). [`Cell`] is that with the run's result; cells are gathered from run directories or read from the files of
//! `docs/results`, one line of JSON each, and everything else (tables, claims, the audit) is computed from them.

#![warn(unreachable_pub)]

pub mod audit;
mod bootstrap;
pub mod changes;
pub mod claims;
mod computed;
#[cfg(test)]
mod documents;
pub mod experiment_header;
mod files;
mod hypotheses;
mod measure;
mod plan;
mod provenance;
mod quantity;
mod rates;
pub mod report;
mod rows;
mod run_directories;
mod settings;
mod statistics;
pub mod sweep;
#[cfg(test)]
mod testing;
mod units;

pub use files::{FileError, incomplete_results, read_results, write_results};
pub use hypotheses::{Study, studies};
pub use plan::{Plan, PlanError, experiment_files, plans};
pub use provenance::Provenance;

use hankel_trainer::results::RunResult;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the file in a cell's run directory.
pub const CELL_FILE: &str = "cell.json";
/// The axis over which repetitions differ.
pub const SEED: &str = "seed";
/// The scale that shows that an experiment runs, and nothing else.
pub const SMOKE: &str = "smoke";

/// The experiment and grid point of a cell: contents of `cell.json`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CellId {
    /// Name of the experiment.
    pub experiment: String,
    /// Its scale, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<String>,
    /// The axes of the grid by their short names, and this cell's value of each.
    pub axes: Vec<(String, String)>,
}

/// A cell and what became of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Cell {
    /// Its experiment and grid point.
    #[serde(flatten)]
    pub id: CellId,
    /// Names of all its adapters, in their order, where it was run row by row and not all rows are there yet; else empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub planned_rows: Vec<String>,
    /// Seconds of its rows by their names, where it was run row by row and not all rows are there yet; else empty.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub row_seconds: BTreeMap<String, f64>,
    /// Fingerprints of what it was run with, its axes apart ([`hankel_trainer::config::Cell::settings`]); empty where they are not on record.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Why training stopped, when a run of all rows reached a non-finite value and has no rows, so that nothing is known of any of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diverged: Option<String>,
    /// The same of rows, by their names. The others have their figures.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub diverged_rows: BTreeMap<String, String>,
    /// The figures; absent when it diverged, or all of its rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<RunResult>,
}

impl Cell {
    /// Whether it came to a non-finite value, if only in one row.
    pub(crate) fn has_diverged(&self) -> bool {
        self.diverged.is_some() || !self.diverged_rows.is_empty()
    }

    /// Rows that were planned and are not there yet.
    pub(crate) fn missing_rows(&self) -> Vec<&str> {
        let rows = || self.result.iter().flat_map(|result| &result.rows);
        let is_there = |name: &str| self.diverged_rows.contains_key(name) || rows().any(|row| row.name == name);
        self.planned_rows.iter().map(String::as_str).filter(|name| !is_there(name)).collect()
    }

    /// What came to a non-finite value and how, a sentence each: the whole, or rows.
    pub(crate) fn losses(&self) -> Vec<String> {
        let rows = self.diverged_rows.iter().map(|(name, error)| format!("{name}: {error}"));
        self.diverged.iter().cloned().chain(rows).collect()
    }
}

impl CellId {
    /// This cell's value of an axis.
    pub fn axis(&self, name: &str) -> Option<&str> {
        self.axes.iter().find(|(axis, _)| axis == name).map(|(_, value)| value.as_str())
    }

    /// The axes other than those in `but` in a few words: `length 64, protocol frozen`; empty when there are none.
    pub fn describe(&self, but: &[&str]) -> String {
        let others = self.axes.iter().filter(|(name, _)| !but.contains(&name.as_str()));
        others.map(|(name, value)| format!("{} {value}", name.replace('-', " "))).collect::<Vec<_>>().join(", ")
    }

    /// What cells of an experiment are sorted by: numbers by size, before words.
    pub fn order(&self) -> Vec<(u64, String)> {
        let of = |value: &str| {
            let number = value.parse::<f64>().ok().filter(|number| *number >= 0.0);
            // The bits of numbers that are not negative are in their order.
            (number.map_or(u64::MAX, f64::to_bits), value.to_owned())
        };
        self.axes.iter().map(|(_, value)| of(value)).collect()
    }

    /// Name of the directory of its experiment at this scale.
    pub fn directory(&self) -> String {
        self.scale.as_ref().map_or_else(|| self.experiment.clone(), |scale| format!("{}-{scale}", self.experiment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hankel_trainer::format::thousands;
    use std::fs;
    use std::path::Path;

    /// What README.md says in figures stands in the files of results that it names.
    #[test]
    fn figures_of_the_readme_are_those_of_its_results() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let readme = fs::read_to_string(root.join("README.md")).unwrap();
        let result = |name: &str| -> RunResult {
            serde_json::from_str(&fs::read_to_string(root.join("docs/results").join(name)).unwrap()).unwrap()
        };
        let row = |result: &RunResult, name: &str| result.rows.iter().find(|row| row.name == name).unwrap().clone();
        let quickstart = result("quickstart-2000.json");
        let accuracy = |name: &str| row(&quickstart, name).validation.get("accuracy").unwrap();
        let sentence = format!("after 2,000 LoRA is ahead, {:.3} to {:.3}", accuracy("lora"), accuracy("hrm"));
        assert!(readme.contains(&sentence), "{sentence}");
        // What `train fit` without a file says on its last line.
        let line = format!("LoRA has {:.3} and HRM {:.3}", accuracy("lora"), accuracy("hrm"));
        assert!(fs::read_to_string(root.join("train/src/fit.rs")).unwrap().contains(&line), "{line}");
        let data = fs::read_to_string(root.join("docs/data.md")).unwrap();
        let (smollm2, contacts) = (result("smollm2.json"), result("contacts/result.json"));
        for (name, title) in [("none", "none"), ("lora", "LoRA, rank 16"), ("hrm", "HRM, 32 states")] {
            let row = |result: &RunResult| {
                let row = row(result, name);
                let count = thousands(row.parameters.adapter);
                (row, count)
            };
            let (on_text, count) = row(&smollm2);
            let figure = |metric: &str| on_text.validation.get(metric).unwrap();
            let line = format!("| {title} | {count} | {:.1} | {:.3} |", figure("perplexity"), figure("bits_per_byte"));
            assert!(data.contains(&line), "{line}");
            let (on_contacts, count) = row(&contacts);
            let figure = |metric: &str| on_contacts.validation.get(metric).unwrap();
            let line = format!("| {title} | {count} | {:.2} | {:.3} |", figure("exact_match"), figure("loss"));
            assert!(readme.contains(&line), "{line}");
        }
        let answers = fs::read_to_string(root.join("docs/results/contacts/answers.jsonl")).unwrap();
        for (line, when) in answers.lines().zip(["*before:* ", "*after:* `"]) {
            let answer: serde_json::Value = serde_json::from_str(line).unwrap();
            let text = format!("{when}{}", answer["prediction"].as_str().unwrap());
            assert!(readme.contains(&text), "{text}");
        }
        let memory = smollm2.peak_anonymous_bytes.unwrap() as f64 / f64::from(1 << 20);
        assert!(data.contains(&format!("{memory:.0} MiB of memory")), "{memory}");
    }

    /// Its sentences about science, too, from the page of the audit.
    #[test]
    fn sentences_of_the_readme_follow_from_results() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let readme = fs::read_to_string(root.join("README.md")).unwrap();
        let page = fs::read_to_string(root.join("docs/reproduction.md")).unwrap();
        let says = |figures: &str| assert!(readme.contains(figures), "{figures}");
        // Effect, and both ends of its interval, of the scale that decides: `0.9018 (0.8761 to 0.9275), n = 5`.
        let effect = |claim: &str| -> [f64; 3] {
            let line = page.lines().find(|line| line.starts_with(&format!("| [{claim}]"))).unwrap();
            let figures = line.split(" | ").nth(2).unwrap().replace('\u{2212}', "-").replace(['(', ')', ','], " ");
            let figures: Vec<f64> = figures.split_whitespace().filter_map(|word| word.parse().ok()).take(3).collect();
            figures.try_into().unwrap()
        };
        let [mean, low, high] = effect("memory-washout-order");
        let [first, least, most] = effect("memory-order");
        says(&format!(
            "is {mean:.2} ({low:.2} to {high:.2}, ten seeds; {first:.2}, {least:.2} to {most:.2}, in a first experiment whose control failed)"
        ));
        assert!(
            page.lines().any(|line| line.starts_with("| [memory-shuffled-learnt]") && line.contains("not confirmed:"))
        );
        assert!(page.contains("hrm-epsilon-0.01 was still learning in 7 of 10 runs at targets own, order 24"));

        // Text, at the first of two lengths.
        let at_512 = |claim: &str| -> [f64; 3] {
            let line = page.lines().find(|line| line.starts_with(&format!("| [{claim}]"))).unwrap();
            let (_, figures) = line.split_once("length 512: ").unwrap();
            let figures = figures.replace('\u{2212}', "-").replace(['(', ')', ','], " ");
            let figures: Vec<f64> = figures.split_whitespace().filter_map(|word| word.parse().ok()).take(3).collect();
            assert!(
                line.ends_with("not confirmed: undecided at tier 2, length 512; undecided at tier 2, length 1024 |")
                    || line.contains("undecided among"),
                "{line}"
            );
            figures.try_into().unwrap()
        };
        let [mean, low, high] = at_512("enwik8-pretrained").map(f64::abs);
        says(&format!(
            "HRM ends\n  {mean:.3} bits per character below LoRA on queries and values ({high:.3} to {low:.3}, T = 512, three seeds)"
        ));
        // Text that the backbone had not seen became harder while it was pretrained, and no row beats the counts of three bytes.
        let of_text = read_results(&root.join("docs/results")).unwrap().into_iter();
        let of_text = of_text
            .filter(|cell| cell.id.directory() == "enwik8_pretrained-paper" && cell.id.axis("length") == Some("512"));
        let of_text: Vec<RunResult> = of_text.filter_map(|cell| cell.result).collect();
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
        let bits = |name: &str| {
            let rows = of_text.iter().flat_map(|result| &result.rows).filter(|row| row.name == name);
            mean(rows.filter_map(|row| row.validation.get("bits_per_character")).collect())
        };
        let best = of_text[0].rows.iter().map(|row| bits(&row.name)).fold(f64::MAX, f64::min);
        let counts = mean(of_text.iter().map(|result| result.task.baselines["order_3"]).collect());
        says(&format!("counting which byte follows the last three ({counts:.2} bits; the best row {best:.2})"));
        for result in &of_text {
            let curve = &result.backbone.pretrain.as_ref().unwrap().curve;
            let least = curve.iter().map(|point| point.1).fold(f64::MAX, f64::min);
            assert!(curve.last().unwrap().1 > least + 0.1, "overfitted: {curve:?}");
        }

        let [mean, low, high] = at_512("enwik8-pretrained-site");
        says(&format!("{mean:.3} above LoRA on the MLP ({low:.3} to {high:.3})"));

        let counts = page.lines().find(|line| line.starts_with("Of ") && line.contains(" claims: ")).unwrap();
        let number = |what: &str| {
            counts.split([',', ':']).find(|part| part.contains(what)).unwrap().trim().split(' ').next().unwrap()
        };
        let all = counts.split(' ').nth(1).unwrap();
        says(&format!(
            "in {} of the {all} claims that need runs a row was still learning when training ended,",
            number("not converged")
        ));
        says(&format!(
            "in {} a row, or its control, is no better than no adapter or a trivial predictor;",
            number("no comparison")
        ));
        // Over turns, from the table that a test of the page compares with its results.
        let language = fs::read_to_string(root.join("docs/language.md")).unwrap();
        let on_smollm2 = language.split("## Over turns, on SmolLM2-135M").nth(1).unwrap();
        // A difference that is below 0, from a column of a line.
        let less = |start: &str, column: usize| -> [String; 3] {
            let line = language.lines().rev().find(|line| line.starts_with(start)).unwrap();
            let figures = line.split(" | ").nth(column).unwrap().replace(['(', ')', '-'], " ");
            let figures = figures.split_whitespace().filter(|word| *word != "to").map(str::to_owned);
            figures.collect::<Vec<_>>().try_into().unwrap()
        };
        let [mean, most, least] = less("| memory states | lora | -", 2);
        says(&format!(
            "({mean} more of the answers over the 1 to 4 turns trained on, {least} to {most}, three seeds; not shown over 8)"
        ));
        let [mean, most, least] = less("| task qmsum, length 1024, weights gguf | lora-mlp | +0.001", 11);
        says(&format!("{mean} nats a token more loss than LoRA on the MLP ({least} to {most};"));
        let state = fs::read_to_string(root.join("docs/state.md")).unwrap();
        let line = state.lines().find(|line| line.starts_with("| S3 | householder-2 | lora-all | 3 to 0 | ")).unwrap();
        let holm: f64 = line.trim_end_matches(" |").rsplit(" | ").next().unwrap().parse().unwrap();
        says(&format!("; not significantly more, p = {holm:.2};"));
        let forgotten = |name: &str| {
            let cells = read_results(&root.join("docs/results/language")).unwrap();
            let own = cells.iter().filter(|cell| cell.id.directory() == "turns-smollm2");
            let rows = own.filter_map(|cell| cell.result.as_ref()?.rows.iter().find(|row| row.name == name));
            let values: Vec<f64> = rows.map(|row| row.validation.get("forgetting").unwrap()).collect();
            let found = statistics::Estimate::of(&values).unwrap();
            let (low, high) = found.interval;
            [found.summary.mean, low, high].map(|figure| format!("{figure:.3}"))
        };
        let [[hrm, hrm_low, hrm_high], [delta, low, high]] = ["hrm", "delta"].map(forgotten);
        let line = on_smollm2.lines().find(|line| line.starts_with("| memory states | delta | +0.000")).unwrap();
        let holm = line.split(" | ").nth(10).unwrap();
        says(&format!(
            "spoils other texts by {hrm} nats a token ({hrm_low} to {hrm_high}), where the delta rule, which recalls it too, spoils them by \
             {delta} ({low} to {high}; their difference has p = {holm} after correction)."
        ));
    }

    /// Results that are judged are of programs that a commit holds.
    #[test]
    fn programs_of_results_are_committed() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        let cells = ["", "language", "state"].map(|folder| read_results(&results.join(folder)).unwrap());
        for cell in cells.into_iter().flatten() {
            let Some(result) = cell.result else { continue };
            let commit = result.environment.commit.unwrap_or_default();
            assert!(!commit.is_empty() && !commit.contains("-dirty"), "{}: {commit:?}", cell.id.directory());
        }
    }

    /// `train audit` was run after the last change of results, claims or words.
    #[test]
    fn pages_are_what_the_results_say() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let cells = read_results(&root.join("docs/results")).unwrap();
        let claims = claims::all();
        let page = fs::read_to_string(root.join("docs/reproduction.md")).unwrap();
        let plans = plans(&root.join("train/experiments/paper"), &cells).unwrap();
        for plan in &plans {
            assert!(plan.text.is_some(), "train/experiments/paper: {} has no [plan]", plan.experiment);
        }
        let outcomes = claims::evaluate(&claims, &cells, &plans);
        let studies = studies(&root.join("train/experiments/paper"), &root.join("docs/results")).unwrap();
        let written = audit::audit(&outcomes, &cells, &plans, &studies);
        assert!(page == written, "docs/reproduction.md is not up to date: run `train audit`");
        let again = claims::evaluate(&claims, &cells, &plans);
        assert!(written == audit::audit(&again, &cells, &plans, &studies), "twice the same page");
        for (name, svg) in audit::pictures(&outcomes).unwrap() {
            let path = root.join("docs/images").join(&name);
            let drawn = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(drawn == svg, "{name} is not up to date: run `train audit`");
        }
        for path in experiment_files(&root.join("train/experiments/paper")).unwrap() {
            let text = fs::read_to_string(&path).unwrap();
            let rewritten = experiment_header::rewrite(&text, &outcomes, &cells).unwrap();
            assert!(rewritten == Some(text), "the head of {} is not up to date: run `train audit`", path.display());
        }
    }
}
