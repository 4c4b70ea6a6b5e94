//! How much an error of each layer's output can change the loss, for `bt reduce --task`.

use super::batches::unpadded;
use super::model::Model;
use crate::results::Split;
use crate::tasks::Task;
use anyhow::{Context, Result, anyhow, bail};
use hankel_core::{Device, Tensor};
use hankel_models::weights::hrm_file::layer_label;
use hankel_models::weights::sensitivity::{LayerSensitivity, Sensitivities};
use std::collections::BTreeMap;

/// The sensitivities of all adapted sites on the first `sequences` of a split: `sum_s ||g_s|| ||u_s||` over sequences s, with `g_s` the
/// gradient of the mean loss by the adapter's output, [T, D], and `u_s` what the adapter reads, [T, D].
///
/// By the inequality of Cauchy and Schwarz `|<g_s, E u_s>| <= ||g_s|| ||E|| ||u_s||`: the sum over layers of sensitivity times H-infinity
/// error bounds the change of the loss to first order. `adapter` is the SHA-256 of the adapter's weights.
///
/// # Errors
/// When the adapter is not a linear recurrence or nothing is to be predicted, and those of the operators.
pub fn record_gradients(
    model: &Model,
    task: &dyn Task,
    split: Split,
    sequences: usize,
    batch_size: usize,
    adapter: &str,
) -> Result<Sensitivities> {
    model.adapters.to_hrm_file(None).map_err(|reason| anyhow!("there are no gradients to record: {reason}"))?;
    let (mut loss, mut weight) = (0.0, 0.0);
    let mut sums: BTreeMap<_, f64> = BTreeMap::new();
    for batch in unpadded(task, split, sequences, batch_size) {
        let (_, batch) = batch?;
        if batch.preference.is_some() {
            bail!("what errors cost is measured for losses of tokens, not of preference pairs");
        }
        weight += batch.weights.iter().map(|weight| f64::from(*weight)).sum::<f64>();
        let (sum, sites) = model.output_gradients(&batch)?;
        loss += sum;
        for site in sites {
            let steps = batch.sequences;
            let [read, gradient] = [norms(&site.read, steps)?, norms(&site.gradient, steps)?];
            let products = read.iter().zip(&gradient).map(|(u, g)| u * g);
            *sums.entry((site.layer, site.site)).or_default() += products.sum::<f64>();
        }
    }
    if weight == 0.0 {
        bail!("nothing is predicted in these sequences, so there is no loss");
    }
    let layers = sums.into_iter().map(|((layer, site), sum)| {
        let (layer, sensitivity) = (layer_label(layer, site), sum / weight);
        sensitivity.is_finite().then_some(LayerSensitivity { layer, sensitivity })
    });
    let layers: Option<Vec<LayerSensitivity>> = layers.collect();
    Ok(Sensitivities {
        format: Sensitivities::FORMAT,
        adapter: adapter.to_owned(),
        sequences: sequences.min(task.sequences(split)),
        loss: loss / weight,
        layers: layers.context("a gradient is not finite")?,
    })
}

/// Of each of `count` sequences.
fn norms(x: &Tensor, count: usize) -> Result<Vec<f64>> {
    let values = x.to_device(Device::Cpu)?.to_f64_vec();
    let norm = |values: &[f64]| values.iter().map(|x| x * x).sum::<f64>().sqrt();
    Ok(values.chunks((values.len() / count.max(1)).max(1)).map(norm).collect())
}
