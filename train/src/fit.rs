//! `train fit`.

use super::CheckFailed;
use super::device::fall_back_to_f32;
use super::edited;
use super::more_steps::{self, is_of_epochs, is_of_steps};
use crate::adapters;
use anyhow::{Context, Result, anyhow, bail, ensure};
use hankel_io::lock::Held;
use hankel_io::terminal;
use hankel_models::gguf::is_gguf;
use hankel_trainer::config::{Config, Precision, first_difference};
use hankel_trainer::fit::{Prepared, check_same, dry_run, fit};
use hankel_trainer::format::{bytes, duration};
use hankel_trainer::parallel::Group;
use hankel_trainer::report::{self, Run};
use hankel_trainer::results::RunResult;
use hankel_trainer::run::{Finder, RunDirectory, RunError, interrupt, lock, memory};
use hankel_trainer::tell;
use std::path::{Path, PathBuf};

/// The configuration used when none is named.
const QUICKSTART: &str = include_str!("../experiments/quickstart.toml");
const QUICKSTART_NAME: &str = "quickstart.toml";
/// What its first impression needs beside it (docs/results/quickstart-2000.json).
const LONGER: &str =
    "300 steps are too few to compare adapters: after 2,000 (--set train.steps=2000) LoRA has 0.961 and HRM 0.926";

/// Keys of a configuration that say where and how exactly it is computed, not what.
const OF_DEVICE: [&str; 3] = ["device", "gpu_memory", "precision"];

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Configuration file (TOML); when left out, the embedded quickstart, or with --resume and --out the configuration of that run
    config: Option<PathBuf>,
    /// Change a key of the configuration, for example train.lr=1e-3 or adapter.hrm.state_dim=16
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Train only the adapters of these names, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Run directory, instead of the first free one of runs/NAME, runs/NAME-2 ...
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Continue a run from its newest checkpoint: the run in --out, or else the newest one under runs/ with the configuration's name.
    /// --set may change the device and, with a constant schedule, raise the number of steps (--set train.steps=N)
    #[arg(long)]
    resume: bool,
    /// Print the resolved configuration, parameters, memory and the first batch, and train nothing
    #[arg(long)]
    dry_run: bool,
    /// Begin also when the run is estimated to take more memory than there is
    #[arg(long)]
    force: bool,
    /// Print the result (or with --dry-run what is known before) as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    fn load(&self) -> Result<Config> {
        self.load_with(&self.overrides)
    }

    fn load_with(&self, overrides: &[String]) -> Result<Config> {
        let (text, name) = match &self.config {
            Some(path) => (self.read(path)?, path.display().to_string()),
            None => (QUICKSTART.to_owned(), QUICKSTART_NAME.to_owned()),
        };
        let (mut config, notes) = Config::load(&text, &name, overrides)?;
        Config::check_data(&text, &name, overrides)?;
        // What a run has chosen was told when it began.
        for note in notes.iter().filter(|_| !self.resume) {
            tell!("{note}");
        }
        self.choose(&mut config)?;
        Ok(config)
    }

    fn names_precision(&self, overrides: &[String]) -> Result<bool> {
        let Some(path) = &self.config else { return Ok(false) };
        Ok(Config::names_precision(&self.read(path)?, &path.display().to_string(), overrides)?)
    }

    /// Keeps the adapters that `--only` names.
    fn choose(&self, config: &mut Config) -> Result<()> {
        let names: Vec<String> = config.adapter.iter().map(|adapter| adapter.name.clone()).collect();
        if let Some(unknown) = self.only.iter().find(|name| !names.contains(name)) {
            bail!("--only {unknown}: there is no such adapter; {} has {}", config.name, names.join(", "));
        }
        config.adapter.retain(|adapter| self.only.is_empty() || self.only.contains(&adapter.name));
        Ok(())
    }

    /// The text of a configuration.
    fn read(&self, path: &Path) -> Result<String> {
        let shown = path.display();
        if path.join("config.toml").is_file() {
            let (how, command) = if self.resume {
                ("continue it", format!("train fit --out {shown} --resume"))
            } else {
                ("begin another run of its configuration", format!("train fit {shown}/config.toml"))
            };
            bail!("{shown} is a run: {how} with `{command}`");
        }
        if is_model(path) {
            bail!(
                "{shown} is a model: `fit` takes a configuration, which names it (docs/data.md has one: `kind = \"decoder\"` and \
                 `model = {:?}` in [backbone]); `train chat {shown}` talks with it",
                path.display().to_string()
            );
        }
        Ok(hankel_io::input::read_to_string(path)?)
    }

    /// The configuration of a run to resume. If one is given, it must be the same except for the device. The directory is held
    /// where it is written.
    fn load_resumed(&self, writes: bool) -> Result<(Config, RunDirectory, Option<Held>)> {
        let is_of_device = |assignment: &&String| {
            let key = assignment.split('=').next().unwrap_or_default().trim();
            OF_DEVICE.contains(&key)
        };
        let (mut of_device, others): (Vec<String>, Vec<String>) =
            self.overrides.iter().cloned().partition(|a| is_of_device(&a));
        of_device.retain(|assignment| !leaves_precision(assignment));
        let (mut of_steps, others): (Vec<String>, Vec<String>) = others.into_iter().partition(|a| is_of_steps(a));
        let (of_epochs, others): (Vec<String>, Vec<String>) = others.into_iter().partition(|a| is_of_epochs(a));
        let counts_steps = |passes: &String| {
            anyhow!(
                "{}: a run that is resumed counts steps: set `{}` instead",
                passes.trim(),
                passes.split('=').next().unwrap_or_default().trim().replace("epochs", "steps")
            )
        };
        if let Some(passes) = of_epochs.first().filter(|_| self.config.is_none()) {
            return Err(counts_steps(passes));
        }
        let names_run = self.config.is_some() || !others.is_empty() || !self.only.is_empty() || self.out.is_none();
        // Changed steps are checked separately below: what a new run would derive from its steps stays as it is in this run.
        let set = [&of_device[..], &others].concat();
        let asked = match &self.out {
            _ if !names_run => None,
            // What is set changes the run's own configuration, where there is no other.
            Some(out) if self.config.is_none() => {
                let mut own = load_run_with(out, &set)?;
                self.choose(&mut own)?;
                Some(own)
            }
            _ => Some(self.load_with(&set)?),
        };
        let path = match (&self.out, &asked) {
            (Some(out), _) => out.clone(),
            (None, Some(asked)) => RunDirectory::newest(&asked.name)
                .with_context(|| format!("no run of `{}` under runs/ to resume: name one with --out", asked.name))?,
            (None, None) => bail!("name the run to resume with --out"),
        };
        let directory = RunDirectory::open(&path)?;
        let hold = || lock::try_hold(&path)?.ok_or_else(|| RunError::Busy(path.clone()));
        let lock = if writes { Some(hold()?) } else { None };
        let before = load_run(directory.path())?;
        if let Some(text) = edited::with_steps_of_checkpoint(&directory, &OF_DEVICE)? {
            more_steps::check(&directory, &config_of_run(&text, directory.path(), &[])?, &before)?;
        }
        let mut own = load_run_with(directory.path(), &of_device)?;
        if let Some(mut asked) = asked {
            if self.config.is_some() {
                (own.device, own.gpu_memory) = (asked.device.clone(), asked.gpu_memory);
                // What is not named was chosen when the run began.
                if self.names_precision(&of_device)? {
                    own.precision = asked.precision;
                }
            }
            let as_own = |asked: Config| Config {
                device: own.device.clone(),
                gpu_memory: own.gpu_memory,
                precision: own.precision,
                ..asked
            };
            asked = as_own(asked);
            let with_steps = |set: &[String]| -> Result<Config> {
                let mut asked = as_own(self.load_with(set)?);
                if !set.iter().any(|assignment| is_of_interval(assignment)) {
                    asked.take_intervals(&own);
                }
                Ok(asked)
            };
            // The command with which it was begun asks for no more steps.
            if self.config.is_some() && (!of_epochs.is_empty() || (asked != own && !of_steps.is_empty())) {
                let begun = with_steps(&[&set[..], &of_steps, &of_epochs].concat())?;
                if begun == own {
                    of_steps.clear();
                    asked = begun;
                } else if let Some(passes) = of_epochs.first() {
                    return Err(counts_steps(passes));
                } else {
                    // Other steps than it was begun with, which are looked at below.
                    let as_begun = steps_of(&own, &of_steps);
                    asked = with_steps(&[&set[..], &as_begun].concat())?;
                }
            }
            if asked != own {
                let (has, asks) = first_difference(&own.to_toml(), &asked.to_toml()).unwrap_or_default();
                bail!(
                    "{0} was begun with another configuration (it has {has}, the command asks for {asks}): resume it with \
                     `train fit --out {0} --resume`, or begin a new run",
                    path.display()
                );
            }
        }
        if own.precision.dtype() != before.precision.dtype() {
            let [was, asked] = [before.precision, own.precision].map(Precision::dtype);
            bail!("{} was begun in {was}: it cannot go on in {asked}", path.display());
        }
        if !of_steps.is_empty() {
            let longer = load_run_with(directory.path(), &[&of_device[..], &of_steps].concat())?;
            more_steps::check(&directory, &before, &longer)?;
            (own.train, own.adapter) = (longer.train, longer.adapter);
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

/// Whether an assignment leaves the precision to the device.
fn leaves_precision(assignment: &str) -> bool {
    let is_auto = |value: &str| value.trim().trim_matches(['"', '\'']) == "auto";
    assignment.split_once('=').is_some_and(|(key, value)| key.trim() == "precision" && is_auto(value))
}

/// Whether an assignment is to what follows from the steps otherwise.
fn is_of_interval(assignment: &str) -> bool {
    let key = assignment.split('=').next().unwrap_or_default().trim();
    ["log_every", "eval_every", "checkpoint_every", "warmup_steps"].iter().any(|interval| key.ends_with(interval))
}

/// Assignments to the same keys of the steps that `config` has.
fn steps_of(config: &Config, assignments: &[String]) -> Vec<String> {
    let of_key = |assignment: &String| {
        let key = assignment.split('=').next().unwrap_or_default().trim();
        let name = key.strip_prefix("adapter.").and_then(|rest| rest.strip_suffix(".train.steps"));
        let adapter = config.adapter.iter().find(|adapter| Some(&*adapter.name) == name);
        let steps = adapter.map_or(&config.train, |adapter| config.training_of(adapter)).steps?;
        Some(format!("{key}={steps}"))
    };
    assignments.iter().filter_map(of_key).collect()
}

/// Whether a model is at `place`.
pub fn is_model(place: &Path) -> bool {
    is_gguf(place) || place.join("config.json").is_file()
}

/// Refuses what is no model, where a run was looked for, too.
pub fn ensure_model(place: &Path) -> Result<()> {
    ensure!(
        is_model(place),
        "{} is neither a run (it has no config.toml) nor a model (a directory with config.json, or a GGUF file)",
        place.display()
    );
    Ok(())
}

/// What to do with a model where a run is expected.
fn hint(place: &Path) -> &'static str {
    if is_model(place) {
        "; it is a model: `chat` and `predict` take one in this place, `generate` as --model"
    } else {
        ""
    }
}

/// The resolved configuration of a run.
pub fn load_run(directory: &Path) -> Result<Config> {
    load_run_with(directory, &[])
}

fn load_run_with(directory: &Path, overrides: &[String]) -> Result<Config> {
    let path = directory.join("config.toml");
    ensure!(directory.exists(), "there is no run {}", directory.display());
    ensure!(
        path.is_file(),
        "{} is not the directory of a run: it has no config.toml, which `train fit` writes{}",
        directory.display(),
        hint(directory)
    );
    config_of_run(&hankel_io::input::read_to_string(&path)?, directory, overrides)
}

/// The configuration of the run in `directory` from its text.
fn config_of_run(text: &str, directory: &Path, overrides: &[String]) -> Result<Config> {
    let (finder, file) = (Finder::new(directory), directory.join("config.toml"));
    Ok(Config::load_of_run(text, &file.display().to_string(), &|path| finder.find(path), overrides)?)
}

/// What a run needs to begin, and where it is, if it was begun before.
type Ready = (Config, Prepared, Option<(RunDirectory, Option<Held>)>);

fn prepare(args: &Args, group: &Group) -> Result<Ready> {
    let (config, before) = if args.resume {
        let (config, directory, lock) = args.load_resumed(group.is_root())?;
        (config, Some((directory, lock)))
    } else {
        (args.load()?, None)
    };
    // Whatever cannot be set up fails before a directory is made.
    let prepared = Prepared::within_memory(&config, group.local_size(), args.force)?;
    Ok((config, prepared, before))
}

/// The directory of a new run, which process 0 makes and holds.
fn new_directory(config: &Config, args: &Args, group: &Group) -> Result<(RunDirectory, Option<Held>)> {
    let begun = group.is_root().then(|| RunDirectory::begin(&config.name, args.out.as_deref())).transpose();
    let begun = group.agree(begun.map_err(Into::into))?;
    let path = group.of_root(Ok(begun.as_ref().map(|(directory, _)| directory.path().to_owned())))?;
    Ok(match (begun, path) {
        (Some((directory, lock)), _) => (directory, Some(lock)),
        (None, path) => (RunDirectory::of_another_process(path.context("process 0 has no run directory")?), None),
    })
}

pub fn run(args: &Args, group: &Group) -> Result<()> {
    if args.dry_run && !group.is_root() {
        return Ok(());
    }
    if args.dry_run {
        let config = if args.resume { args.load_resumed(false)?.0 } else { args.load()? };
        let found = dry_run(&config)?;
        if args.json {
            terminal::json(&serde_json::to_string_pretty(&found.facts)?)?;
        } else {
            terminal::print(&found.text)?;
        }
        return Ok(());
    }
    let (mut config, prepared, before) = group.agree(prepare(args, group))?;
    let resumed = before.as_ref().map(|(directory, _)| directory.path().to_owned());
    check_same(group, &config, prepared.data_files(), resumed.as_deref())?;
    let (directory, _lock) = match before {
        Some(before) => before,
        None => new_directory(&config, args, group)?,
    };
    memory::watch();
    interrupt::install(interrupt::SAVING).context("cannot take over Ctrl-C")?;
    tell!("run directory: {}", directory.path().display());
    let outcome = fit(&config, prepared, directory, args.resume, group)?;
    if !group.is_root() {
        return ensure_trained(&outcome.result, group);
    }
    let run = outcome.directory.path().to_owned();
    config.adapter.retain(|adapter| outcome.result.diverged.iter().all(|lost| lost.name != adapter.name));
    adapters::tell_missing(&config, &run)?;
    let page = run.join("report.html");
    let write = || -> Result<()> { Ok(report::write(&[Run::load(&run)?], &page)?) };
    let written = write().with_context(|| {
        let run = run.display();
        format!("the training is finished and {run} is complete, but for its report, which `train report {run}` makes")
    });
    let result = &outcome.result;
    if args.json {
        terminal::json(&serde_json::to_string_pretty(result)?)?;
        written?;
        return ensure_trained(result, group);
    }
    terminal::line(&report::text_table(result))?;
    let own = result.peak_anonymous_bytes.map(bytes);
    let of_device = result.peak_device_bytes.map(|peak| format!("{} on {}", bytes(peak), result.environment.device));
    let memory: Vec<String> = own.into_iter().chain(of_device).collect();
    let memory = if memory.is_empty() { String::new() } else { format!(" with {}", memory.join(" and ")) };
    let wall = duration(result.wall_time_seconds);
    written?;
    terminal::line(&format!("{} after {wall}{memory}: {}", run.display(), page.display()))?;
    if args.config.is_none() && args.overrides.is_empty() && !args.resume {
        terminal::line(LONGER)?;
    }
    if let Some(folder) = outcome.directory.existing_predictions() {
        terminal::line(&format!("every answer beside its references: {}", folder.display()))?;
    }
    ensure_trained(result, group)
}

/// Fails where an adapter has no row, on all processes.
fn ensure_trained(result: &RunResult, group: &Group) -> Result<()> {
    let names: Vec<String> = result.diverged.iter().map(|lost| format!("`{}`", lost.name)).collect();
    if names.is_empty() {
        return Ok(());
    }
    group.end_together();
    let have = if names.len() == 1 { "it has" } else { "they have" };
    Err(CheckFailed(format!("{} diverged: {have} no row", names.join(", "))).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_quickstart_is_valid() {
        let (config, _) = Config::load(QUICKSTART, QUICKSTART_NAME, &[]).unwrap();
        assert_eq!(config.name, "quickstart");
    }
}
