//! Files of what an adapter does on the sequences that it is evaluated on: states, inputs, sensitivities.

use super::Args;
use anyhow::{Context, Result, bail, ensure};
use hankel_models::weights::hrm_file::layer_label;
use hankel_models::weights::{AdapterBytes, StateRecord, save_weights};
use hankel_trainer::fit::{FittedWeight, Model, record_gradients, record_inputs, record_states};
use hankel_trainer::results::Split;
use hankel_trainer::tasks::Task;
use hankel_trainer::tell;
use std::path::Path;

/// The sequences.
pub(super) struct Data<'a> {
    pub task: &'a dyn Task,
    pub split: Split,
    pub sequences: usize,
    pub batch_size: usize,
}

/// Fails where a file cannot be written, or is one that there is.
pub(super) fn check(args: &Args) -> Result<()> {
    for (option, file, extension) in [
        ("--record-states", &args.record_states, "safetensors"),
        ("--record-inputs", &args.record_inputs, "safetensors"),
        ("--record-gradients", &args.record_gradients, "json"),
    ] {
        let Some(file) = file else { continue };
        if args.adapter.len() != 1 {
            bail!("{option} records one adapter: name it with --adapter");
        }
        if file.extension().is_none_or(|found| found != extension) {
            bail!("{option} {}: expected the name of a new file ending in .{extension}", file.display());
        }
        if file.exists() {
            bail!("{option} {}: this file exists already: remove it, or name another", file.display());
        }
        hankel_io::check_folder(file).context(option)?;
    }
    ensure!(
        args.record_states.is_none() || args.record_states != args.record_inputs,
        "--record-states and --record-inputs name the same file: each writes one of its own"
    );
    Ok(())
}

/// Writes the files that were asked for, of the adapter in `directory`.
pub(super) fn record(args: &Args, model: &Model, data: &Data, directory: Option<&Path>) -> Result<()> {
    let &Data { task, split, sequences, batch_size } = data;
    if let Some(file) = &args.record_states {
        let records = record_states(model, task, split, sequences, batch_size)?;
        StateRecord::save_all(file, &records)?;
        let [count, steps, _] = records[0].shape;
        let layers = records.len();
        tell!("states of {layers} layers along {count} sequences of {steps} steps written to {}", file.display());
    }
    if let Some(file) = &args.record_inputs {
        let weights = record_inputs(model, task, split, sequences, batch_size)?;
        for weight in &weights {
            tell!("{}", describe(weight));
        }
        let weights: Vec<_> = weights.into_iter().map(|w| (w.layer, w.site, w.system)).collect();
        save_weights(file, &weights)?;
        tell!("weights of {} layers written to {}", weights.len(), file.display());
    }
    if let Some(file) = &args.record_gradients {
        let of_adapter = directory.map(AdapterBytes::read).transpose()?;
        let hash = of_adapter.map_or_else(String::new, |bytes| bytes.hashes().weights);
        let found = record_gradients(model, task, split, sequences, batch_size, &hash)?;
        found.save(file)?;
        tell!(
            "sensitivities of {} layers on {} sequences written to {}",
            found.layers.len(),
            found.sequences,
            file.display()
        );
    }
    Ok(())
}

/// The order of a weight, and how much likelier it makes what was held out.
fn describe(weight: &FittedWeight) -> String {
    let FittedWeight { directions, order, log_likelihoods, spectral_radius, .. } = weight;
    let all: Vec<String> = log_likelihoods.iter().map(|value| format!("{value:.3}")).collect();
    format!(
        "{}: autoregression of order {order} in {directions} directions, spectral radius {spectral_radius:.4}; log-likelihood per \
         held-out step by order from 0: {}",
        layer_label(weight.layer, weight.site),
        all.join(", ")
    )
}
