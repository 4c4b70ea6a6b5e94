//! What an adapter does to a pretrained model before its first step.
//!
//! An adapter that begins as the identity leaves the model as good as it was. One that does not spends its training on repairing what
//! it broke, and the figures at the end do not say so.

use super::contribution::Contributions;
use super::evaluate::evaluate;
use super::model::Model;
use super::stage::Stage;
use crate::format::counted;
use crate::parallel::Group;
use crate::results::{LayerResult, Split, metric};
use anyhow::Result;
use hankel_models::AdapterSet;
use std::fmt::Write as _;

/// A loss larger than that without the adapter by this share is worth a warning.
const WORSE: f64 = 0.01;

/// The evaluation of a fresh adapter on the first batch of the validation split.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Start {
    /// Sequences evaluated on.
    pub sequences: usize,
    /// Mean loss with the adapter, in nats.
    pub loss: f64,
    /// Mean loss of the backbone alone, in nats.
    pub backbone_loss: f64,
    /// The layer and site that add most to the stream, and `||gate y|| / ||h||` there.
    pub largest_contribution: Option<(usize, String, f64)>,
}

impl Start {
    /// Evaluates the model of `stage` with and without its adapters; `None` when interrupted.
    ///
    /// # Errors
    /// Those of the operators.
    pub(super) fn measure(group: &Group, stage: &Stage<'_>) -> Result<Option<Self>> {
        let sequences = stage.settings.eval_batch_size.unwrap_or(stage.settings.batch_size);
        let mut contributions = Contributions::default();
        let alone = Model { adapters: AdapterSet::none(&stage.model.backbone.placement()), ..stage.model.clone() };
        let loss = |model: &Model, contributions| -> Result<Option<f64>> {
            let split = Split::Validation;
            let scores = evaluate(group, model, stage.task, split, sequences, sequences, 0.0, contributions)?;
            Ok(scores.map(|scores| scores.get(metric::LOSS).unwrap_or(f64::NAN)))
        };
        let Some(backbone_loss) = loss(&alone, None)? else { return Ok(None) };
        let Some(loss) = loss(stage.model, Some(&mut contributions))? else { return Ok(None) };
        let mut layers: Vec<LayerResult> = stage.model.adapters.streams().map(gated).collect();
        contributions.put_into(&mut layers);
        let contribution = |layer: LayerResult| Some((layer.layer, layer.site, layer.contribution?));
        let largest_contribution = layers.into_iter().filter_map(contribution).max_by(|a, b| a.2.total_cmp(&b.2));
        let sequences = sequences.min(stage.task.sequences(Split::Validation));
        Ok(Some(Start { sequences, loss, backbone_loss, largest_contribution }))
    }

    /// What is wrong with this start, if anything is; `remedy` says what to change.
    pub(super) fn warning(&self, name: &str, remedy: &str) -> Option<String> {
        let Start { sequences, loss, backbone_loss, .. } = self;
        let worse = loss.is_nan() || *loss > backbone_loss * (1.0 + WORSE);
        let loud = self.largest_contribution.as_ref().filter(|(_, _, size)| *size > 1.0);
        if !worse && loud.is_none() {
            return None;
        }
        let mut text = format!(
            "warning: before its first step `{name}` has a loss of {loss:.4} on {}; the model without it \
             has {backbone_loss:.4}",
            counted(*sequences, "validation sequence")
        );
        if let Some((layer, site, size)) = loud {
            let _ = write!(text, "; what it adds after the {site} of layer {layer} is {size:.1} times the stream");
        }
        Some(format!("{text}: {remedy}"))
    }
}

/// The layer and gate of an adapter on the stream.
fn gated((layer, stream): (usize, &hankel_models::adapters::Stream)) -> LayerResult {
    LayerResult { layer, site: stream.site().name().to_owned(), gate: Some(stream.gate()), ..LayerResult::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(loss: f64, contribution: Option<f64>) -> Start {
        let largest_contribution = contribution.map(|size| (3, "mlp".to_owned(), size));
        Start { sequences: 4, loss, backbone_loss: 3.0, largest_contribution }
    }

    #[test]
    fn warns_when_the_model_gets_worse_or_is_drowned() {
        assert_eq!(start(3.0, Some(0.0)).warning("hrm", "do"), None);
        assert_eq!(start(3.02, None).warning("lora", "do"), None);
        assert_eq!(start(2.5, Some(0.9)).warning("hrm", "do"), None);
        let worse = start(14.9, Some(8.25)).warning("hrm", "set `preset`").unwrap();
        assert_eq!(
            worse,
            "warning: before its first step `hrm` has a loss of 14.9000 on 4 validation sequences; the model without it has \
             3.0000; what it adds after the mlp of layer 3 is 8.2 times the stream: set `preset`"
        );
        assert!(start(3.04, None).warning("lora", "do").is_some());
        assert!(start(2.9, Some(1.5)).warning("hrm", "do").unwrap().contains("1.5 times"));
        assert!(start(f64::NAN, None).warning("hrm", "do").is_some());
    }
}
