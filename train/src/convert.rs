//! `train convert`: models and adapters as GGUF files.

use crate::adapters::ensure_no_run;
use anyhow::{Context, Result, bail, ensure};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use hankel_io::terminal;
use hankel_models::TinyGpt;
use hankel_models::gguf::{EXTENSION, ExportReport, ExportType, export_adapter, export_model, is_gguf};
use hankel_trainer::tell;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// What an adapter directory has.
const ADAPTER_FILE: &str = "adapter_config.json";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Model to convert: a directory in the Hugging Face layout, or a GGUF file; or an adapter directory (LoRA, rsLoRA)
    model: PathBuf,
    /// File to write; it must not exist
    #[arg(short, long, value_name = "FILE.gguf")]
    output: PathBuf,
    /// Element type of a model's matrices; f16 when left out. An adapter is always f32
    #[arg(long = "type", value_parser = type_parser(), value_name = "TYPE")]
    dtype: Option<ExportType>,
    /// Model that the adapter was trained on; when left out, the one that `base_model_name_or_path` in its adapter_config.json names
    #[arg(long = "model", value_name = "DIR|FILE")]
    base: Option<PathBuf>,
    /// Print the facts as JSON
    #[arg(long)]
    json: bool,
}

fn type_parser() -> impl TypedValueParser<Value = ExportType> {
    let names = ExportType::ALL.iter().map(|dtype| dtype.name());
    PossibleValuesParser::new(names).try_map(|name| ExportType::named(&name).ok_or("unknown type"))
}

pub fn run(args: &Args) -> Result<()> {
    let output = &args.output;
    let is_named = output.extension().is_some_and(|end| end.eq_ignore_ascii_case(EXTENSION));
    ensure!(is_named, "-o {}: the name of a GGUF file ends in .gguf", output.display());
    ensure!(!output.exists(), "-o {}: this file exists already: remove it, or name another", output.display());
    ensure_no_run(&args.model)?;
    let report = if args.model.join(ADAPTER_FILE).is_file() { convert_adapter(args)? } else { convert_model(args)? };
    print(args, &report)
}

fn convert_model(args: &Args) -> Result<ExportReport> {
    let model = &args.model;
    ensure!(args.base.is_none(), "--model is for adapters: {} has no {ADAPTER_FILE}", model.display());
    ensure!(model.exists(), "{} does not exist", model.display());
    ensure!(is_gguf(model) || model.is_dir(), "{} is neither a directory nor a GGUF file", model.display());
    ensure!(
        is_gguf(model) || TinyGpt::load_config(model).is_err(),
        "{} is a tiny_gpt, which llama.cpp does not know: it runs with `train generate --model`",
        model.display()
    );
    Ok(export_model(model, &args.output, args.dtype.unwrap_or(ExportType::F16))?)
}

fn convert_adapter(args: &Args) -> Result<ExportReport> {
    if let Some(dtype) = args.dtype.filter(|dtype| *dtype != ExportType::F32) {
        bail!("--type {dtype}: an adapter is written in f32, which is what llama.cpp's own converter does by default");
    }
    Ok(export_adapter(&args.model, &base_of(args)?, &args.output)?)
}

/// The model that the adapter was trained on.
fn base_of(args: &Args) -> Result<PathBuf> {
    if let Some(base) = &args.base {
        return Ok(base.clone());
    }
    let path = args.model.join(ADAPTER_FILE);
    let text = hankel_io::input::read(&path)?;
    let config: Value = serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
    let named = config.get("base_model_name_or_path").and_then(Value::as_str).map(Path::new);
    match named {
        Some(base) if base.exists() => Ok(base.to_owned()),
        Some(base) => bail!(
            "the model that {} was trained on is not at {}, where it says: name it with --model",
            args.model.display(),
            base.display()
        ),
        None => bail!("{} does not say which model it was trained on: name it with --model", args.model.display()),
    }
}

fn print(args: &Args, report: &ExportReport) -> Result<()> {
    let ExportReport { architecture, tensors, bytes, notes } = report;
    if args.json {
        let facts = json!({
            "output": args.output.display().to_string(),
            "architecture": architecture,
            "tensors": tensors,
            "bytes": bytes,
            "notes": notes,
        });
        return Ok(terminal::json(&serde_json::to_string_pretty(&facts)?)?);
    }
    notes.iter().for_each(|note| tell!("note: {note}"));
    let counts: Vec<String> = tensors.iter().map(|(dtype, count)| format!("{count} {dtype}")).collect();
    Ok(terminal::line(&format!(
        "{}: architecture {architecture}, {:.1} MB; tensors: {}",
        args.output.display(),
        *bytes as f64 / 1e6,
        counts.join(", ")
    ))?)
}
