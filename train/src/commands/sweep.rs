//! `train sweep`.

use super::{CheckFailed, output};
use crate::config::Experiment;
use crate::report;
use crate::run::{interrupt, lock, memory};
use crate::sweep::{Place, Share, State, run as run_cells};
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

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
    /// Run only the cell of this number, from 0: a job of an array
    #[arg(long, value_name = "I", conflicts_with = "shard")]
    task_index: Option<usize>,
    /// Run only every N-th cell, beginning with the I-th, from 1
    #[arg(long, value_name = "I/N", value_parser = shard)]
    shard: Option<Share>,
}

fn shard(text: &str) -> Result<Share, String> {
    let parse = || {
        let (part, of) = text.split_once('/')?;
        Some((part.trim().parse::<usize>().ok()?, of.trim().parse::<usize>().ok()?))
    };
    match parse() {
        Some((part, of)) if (1..=of).contains(&part) => Ok(Share::Shard { part, of }),
        _ => Err("expected I/N with I from 1 to N, for example 2/8".to_owned()),
    }
}

impl Args {
    fn places(&self) -> Result<Vec<Place>> {
        let mut places: Vec<Place> = Vec::new();
        for path in &self.experiments {
            let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            let experiment = Experiment::load(&text, &path.display().to_string(), &self.overrides)?;
            let directory = experiment.directory_name();
            if places.iter().any(|place| place.experiment == directory) {
                bail!("two experiments are called {directory}: give {} another `name`", path.display());
            }
            let cells = experiment.cells()?;
            places.extend(cells.into_iter().map(|cell| Place::new(&self.out, &experiment, cell)));
        }
        Ok(places)
    }

    fn share(&self, cells: usize) -> Result<Share> {
        match (self.task_index, self.shard) {
            (Some(index), _) if index >= cells => bail!("--task-index {index}: there are {cells} cells, from 0"),
            (Some(index), _) => Ok(Share::Task(index)),
            (None, Some(shard)) => Ok(shard),
            (None, None) => Ok(Share::All),
        }
    }
}

pub fn run(args: &Args) -> Result<()> {
    let places = args.places()?;
    let share = args.share(places.len())?;
    if args.list {
        return list(&places, share, args.json);
    }
    memory::watch();
    interrupt::install(interrupt::SAVING).context("cannot take over Ctrl-C")?;
    let outcome = run_cells(&places, share)?;
    for page in reports(&places, &args.out)? {
        output::line(&page.display().to_string())?;
    }
    let diverged = outcome.diverged.len();
    let mut line = format!("{} of {} cells done", outcome.done, outcome.total());
    for (count, what) in
        [(diverged, "diverged"), (outcome.failed.len(), "failed"), (outcome.elsewhere, "in other processes")]
    {
        if count > 0 {
            let _ = write!(line, ", {count} {what}");
        }
    }
    output::line(&line)?;
    outcome.diverged.iter().try_for_each(|name| output::line(&format!("{name} diverged")))?;
    match &outcome.failed[..] {
        [] => Ok(()),
        failed => {
            let lines: Vec<String> = failed.iter().map(|(name, error)| format!("\n  {name}: {error}")).collect();
            Err(CheckFailed(format!(
                "{} of the cells failed; the same command tries them again:{}",
                failed.len(),
                lines.concat()
            ))
            .into())
        }
    }
}

/// A report of each experiment that has outcomes, and one of all if there are several.
fn reports(places: &[Place], out: &Path) -> Result<Vec<PathBuf>> {
    let mut experiments: Vec<&str> = places.iter().map(|place| place.experiment.as_str()).collect();
    experiments.dedup();
    let mut pages = Vec::new();
    for &experiment in &experiments {
        pages.extend(page(places.iter().filter(|place| place.experiment == experiment), &out.join(experiment))?);
    }
    if pages.len() > 1 {
        pages.extend(page(places.iter(), out)?);
    }
    Ok(pages)
}

/// The report of those of `places` that have an outcome, in `directory`.
fn page<'a>(places: impl Iterator<Item = &'a Place>, directory: &Path) -> Result<Option<PathBuf>> {
    if !directory.is_dir() {
        return Ok(None);
    }
    // One process at a time, so that the last one leaves the page on which all cells are.
    let _held = lock::hold(directory)?;
    let is_over = |place: &&Place| matches!(place.state(), Ok(State::Done | State::Diverged(_)));
    let paths: Vec<PathBuf> = places.filter(is_over).map(|place| place.path().to_owned()).collect();
    if paths.is_empty() {
        return Ok(None);
    }
    Ok(Some(report::write(&paths, directory)?))
}

fn list(places: &[Place], share: Share, json: bool) -> Result<()> {
    let mut rows = Vec::new();
    for (index, place) in places.iter().enumerate().filter(|(index, _)| share.has(*index)) {
        let (state, note) = match place.state()? {
            State::Open => ("open", String::new()),
            State::Begun => ("begun", String::new()),
            State::Done => ("done", String::new()),
            State::Diverged(failure) => ("diverged", failure.error),
            State::Failed(failure) => ("failed", failure.error),
        };
        if json {
            rows.push(serde_json::json!({
                "index": index, "experiment": place.experiment, "cell": place.slug, "state": state,
                "note": note, "directory": place.path().display().to_string(),
            }));
        } else {
            let line = format!("{index:>5}  {state:<8}  {}/{}  {note}", place.experiment, place.slug);
            output::line(line.trim_end())?;
        }
    }
    if json {
        output::line(&serde_json::to_string_pretty(&rows)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_checked() {
        assert_eq!(shard("2/8"), Ok(Share::Shard { part: 2, of: 8 }));
        for wrong in ["0/3", "4/3", "1", "a/b", "1/0"] {
            assert!(shard(wrong).is_err(), "{wrong}");
        }
    }
}
