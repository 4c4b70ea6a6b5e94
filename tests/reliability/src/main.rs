//! The reliability campaign: attacks on the built `train` and `bt` from outside, as a user's bad day would be.
//!
//! `cargo test` runs it with its defaults, in which it takes about a minute. The long form is the same with other counts;
//! `docs/reliability.md` has the command and says what it stands for.

mod binaries;
mod commands;
mod disks;
mod forgeries;
mod kills;
mod models;
mod mutations;
mod outputs;
mod races;
mod random;
mod systems;
mod tally;

use anyhow::Result;
use binaries::{Binaries, run};
use clap::Parser;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use tally::Tally;

/// Attacks the built binaries and counts what goes wrong; exit code 1 with any failure.
#[derive(Debug, Parser)]
struct Args {
    /// Folder of `train` and `bt`; that of this program when left out
    #[arg(long, value_name = "DIR")]
    binaries: Option<PathBuf>,
    /// SIGKILLs of a run at random instants, after which it is resumed
    #[arg(long, default_value_t = 50)]
    kills: usize,
    /// SIGKILLs of the commands that write a file or a folder, after which they are given again
    #[arg(long, default_value_t = 20)]
    command_kills: usize,
    /// Power failures in the middle of a run; needs root
    #[arg(long, default_value_t = 0)]
    power_failures: usize,
    /// Runs on disks that are too small; needs root
    #[arg(long, default_value_t = 0)]
    small_disks: usize,
    /// Damaged inputs
    #[arg(long, default_value_t = 500)]
    mutations: usize,
    /// Certificates with a changed claim
    #[arg(long, default_value_t = 20)]
    forgeries: usize,
    /// Systems that are hard to reduce
    #[arg(long, default_value_t = 24)]
    systems: usize,
    /// Times that several processes want one output
    #[arg(long, default_value_t = 4)]
    races: usize,
    /// Of the random choices
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Add the counts to the list in this JSON file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let binaries = Binaries::find(args.binaries)?;
    let place = tempfile::tempdir()?;
    let whole = kills::whole_run(&binaries, place.path())?;
    let prepared = place.path().join("models");
    models::prepare(&binaries, &prepared)?;
    let mut tally = Tally::default();
    let begun = Instant::now();
    kills::attack(&binaries, &whole, &place.path().join("kills"), args.kills, args.seed, &mut tally)?;
    let (count, seed) = (args.command_kills, args.seed);
    commands::attack(&binaries, &whole, &prepared, &place.path().join("commands"), count, seed, &mut tally)?;
    disks::fail_power(&binaries, &whole, &place.path().join("power"), args.power_failures, seed, &mut tally)?;
    disks::fill(&binaries, &whole, &place.path().join("disks"), args.small_disks, seed, &mut tally)?;
    outputs::attack(&binaries, &whole, &place.path().join("outputs"), &mut tally)?;
    races::attack(&binaries, &whole, &place.path().join("races"), args.races, &mut tally)?;
    forgeries::attack(&binaries, &whole, &place.path().join("forgeries"), args.forgeries, args.seed, &mut tally)?;
    systems::attack(&binaries, &place.path().join("systems"), args.systems, args.seed, &mut tally)?;
    let damaged = place.path().join("mutations");
    mutations::attack(&binaries, &whole, &prepared, &damaged, args.mutations, args.seed, &mut tally)?;
    if let Some(path) = &args.output {
        let version = run(&binaries.train, &["--version"], place.path())?.stdout;
        let version = String::from_utf8_lossy(&version).trim().to_owned();
        let result: Value = serde_json::from_slice(&std::fs::read(whole.run.join("result.json"))?)?;
        let facts = [
            ("binaries", version.into()),
            ("commit", result["environment"]["commit"].clone()),
            ("seed", seed.into()),
            ("seconds", begun.elapsed().as_secs().into()),
        ];
        tally.save(path, facts.into_iter().map(|(key, value): (&str, Value)| (key.to_owned(), value)).collect())?;
    }
    Ok(if tally.report() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
