//! `train audit`.

use super::output;
use crate::study::{audit, claims, read_results};
use anyhow::{Context, Result};
use hankel_models::weights::atomic;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory with the files that `train report --results` writes
    #[arg(default_value = "docs/results")]
    results: PathBuf,
    /// The page
    #[arg(short, long, value_name = "FILE", default_value = "docs/reproduction.md")]
    output: PathBuf,
}

pub fn run(args: &Args) -> Result<()> {
    let cells = read_results(&args.results)?;
    let page = audit::audit(&claims::all(), &cells);
    atomic::write_file(&args.output, page.as_bytes())
        .with_context(|| format!("cannot write {}", args.output.display()))?;
    output::line(&args.output.display().to_string())
}
