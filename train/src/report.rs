//! `train report`.

use anyhow::{Result, bail, ensure};
use hankel_io::{input, terminal};
use hankel_study::{Cell, report, write_results};
use hankel_trainer::report::html::is_page;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run directories, and directories of sweeps
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// HTML page to write, with its figures in a directory beside it: plots/ for report.html, NAME-plots/ for NAME.html. When left
    /// out, report.html in the directory given, if there is only one
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the figures of all cells of sweeps to DIR/EXPERIMENT-SCALE.jsonl, for `train audit`
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
}

impl Args {
    /// Where the page goes: of one directory, where `fit` and `sweep` write it.
    fn page(&self) -> Result<PathBuf> {
        let page = match (&self.output, &self.runs[..]) {
            (Some(page), _) => page.clone(),
            (None, [one]) => one.join("report.html"),
            (None, _) => bail!("a report on several directories has no default path: name one with -o FILE"),
        };
        ensure!(page.as_os_str() != "-", "--output -: a page comes with files beside it, name one");
        if page.is_dir() {
            bail!("--output {} is a directory: name the page, {0}/report.html", page.display());
        }
        // Pipes and links are the writer's to judge.
        if page.is_file() && !is_page(&input::read(&page)?) {
            bail!("{} exists and was not written by this command: name another file with -o", page.display());
        }
        Ok(page)
    }
}

pub fn run(args: &Args) -> Result<()> {
    let page = args.page()?;
    let runs = report::read(&args.runs)?;
    if let Some(directory) = &args.results {
        let cells: Vec<Cell> = runs.iter().filter_map(|(_, cell)| cell.clone()).collect();
        if cells.is_empty() {
            bail!("--results needs finished cells of sweeps, and none of these runs is one");
        }
        for file in write_results(&cells, directory)? {
            terminal::line(&file.display().to_string())?;
        }
    }
    report::write(runs, &page)?;
    terminal::line(&page.display().to_string())?;
    Ok(())
}
