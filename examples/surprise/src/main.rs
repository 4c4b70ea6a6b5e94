//! The `train` command with one adapter more.

use hankel_models::adapters::register;
use std::process::ExitCode;
use surprise::Surprise;

fn main() -> ExitCode {
    match register::<Surprise>() {
        Ok(()) => hankel_train::main(),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
