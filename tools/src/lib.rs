//! `bt`: inspects, reduces and verifies linear systems, HRM adapters above all.
//!
//! ```text
//! bt inspect ADAPTER            Hankel singular values, orders at usual thresholds, time constants
//! bt reduce  ADAPTER -o OUT     a smaller adapter with a certificate; exit code 1, and nothing written, if its bound does not hold
//! bt verify  FULL REDUCED       measures again what the certificate claims; exit code 1 if a claim is false
//! ```
//!
//! In place of an adapter directory each command takes a file with the matrices of any linear system: `A` (`[d]` or `[d, d]`),
//! `B`, `C` and possibly `D` and `dt` as .safetensors or .npz.

pub mod cli;
mod clock;
mod gramians;
mod inspect;
mod pictures;
mod progress;
mod reduce;
mod subject;
mod targets;
mod text;
mod verify;

pub use cli::{Cli, run};
