//! Runs beside those of a sweep, in the directories of its experiments.

use super::cell_directory::{CellDirectory, State, outcome};
use crate::CELL_FILE;
use crate::rows::cell_file;
use crate::settings::Seen;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What there is beside `cells` in the directories of their experiments that was run with other settings, a sentence each: reports would take
/// it for repetitions of them. Of what was begun before settings were on record nothing is known.
pub fn of_other_settings(cells: &[CellDirectory]) -> Vec<String> {
    let mut asked = Seen::default();
    for cell in cells {
        let file = cell.file();
        asked.add(&file.id, &file.settings, "");
    }
    let experiments: BTreeSet<&Path> = cells.iter().map(CellDirectory::experiment_path).collect();
    let of_run = |directory: PathBuf| {
        let file = cell_file(&directory).ok()??;
        let (part, _) = asked.difference(&file.id, &file.settings)?;
        // What is written in another way may come to the same, which the cells of the sweep can tell.
        let own = cells.iter().find(|cell| cell.path() == directory);
        let is_same = own.is_some_and(|cell| !matches!(cell.state(), Ok(State::Other(_))));
        (!is_same).then(|| {
            format!(
                "{} is of the same experiment and was run with other settings in `{part}`: reports would take it for a repetition. Choose \
                 another --out, set what it was run with, or take that directory away",
                directory.display()
            )
        })
    };
    experiments.into_iter().flat_map(runs_below).filter_map(of_run).collect()
}

/// The runs of other cells beside `cells` in the directories of their experiments that have a result or have diverged, as those of an earlier
/// command with other seeds.
pub fn finished_beside(cells: &[&CellDirectory]) -> Vec<PathBuf> {
    let experiments: BTreeSet<&Path> = cells.iter().map(|cell| cell.experiment_path()).collect();
    let own: Vec<_> = cells.iter().map(|cell| cell.file().id).collect();
    let is_other = |run: &PathBuf| cell_file(run).ok().flatten().is_some_and(|file| !own.contains(&file.id));
    let is_finished = |run: &PathBuf| matches!(outcome(run), Some(State::Done | State::Diverged(_)));
    experiments.into_iter().flat_map(runs_below).filter(|run| is_other(run) && is_finished(run)).collect()
}

/// The runs in an experiment's directory, of cells and of single rows. What cannot be read is no run: others may be at it.
pub(super) fn runs_below(experiment: &Path) -> Vec<PathBuf> {
    let below = |path: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(path).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect()
    };
    let is_run = |path: &PathBuf| path.join(CELL_FILE).is_file() && path.join("config.toml").is_file();
    let (mut runs, others): (Vec<PathBuf>, Vec<PathBuf>) = below(experiment).into_iter().partition(is_run);
    runs.extend(others.iter().flat_map(|path| below(path)).filter(is_run));
    runs.sort();
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use hankel_trainer::config::Experiment;

    const TEXT: &str = "\
[sweep.grid]
seed = [0, 1]
[task]
kind = \"dfa\"
length = 8
[[adapter]]
kind = \"none\"
[[adapter]]
kind = \"lora\"
rank = 2
";

    fn cells(root: &Path, text: &str, overrides: &[&str]) -> Vec<CellDirectory> {
        let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
        let experiment = Experiment::load(text, "grid.toml", &overrides).unwrap();
        experiment.cells().unwrap().into_iter().map(|cell| CellDirectory::new(root, &experiment, cell)).collect()
    }

    /// Leaves what a run that is done leaves, as far as a sweep asks.
    fn pretend(cell: &CellDirectory) {
        fs::create_dir_all(cell.path()).unwrap();
        let config = cell.config.as_ref().unwrap().to_toml();
        let file = serde_json::to_string(&cell.file()).unwrap();
        for (name, content) in [(CELL_FILE, &*file), ("config.toml", &*config), ("result.json", "{}")] {
            fs::write(cell.path().join(name), content).unwrap();
        }
    }

    #[test]
    fn cells_beside_those_of_the_grid_have_its_settings() {
        let directory = tempfile::tempdir().unwrap();
        let cells = |overrides: &[&str]| cells(directory.path(), TEXT, overrides);
        cells(&[]).iter().for_each(pretend);
        for same in [&["seed=[2]"][..], &["seed=[2, 3]", "train.log_every=3"], &[]] {
            assert_eq!(of_other_settings(&cells(same)), Vec::<String>::new(), "{same:?}");
        }
        for other in [&["seed=[2]", "train.lr=0.5"][..], &["train.lr=0.5"]] {
            let told = of_other_settings(&cells(other));
            assert!(
                told.len() == 2 && told[0].contains("seed-0 is of the same") && told[0].contains("`train`"),
                "{told:?}"
            );
        }
        // A default that is written out is what it was; in the grid that can be seen.
        let written = cells(&["train.lr=0.003"]);
        assert_eq!(of_other_settings(&written), Vec::<String>::new());
        written[0].renew();
        assert_eq!(cell_file(written[0].path()).unwrap(), Some(written[0].file()));
        // One that was begun by an earlier version.
        let old = cells(&["seed=[0]"]).remove(0);
        let known = fs::read_to_string(old.path().join(CELL_FILE)).unwrap();
        let mut known: serde_json::Value = serde_json::from_str(&known).unwrap();
        known.as_object_mut().unwrap().remove("settings");
        fs::write(old.path().join(CELL_FILE), known.to_string()).unwrap();
        let told = of_other_settings(&cells(&["seed=[2]", "train.lr=0.5"]));
        assert!(told.len() == 1 && told[0].contains("seed-1 is"), "{told:?}");
    }

    #[test]
    fn rows_that_are_through_take_the_present_plan() {
        let directory = tempfile::tempdir().unwrap();
        let rows = |text: &str| -> Vec<CellDirectory> {
            cells(directory.path(), text, &[]).into_iter().flat_map(CellDirectory::by_row).collect()
        };
        rows(TEXT).iter().for_each(pretend);
        let more = TEXT.to_owned() + "[[adapter]]\nkind = \"dora\"\nrank = 2\n";
        let now = rows(&more);
        assert_eq!(of_other_settings(&now), Vec::<String>::new());
        now.iter().for_each(CellDirectory::renew);
        let known = cell_file(now[1].path()).unwrap().unwrap();
        assert_eq!(known.planned_rows, ["none", "lora", "dora"]);
        assert!(known.settings.contains_key("adapter.lora") && !known.settings.contains_key("adapter.none"));
        assert!(!now[2].path().exists(), "nothing is there of a row that was not run");
        // The row that is asked for otherwise is told of, and no other.
        let changed = rows(&TEXT.replace("rank = 2", "rank = 3"));
        let told = of_other_settings(&changed);
        assert!(told.len() == 2 && told.iter().all(|told| told.contains("lora is of the same")), "{told:?}");
    }
}
