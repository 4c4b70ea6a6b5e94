//! The report of one or several runs: a page that needs nothing but itself, and its plots as files.
//!
//! Everything shown is read back from what a run leaves behind ([`Run`]). A report is a list of [`Section`]s, each made
//! by one function from the runs: a new table or figure is a new function and a line in `sections`.
//!
//! The page has inline CSS and SVG, no script and no reference to anything outside; it follows the reader's light or
//! dark setting, and shows narrow drawings of the figures on narrow screens.

mod answers;
mod apart;
mod comparison;
mod curves;
mod figure;
mod gates;
pub mod html;
mod provenance;
mod run;
mod singular_values;
mod summary;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod windows;

use hankel_io::{Existing, Outputs};
use rayon::prelude::*;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

pub use answers::Answers;
pub use apart::tell_apart;
pub use comparison::text_table;
pub use curves::{SLOTS, slots};
pub use figure::Figure;
pub use run::{Run, RunError, UNFINISHED};
pub use summary::run_header;

/// Why a report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// There was nothing to report on.
    #[error("a report needs at least one run")]
    NoRuns,
    /// A figure could not be drawn or written.
    #[error(transparent)]
    Plot(#[from] hankel_plots::PlotError),
    /// The page or a plot could not be written.
    #[error(transparent)]
    File(#[from] hankel_io::Error),
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

/// The sections about runs in reading order; those without content are left out of the page.
pub fn sections(runs: &[Run]) -> Vec<Section> {
    vec![
        comparison::section(runs),
        curves::section(runs),
        answers::section(runs),
        singular_values::section(runs),
        gates::section(runs),
        windows::section(runs),
        provenance::section(runs),
    ]
}

/// Writes the report of `runs` to `page`, and its [plots](plots_of) beside it.
///
/// # Errors
/// When `runs` is empty or a file cannot be written.
pub fn write(runs: &[Run], page: &Path) -> Result<(), ReportError> {
    if runs.is_empty() {
        return Err(ReportError::NoRuns);
    }
    let title = summary::title(runs);
    write_page(page, &title, &summary::header(&title, runs), sections(runs))
}

/// The folder of the figures of `page`: `plots` beside a `report.html`, `NAME-plots` beside any other, so that pages in
/// one folder keep theirs.
pub fn plots_of(page: &Path) -> PathBuf {
    let mut name = OsString::from("plots");
    if let Some(stem) = page.file_stem().filter(|stem| *stem != "report") {
        name = [stem, OsStr::new("-plots")].into_iter().collect();
    }
    page.with_file_name(name)
}

/// Writes a page of sections, and their figures to a folder [beside it](plots_of). `header` is finished HTML.
///
/// # Errors
/// When a figure cannot be drawn or a file cannot be written.
pub fn write_page(page: &Path, title: &str, header: &str, sections: Vec<Section>) -> Result<(), ReportError> {
    let mut sections: Vec<Section> = sections.into_iter().filter(|s| !s.is_empty()).collect();
    figure::number_repeated_names(sections.iter_mut().flat_map(|section| &mut section.figures));
    let plots = plots_of(page);
    let figures: Vec<&Figure> = sections.iter().flat_map(|s| &s.figures).collect();
    let drawn = figures.par_iter().map(|figure| figure.files()).collect::<Result<Vec<_>, _>>()?;
    let html = html::page(title, header, &sections)?;
    // The page and its plots come together or not at all.
    let mut outputs = Outputs::new();
    // A device or a pipe takes the page alone.
    let is_file = page.is_file() || !page.exists();
    if is_file {
        outputs.create_folder(&plots)?;
    }
    for (name, content) in drawn.iter().flatten().filter(|_| is_file) {
        outputs.file(&plots.join(hankel_io::name::component("the figure", name)?), content, Existing::Replace)?;
    }
    outputs.file(page, html.as_bytes(), Existing::Replace)?;
    Ok(outputs.commit()?)
}
