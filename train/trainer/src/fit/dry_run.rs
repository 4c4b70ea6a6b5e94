//! `train fit --dry-run`: everything that can be said without training.

use super::backbone_snapshot::{BackboneSnapshot, open_device};
use super::batches::Batches;
use super::memory::{MAPPED, check_parameters, estimate, own};
use super::positions::warnings;
use super::rows::count_parameters;
use super::run::{attach, build_of, can_be_truncated, model_of};
use super::training::Training;
use crate::config::{BackboneConfig, Config, Precision, TrainConfig};
use crate::format::{bytes as size, thousands};
use crate::parallel::Group;
use crate::results::{PRETRAIN, Split};
use crate::tasks::{Batch, Task};
use anyhow::Result;
use hankel_core::Device;
use hankel_models::AdapterSet;
use serde_json::{Value, json};
use std::fmt::Write;

/// Target positions of an example that are shown.
const SHOWN: usize = 24;

/// What is known without training.
pub struct DryRun {
    /// For people.
    pub text: String,
    /// For programs.
    pub facts: Value,
}

/// The resolved configuration, a table of parameters and an estimate of memory for every stage, and the first batch as the
/// model sees it.
///
/// # Errors
/// As training itself: files that cannot be read or do not fit.
pub fn dry_run(config: &Config) -> Result<DryRun> {
    let resolved: Value = serde_json::to_value(toml::from_str::<toml::Table>(&config.to_toml())?)?;
    if let Err(problem) = check_parameters(config) {
        // What cannot be allocated is told without allocating it.
        return Ok(DryRun {
            text: format!("# Resolved configuration\n\n{}\n# Parameters and memory\n\n{problem:#}\n", config.to_toml()),
            facts: json!({ "config": resolved, "problem": format!("{problem:#}") }),
        });
    }
    let task = config.task.build()?;
    let device = open_device(&config.device, config.gpu_memory, config.precision)?;
    // Nothing is computed, so nothing goes there; f16, which the CPU lacks, takes no less.
    let precision = if config.precision == Precision::F16 { Precision::F32 } else { config.precision };
    let mut sizes = Config { device: "cpu".to_owned(), precision, ..config.clone() };
    if let BackboneConfig::TinyGpt(backbone) = &mut sizes.backbone {
        // Only sizes are told: zeros take neither time nor memory.
        backbone.model.init_std = 0.0;
    }
    let snapshot = BackboneSnapshot::new(&sizes)?;
    let mut out = format!("# Resolved configuration\n\n{}\n", config.to_toml());
    let facts = task.describe();
    writeln!(out, "# Task\n\n{}", facts.description)?;
    if let Some(table) = &facts.transition_table {
        writeln!(out, "transition table [state][symbol]: {table:?}")?;
    }
    let metric = facts.primary_metric.replace('_', " ");
    for (name, value) in &facts.baselines {
        writeln!(out, "{metric} of {name} without learning: {value:.4}")?;
    }
    for warning in warnings(&**snapshot.backbone(), config) {
        writeln!(out, "{warning}")?;
    }
    // Its file must be readable, too; nothing of it is shown.
    build_of("forgetting", config.forgetting.as_ref())?;
    let mut stages = Vec::new();
    writeln!(out, "\n# Parameters and memory\n")?;
    if let Some(pretrain) = &config.pretrain {
        let own = build_of("pretrain.task", pretrain.task.as_ref())?;
        let model = snapshot.with_adapters(AdapterSet::none(&snapshot.backbone().placement()))?;
        model.backbone.parameters().iter().try_for_each(|parameter| parameter.set_trainable(true))?;
        stages.push(stage(&mut out, PRETRAIN, &model, own.as_deref().unwrap_or(&*task), &pretrain.train, device)?);
    }
    for adapter in &config.adapter {
        let model = model_of(config, adapter, &snapshot, attach(config, adapter, &snapshot, &*task)?)?;
        let sequences = task.sequences(Split::Train);
        can_be_truncated(adapter, &model.adapters, config.training_of(adapter), sequences)?;
        stages.push(stage(&mut out, &adapter.name, &model, &*task, config.training_of(adapter), device)?);
    }
    let batches = Batches::new(&*task, &config.train, config.seed).of_step(0)?;
    if let Some((_, batch)) = batches.first() {
        write!(out, "# First batch\n\n{}", decode(&*task, batch))?;
    }
    Ok(DryRun { text: out, facts: json!({ "config": resolved, "task": facts, "stages": stages }) })
}

/// Adds what a stage takes to `out`, and gives it for programs.
fn stage(
    out: &mut String,
    name: &str,
    model: &super::Model,
    task: &dyn Task,
    settings: &TrainConfig,
    device: Device,
) -> Result<Value> {
    let (stage_name, counts) = (name, count_parameters(model));
    let alone = Group::alone();
    let training = Training::new(model, task, settings, 0, &alone)?;
    writeln!(
        out,
        "{name}: {} steps of {} x {} sequences of {} tokens",
        thousands(training.steps()),
        settings.accumulation,
        settings.batch_size,
        task.sequence_length()
    )?;
    let rows = [
        ("adapter", counts.adapter),
        ("trained head", counts.head),
        ("trained embeddings", counts.embeddings),
        ("other trained backbone", counts.backbone),
        ("trained in total", counts.trainable),
        ("frozen", counts.frozen),
    ];
    let always = ["adapter", "trained in total", "frozen"];
    for (what, count) in rows.into_iter().filter(|(what, count)| *count > 0 || always.contains(what)) {
        writeln!(out, "  {what:<40} {:>14} parameters", thousands(count))?;
    }
    let tokens = task.tokens_per_example();
    let components = estimate(training.model(), settings, tokens, device != Device::Cpu);
    for (what, bytes) in &components {
        writeln!(out, "  {what:<40} {:>14}", size(*bytes))?;
    }
    let total = own(&components);
    let is_mapped = components.iter().any(|(what, _)| *what == MAPPED);
    let name = match device {
        Device::Gpu(_) => "memory on the GPU in total, about",
        Device::Cpu if is_mapped => "memory in total without them, about",
        Device::Cpu => "memory in total, about",
    };
    writeln!(out, "  {name:<40} {:>14}", size(total))?;
    if let Some(decided) = training.recompute().filter(|_| device == Device::Cpu) {
        writeln!(out, "  {decided}")?;
    }
    if let Some(budget) = device.gpu().and_then(|gpu| gpu.memory().budget).filter(|budget| *budget < total) {
        writeln!(out, "  which is more than `gpu_memory`: {}", size(budget))?;
    }
    writeln!(out)?;
    let memory: Vec<Value> = components.iter().map(|(what, bytes)| json!({ "what": what, "bytes": bytes })).collect();
    Ok(json!({
        "name": stage_name,
        "steps": training.steps(),
        "accumulation": settings.accumulation,
        "batch_size": settings.batch_size,
        "length": task.sequence_length(),
        "parameters": counts,
        "memory": memory,
        "memory_bytes": total,
    }))
}

/// The first sequence of a batch, token by token with its target and the target's weight, and the batch in numbers.
fn decode(task: &dyn Task, batch: &Batch) -> String {
    let targets = batch.weights.iter().filter(|weight| **weight > 0.0).count();
    let sequences = match (batch.documents.len(), batch.sequences) {
        (0 | 1, 1) => "1 sequence of".to_owned(),
        (0, n) => format!("{n} sequences of"),
        (n, _) => format!("{n} sequences end to end,"),
    };
    let mut lines = vec![format!(
        "{sequences} {} tokens: {targets} of {} positions have a target, total weight {}",
        batch.length,
        batch.tokens.len(),
        batch.weight()
    )];
    let example = task.show(batch);
    let one = batch.clone().apart().swap_remove(0);
    let batch = &one;
    if let Some(example) = example {
        lines.push(example);
    } else {
        let read: Vec<String> = batch.tokens[..batch.length].iter().map(|&token| task.text(token)).collect();
        let glue = if read.iter().all(|text| text.chars().count() == 1 || text.starts_with('\\')) { "" } else { " " };
        lines.push(format!("first sequence: {}", read.join(glue)));
    }
    lines.push(format!("\n position  {:<14}  {:<14}  weight", "reads", "predicts"));
    let with_targets: Vec<usize> = (0..batch.length).filter(|&place| batch.weights[place] > 0.0).collect();
    lines.extend(with_targets.iter().take(SHOWN).map(|&place| {
        let (reads, predicts) = (task.text(batch.tokens[place]), task.text(batch.targets[place]));
        let weight = batch.weights[place];
        format!(" {place:>8}  {:<14}  {:<14}  {weight:.3}", visible(&reads), visible(&predicts))
    }));
    if with_targets.len() > SHOWN {
        lines.push(format!(" ... and {} more", with_targets.len() - SHOWN));
    }
    lines.join("\n") + "\n"
}

/// A space as something that can be seen.
fn visible(text: &str) -> String {
    text.replace(' ', "\u{2423}")
}
