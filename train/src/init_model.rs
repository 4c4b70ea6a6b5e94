//! `train init-model`.

use anyhow::{Context, Result};
use clap::ValueEnum;
use hankel_io::terminal;
use hankel_models::DecoderConfig;
use hankel_models::decoder::{InitType, init_model_of};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model's config.json
    config: PathBuf,
    /// Directory to write; it must not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Element type of the files
    #[arg(long, value_enum, default_value_t = Dtype::Bf16)]
    dtype: Dtype,
    /// Seed of the weights
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Dtype {
    Bf16,
    F32,
}

pub fn run(args: &Args) -> Result<()> {
    let path = &args.config;
    let bytes = hankel_io::input::read(path)?;
    let keys: Map<String, Value> = serde_json::from_slice(&bytes).with_context(|| path.display().to_string())?;
    let config = DecoderConfig::of_keys(&keys).map_err(|problem| anyhow::anyhow!("{}: {problem}", path.display()))?;
    let (kind, size) = match args.dtype {
        Dtype::Bf16 => (InitType::Bf16, 2),
        Dtype::F32 => (InitType::F32, 4),
    };
    init_model_of(&keys, &config, args.seed, kind, &args.output)?;
    let parameters = config.parameters();
    if args.json {
        let facts = json!({ "output": args.output.display().to_string(), "parameters": parameters, "bytes": size * parameters });
        terminal::json(&serde_json::to_string_pretty(&facts)?)?;
    } else {
        let bytes = (size * parameters) as f64 / 1e9;
        terminal::line(&format!("{}: {parameters} random parameters, {bytes:.3} GB", args.output.display()))?;
    }
    Ok(())
}
