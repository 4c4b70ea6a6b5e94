//! `train report`.

use anyhow::{Result, bail};
use hankel_io::terminal;
use hankel_study::{Cell, report, write_results};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run directories, and directories of sweeps
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// The page; plots go to the directory plots/ beside it
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    /// Write the figures of all cells of sweeps to DIR/EXPERIMENT-SCALE.jsonl, for `train audit`
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<()> {
    if args.output.is_dir() {
        bail!("--output {} is a directory: name the page, {0}/report.html", args.output.display());
    }
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
    report::write(runs, &args.output)?;
    terminal::line(&args.output.display().to_string())?;
    Ok(())
}
