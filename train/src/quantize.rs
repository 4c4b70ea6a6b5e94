//! `train quantize`.

use anyhow::{Result, ensure};
use hankel_io::terminal;
use hankel_models::decoder::{quantize_model, tokenizer_left_out};
use hankel_models::gguf::is_gguf;
use hankel_trainer::tell;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Model directory in the Hugging Face layout, or a GGUF file of floats
    model: PathBuf,
    /// Directory to write; it must not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Keep the scales of blocks as 32-bit floats instead of quantising them as well
    #[arg(long)]
    plain_scales: bool,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let begun = Instant::now();
    ensure!(args.model.exists(), "{} does not exist", args.model.display());
    ensure!(
        is_gguf(&args.model) || args.model.is_dir(),
        "{} is neither a directory nor a GGUF file",
        args.model.display()
    );
    // Before the work, which takes its time.
    if let Some(note) = tokenizer_left_out(&args.model)? {
        tell!("note: {note}");
    }
    let report = quantize_model(&args.model, &args.output, !args.plain_scales)?;
    let seconds = begun.elapsed().as_secs_f64();
    let rate = report.bytes_before as f64 / seconds / 1e9;
    if args.json {
        let facts = json!({
            "output": args.output.display().to_string(),
            "matrices": report.matrices,
            "bytes_before": report.bytes_before,
            "bytes_after": report.bytes_after,
            "seconds": seconds,
            "gigabytes_per_second": rate,
        });
        terminal::json(&serde_json::to_string_pretty(&facts)?)?;
    } else {
        terminal::line(&format!(
            "{}: {} matrices from {:.3} to {:.3} GB in {seconds:.1} s ({rate:.2} GB/s)",
            args.output.display(),
            report.matrices,
            report.bytes_before as f64 / 1e9,
            report.bytes_after as f64 / 1e9
        ))?;
    }
    Ok(())
}
