//! `train report`.

use super::output;
use crate::report;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run directories
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// The page; plots go to the directory plots/ beside it
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
}

pub fn run(args: &Args) -> Result<()> {
    let directory = args.output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let page = report::write(&args.runs, directory)?;
    if page.file_name() != args.output.file_name() {
        fs::rename(&page, &args.output).with_context(|| format!("cannot write {}", args.output.display()))?;
    }
    output::line(&args.output.display().to_string())?;
    Ok(())
}
