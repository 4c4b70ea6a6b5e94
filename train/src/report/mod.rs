//! The report of one or several runs: a page that needs nothing but itself, and its plots as files.
//!
//! Everything shown is read back from what a run leaves behind ([`Run`]). A report is a list of [`Section`]s, each made
//! by one function from the runs: a new table or figure is a new function and a line in `sections`.
//!
//! The page has inline CSS and SVG, no script and no reference to anything outside; it follows the reader's light or
//! dark setting, and shows narrow drawings of the figures on narrow screens.

mod comparison;
mod curves;
mod figure;
mod format;
mod gates;
mod html;
mod provenance;
mod run;
mod singular_values;
mod study;
mod summary;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod windows;

use hankel_models::weights::WeightsError;
use hankel_models::weights::atomic::write_file;
use rayon::prelude::*;
use std::path::{Path, PathBuf};

use crate::study::{CELL_FILE, expand};
pub use comparison::text_table;
pub use figure::{AnyChart, Figure};
pub(crate) use format::{bytes, capitalised, duration, significant, thousands};
pub use run::{Run, RunError};

/// Why a report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// There was nothing to report on.
    #[error("a report needs at least one run directory")]
    NoRuns,
    /// A run directory could not be read.
    #[error(transparent)]
    Run(#[from] RunError),
    /// There are no runs where they should be.
    #[error("{0:#}")]
    Directories(anyhow::Error),
    /// A figure could not be drawn or written.
    #[error(transparent)]
    Plot(#[from] hankel_plots::PlotError),
    /// The page could not be written.
    #[error(transparent)]
    Page(#[from] WeightsError),
    /// The numbers of a plot or the directory of the plots could not be written.
    #[error("could not write {}: {source}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// Why the system refused.
        source: std::io::Error,
    },
}

/// A part of the page: a heading, finished HTML, and figures.
///
/// Whoever makes the HTML escapes what comes from outside.
#[derive(Debug, Default)]
pub struct Section {
    /// The heading, as plain text.
    pub title: String,
    /// HTML between heading and figures.
    pub html: String,
    /// Figures, drawn into the page and written beside it.
    pub figures: Vec<Figure>,
    /// HTML after the figures.
    pub details: String,
}

impl Section {
    fn is_empty(&self) -> bool {
        self.html.is_empty() && self.figures.is_empty() && self.details.is_empty()
    }
}

/// All sections in reading order; those without content are left out of the page. Cells of sweeps are shown as means over seeds,
/// other runs, and one by itself, one by one.
fn sections(runs: &[Run]) -> Vec<Section> {
    if runs.len() > 1 && runs.iter().any(|run| run.cell.is_some()) {
        let (cells, others): (Vec<Run>, Vec<Run>) = runs.iter().cloned().partition(|run| run.cell.is_some());
        let mut all = vec![study::claims(&cells)];
        all.extend(study::sections(&cells));
        if !others.is_empty() {
            all.extend(sections(&others));
        }
        return all;
    }
    vec![
        comparison::section(runs),
        curves::section(runs),
        singular_values::section(runs),
        gates::section(runs),
        windows::section(runs),
        provenance::section(runs),
    ]
}

/// Reads run directories, or those in directories of sweeps, and writes `report.html` and `plots/` into `out` (the run directory itself for a single run).
/// Returns the path of the page.
///
/// # Errors
/// When a run directory cannot be read (see `Run::load`) or a file cannot be written.
pub fn write(run_dirs: &[PathBuf], out: &Path) -> Result<PathBuf, ReportError> {
    let page = out.join("report.html");
    write_runs(&read(run_dirs)?, &page)?;
    Ok(page)
}

/// The runs in directories of runs and of sweeps.
///
/// # Errors
/// When there is none in one of them, or it cannot be read.
pub fn read(directories: &[PathBuf]) -> Result<Vec<Run>, ReportError> {
    let found = expand(directories).map_err(ReportError::Directories)?;
    let several = found.len() > 1;
    let runs = found.iter().map(|dir| Ok((Run::load(dir)?, dir.join(CELL_FILE).is_file())));
    let runs = runs.collect::<Result<Vec<_>, RunError>>()?.into_iter();
    // Among others, a cell that is still running is left out.
    Ok(runs.filter(|(run, of_sweep)| !several || !of_sweep || run.cell.is_some()).map(|(run, _)| run).collect())
}

/// Writes the report of runs that are read already to `page`, and `plots/` beside it.
///
/// # Errors
/// When `runs` is empty or a file cannot be written.
pub fn write_runs(runs: &[Run], page: &Path) -> Result<(), ReportError> {
    if runs.is_empty() {
        return Err(ReportError::NoRuns);
    }
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |source| ReportError::Write { path, source }
    };
    let mut sections: Vec<Section> = sections(runs).into_iter().filter(|s| !s.is_empty()).collect();
    figure::number_repeated_names(sections.iter_mut().flat_map(|section| &mut section.figures));
    let plots = page.with_file_name("plots");
    std::fs::create_dir_all(&plots).map_err(failed(&plots))?;
    let figures: Vec<&Figure> = sections.iter().flat_map(|s| &s.figures).collect();
    figures.par_iter().try_for_each(|figure| figure.save(&plots))?;
    let html = html::page(&summary::title(runs), &summary::header(runs), &sections)?;
    Ok(write_file(page, html.as_bytes())?)
}
