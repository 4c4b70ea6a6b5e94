//! What was changed in plans and claims when results were known, which the page tells.

use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A change of a plan or of claims after results, or with them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    /// Results that were known, as `experiment-scale`.
    results: Vec<String>,
    /// The commit that changed it, by its first ten digits.
    commit: String,
    what: String,
}

fn all() -> Vec<Change> {
    #[derive(Deserialize)]
    struct File {
        change: Vec<Change>,
    }
    let file: File = toml::from_str(include_str!("changes.toml")).expect("changes.toml is read by the tests");
    file.change
}

/// The commits of which the page says what they changed after the results of an experiment at a scale.
pub fn commits(experiment: &str, scale: Option<&str>) -> BTreeSet<String> {
    let results = scale.map_or_else(|| experiment.to_owned(), |scale| format!("{experiment}-{scale}"));
    all().into_iter().filter(|change| change.results.contains(&results)).map(|change| change.commit).collect()
}

/// The section of the page.
pub(crate) fn section() -> String {
    let mut out = SECTION.to_owned();
    for Change { results, commit, what } in all() {
        let _ = writeln!(out, "| {} | `{commit}` | {what} |", results.join(", "));
    }
    out
}

const SECTION: &str = "
## Changed after results

Plans of scale `paper` were committed before its results, and so were claims, apart from the changes that follow. Most of `small` is older than the plans, and many of its claims were changed when results were known. Results are known
from the first commit that held them, also where a later run replaced them. `train audit` compares the commits of plans, claims and results, and warns of every change that is missing here: a
line of a plan or a claim that was added, changed or removed, except comments and other scales. The first results of data at scale `small`, of sites, modes and frozen_gates at scale `paper`, and of four tables of dfa there were of a
program with changes that no commit holds. 3726b57ec33a, the commit without these changes, gave the same figures in every digit, and its results replaced them. The studies of [state](state.md) and [language](language.md) are dated in the same way.

The [rules](#rules) were corrected with results at hand, too, by reviews. The last time: a theorem that is [computed](#computed) is true by construction, so that empirical-gramians no
longer counts as confirmed, nor as a test; and where no predictor sees one symbol, rows have to beat the best constant answer, which changed no verdict. Before that: a claim that a row stays near chance needs a better control; four verdicts about parity changed, as the table says. Earlier: the expected fall of a loss is compared with the gain on the same split, after both are averaged over
runs; of several rivals the chosen one has to beat `none`, not all; a row that was not run is missing, whatever became of others; one point that refutes for good waits for no other; and spreads of fewer than five runs are no tests. Three
such spreads became not measured, two from no comparison and one from not converged; no other verdict changed, only numbers of runs that still learn.

| results that were known | commit | what was changed |
| --- | --- | --- |
";

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn changes_are_of_results() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        let folders = ["", "language", "state"].map(|folder| results.join(folder));
        for change in all() {
            assert!(change.commit.len() == 10 && change.what.ends_with('.'), "{}", change.what);
            for name in change.results {
                let file = format!("{name}.jsonl");
                assert!(folders.iter().any(|folder| folder.join(&file).is_file()), "{name}");
            }
        }
        assert!(commits("gates", Some("paper")).contains("26260bf61e"));
        assert!(commits("timing", Some("small")).contains("2b429ddb01"));
        assert!(section().contains("gates-paper, gates-small | `26260bf61e` | The bar of gates-text-contribution"));
    }
}
