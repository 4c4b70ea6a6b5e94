//! The reliability campaign: attacks on the built `train` and `bt` from outside, as a user's bad day would be.
//!
//! `cargo test` runs it with its defaults, in which it takes about a minute. The long form is the same with other counts, for
//! example `cargo run --release -p hankel-reliability -- --kills 2000 --mutations 20000 --forgeries 10000 --races 200`, after
//! `cargo build --release -p hankel-train -p hankel-tools`. `docs/reliability.md` says what it stands for.

mod binaries;
mod forgeries;
mod kills;
mod mutations;
mod outputs;
mod races;
mod random;
mod tally;

use anyhow::Result;
use binaries::Binaries;
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
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
    /// Damaged inputs
    #[arg(long, default_value_t = 500)]
    mutations: usize,
    /// Certificates with a changed claim
    #[arg(long, default_value_t = 20)]
    forgeries: usize,
    /// Times that several processes want one output
    #[arg(long, default_value_t = 4)]
    races: usize,
    /// Of the random choices
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let binaries = Binaries::find(args.binaries)?;
    let place = tempfile::tempdir()?;
    let whole = kills::whole_run(&binaries, place.path())?;
    let mut tally = Tally::default();
    kills::attack(&binaries, &whole, &place.path().join("kills"), args.kills, args.seed, &mut tally)?;
    outputs::attack(&binaries, &whole, &place.path().join("outputs"), &mut tally)?;
    races::attack(&binaries, &whole, &place.path().join("races"), args.races, &mut tally)?;
    forgeries::attack(&binaries, &whole, &place.path().join("forgeries"), args.forgeries, args.seed, &mut tally)?;
    mutations::attack(&binaries, &whole, &place.path().join("mutations"), args.mutations, args.seed, &mut tally)?;
    Ok(if tally.report() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
