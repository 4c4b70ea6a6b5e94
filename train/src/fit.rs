//! `train fit`.

use super::device::fall_back_to_f32;
use anyhow::{Context, Result, bail};
use hankel_io::lock::Held;
use hankel_io::terminal;
use hankel_trainer::config::{Config, Precision};
use hankel_trainer::fit::{Prepared, dry_run, fit};
use hankel_trainer::format::{bytes, duration};
use hankel_trainer::report::{self, Run};
use hankel_trainer::run::{RunDirectory, RunError, interrupt, lock, memory};
use hankel_trainer::tell;
use std::path::{Path, PathBuf};

/// The configuration used when none is named.
const QUICKSTART: &str = include_str!("../experiments/quickstart.toml");
const QUICKSTART_NAME: &str = "quickstart.toml";

/// Keys of a configuration that say where and how exactly it is computed, not what.
const OF_DEVICE: [&str; 3] = ["device", "gpu_memory", "precision"];

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Configuration file; the embedded quickstart when left out
    config: Option<PathBuf>,
    /// Change a key of the configuration, for example train.lr=1e-3 or adapter.hrm.state_dim=16
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Run directory, instead of the first free one of runs/NAME, runs/NAME-2 ...
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Continue a run from its newest checkpoint: that of --out, or the newest of this name under runs/; it may change its
    /// device
    #[arg(long)]
    resume: bool,
    /// Print the resolved configuration, parameters, memory and the first batch, and train nothing
    #[arg(long)]
    dry_run: bool,
    /// Begin also when the run is estimated to take more memory than there is
    #[arg(long)]
    force: bool,
}

impl Args {
    fn load(&self) -> Result<Config> {
        let (text, name) = match &self.config {
            Some(path) => (hankel_io::input::read_to_string(path)?, path.display().to_string()),
            None => (QUICKSTART.to_owned(), QUICKSTART_NAME.to_owned()),
        };
        let (config, notes) = Config::load(&text, &name, &self.overrides)?;
        for note in notes {
            tell!("{note}");
        }
        Ok(config)
    }

    /// The configuration of a run to resume. If one is given, it must be the same except for the device.
    fn load_resumed(&self) -> Result<(Config, RunDirectory, Held)> {
        let is_of_device = |assignment: &&String| {
            let key = assignment.split('=').next().unwrap_or_default().trim();
            OF_DEVICE.contains(&key)
        };
        let (of_device, others): (Vec<&String>, Vec<&String>) = self.overrides.iter().partition(is_of_device);
        let asked =
            if self.config.is_some() || !others.is_empty() || self.out.is_none() { Some(self.load()?) } else { None };
        let path = match (&self.out, &asked) {
            (Some(out), _) => out.clone(),
            (None, Some(asked)) => RunDirectory::newest(&asked.name)
                .with_context(|| format!("no run of `{}` under runs/ to resume: name one with --out", asked.name))?,
            (None, None) => bail!("name the run to resume with --out"),
        };
        let directory = RunDirectory::open(&path)?;
        let lock = lock::try_hold(&path)?.ok_or_else(|| RunError::Busy(path.clone()))?;
        let before = load_run(directory.path())?;
        let mut own = load_run_with(directory.path(), &of_device.into_iter().cloned().collect::<Vec<_>>())?;
        if let Some(mut asked) = asked {
            if self.config.is_some() {
                (own.device, own.gpu_memory, own.precision) = (asked.device.clone(), asked.gpu_memory, asked.precision);
            }
            (asked.device, asked.gpu_memory, asked.precision) = (own.device.clone(), own.gpu_memory, own.precision);
            if asked != own {
                bail!(
                    "{} was begun with another configuration ({}): resume it with --out alone, or begin a new run",
                    path.display(),
                    difference(&own.to_toml(), &asked.to_toml())
                );
            }
        }
        if own.precision.dtype() != before.precision.dtype() {
            let [was, asked] = [before.precision, own.precision].map(Precision::dtype);
            bail!("{} was begun in {was}: it cannot go on in {asked}", path.display());
        }
        if own.device != before.device {
            tell!("resuming on device = {:?}; it was {:?} before", own.device, before.device);
            if own.precision == before.precision {
                fall_back_to_f32(&mut own);
            }
        }
        Ok((own, directory, lock))
    }
}

/// The resolved configuration of a run.
pub fn load_run(directory: &Path) -> Result<Config> {
    load_run_with(directory, &[])
}

fn load_run_with(directory: &Path, overrides: &[String]) -> Result<Config> {
    let path = directory.join("config.toml");
    let text = hankel_io::input::read_to_string(&path)?;
    Ok(Config::load(&text, &path.display().to_string(), overrides)?.0)
}

/// The first line in which two resolved configurations differ.
fn difference(own: &str, asked: &str) -> String {
    let mut section = "";
    for (own, asked) in own.lines().zip(asked.lines()) {
        if own != asked {
            let place = if section.is_empty() { String::new() } else { format!("{section} ") };
            return format!("it has {place}{own}, the command asks for {asked}");
        }
        if own.starts_with('[') {
            section = own;
        }
    }
    "one has more settings than the other".to_owned()
}

pub fn run(args: &Args) -> Result<()> {
    if args.dry_run {
        terminal::print(&dry_run(&args.load()?)?)?;
        return Ok(());
    }
    let (config, prepared, directory, _lock) = if args.resume {
        let (config, directory, lock) = args.load_resumed()?;
        let prepared = Prepared::within_memory(&config, args.force)?;
        (config, prepared, directory, lock)
    } else {
        let config = args.load()?;
        // Whatever cannot be set up fails before a directory is made.
        let prepared = Prepared::within_memory(&config, args.force)?;
        let (directory, lock) = RunDirectory::begin(&config.name, args.out.as_deref())?;
        (config, prepared, directory, lock)
    };
    memory::watch();
    interrupt::install(interrupt::SAVING).context("cannot take over Ctrl-C")?;
    tell!("run directory: {}", directory.path().display());
    let outcome = fit(&config, prepared, directory, args.resume)?;
    let run = outcome.directory.path().to_owned();
    let page = run.join("report.html");
    report::write(&[Run::load(&run)?], &page)?;
    let result = &outcome.result;
    terminal::line(&report::text_table(result))?;
    let own = result.peak_anonymous_bytes.map(bytes);
    let of_device = result.peak_device_bytes.map(|peak| format!("{} on {}", bytes(peak), result.environment.device));
    let memory: Vec<String> = own.into_iter().chain(of_device).collect();
    let memory = if memory.is_empty() { String::new() } else { format!(" with {}", memory.join(" and ")) };
    let wall = duration(result.wall_time_seconds);
    terminal::line(&format!("{} after {wall}{memory}: {}", run.display(), page.display()))?;
    if let Some(folder) = outcome.directory.existing_predictions() {
        terminal::line(&format!("every answer beside its references: {}", folder.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_quickstart_is_valid() {
        let (config, _) = Config::load(QUICKSTART, QUICKSTART_NAME, &[]).unwrap();
        assert_eq!(config.name, "quickstart");
    }

    #[test]
    fn differences_are_named() {
        assert_eq!(
            difference("a = 1\n[train]\nlr = 0.1\n", "a = 1\n[train]\nlr = 0.2\n"),
            "it has [train] lr = 0.1, the command asks for lr = 0.2"
        );
    }
}
