//! The `train` command: every subcommand is a module with its arguments and what it does.

#![warn(clippy::print_stderr)]

mod adapters;
mod audit;
mod chat;
mod convert;
mod device;
mod devices;
mod edited;
mod eval;
mod export;
mod fit;
mod forward;
mod generate;
mod init_model;
mod limit;
mod merge;
mod model;
mod more_steps;
mod predict;
mod quantize;
mod report;
mod schema;
mod score;
mod sweep;
mod tokenize;
mod trace;

use anyhow::{Context, Result};
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use hankel_core::{gpu, trace as core_trace};
use hankel_io::{memory, terminal};
use hankel_models::settings::nearest;
use hankel_trainer::fit::Stop;
use hankel_trainer::parallel::Group;
use hankel_trainer::run::interrupt::{self, Interrupted};
use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

/// Trains recurrent and low-rank adapters on frozen transformers, and compares them.
#[derive(Debug, Parser)]
#[command(name = "train", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train the adapters of a configuration in turn on one backbone, evaluate and compare them
    Fit(fit::Args),
    /// Evaluate adapters on the backbone and task of a run
    Eval(eval::Args),
    /// Write what a model computes on given tokens: logits, loss, hidden states, gradients
    Forward(forward::Args),
    /// Continue a text with the model of a run or of a directory
    Generate(generate::Args),
    /// Talk with a model in the terminal, with an adapter or without
    Chat(chat::Args),
    /// Answer the prompts of a file; after an interruption the same command continues
    Predict(predict::Args),
    /// Quantise a model's projections to 4 bits, in the layout of bitsandbytes
    Quantize(quantize::Args),
    /// Fold an adapter into the weights of its model
    Merge(merge::Args),
    /// Write a model, or a LoRA adapter, as a GGUF file for llama.cpp
    Convert(convert::Args),
    /// Write a model of any size with random weights, for tests at scale
    InitModel(init_model::Args),
    /// Turn a text into token ids, or ids into a text
    Tokenize(tokenize::Args),
    /// Score a file of answers without any model
    Score(score::Args),
    /// Run experiments: configurations with a grid of values, of which each combination is a cell
    Sweep(sweep::Args),
    /// Write one report about one or several runs
    Report(report::Args),
    /// Write the audit of the paper's claims from figures of earlier runs
    Audit(audit::Args),
    /// Export the figures that a run logged, as CSV or TensorBoard event files
    Export(export::Args),
    /// List the GPUs of this machine
    Devices(devices::Args),
    /// Summarise the trace of a command that ran with HANKEL_TRACE=FILE: the time of each kernel, and an estimate for more cores
    Trace(trace::Args),
    /// Print the JSON schema of configurations, with which editors complete and check TOML
    Schema,
    /// Print what a shell needs to complete the commands and options of `train`
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// A failed `--expect` check.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CheckFailed(pub String);

/// Exit code of a failed check.
const CHECK_FAILED: u8 = 1;
/// Exit code of bad usage or input.
const BAD_INPUT: u8 = 2;

/// What other trainers call a command.
const ELSEWHERE: [(&[&str], &str); 5] = [
    (&["train", "finetune", "fine-tune", "sft", "lora", "run"], "fit"),
    (&["test", "evaluate", "validate"], "eval"),
    (&["infer", "inference", "batch"], "predict"),
    (&["fuse"], "merge"),
    (&["gguf", "export-gguf"], "convert"),
];

/// The command line. A command that clap does not know, and finds nothing near, is answered with the one that is meant.
fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|mut error| {
        let word = match (error.get(ContextKind::InvalidSubcommand), error.get(ContextKind::SuggestedSubcommand)) {
            (Some(ContextValue::String(word)), None) => Some(word.clone()),
            _ => None,
        };
        let meant = |word: &str| {
            let elsewhere = ELSEWHERE.iter().find(|(words, _)| words.contains(&word)).map(|(_, own)| (*own).to_owned());
            let cli = Cli::command();
            elsewhere.or_else(|| nearest(word, cli.get_subcommands().map(clap::Command::get_name)).map(str::to_owned))
        };
        if let Some(own) = word.and_then(|word| meant(&word)) {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![own]));
        }
        error.exit()
    })
}

/// Runs the command line.
pub fn main() -> ExitCode {
    let cli = parse();
    memory::allow_open_files();
    match cli.command {
        Command::Fit(_) => memory::advise("a smaller batch_size, length or d_model (see --dry-run)"),
        Command::Eval(_) | Command::Sweep(_) => memory::advise("a smaller batch_size, length or d_model"),
        _ => {}
    }
    interrupt::ignore_file_limit();
    let (group, begun) = match group_of(&cli.command) {
        Ok(group) => (group, memory::start_threads().map_err(Into::into)),
        Err(error) => (Group::alone(), Err(error)),
    };
    let done = begun.and_then(|()| start_trace(&group)).and_then(|()| run(cli, &group));
    gpu::finish();
    let code = match done {
        Ok(()) => 0,
        Err(error) => {
            group.tell(&error);
            exit_code(&error)
        }
    };
    group.leave(code);
    ExitCode::from(code)
}

/// The processes that work together on a command: those that `mpirun` started, for commands that share their work out.
fn group_of(command: &Command) -> Result<Group> {
    match command {
        Command::Fit(_) | Command::Eval(_) => Group::world(),
        _ => Ok(Group::alone()),
    }
}

/// Starts the trace that the environment asks for. Of several processes the first writes the file, process n `FILE.n`.
fn start_trace(group: &Group) -> Result<()> {
    let Some(mut file) = env::var_os(core_trace::VARIABLE).filter(|file| !file.is_empty()) else { return Ok(()) };
    if group.rank() > 0 {
        file.push(format!(".{}", group.rank()));
    }
    let file = PathBuf::from(file);
    core_trace::start(&file)
        .with_context(|| format!("{}={}: a new file cannot be made there", core_trace::VARIABLE, file.display()))
}

fn run(cli: Cli, group: &Group) -> Result<()> {
    match cli.command {
        Command::Fit(args) => fit::run(&args, group),
        Command::Eval(args) => eval::run(&args, group),
        Command::Forward(args) => forward::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Chat(args) => chat::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::Quantize(args) => quantize::run(&args),
        Command::Merge(args) => merge::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::InitModel(args) => init_model::run(&args),
        Command::Tokenize(args) => tokenize::run(&args),
        Command::Score(args) => score::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Audit(args) => audit::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Schema => schema::run(),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "train", &mut script);
            terminal::data(&script)?;
            Ok(())
        }
    }
}

/// 1 a check failed (a value that is not finite is one), 2 bad usage or input, 130 interrupted.
fn exit_code(error: &anyhow::Error) -> u8 {
    if error.downcast_ref::<CheckFailed>().is_some() {
        return CHECK_FAILED;
    }
    if error.downcast_ref::<Interrupted>().is_some() {
        return interrupt::EXIT_CODE;
    }
    match error.downcast_ref::<Stop>() {
        Some(Stop::Interrupted { .. }) => interrupt::EXIT_CODE,
        Some(Stop::NonFinite(_)) => CHECK_FAILED,
        Some(Stop::Device(_)) | None => BAD_INPUT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hankel_trainer::fit::Failure;

    #[test]
    fn exit_codes() {
        let failure = || Failure { stage: "hrm".into(), step: 3, cause: "it".into(), checkpoint: None, advice: "rest" };
        let code = |stop: Stop| exit_code(&anyhow::Error::from(stop).context("on the way"));
        assert_eq!(code(Stop::Device(failure())), 2);
        assert_eq!(code(Stop::NonFinite(failure())), 1);
        assert_eq!(code(Stop::Interrupted { run: "runs/x".into(), stage: "hrm".into(), step: 3 }), 130);
        let said = Stop::Device(failure()).to_string();
        assert_eq!(said, "`hrm` stopped at step 3: it; there is no good checkpoint before that; rest");
    }
}
