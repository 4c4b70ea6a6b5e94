//! `train sweep`.

use super::CheckFailed;
use anyhow::{Context, Result, bail};
use hankel_io::lock::Held;
use hankel_io::terminal;
use hankel_study::report;
use hankel_study::sweep::{CellDirectory, Selection, State, finished_beside, of_other_settings, run as run_cells};
use hankel_trainer::config::Experiment;
use hankel_trainer::run::{interrupt, lock, memory};
use hankel_trainer::tell;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Experiments: configurations with a [sweep] table
    #[arg(required = true)]
    experiments: Vec<PathBuf>,
    /// Change a key of every configuration, the values of an axis (seed=[0,1]) or the scale (scale=smoke)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Where each experiment has its directory of cells
    #[arg(long, value_name = "DIR", default_value = "runs")]
    out: PathBuf,
    /// List the cells with their numbers and how far they are, and run nothing
    #[arg(long)]
    list: bool,
    /// With --list: a JSON array
    #[arg(long, requires = "list")]
    json: bool,
    /// Run only the cell with this number, from 0, as one job of an array; without a number, the one in the environment
    /// (SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX, OMPI_COMM_WORLD_RANK): then write the option after the experiments
    // With and without a value: what clap has for that.
    #[allow(clippy::option_option)]
    #[arg(long, value_name = "I", num_args = 0..=1, value_parser = task_index, conflicts_with = "shard")]
    task_index: Option<Option<TaskIndex>>,
    /// Run only every N-th cell, beginning with the I-th, where I counts from 1: 2/8 runs the second, the tenth, the eighteenth ...
    #[arg(long, value_name = "I/N", value_parser = shard)]
    shard: Option<Selection>,
    /// Run and number each row (adapter) of a cell separately, for cells that take longer than one job may
    #[arg(long)]
    by_row: bool,
    /// Run also cells that are estimated to take more memory than there is
    #[arg(long)]
    force: bool,
}

/// A number of a cell that was given, and not left to the environment.
#[derive(Debug, Clone, Copy, PartialEq)]
struct TaskIndex(usize);

fn task_index(text: &str) -> Result<TaskIndex, String> {
    let expected = |_| {
        "expected a number; to take that of the environment, write --task-index behind the experiments, without one"
            .to_owned()
    };
    text.parse().map(TaskIndex).map_err(expected)
}

/// Variables in which clusters number the jobs of an array: Slurm, indexed jobs of Kubernetes, `mpirun`.
const INDEX_VARIABLES: [&str; 3] = ["SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX", "OMPI_COMM_WORLD_RANK"];

/// The number of this job in its array.
fn index_of_job(variable: impl Fn(&str) -> Option<String>) -> Result<usize> {
    let known = INDEX_VARIABLES.iter().filter_map(|name| Some((*name, variable(name)?)));
    let (name, value) = match &known.collect::<Vec<_>>()[..] {
        [] => bail!("--task-index: the environment has none of {}: give the number", INDEX_VARIABLES.join(", ")),
        [one] => one.clone(),
        several => {
            let shown: Vec<String> = several.iter().map(|(name, value)| format!("{name}={value}")).collect();
            bail!("--task-index: the environment has {}: give the number that is meant", shown.join(" and "))
        }
    };
    value.trim().parse().with_context(|| format!("--task-index: {name}={value:?} is not a number from 0"))
}

fn shard(text: &str) -> Result<Selection, String> {
    let parse = || {
        let (part, of) = text.split_once('/')?;
        Some((part.trim().parse::<usize>().ok()?, of.trim().parse::<usize>().ok()?))
    };
    match parse() {
        Some((part, of)) if (1..=of).contains(&part) => Ok(Selection::Shard { part, of }),
        _ => Err("expected I/N with I from 1 to N, for example 2/8".to_owned()),
    }
}

impl Args {
    fn cells(&self) -> Result<Vec<CellDirectory>> {
        let mut cells: Vec<CellDirectory> = Vec::new();
        for path in &self.experiments {
            let text = hankel_io::input::read_to_string(path)?;
            let experiment = Experiment::load(&text, &path.display().to_string(), &self.overrides)?;
            if !experiment.is_sweep {
                bail!("{} has no [sweep] table: `train fit {0}` runs it", path.display());
            }
            if let (None, [first, ..]) = (&experiment.scale, &experiment.scales[..]) {
                let file = path.display();
                bail!("{file} has scales, and none is chosen: write `scale` in [sweep], or --set scale={first}");
            }
            let directory = experiment.directory_name();
            if cells.iter().any(|cell| cell.experiment == directory) {
                bail!("two experiments are called {directory}: give {} another `name`", path.display());
            }
            let of_experiment = experiment.cells()?.into_iter();
            let of_experiment = of_experiment.map(|cell| CellDirectory::new(&self.out, &experiment, cell));
            if self.by_row {
                cells.extend(of_experiment.flat_map(CellDirectory::by_row));
            } else {
                cells.extend(of_experiment);
            }
        }
        Ok(cells)
    }

    /// What is numbered.
    fn what(&self) -> &'static str {
        if self.by_row { "rows" } else { "cells" }
    }

    fn selection(&self, cells: usize) -> Result<Selection> {
        let index = match self.task_index {
            Some(Some(TaskIndex(index))) => index,
            Some(None) => index_of_job(|name| std::env::var(name).ok())?,
            None => return Ok(self.shard.unwrap_or(Selection::All)),
        };
        if index >= cells {
            bail!("--task-index {index}: there are {cells} {}, from 0", self.what());
        }
        Ok(Selection::Task(index))
    }
}

pub fn run(args: &Args) -> Result<()> {
    let cells = args.cells()?;
    let selection = args.selection(cells.len())?;
    if args.list {
        return list(&cells, selection, args.json);
    }
    memory::watch();
    interrupt::install(interrupt::SAVING).context("cannot take over Ctrl-C")?;
    let outcome = run_cells(&cells, selection, args.force)?;
    let pages = reports(&cells, &args.out);
    for page in pages.iter().flatten() {
        terminal::line(&page.display().to_string())?;
    }
    let diverged = outcome.diverged.len();
    let mut line = format!("{} of {} {} done", outcome.done, outcome.total(), args.what());
    for (count, what) in
        [(diverged, "diverged"), (outcome.failed.len(), "failed"), (outcome.elsewhere, "in other processes")]
    {
        if count > 0 {
            let _ = write!(line, ", {count} {what}");
        }
    }
    terminal::line(&line)?;
    outcome.diverged.iter().try_for_each(|name| terminal::line(&format!("{name} diverged")))?;
    if !matches!(selection, Selection::All) && outcome.elsewhere > 0 {
        return Err(CheckFailed("another process is running what this job was for: it is not done".to_owned()).into());
    }
    match &outcome.failed[..] {
        [] => pages.map(|_| ()),
        failed => {
            if let Err(error) = pages {
                tell!("warning: {error:#}");
            }
            let lines: Vec<String> = failed.iter().map(|(name, error)| format!("\n  {name}: {error}")).collect();
            Err(CheckFailed(format!(
                "{} of the {} failed; the same command tries them again:{}",
                failed.len(),
                args.what(),
                lines.concat()
            ))
            .into())
        }
    }
}

/// A report of each experiment that has outcomes, and one of all if there are several.
fn reports(cells: &[CellDirectory], out: &Path) -> Result<Vec<PathBuf>> {
    let mut experiments: Vec<&str> = cells.iter().map(|cell| cell.experiment.as_str()).collect();
    experiments.dedup();
    let mut pages = Vec::new();
    for &experiment in &experiments {
        let own: Vec<&CellDirectory> = cells.iter().filter(|cell| cell.experiment == experiment).collect();
        pages.extend(page(&own, &out.join(experiment))?);
    }
    if pages.len() > 1 {
        pages.extend(page(&cells.iter().collect::<Vec<_>>(), out)?);
    }
    Ok(pages)
}

/// The report of those of `cells` that have an outcome, and of what earlier commands have left beside them, in `directory`.
fn page(cells: &[&CellDirectory], directory: &Path) -> Result<Option<PathBuf>> {
    if !directory.is_dir() {
        return Ok(None);
    }
    // One process at a time, so that the last one leaves the page on which all cells are.
    let Some(_held) = wait_for(directory)? else { return Ok(None) };
    let is_over = |cell: &&&CellDirectory| matches!(cell.state(), Ok(State::Done | State::Diverged(_)));
    let mut paths: Vec<PathBuf> = cells.iter().filter(is_over).map(|cell| cell.path().to_owned()).collect();
    paths.extend(finished_beside(cells));
    if paths.is_empty() {
        return Ok(None);
    }
    let page = directory.join("report.html");
    report::write(report::read(&paths)?, &page)?;
    Ok(Some(page))
}

/// Holds `directory`, once no other process does; `None` when the process is asked to end before.
fn wait_for(directory: &Path) -> Result<Option<Held>> {
    let mut is_told = false;
    loop {
        if let Some(held) = lock::try_hold(directory)? {
            return Ok(Some(held));
        }
        if interrupt::requested() {
            return Ok(None);
        }
        if !std::mem::replace(&mut is_told, true) {
            tell!("waiting for another process that writes {}", directory.join("report.html").display());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn list(cells: &[CellDirectory], selection: Selection, json: bool) -> Result<()> {
    let mut rows = Vec::new();
    for (index, cell) in cells.iter().enumerate().filter(|(index, _)| selection.has(*index)) {
        let (state, note) = match cell.state() {
            Ok(State::Open) => ("open", String::new()),
            Ok(State::Begun) => ("begun", String::new()),
            Ok(State::Done) => ("done", String::new()),
            Ok(State::Diverged(failure)) => ("diverged", failure.error),
            Ok(State::Failed(failure)) => ("failed", failure.error),
            Ok(State::Other(why)) => ("other", why),
            Err(error) => ("failed", format!("{error:#}")),
        };
        if json {
            rows.push(serde_json::json!({
                "index": index, "experiment": cell.experiment, "cell": cell.slug, "state": state,
                "note": note, "directory": cell.path().display().to_string(),
            }));
        } else {
            let line = format!("{index:>5}  {state:<8}  {}/{}  {note}", cell.experiment, cell.slug);
            terminal::line(line.trim_end())?;
        }
    }
    if json {
        terminal::json(&serde_json::to_string_pretty(&rows)?)?;
    }
    if let [first, others @ ..] = &of_other_settings(cells)[..] {
        let more = if others.is_empty() { String::new() } else { format!("; so were {} more", others.len()) };
        terminal::tell(&format!("note: {first}{more}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_numbers_a_job() {
        let of = |variables: &'static [(&str, &str)]| {
            index_of_job(|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        for name in INDEX_VARIABLES {
            assert_eq!(index_of_job(|asked| (asked == name).then(|| "7".to_owned())).unwrap(), 7);
        }
        let refused = |variables| of(variables).unwrap_err().to_string();
        assert!(refused(&[]).contains("none of SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX"));
        assert!(refused(&[("SLURM_ARRAY_TASK_ID", "1"), ("OMPI_COMM_WORLD_RANK", "2")]).contains("=1 and OMPI_COMM"));
        assert!(refused(&[("JOB_COMPLETION_INDEX", "-1")]).contains("JOB_COMPLETION_INDEX=\"-1\" is not a number"));
    }

    #[test]
    fn shards_are_checked() {
        assert_eq!(shard("2/8"), Ok(Selection::Shard { part: 2, of: 8 }));
        for wrong in ["0/3", "4/3", "1", "a/b", "1/0"] {
            assert!(shard(wrong).is_err(), "{wrong}");
        }
    }
}
