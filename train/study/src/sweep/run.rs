//! Running cells.

use super::cell_directory::{CellDirectory, HeldCell, State};
use super::claim::{BEAT, STALE};
use super::others::{of_other_settings, runs_below};
use crate::CellId;
use crate::rows::cell_file;
use anyhow::{Result, bail};
use hankel_trainer::config::{AdapterConfig, Config, TrainConfig};
use hankel_trainer::fit::{Prepared, Pretrained, Stop, fit};
use hankel_trainer::format::{counted, duration};
use hankel_trainer::parallel::Group;
use hankel_trainer::results::{DataFile, RunResult};
use hankel_trainer::run::interrupt::{self, Interrupted};
use hankel_trainer::tell;
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The axis over which cells repeat each other.
const SEED: &str = "seed";

/// Which cells of a sweep are this process's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// All that no other process is running.
    All,
    /// The one with this number, from 0.
    Task(usize),
    /// Part `part`, from 1, of `of`.
    Shard {
        /// Which part.
        part: usize,
        /// Of how many.
        of: usize,
    },
}

impl Selection {
    /// Whether cell `index` is in it.
    pub fn has(self, index: usize) -> bool {
        match self {
            Selection::All => true,
            Selection::Task(task) => task == index,
            Selection::Shard { part, of } => index % of == part - 1,
        }
    }
}

/// Printed after Ctrl-C.
const GOES_ON: &str = "run the same command to continue the sweep";

/// What became of the cells of a selection.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Cells with a result, those from before included.
    pub done: usize,
    /// Cells whose training reached a non-finite value, if only in one row.
    pub diverged: Vec<String>,
    /// Cells that could not be run, with the reason.
    pub failed: Vec<(String, String)>,
    /// Cells that another process is running.
    pub elsewhere: usize,
}

impl Outcome {
    /// Cells of the selection.
    pub fn total(&self) -> usize {
        self.done + self.diverged.len() + self.failed.len() + self.elsewhere
    }
}

/// Runs the cells of `selection` that have no result yet, with `force` also those that may take more memory than there is. A
/// failed cell is recorded, and the others continue; so they do where its directory cannot be used. A backbone that several cells pretrain in
/// the same way is trained by the first of them; one that another process is training now makes a cell wait until the others are through.
///
/// # Errors
/// Ctrl-C before all are through ([`Interrupted`]); a directory that holds something else, or a run of other settings beside the cells, found
/// before anything is run.
pub fn run(cells: &[CellDirectory], selection: Selection, force: bool) -> Result<Outcome> {
    let own: Vec<&CellDirectory> =
        cells.iter().enumerate().filter(|(i, _)| selection.has(*i)).map(|(_, cell)| cell).collect();
    // A state that cannot be read is told when its cell's turn has come.
    let states: Vec<Option<State>> = own.iter().map(|cell| cell.state().ok()).collect();
    for state in states.iter().flatten() {
        if let State::Other(why) = state {
            bail!("{why}");
        }
    }
    if let Some(other) = of_other_settings(cells).first() {
        bail!("{other}");
    }
    cells.iter().for_each(CellDirectory::renew);
    let work = work_of(&own);
    let (mut outcome, mut done_work, begun) = (Outcome::default(), 0.0, Instant::now());
    let mut queue: VecDeque<usize> = (0..own.len()).collect();
    let (mut put_off, mut missed) = (BTreeSet::new(), BTreeSet::new());
    while let Some(number) = queue.pop_front() {
        let cell = own[number];
        let name = format!("{}/{}", cell.experiment, cell.slug);
        let mut fail = |name: String, error: String| {
            tell!("{name}: {error}");
            outcome.failed.push((name, error));
        };
        let config = match &cell.config {
            Ok(config) => config,
            Err(error) => {
                fail(name, error.to_string());
                continue;
            }
        };
        let is_first = !put_off.contains(&number) && !missed.contains(&number);
        let _held = match turn(cells, cell, selection, is_first) {
            Err(error) => {
                fail(name, format!("{error:#}"));
                continue;
            }
            Ok(Turn::Later) => {
                put_off.insert(number);
                queue.push_back(number);
                continue;
            }
            Ok(Turn::Through(state)) => {
                match state {
                    State::Diverged(_) => outcome.diverged.push(name),
                    _ => outcome.done += 1,
                }
                continue;
            }
            Ok(Turn::Elsewhere(_)) if interrupt::requested() => {
                return Err(Interrupted(format!("before {name}: {GOES_ON}")).into());
            }
            // Its process may die meanwhile, or be dead already.
            Ok(Turn::Elsewhere(_)) if !matches!(selection, Selection::Task(_)) && missed.insert(number) => {
                queue.push_back(number);
                continue;
            }
            Ok(Turn::Elsewhere(who)) => {
                tell!("{name}: {who}");
                outcome.elsewhere += 1;
                continue;
            }
            Ok(Turn::Own(held)) => held,
        };
        if interrupt::requested() {
            return Err(Interrupted(format!("before {name}: {GOES_ON}")).into());
        }
        let rest = queue.iter().chain([&number]).filter(|number| states[**number].as_ref().is_none_or(is_left));
        let left: f64 = rest.map(|number| work[*number]).sum();
        let spent = begun.elapsed().as_secs_f64();
        let eta = if done_work > 0.0 {
            format!(", about {} left", duration(spent / done_work * left))
        } else {
            String::new()
        };
        let what = if cell.is_row() { "row" } else { "cell" };
        tell!("== {what} {} of {}: {name}{eta}", number + 1, own.len());
        match run_cell(cells, cell, config, force) {
            Ok(result) if result.diverged.is_empty() => outcome.done += 1,
            // What it says of its rows has been told.
            Ok(_) => outcome.diverged.push(name),
            Err(error) => {
                if let Some(Stop::Interrupted { stage, step, .. }) = error.downcast_ref() {
                    let at = format!("after step {step} of `{stage}` in {name}");
                    return Err(Interrupted(format!("{at}; the full state is saved: {GOES_ON}")).into());
                }
                match cell.record(&error) {
                    Ok(failure) if failure.diverged.is_some() => {
                        tell!("{name}: {}", failure.error);
                        outcome.diverged.push(name);
                    }
                    Ok(failure) => fail(name, failure.error),
                    Err(unwritten) => fail(name, format!("{error:#}; nor can that be recorded: {unwritten:#}")),
                }
            }
        }
        done_work += work[number];
    }
    Ok(outcome)
}

/// Whether a cell is to be run.
fn is_left(state: &State) -> bool {
    !matches!(state, State::Done | State::Diverged(_))
}

/// What a cell comes to when its turn has come.
enum Turn {
    /// Another process trains its backbone: it comes again behind the others.
    Later,
    /// It has an outcome, if only since a moment ago.
    Through(State),
    /// Another process has it, as said.
    Elsewhere(String),
    /// It is this process's to run, as long as it is held.
    Own(HeldCell),
}

/// Takes the cell for this process, if it has no outcome and nobody else is at it.
fn turn(cells: &[CellDirectory], cell: &CellDirectory, selection: Selection, is_first: bool) -> Result<Turn> {
    let state = || -> Result<State> {
        match cell.state()? {
            State::Other(why) => bail!("{why}"),
            state => Ok(state),
        }
    };
    let before = state()?;
    // What is through is left alone.
    if !is_left(&before) {
        return Ok(Turn::Through(before));
    }
    if is_first && is_pretrained_elsewhere(cells, cell) {
        return Ok(Turn::Later);
    }
    let held = match selection {
        // A job has nothing else to do. The one before it may have been killed a moment ago, on another machine.
        Selection::Task(_) => patiently(STALE + BEAT, BEAT / 4, || cell.hold())?,
        // Nor has a share that is nobody else's, once the rest of it is done.
        Selection::Shard { .. } if !is_first => patiently(STALE + BEAT, BEAT / 4, || cell.hold())?,
        _ => cell.hold()?,
    };
    // Another process may have finished it since.
    let now = state()?;
    Ok(match held {
        _ if !is_left(&now) => Turn::Through(now),
        Err(who) => Turn::Elsewhere(who),
        Ok(held) => Turn::Own(held),
    })
}

/// What `hold` gives, which is tried `every` so often for as long as `patience`.
fn patiently<T>(
    patience: Duration,
    every: Duration,
    mut hold: impl FnMut() -> Result<Result<T, String>>,
) -> Result<Result<T, String>> {
    let begun = Instant::now();
    let mut told = false;
    loop {
        match hold()? {
            Err(who) if begun.elapsed() < patience && !interrupt::requested() => {
                if !told {
                    tell!("{who}: waiting for it to end, or to be found dead");
                }
                told = true;
                thread::sleep(every);
            }
            outcome => return Ok(outcome),
        }
    }
}

fn run_cell(cells: &[CellDirectory], cell: &CellDirectory, config: &Config, force: bool) -> Result<RunResult> {
    if let Some(error) = &cell.missing {
        return Err(error.clone().into());
    }
    let pretrained = sharing(cells, cell).find_map(pretrained_in);
    let prepared = Prepared::within_memory(config, 1, force)?.with_pretrained(pretrained);
    let beside = runs_below(cell.experiment_path());
    let others = cells.iter().map(CellDirectory::path).chain(beside.iter().map(PathBuf::as_path));
    let others: BTreeSet<&Path> = others.filter(|other| *other != cell.path()).collect();
    check_files(&others, &prepared.data_files(), |result| Some(&result.data))?;
    let point = |id: &CellId| (id.experiment.clone(), id.scale.clone(), id.describe(&[SEED]));
    let own = point(&cell.file().id);
    let is_repetition = |other: &Path| cell_file(other).ok().flatten().is_some_and(|file| point(&file.id) == own);
    let repetitions = others.iter().copied().filter(|other| is_repetition(other));
    check_number(repetitions, prepared.data_files().len())?;
    // Cells of the grid tell their model, other runs what they came from.
    let path = config.backbone.path();
    let has_same_model =
        |other: &&CellDirectory| other.config.as_ref().is_ok_and(|other| other.backbone.path() == path);
    let of_same_model = cells.iter().filter(has_same_model).map(CellDirectory::path);
    let of_same_model: BTreeSet<&Path> = of_same_model.filter(|other| *other != cell.path()).collect();
    let of_backbone = prepared.backbone_files();
    check_files(&of_same_model, &of_backbone, |result| Some(&result.model_files))?;
    let source = path.map(|path| path.display().to_string());
    let is_from_it = |result: &RunResult| source.as_ref() == Some(&result.backbone.source);
    check_files(&others, &of_backbone, |result| is_from_it(result).then_some(&result.model_files))?;
    let directory = cell.directory()?;
    let resume = directory.config().is_file();
    Ok(fit(config, prepared, directory, resume, &Group::alone())?.result)
}

/// Fails where a file is not the one that another run of the experiment, if it is done, was run with: they would be compared, or taken for
/// repetitions. `of` are its files, where they should be the same.
fn check_files(
    others: &BTreeSet<&Path>,
    files: &[DataFile],
    of: impl Fn(&RunResult) -> Option<&Vec<DataFile>>,
) -> Result<()> {
    for other in others.iter().filter(|_| !files.is_empty()) {
        let Some(result) = result_of(other) else { continue };
        let Some(were) = of(&result) else { continue };
        let mut known = 0;
        for is in files {
            let Some(was) = were.iter().find(|was| was.path == is.path) else { continue };
            known += 1;
            if (was.bytes, &was.sha256) != (is.bytes, &is.sha256) {
                bail!(
                    "{} is not the file that {} was run with: put that file back, or begin the sweep anew with another --out",
                    is.path,
                    other.display()
                );
            }
        }
        // That one was compared with the rest.
        if known == files.len() {
            break;
        }
    }
    Ok(())
}

/// Fails where a repetition that is done was run with more files of data, or fewer: files were added to a folder, or removed.
fn check_number<'a>(mut repetitions: impl Iterator<Item = &'a Path>, files: usize) -> Result<()> {
    let done = repetitions.find_map(|other| Some((other, result_of(other)?.data.len())));
    if let Some((other, number)) = done.filter(|(_, number)| *number > 0 && *number != files) {
        bail!(
            "{} was run with {}, and there are {files} now: put them back, or begin the sweep anew with another --out",
            other.display(),
            counted(number, "file")
        );
    }
    Ok(())
}

/// The result of a run that is done.
fn result_of(run: &Path) -> Option<RunResult> {
    let text = hankel_io::input::read_to_string(&run.join("result.json")).ok()?;
    serde_json::from_str(&text).ok()
}

/// The other cells that pretrain the same backbone.
fn sharing<'a>(cells: &'a [CellDirectory], cell: &'a CellDirectory) -> impl Iterator<Item = &'a CellDirectory> {
    let is_same = move |other: &&CellDirectory| match (&cell.config, &other.config) {
        (Ok(config), Ok(others)) => cell.path() != other.path() && config.pretrains_as(others),
        _ => false,
    };
    cells.iter().filter(is_same)
}

/// The backbone of a cell whose directory was run with the present configuration: what another one trained is another's.
fn pretrained_in(cell: &CellDirectory) -> Option<Pretrained> {
    if let Ok(State::Other(_)) | Err(_) = cell.state() {
        return None;
    }
    Pretrained::of_run(cell.path(), &cell.slug)
}

/// Whether another process is training the backbone of `cell`, which nobody has trained yet.
fn is_pretrained_elsewhere(cells: &[CellDirectory], cell: &CellDirectory) -> bool {
    let mut elsewhere = false;
    for other in sharing(cells, cell) {
        if pretrained_in(other).is_some() {
            return false;
        }
        // The directory of another cell that cannot be read keeps nobody waiting.
        let is_begun = other.state().is_ok_and(|state| state == State::Begun);
        elsewhere |= is_begun && other.is_claimed().unwrap_or(false);
    }
    elsewhere
}

/// Tokens that each of `cells` trains on, to estimate the time left. A backbone is trained by the first of those that share it.
fn work_of(cells: &[&CellDirectory]) -> Vec<f64> {
    let configs: Vec<Option<&Config>> = cells.iter().map(|cell| cell.config.as_ref().ok()).collect();
    let work_of_one = |number: usize| {
        let Some(config) = configs[number] else { return 0.0 };
        let is_shared = configs[..number].iter().flatten().any(|earlier| config.pretrains_as(earlier));
        work(config, !is_shared)
    };
    (0..cells.len()).map(work_of_one).collect()
}

/// Tokens that a run trains on, its backbone's only if it is `pretrained` here.
fn work(config: &Config, pretrained: bool) -> f64 {
    let tokens = |train: &TrainConfig, length: usize| {
        train.steps.unwrap_or(0) as f64 * (train.batch_size * train.accumulation * length) as f64
    };
    let length = config.task.sequence_length();
    let adapters = |adapter: &AdapterConfig| tokens(config.training_of(adapter), length);
    let pretrain = config
        .pretrain
        .as_ref()
        .filter(|_| pretrained)
        .map_or(0.0, |pretrain| tokens(&pretrain.train, config.pretrain_task().sequence_length()));
    pretrain + config.adapter.iter().map(adapters).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hankel_trainer::config::Experiment;
    use std::fs;

    #[test]
    fn a_directory_that_cannot_be_made_fails_its_cell_alone() {
        let directory = tempfile::tempdir().unwrap();
        let text = "[sweep.grid]\nseed = [0, 1]\n[task]\nkind = \"dfa\"\nlength = 8\n[[adapter]]\nkind = \"none\"\n";
        let experiment = Experiment::load(text, "grid.toml", &[]).unwrap();
        let cells = experiment.cells().unwrap().into_iter();
        let cells: Vec<_> = cells.map(|cell| CellDirectory::new(directory.path(), &experiment, cell)).collect();
        fs::create_dir(directory.path().join("grid")).unwrap();
        for cell in &cells {
            fs::write(cell.path(), "a file in its place").unwrap();
        }
        let outcome = run(&cells, Selection::All, false).unwrap();
        assert_eq!((outcome.failed.len(), outcome.total()), (2, 2));
        assert!(outcome.failed[1].0.ends_with("/seed-1") && outcome.failed[1].1.contains("seed-1"), "{outcome:?}");
    }

    #[test]
    fn a_job_waits_for_a_cell_and_not_for_ever() {
        let patience = Duration::from_millis(200);
        let mut left = 3;
        let free = patiently(patience, Duration::from_millis(1), || {
            left -= 1;
            Ok(if left == 0 { Ok(left) } else { Err("a process".to_owned()) })
        });
        assert_eq!(free.unwrap(), Ok(0));
        let begun = Instant::now();
        let busy = patiently(patience, Duration::from_millis(1), || Ok(Err::<(), _>("a process".to_owned())));
        assert!(busy.unwrap().is_err() && begun.elapsed() >= patience);
        assert!(patiently::<()>(patience, patience, || anyhow::bail!("no such directory")).is_err());
    }

    #[test]
    fn shards_divide_the_cells() {
        for of in 1..5 {
            for index in 0..20 {
                let owners = (1..=of).filter(|&part| Selection::Shard { part, of }.has(index)).count();
                assert_eq!(owners, 1);
            }
        }
        assert!(Selection::Task(3).has(3) && !Selection::Task(3).has(2) && Selection::All.has(7));
    }
}
