//! The report of sweeps: cells of experiments, repeated over seeds, as means with their deviations.
//!
//! Runs that no sweep made, and one run by itself, are shown as [`hankel_trainer::report`] shows them.

mod axes;
mod claims;
mod curves;
mod experiment;
mod figures;
mod layers;
mod rows;
mod table;
#[cfg(test)]
mod tests;

use crate::rows::{agree, is_within, join, names, settle};
use crate::run_directories::{cell_of, run_directories};
use crate::settings::Seen;
use crate::{CELL_FILE, Cell};
use anyhow::{Result, bail, ensure};
use experiment::Experiment;
use hankel_io::terminal;
use hankel_trainer::format::{counted, duration};
use hankel_trainer::report::html::{Text, facts, subheading};
use hankel_trainer::report::{
    ReportError, Run, Section, UNFINISHED, run_header, tell_apart, write as write_runs, write_page,
};
use hankel_trainer::results::{AdapterResult, Event, RunResult};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A cell of a sweep with what it logged.
#[derive(Debug, Clone)]
struct CellRun {
    cell: Cell,
    events: Vec<Event>,
}

impl CellRun {
    /// Rows of its result; none when it diverged as a whole.
    fn rows(&self) -> &[AdapterResult] {
        self.cell.result.as_ref().map_or(&[], |result| &result.rows)
    }
}

/// The runs in directories of runs and of sweeps, each with its cell when it is a finished or diverged cell of a sweep. A cell that
/// is in several of them, as when the directories of several machines are put together, counts once; one that was run row by row is put
/// together from its rows.
///
/// # Errors
/// When there is none in one of them, or it cannot be read; when the figures of a cell that is there twice differ, or the settings of two cells of
/// an experiment.
pub fn read(directories: &[PathBuf]) -> Result<Vec<(Run, Option<Cell>)>> {
    let found = run_directories(directories)?;
    let (mut runs, mut left_out) = (Vec::<(Run, Option<Cell>, &Path)>::new(), Vec::new());
    let mut seen = Seen::default();
    for directory in &found {
        let run = Run::load(directory)?;
        let cell = cell_of(directory, run.result.as_ref())?;
        if let Some(cell) = &cell {
            let name = directory.display().to_string();
            if let Some((part, other)) = seen.difference(&cell.id, &cell.settings) {
                bail!(
                    "{other} and {name} are of one experiment and were run with different settings in `{part}`, and means over them would say \
                     nothing: leave one out"
                );
            }
            seen.add(&cell.id, &cell.settings, &name);
            let twin = runs.iter_mut().find_map(|(run, known, first)| {
                let known = known.as_mut().filter(|known| known.id == cell.id)?;
                Some((run, known, first))
            });
            if let Some((first_run, known, first)) = twin {
                let (one, other) = (first.display(), directory.display());
                ensure!(
                    agree(known, cell),
                    "{one} and {other} are the same cell with different figures: leave one out"
                );
                let whole = known.planned_rows.is_empty() && cell.planned_rows.is_empty();
                let only: Vec<&str> = names(known).symmetric_difference(&names(cell)).copied().collect();
                ensure!(
                    !whole || only.is_empty(),
                    "{one} and {other} are the same cell, and one of them alone has {}: leave one out, or run both with --by-row",
                    only.join(", ")
                );
                if !known.planned_rows.is_empty() || !cell.planned_rows.is_empty() {
                    if !is_within(cell, known) {
                        add_events(first_run, known, run.events, cell);
                    }
                    join(known, cell);
                    first_run.result.clone_from(&known.result);
                }
                continue;
            }
        }
        if found.len() == 1 || cell.is_some() || !directory.join(CELL_FILE).is_file() {
            runs.push((run, cell, directory));
        } else {
            left_out.push(directory);
        }
    }
    if let Some(first) = left_out.first() {
        let cells = counted(left_out.len(), "cell");
        terminal::tell(&format!("note: {cells} without a result left out, {} among them", first.display()));
    }
    let mut alone: Vec<(&mut Run, &Path)> = Vec::new();
    for (run, cell, directory) in &mut runs {
        match cell {
            Some(cell) => {
                settle(cell);
                note_losses(run, cell);
            }
            // Cells have names of their own.
            None => alone.push((run, *directory)),
        }
    }
    tell_apart(&mut alone);
    let runs = runs.into_iter().map(|(run, cell, _)| (run, cell)).collect();
    Ok(runs)
}

/// Says of the run of a cell what came to nothing, in place of that it is not finished.
fn note_losses(run: &mut Run, cell: &Cell) {
    let losses = cell.losses();
    if run.result.is_some() || !losses.is_empty() {
        run.notes.retain(|note| !note.starts_with(UNFINISHED));
    }
    // Of a run of all rows its table tells them.
    if run.result.as_ref().is_some_and(|result| !result.diverged.is_empty()) {
        return;
    }
    run.notes.extend(losses.iter().map(|loss| format!("Training came to values that are not finite. {loss}")));
}

/// Adds the events of another run of the cell `known`; `cell` has the rows of that run. Events of a row come from the run that has its
/// figures, those of any other stage from the first run that logged it.
fn add_events(first: &mut Run, known: &Cell, events: Vec<Event>, cell: &Cell) {
    let new: BTreeSet<&str> = names(cell).difference(&names(known)).copied().collect();
    first.events.retain(|event| event.stage().is_none_or(|stage| !new.contains(stage)));
    let stages: BTreeSet<String> = first.events.iter().filter_map(|event| Some(event.stage()?.to_owned())).collect();
    first.events.extend(events.into_iter().filter(|event| event.stage().is_none_or(|stage| !stages.contains(stage))));
}

/// Writes the report of `runs` to `page`, and its plots beside it. Cells of sweeps are shown as means over seeds; other runs,
/// and one by itself, one by one.
///
/// # Errors
/// When `runs` is empty or a file cannot be written.
pub fn write(runs: Vec<(Run, Option<Cell>)>, page: &Path) -> Result<(), ReportError> {
    let is_study = runs.len() > 1 && runs.iter().any(|(_, cell)| cell.is_some());
    let (mut cells, mut others) = (Vec::new(), Vec::new());
    for (run, cell) in runs {
        match cell {
            Some(cell) if is_study => {
                // Curves are of rows with figures.
                let is_lost = |event: &Event| event.stage().is_some_and(|stage| cell.diverged_rows.contains_key(stage));
                let events = run.events.into_iter().filter(|event| !is_lost(event)).collect();
                cells.push(CellRun { cell, events });
            }
            _ => others.push(run),
        }
    }
    if !is_study {
        return write_runs(&others, page);
    }
    let title = title(&cells);
    let results: Vec<&RunResult> = cells.iter().filter_map(|run| run.cell.result.as_ref()).collect();
    let mut header = format!("<h1>{}</h1>\n", Text(&title));
    if !results.is_empty() {
        header += &facts(&study_facts(&results));
    }
    for run in &others {
        header += &subheading(&run.name);
        header += &run_header(run);
    }
    let mut all = vec![claims::section(&cells)];
    all.extend(sections(&cells));
    if !others.is_empty() {
        all.extend(hankel_trainer::report::sections(&others));
    }
    write_page(page, &title, &header, all)
}

fn title(cells: &[CellRun]) -> String {
    let experiments: BTreeSet<&str> = cells.iter().map(|run| run.cell.id.experiment.as_str()).collect();
    match experiments.first() {
        Some(name) if experiments.len() == 1 => (*name).to_owned(),
        _ => format!("{} experiments", experiments.len()),
    }
}

/// What is common to the cells of sweeps: software, hardware, data.
fn study_facts(results: &[&RunResult]) -> Vec<(String, String)> {
    let distinct = |of: fn(&RunResult) -> String| {
        let values: BTreeSet<String> = results.iter().map(|result| of(result)).collect();
        values.into_iter().filter(|value| !value.is_empty()).collect::<Vec<_>>().join("; ")
    };
    let software = distinct(|result| {
        let commit = result.environment.commit.as_ref();
        format!("hankel {}{}", result.environment.hankel, commit.map_or_else(String::new, |c| format!(", commit {c}")))
    });
    let machine = distinct(|result| {
        let e = &result.environment;
        format!("{}, {} threads, device {}, {}", e.cpu, e.threads, e.device, e.precision)
    });
    let data = distinct(|result| {
        result
            .data
            .iter()
            .map(|file| format!("{} (SHA-256 {:.12}…)", file.path, file.sha256))
            .collect::<Vec<_>>()
            .join("; ")
    });
    let seconds: f64 = results.iter().map(|result| result.wall_time_seconds).sum();
    let out = [
        ("Runs", results.len().to_string()),
        ("Wall time of all", duration(seconds)),
        ("Software", software),
        ("Machine", machine),
        ("Data", data),
    ];
    out.into_iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A section per experiment, and before them what compares experiments.
fn sections(runs: &[CellRun]) -> Vec<Section> {
    let experiments = Experiment::all(runs);
    let mut sections = vec![figures::across(&experiments)];
    for experiment in &experiments {
        let (html, details) = table::section(experiment);
        let mut drawn = curves::figures(experiment);
        drawn.extend(axes::figures(experiment));
        drawn.extend(figures::of(experiment));
        drawn.extend(layers::figures(experiment));
        sections.push(Section { title: experiment.name.clone(), html, figures: drawn, details });
    }
    sections
}
