//! `train schema`.

use anyhow::Result;
use hankel_io::terminal;
use hankel_trainer::config::schema;

/// Prints the schema of configurations.
pub fn run() -> Result<()> {
    Ok(terminal::json(&serde_json::to_string_pretty(&schema())?)?)
}
