//! Hypotheses of our own studies on frozen language models (`hypotheses.toml`), and their results.
//!
//! Differences are judged by the rules of the paper's claims. Products of a group are counted: a seed solves a group when more than 0.99 of the answers
//! over words four times as long as the longest trained on are right, and counts are compared by Fisher's exact test, one-sided.

use crate::claims::{Claim, still_learning};
use crate::statistics::{CONFIDENCE, fisher, holm};
use crate::{Cell, Plan, SEED, plans, rates, read_results, rows};
use anyhow::Result;
use serde::Deserialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Folders of studies, beside the paper's experiments and in the results.
const FOLDERS: [&str; 2] = ["language", "state"];
/// Rows that were planned later, in cells of their own: experiment, their scale, and that of the cells which they belong to.
const LATER: [[&str; 3]; 1] = [["documents", "qmsum-rivals", "qmsum"]];
/// More than this of the answers over words of 128 elements is right in a seed that solves their group.
const SOLVED: f64 = 0.99;
const SOLVED_AT: &str = "accuracy_to_128";
/// The same of words as long as those trained on.
const TRAINED_AT: &str = "accuracy_to_32";
const NOT_MEASURED: &str = "**not measured**";
/// The experiment whose groups are solved.
const WORDS: &str = "words";

/// The studies of one folder.
#[derive(Debug)]
pub struct Study {
    /// Its experiments.
    pub experiments: PathBuf,
    /// Its files of results.
    pub results: PathBuf,
    /// What was planned.
    pub plans: Vec<Plan>,
    /// What was run.
    pub cells: Vec<Cell>,
}

/// Our own studies: those of folders beside `experiments`, the paper's, with results in `results`.
///
/// # Errors
/// When a file cannot be read.
pub fn studies(experiments: &Path, results: &Path) -> Result<Vec<Study>> {
    let folders = FOLDERS.map(|name| (experiments.with_file_name(name), results.join(name)));
    let there = folders.into_iter().filter(|(experiments, results)| experiments.is_dir() && results.is_dir());
    let read = |(experiments, results): (PathBuf, PathBuf)| {
        let cells = read_results(&results)?;
        Ok(Study { plans: plans(&experiments, &cells)?, experiments, results, cells })
    };
    there.map(read).collect()
}

/// The cells of `studies`, those of later rows with the ones that they belong to.
pub(crate) fn cells(studies: &[Study]) -> Vec<Cell> {
    let mut cells: Vec<Cell> = studies.iter().flat_map(|study| study.cells.iter().cloned()).collect();
    for [experiment, later, first] in LATER {
        let is_at = |cell: &Cell, scale| cell.id.experiment == experiment && cell.id.scale.as_deref() == Some(scale);
        let (added, mut others): (Vec<Cell>, Vec<Cell>) = cells.into_iter().partition(|cell| is_at(cell, later));
        for cell in added {
            match others.iter_mut().find(|own| is_at(own, first) && own.id.axes == cell.id.axes) {
                Some(own) => rows::join(own, &cell),
                None => others.push(cell),
            }
        }
        cells = others;
    }
    cells
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    claim: Vec<Claim>,
    count: Vec<Count>,
    solved: Vec<Solved>,
}

/// Rows that should solve groups in at least so many seeds; in none if that is 0.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Count {
    id: String,
    scale: String,
    text: String,
    rows: Vec<String>,
    groups: Vec<String>,
    #[serde(default)]
    least: usize,
}

/// A row that should solve a group in more seeds than others, at several scales.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Solved {
    id: String,
    scales: Vec<String>,
    group: String,
    text: String,
    more: String,
    fewer: Vec<String>,
}

fn file() -> File {
    toml::from_str(include_str!("hypotheses.toml")).expect("hypotheses.toml is read by the tests")
}

/// Hypotheses about differences.
pub(crate) fn claims() -> Vec<Claim> {
    file().claim
}

/// A hypothesis about seeds that solve a group, and what became of it at a scale.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Counted {
    pub(crate) id: String,
    pub(crate) scale: String,
    pub(crate) text: String,
    /// What was counted.
    pub(crate) result: String,
    pub(crate) verdict: String,
}

/// The seeds of a study of groups at a scale.
struct Words(Vec<Cell>);

impl Words {
    /// None where runs are missing: no conclusion is drawn then.
    fn at(scale: &str, cells: &[Cell], plans: &[Plan]) -> Self {
        let of_it = |plan: &&Plan| plan.experiment == WORDS && plan.scale.as_deref() == Some(scale);
        let plan = plans.iter().find(of_it);
        if plan.is_some_and(|plan| !plan.is_complete(cells)) {
            return Words(Vec::new());
        }
        let own = |cell: &&Cell| {
            let is_at = cell.id.experiment == WORDS && cell.id.scale.as_deref() == Some(scale);
            is_at && plan.is_none_or(|plan| plan.has(cell))
        };
        Words(rates::at_their_own(&cells.iter().filter(own).collect::<Vec<_>>(), &[SEED.to_owned()]))
    }

    fn of_group(&self, group: &str) -> Self {
        Words(self.0.iter().filter(|cell| cell.id.axis("group") == Some(group)).cloned().collect())
    }

    /// The runs of a row in which nearly all answers over words of a length are right, and all that there are. One that diverged is not right.
    fn count(&self, row: &str, length: &str) -> (usize, usize) {
        let right = |cell: &&Cell| {
            let found = cell.result.as_ref().and_then(|result| result.rows.iter().find(|found| found.name == row));
            found.and_then(|row| row.validation.get(length)).is_some_and(|share| share > SOLVED)
        };
        (self.0.iter().filter(right).count(), self.0.len())
    }

    /// `; rotation was still learning in 3 of 8 runs`: rows that more steps might have brought further.
    fn still_learning(&self, rows: &[String]) -> String {
        still_learning(rows, &self.0, &[SEED.to_owned()]).map_or_else(String::new, |which| format!("; {which}"))
    }
}

impl Count {
    fn evaluate(self, cells: &[Cell], plans: &[Plan]) -> Counted {
        let words = Words::at(&self.scale, cells, plans);
        let of_group = |row: &str| -> Vec<(usize, usize)> {
            self.groups.iter().map(|group| words.of_group(group).count(row, SOLVED_AT)).collect()
        };
        let counts: Vec<Vec<(usize, usize)>> = self.rows.iter().map(|row| of_group(row)).collect();
        let as_expected =
            |(count, _): &(usize, usize)| if self.least == 0 { *count == 0 } else { *count >= self.least };
        let verdict = if words.0.is_empty() {
            NOT_MEASURED.to_owned()
        } else if !counts.iter().flatten().all(as_expected) {
            "**not as expected**".to_owned()
        } else if self.least == 0 {
            format!("**as expected**{}", words.still_learning(&self.rows))
        } else {
            "**as expected**".to_owned()
        };
        let of_row = |(row, counts): (&String, &Vec<(usize, usize)>)| {
            let each = self.groups.iter().zip(counts);
            let each = each.map(|(group, (count, of))| format!("{} {count} of {of}", group.to_uppercase()));
            format!("{row}: {}", each.collect::<Vec<_>>().join(", "))
        };
        let result = self.rows.iter().zip(&counts).map(of_row).collect::<Vec<_>>().join("; ");
        Counted { id: self.id, scale: self.scale, text: self.text, result, verdict }
    }
}

impl Solved {
    /// The counts of its rows at a scale, and their probabilities.
    fn tests(&self, words: &Words) -> Vec<(usize, f64)> {
        let words = words.of_group(&self.group);
        let more = words.count(&self.more, SOLVED_AT);
        let counts = self.fewer.iter().map(|row| words.count(row, SOLVED_AT));
        counts.map(|fewer| (fewer.0, fisher(more, fewer))).collect()
    }

    /// At a scale, with the probabilities after Holm's correction.
    fn evaluate(&self, scale: &str, words: &Words, corrected: &[f64]) -> Counted {
        let of_it = words.of_group(&self.group);
        let (count, of) = of_it.count(&self.more, SOLVED_AT);
        let mut result = format!("{} in {count} of {of} seeds", self.more);
        for ((row, (fewer, p)), holm) in self.fewer.iter().zip(self.tests(words)).zip(corrected) {
            let _ = write!(result, "; {row} in {fewer} ({})", tested(p, *holm));
        }
        let verdict = if of == 0 {
            NOT_MEASURED.to_owned()
        } else if of_it.count(&self.more, TRAINED_AT).0 == 0 {
            format!("**no comparison**: in no seed did {} learn the words trained on", self.more)
        } else if corrected.iter().all(|holm| *holm < 1.0 - CONFIDENCE) {
            format!("**confirmed**{}", of_it.still_learning(&self.fewer))
        } else {
            format!("**not confirmed**{}", of_it.still_learning(std::slice::from_ref(&self.more)))
        };
        Counted { id: self.id.clone(), scale: scale.to_owned(), text: self.text.clone(), result, verdict }
    }
}

/// `p = 0.0035, Holm 0.0210`.
pub(crate) fn tested(p: f64, holm: f64) -> String {
    let of = |p: f64| if p < 1e-4 { "< 0.0001".to_owned() } else { format!("= {p:.4}") };
    format!("p {}, Holm {}", of(p), of(holm).trim_start_matches("= "))
}

/// What became of the hypotheses about groups on these cells. Holm's correction is over the tests of a scale.
pub(crate) fn counted(cells: &[Cell], plans: &[Plan]) -> Vec<Counted> {
    let File { count, solved, .. } = file();
    let mut out: Vec<Counted> = count.into_iter().map(|it| it.evaluate(cells, plans)).collect();
    let family = |scale: &str| -> (Words, Vec<f64>) {
        let words = Words::at(scale, cells, plans);
        let own = solved.iter().filter(|it| it.scales.iter().any(|own| own == scale));
        let p: Vec<f64> = own.flat_map(|it| it.tests(&words)).map(|test| test.1).collect();
        (words, holm(&p))
    };
    for (index, it) in solved.iter().enumerate() {
        for scale in &it.scales {
            let (words, corrected) = family(scale);
            let before = solved[..index].iter().filter(|other| other.scales.contains(scale));
            let before: usize = before.map(|other| other.fewer.len()).sum();
            out.push(it.evaluate(scale, &words, &corrected[before..before + it.fewer.len()]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CellId;
    use crate::testing::result;
    use hankel_trainer::results::{AdapterResult, Scores, TrainingResult};
    use std::collections::BTreeMap;

    /// A row that is right in so many of the words trained on, and of those of 128 elements; whose loss falls by `fall` at the end.
    fn row(name: &str, [trained, long]: [f64; 2], fall: f64) -> AdapterResult {
        let scores = |of: f64| Scores {
            metrics: BTreeMap::from([
                (TRAINED_AT.into(), of),
                (SOLVED_AT.into(), long),
                ("loss".into(), 1.0 - trained),
            ]),
            ..Scores::default()
        };
        let curve = vec![(80, 1.0 - trained + fall), (100, 1.0 - trained)];
        AdapterResult {
            name: name.into(),
            training: Some(TrainingResult { steps: 100, curve, ..TrainingResult::default() }),
            validation: scores(trained),
            test: Some(scores(trained)),
            ..AdapterResult::default()
        }
    }

    fn seeds(scale: &str, group: &str, rows: impl Fn(usize) -> Vec<AdapterResult>) -> Vec<Cell> {
        let cell = |seed: usize| Cell {
            id: CellId {
                experiment: WORDS.into(),
                scale: Some(scale.into()),
                axes: vec![("group".into(), group.into()), ("seed".into(), seed.to_string())],
            },
            result: Some(hankel_trainer::results::RunResult { rows: rows(seed), ..result() }),
            ..Cell::default()
        };
        (0..8).map(cell).collect()
    }

    fn of(found: &[Counted], id: &str, scale: &str) -> Counted {
        found.iter().find(|it| it.id == id && it.scale == scale).unwrap().clone()
    }

    #[test]
    fn groups_are_counted() {
        // Of eight seeds six are right where two others are in none; those that should not be are still learning.
        let z2 = seeds("long", "z2", |seed| {
            let solves = if seed < 6 { 1.0 } else { 0.98 };
            vec![
                row("none", [0.5, 0.5], 0.0),
                row("selective-signed", [1.0, solves], 0.0),
                row("selective", [0.6, 0.5], 0.0),
                row("hrm-signed", [0.9, 0.6], 0.1),
            ]
        });
        let found = counted(&z2, &[]);
        let signed = of(&found, "S", "long");
        assert!(
            signed.verdict.starts_with("**confirmed**; hrm-signed was still learning in 8 of 8 runs"),
            "{signed:?}"
        );
        assert!(
            signed.result.starts_with("selective-signed in 6 of 8 seeds; selective in 0 (p = 0.0035, Holm "),
            "{signed:?}"
        );
        let fixed = of(&found, "T", "long");
        assert!(fixed.verdict.starts_with("**as expected**; hrm-signed was still"), "{fixed:?}");
        let counts = "hrm-positive: Z2 0 of 8, Z3 0 of 0, S3 0 of 0; hrm-signed: Z2 0 of 8, Z3 0 of 0, S3 0 of 0; ";
        assert!(fixed.result.starts_with(counts), "{fixed:?}");
        assert_eq!(of(&found, "H5", "paper").verdict, NOT_MEASURED);

        // One seed of a row that should solve none.
        let one = seeds("long", "z2", |seed| vec![row("hrm-signed", [1.0, if seed == 3 { 1.0 } else { 0.5 }], 0.0)]);
        assert_eq!(of(&counted(&one, &[]), "T", "long").verdict, "**not as expected**");

        assert_eq!(of(&counted(&one, &[]), "`long`", "long").verdict, "**not as expected**");

        // Runs are missing.
        let plan = |seeds: usize| Plan {
            experiment: WORDS.into(),
            scale: Some("long".into()),
            cells: (0..seeds)
                .map(|seed| vec![("group".into(), "z2".into()), ("seed".into(), seed.to_string())])
                .collect(),
            text: None,
            shares_rate: false,
        };
        assert_eq!(of(&counted(&one, &[plan(9)]), "T", "long").verdict, NOT_MEASURED);
        // The seed that solves it was not planned.
        assert!(of(&counted(&one, &[plan(3)]), "T", "long").verdict.starts_with("**as expected**"));

        // Nobody learns the words trained on, or too few seeds are right.
        let group = |trained: f64, of: usize| {
            seeds("paper", "a5", move |seed| {
                let long = if seed < of { 1.0 } else { 0.0 };
                vec![
                    row("none", [0.1, 0.1], 0.0),
                    row("householder-2", [trained, long], 0.0),
                    row("rotation", [0.1, 0.1], 0.0),
                ]
            })
        };
        let verdict = |cells: &[Cell]| of(&counted(cells, &[]), "H5", "paper").verdict;
        assert_eq!(
            verdict(&group(0.1, 0)),
            "**no comparison**: in no seed did householder-2 learn the words trained on"
        );
        assert_eq!(verdict(&group(1.0, 3)), "**not confirmed**");
        assert_eq!(verdict(&group(1.0, 8)), "**confirmed**");
    }

    #[test]
    fn later_rows_stand_with_the_first() {
        let cell = |scale: &str, name: &str| Cell {
            id: CellId {
                experiment: "documents".into(),
                scale: Some(scale.into()),
                axes: vec![("seed".into(), "0".into())],
            },
            result: Some(hankel_trainer::results::RunResult { rows: vec![row(name, [1.0, 1.0], 0.0)], ..result() }),
            ..Cell::default()
        };
        let study = Study {
            experiments: PathBuf::new(),
            results: PathBuf::new(),
            plans: Vec::new(),
            cells: vec![cell("qmsum-rivals", "dora"), cell("qmsum", "hrm")],
        };
        let joined = cells(&[study]);
        let [one] = &joined[..] else { panic!("{}", joined.len()) };
        assert_eq!(one.id.scale.as_deref(), Some("qmsum"));
        let names: Vec<&str> = one.result.iter().flat_map(|result| &result.rows).map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["hrm", "dora"]);
    }
}
