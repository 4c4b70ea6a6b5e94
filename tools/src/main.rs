//! See the crate documentation.

use clap::Parser;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: hankel_io::memory::Allocator = hankel_io::memory::Allocator;

fn main() -> ExitCode {
    // Exit code 2 for usage errors is clap's own convention; the same is used for bad input.
    let cli = hankel_tools::Cli::parse();
    hankel_io::memory::advise("a system with fewer states");
    match hankel_io::memory::start_threads().map_err(Into::into).and_then(|()| hankel_tools::run(&cli)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            hankel_io::terminal::tell(&format!("error: {error:#}"));
            ExitCode::from(2)
        }
    }
}
