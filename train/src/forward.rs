//! `train forward`: what a model computes, in a file, for comparison with other software.

use super::device::DeviceArgs;
use super::fit::is_model;
use super::model::{LENGTH, attach};
use anyhow::{Context, Result, bail, ensure};
use hankel_core::{DType, Device, Gradients, Tensor, no_grad, with_precision};
use hankel_io::terminal;
use hankel_io::{Existing, write_file};
use hankel_models::weights::arrays::{Array, NamedArrays, Precision as Stored, serialize};
use hankel_models::{Parameter, Pass};
use hankel_ops::{Head, Targets, add, cross_entropy};
use hankel_trainer::config::Quantize;
use hankel_trainer::fit::{BackboneSnapshot, Model, Transformer};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Prefix of adapters' tensors in PEFT's files.
const ADAPTER_PREFIX: &str = "base_model.model.";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Model: a directory in the Hugging Face layout or one that `train fit` wrote, or a GGUF file
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Adapter directory
    #[arg(long, value_name = "DIR")]
    adapter: Option<PathBuf>,
    /// Quantise the model while loading
    #[arg(long, value_enum)]
    quantize: Option<Quantize>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Integers: `input_ids` [batch, T]; `labels` of the same shape (-100 counts nothing; `input_ids` when left out);
    /// `attention_mask`, whose zeros must be at the end of a row
    #[arg(long, value_name = "FILE.safetensors")]
    tokens: PathBuf,
    /// File to write: `logits`, `loss` (mean over the labels, each predicted from what is before it; with the penalty of
    /// AdaLoRA, without it in `loss_lm`), `hidden.layerL`, `hidden.final_norm`
    #[arg(short, long, value_name = "OUT.safetensors")]
    output: PathBuf,
    /// Also `grad.inputs_embeds`, and `grad.NAME` of every parameter: those of the adapter, or without one all weights
    #[arg(long)]
    gradients: bool,
    /// Print the facts as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    ensure!(!args.output.exists(), "{} already exists", args.output.display());
    let input = Input::read(&args.tokens)?;
    ensure!(
        is_model(&args.model),
        "{} is not a model: expected a directory with config.json, or a GGUF file",
        args.model.display()
    );
    let (device, precision) = args.device.open()?;
    let snapshot = BackboneSnapshot::from_model(&args.model, args.quantize.is_some(), precision, device)?;
    let model = attach(&snapshot, args.adapter.as_deref(), LENGTH)?;
    let (arrays, loss) = with_precision(precision.of_products(), || compute(&model, &input, args.gradients))?;
    let count = arrays.len();
    args.output.parent().map(hankel_io::create_folder).transpose()?;
    write_file(&args.output, &serialize(&arrays), Existing::Refuse)?;
    if args.json {
        let facts = json!({ "output": args.output.display().to_string(), "loss": loss, "targets": input.targets(), "tensors": count });
        terminal::json(&serde_json::to_string_pretty(&facts)?)?;
    } else {
        terminal::line(&format!(
            "{}: loss {loss:.6} over {} targets, {count} tensors",
            args.output.display(),
            input.targets()
        ))?;
    }
    Ok(())
}

/// All results by name, and the loss.
fn compute(model: &Model, input: &Input, gradients: bool) -> Result<(NamedArrays, f64)> {
    let Model { backbone, adapters } = model;
    let has_adapter = !adapters.parameters().is_empty();
    let trained: Vec<(String, Parameter)> = if !gradients {
        adapters.parameters().iter().try_for_each(|parameter| parameter.set_trainable(false))?;
        Vec::new()
    } else if has_adapter {
        adapters.parameters().into_iter().map(|p| (format!("grad.{ADAPTER_PREFIX}{}", p.name()), p)).collect()
    } else {
        backbone.parameters().into_iter().map(|p| (format!("grad.{}", p.name()), p)).collect()
    };
    for (_, parameter) in &trained {
        if parameter.tensor().dtype().is_compact() {
            let dtype = parameter.tensor().dtype();
            ensure!(
                dtype != DType::Nf4,
                "weights in 4 bits have no gradients: give an --adapter, whose gradients are wanted"
            );
            parameter.to_dtype(DType::F32)?;
        }
        parameter.set_trainable(true)?;
    }
    let mut trace = Vec::new();
    let mut pass = Pass { trace: Some(&mut trace), ..Pass::evaluation() };
    // Zeros added to the embeddings: their gradient is that of the embeddings.
    let mut offset = None;
    let mut without_penalty = None;
    let mut run = || -> hankel_core::Result<(Tensor, Tensor)> {
        let hidden = match backbone {
            Transformer::Decoder { model, .. } if gradients => {
                let x = model.embed(&input.tokens)?;
                let zeros = x.full_like(x.shape(), 0.0)?.parameter()?;
                let x = add(&x, &zeros)?;
                offset = Some(zeros);
                model.hidden_of(&x, adapters, &mut pass)?
            }
            _ => backbone.hidden(&input.tokens, adapters, &mut pass)?,
        };
        let weights = input.weights.to_dtype(hidden.dtype())?;
        let normalizer = input.targets() as f64;
        let targets = Targets { tokens: &input.labels, weights: &weights, smoothing: 0.0, normalizer };
        let weight = backbone.head().tensor();
        let head = Head { cap: backbone.logit_cap(), ..Head::new(&weight) };
        let loss = cross_entropy(&hidden, head, targets)?;
        let Some(penalty) = adapters.penalty()? else { return Ok((hidden, loss)) };
        without_penalty = Some(loss.item()?);
        Ok((hidden, add(&loss, &penalty)?))
    };
    let (hidden, loss) = if gradients { run()? } else { no_grad(run)? };
    let logits = no_grad(|| backbone.logits_of(&hidden.detach()))?;
    let value = loss.item()?;
    let gradients = if gradients { loss.backward()? } else { Gradients::default() };

    let mut arrays = NamedArrays::new();
    let mut put = |name: String, tensor: &Tensor| -> Result<()> {
        let tensor = tensor.to_device(Device::Cpu)?;
        let stored = if tensor.dtype() == DType::F64 { Stored::F64 } else { Stored::F32 };
        arrays.insert(name, Array::new(tensor.shape().to_vec(), tensor.to_f64_vec(), stored));
        Ok(())
    };
    put("logits".to_owned(), &logits)?;
    let number = |value: f64| Tensor::full([1], value).to_dtype(logits.dtype());
    put("loss".to_owned(), &number(value)?)?;
    if let Some(value) = without_penalty {
        put("loss_lm".to_owned(), &number(value)?)?;
    }
    for (layer, hidden) in trace.iter().enumerate() {
        put(format!("hidden.layer{layer}"), hidden)?;
    }
    put("hidden.final_norm".to_owned(), &hidden)?;
    for (name, parameter) in &trained {
        if let Some(gradient) = gradients.get(&parameter.tensor()) {
            put(name.clone(), gradient)?;
        }
    }
    if let Some(gradient) = offset.as_ref().and_then(|offset| gradients.get(offset)) {
        put("grad.inputs_embeds".to_owned(), gradient)?;
    }
    Ok((arrays, value))
}

/// Tokens, and after each the one to be predicted, with its weight.
struct Input {
    tokens: Tensor,
    labels: Tensor,
    weights: Tensor,
}

impl Input {
    fn read(path: &Path) -> Result<Self> {
        let bytes = hankel_io::input::read(path)?;
        Self::parse(&bytes).with_context(|| path.display().to_string())
    }

    fn parse(bytes: &[u8]) -> Result<Self> {
        let file = SafeTensors::deserialize(bytes).context("not a safetensors file")?;
        if let Some(name) = file.names().iter().find(|n| !["input_ids", "labels", "attention_mask"].contains(*n)) {
            bail!("{name} is none of input_ids, labels and attention_mask");
        }
        let ids = file.tensor("input_ids").context("input_ids is missing")?;
        let &[batch, steps] = ids.shape() else { bail!("input_ids has shape {:?}, expected [batch, T]", ids.shape()) };
        ensure!(batch > 0 && steps > 0, "input_ids is empty");
        let optional = |name: &str| -> Result<Option<Vec<i64>>> {
            let Ok(view) = file.tensor(name) else { return Ok(None) };
            ensure!(
                view.shape() == [batch, steps],
                "{name} has shape {:?}, input_ids [{batch}, {steps}]",
                view.shape()
            );
            integers(name, &view).map(Some)
        };
        let ids = integers("input_ids", &ids)?;
        let mut labels = optional("labels")?;
        if let Some(mask) = optional("attention_mask")? {
            for (row, mask) in mask.chunks(steps).enumerate() {
                ensure!(mask.iter().all(|m| matches!(m, 0 | 1)), "attention_mask, row {row}: expected zeros and ones");
                let sorted = mask.windows(2).all(|pair| pair[0] >= pair[1]);
                ensure!(sorted, "attention_mask, row {row}: padding must be at the end, where no token sees it");
            }
            let labels = labels.get_or_insert_with(|| ids.clone());
            labels.iter_mut().zip(&mask).filter(|(_, mask)| **mask == 0).for_each(|(label, _)| *label = -100);
        }
        let labels = labels.as_ref().unwrap_or(&ids);
        let token = |name: &str, place: usize, id: i64| {
            let (row, step) = (place / steps, place % steps);
            u32::try_from(id).with_context(|| format!("{name}[{row}, {step}] is {id}, not a token"))
        };
        let next = |place: usize| if (place + 1).is_multiple_of(steps) { -100 } else { labels[place + 1] };
        let (mut targets, mut weights) = (Vec::with_capacity(ids.len()), Vec::with_capacity(ids.len()));
        for place in 0..ids.len() {
            let label = next(place);
            targets.push(if label == -100 { 0 } else { token("labels", place + 1, label)? });
            weights.push(if label == -100 { 0.0_f32 } else { 1.0 });
        }
        ensure!(weights.contains(&1.0), "nothing to predict: every label after a first token is -100");
        let ids: Vec<u32> = ids.iter().enumerate().map(|(i, &id)| token("input_ids", i, id)).collect::<Result<_>>()?;
        let shape = [batch, steps];
        Ok(Input {
            tokens: Tensor::from_vec(ids, shape)?,
            labels: Tensor::from_vec(targets, shape)?,
            weights: Tensor::from_vec(weights, shape)?,
        })
    }

    fn targets(&self) -> usize {
        self.weights.to_f64_vec().iter().filter(|weight| **weight > 0.0).count()
    }
}

fn integers(name: &str, view: &TensorView<'_>) -> Result<Vec<i64>> {
    let data = view.data();
    Ok(match view.dtype() {
        Dtype::I64 => data.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect(),
        Dtype::I32 => data.as_chunks().0.iter().map(|b| i64::from(i32::from_le_bytes(*b))).collect(),
        Dtype::U32 => data.as_chunks().0.iter().map(|b| i64::from(u32::from_le_bytes(*b))).collect(),
        Dtype::I16 => data.as_chunks().0.iter().map(|b| i64::from(i16::from_le_bytes(*b))).collect(),
        Dtype::U16 => data.as_chunks().0.iter().map(|b| i64::from(u16::from_le_bytes(*b))).collect(),
        Dtype::U8 | Dtype::BOOL => data.iter().map(|b| i64::from(*b)).collect(),
        other => bail!("{name} has element type {other:?}, expected integers"),
    })
}
