//! Our side of the comparisons with other libraries. `run.py` in this folder starts it, and the other library's side, and lets
//! them work in turn; `README.md` says how to run it.

mod conv;
mod load;
mod mistral;
mod nf4;
mod optimizer;
mod peaks;
mod protocol;
mod reduce;
mod smollm2;
mod step;

use std::io::{self, BufReader};
use std::process::ExitCode;

fn main() -> ExitCode {
    let started = hankel_io::memory::start_threads();
    match started.map_err(Into::into).and_then(|()| protocol::serve(BufReader::new(io::stdin()), io::stdout())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hankel-peers: {error:#}");
            ExitCode::from(2)
        }
    }
}
