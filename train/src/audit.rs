//! `train audit`.

use anyhow::{Context, Result};
use hankel_io::{Existing, terminal};
use hankel_study::{audit, claims, experiment_header, read_results};
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory with the files that `train report --results` writes
    #[arg(default_value = "docs/results")]
    results: PathBuf,
    /// The page
    #[arg(short, long, value_name = "FILE", default_value = "docs/reproduction.md")]
    output: PathBuf,
    /// Directory with the experiments, whose heads say what was measured [default: train/experiments/paper, if it is there]
    #[arg(long, value_name = "DIR")]
    experiments: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<()> {
    let (claims, cells) = (claims::all(), read_results(&args.results)?);
    write(&args.output, &audit::audit(&claims, &cells))?;
    let here = || Some(PathBuf::from("train/experiments/paper")).filter(|path| path.is_dir());
    let Some(experiments) = args.experiments.clone().or_else(here) else { return Ok(()) };
    let unreadable = || format!("cannot read {}", experiments.display());
    let entries = fs::read_dir(&experiments).with_context(unreadable)?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>().with_context(unreadable)?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    for path in files {
        let text = hankel_io::input::read_to_string(&path)?;
        match experiment_header::rewrite(&text, &claims, &cells).with_context(|| path.display().to_string())? {
            Some(new) if new != text => write(&path, &new)?,
            _ => {}
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    hankel_io::write_file(path, text.as_bytes(), Existing::Replace)?;
    Ok(terminal::line(&path.display().to_string())?)
}
