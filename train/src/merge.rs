//! `train merge`.

use super::model::{LENGTH, attach};
use crate::adapters::ensure_no_run;
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use hankel_core::{DType, Device};
use hankel_io::terminal;
use hankel_models::adapters::MergeReport;
use hankel_models::decoder::{DecoderConfig, merge_model, tokenizer_left_out};
use hankel_models::gguf::is_gguf;
use hankel_models::weights::TRAINED_BACKBONE_FILE;
use hankel_models::{AdapterSet, TinyGpt};
use hankel_trainer::config::Precision;
use hankel_trainer::fit::{BackboneSnapshot, Transformer};
use hankel_trainer::tell;
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Adapter directory: LoRA, rsLoRA, DoRA, AdaLoRA or IA3
    adapter: PathBuf,
    /// Model it was trained on: a directory, not quantised, or a GGUF file
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Directory to write; it must not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Element type of all weights written; as in the model when left out, f32 for what a GGUF file has in blocks
    #[arg(long, value_enum)]
    dtype: Option<Dtype>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Dtype {
    Bf16,
    F32,
}

pub fn run(args: &Args) -> Result<()> {
    ensure!(args.adapter.exists(), "{} does not exist", args.adapter.display());
    ensure!(args.adapter.is_dir(), "{} is not a directory", args.adapter.display());
    ensure_no_run(&args.adapter)?;
    ensure!(args.model.exists(), "{} does not exist", args.model.display());
    ensure!(
        is_gguf(&args.model) || args.model.is_dir(),
        "{} is neither a directory nor a GGUF file",
        args.model.display()
    );
    let report = if TinyGpt::load_config(&args.model).is_ok() { merge_tiny(args)? } else { merge_files(args)? };
    print(args, &report)
}

/// Tensor by tensor, from file to file.
fn merge_files(args: &Args) -> Result<MergeReport> {
    let placement = DecoderConfig::load(&args.model)?.placement();
    let adapters = load(&args.adapter, &placement)?;
    let trained = args.adapter.join(TRAINED_BACKBONE_FILE);
    adapters.check_mergeable().with_context(|| args.adapter.display().to_string())?;
    ensure!(!adapters.merged_names().is_empty(), "{} changes no weight", args.adapter.display());
    ensure!(!trained.exists(), "{} holds weights of another kind of model", trained.display());
    let dtype = args.dtype.map(|dtype| if dtype == Dtype::Bf16 { DType::BF16 } else { DType::F32 });
    // Before the work, which takes its time.
    if let Some(note) = tokenizer_left_out(&args.model)? {
        tell!("note: {note}");
    }
    Ok(merge_model(&adapters, &args.model, &args.output, dtype)?)
}

fn load(directory: &Path, placement: &hankel_models::adapters::Placement) -> Result<AdapterSet> {
    AdapterSet::load(directory, placement, LENGTH)
        .with_context(|| format!("{} cannot be merged into this model", directory.display()))
}

/// A small GPT, in memory; with the head that was trained with the adapter, if there is one.
fn merge_tiny(args: &Args) -> Result<MergeReport> {
    ensure!(args.dtype != Some(Dtype::Bf16), "a tiny_gpt model is stored in f32: leave out `--dtype bf16`");
    ensure!(!args.output.exists(), "{} exists already: remove it, or name another", args.output.display());
    let snapshot = BackboneSnapshot::from_model(&args.model, false, Precision::F32, Device::Cpu)?;
    let model = attach(&snapshot, Some(&args.adapter), LENGTH)?;
    let report = model.adapters.merge(&model.backbone.parameters())?;
    let trained = args.adapter.join(TRAINED_BACKBONE_FILE).is_file();
    ensure!(trained || !report.tensors.is_empty(), "{} changes no weight", args.adapter.display());
    let Transformer::TinyGpt(backbone) = &model.backbone else { unreachable!("its configuration was read") };
    backbone.save_new(&args.output)?;
    Ok(report)
}

fn print(args: &Args, report: &MergeReport) -> Result<()> {
    let (written, merged, worst) = (args.output.display().to_string(), report.tensors.len(), report.largest_drift());
    let text = if args.json {
        let worst = worst.map(|worst| {
            json!({ "tensor": worst.name, "drift": worst.drift, "update": worst.update, "relative": worst.relative_drift() })
        });
        serde_json::to_string_pretty(&json!({ "output": written, "merged": merged, "largest_drift": worst }))?
    } else if let Some(worst) = worst {
        format!(
            "{written}: {merged} tensors merged; largest drift by rounding: {:.3e} where the largest update is {:.3e} ({:.3} %), in {}",
            worst.drift,
            worst.update,
            100.0 * worst.relative_drift(),
            worst.name
        )
    } else {
        format!("{written}: the weights of the backbone that were trained; there is no update to fold in")
    };
    Ok(terminal::line(&text)?)
}
