//! `train export`.

use anyhow::{Context, Result, bail};
use hankel_io::terminal;
use hankel_trainer::export::{scalars, tensorboard, to_csv};
use hankel_trainer::report::Run;
use std::fs;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run directory
    run: PathBuf,
    /// Print every logged figure as a line of comma-separated values
    #[arg(long, conflicts_with = "tensorboard")]
    csv: bool,
    /// Write event files for TensorBoard, one directory per stage
    #[arg(long, value_name = "DIR")]
    tensorboard: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<()> {
    let run = Run::load(&args.run)?;
    if !args.csv && args.tensorboard.is_none() {
        bail!(
            "say what to export of {0}: `train export {0} --csv` prints every logged figure, `--tensorboard DIR` writes event files; \
             adapters are PEFT directories under {0}/adapters already, and `train convert` writes GGUF files",
            args.run.display()
        );
    }
    let scalars = scalars(&run.events);
    let Some(directory) = &args.tensorboard else { return Ok(terminal::line(to_csv(&scalars).trim_end())?) };
    // Events are dated from the beginning of the run, which is when its configuration was written.
    let begun = fs::metadata(args.run.join("config.toml")).and_then(|file| file.modified()).ok();
    let begun = begun.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map_or(0.0, |time| time.as_secs_f64());
    let files = tensorboard(&scalars, begun, directory)
        .with_context(|| format!("the events of {} cannot be exported", args.run.display()))?;
    Ok(files.iter().try_for_each(|file| terminal::line(&file.display().to_string()))?)
}
