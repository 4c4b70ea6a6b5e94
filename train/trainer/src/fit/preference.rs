//! Direct preference optimization (Rafailov et al., 2023) on pairs of answers.
//!
//! ```text
//! h    = beta ((log p(chosen) - log q(chosen)) - (log p(rejected) - log q(rejected)))
//! loss = mean over pairs of -(1 - e) log sigmoid(h) - e log sigmoid(-h)
//! ```
//!
//! `p` is the model, `q` the reference, which is the model with the adapter off; logarithms are sums over the tokens of an answer.
//! `e` is the label smoothing: the share of pairs taken to be the wrong way round. `beta (log p - log q)` is the reward of an answer.
//!
//! The loss depends on each log-likelihood by one number per pair, so its gradient is that of a cross entropy whose tokens are weighted by
//! those numbers: `d loss / d log p(chosen) = beta (sigmoid(h) - 1 + e) / pairs`, the same with another sign for the rejected answer.

use super::model::{Model, divided};
use crate::tasks::{Batch, PairSums};
use hankel_core::{Gradients, Result, Tensor, no_grad};
use hankel_models::{AdapterSet, Pass};
use hankel_ops::{Head, Targets, cross_entropy, token_scores};

impl Model {
    /// The loss of a batch of pairs divided by `normalizer`, the number of pairs of the step, and its gradient. `pass` is that of training.
    ///
    /// # Errors
    /// Those of the operators.
    pub(super) fn differentiate_pairs(
        &self,
        batch: &Batch,
        (smoothing, normalizer): (f64, f64),
        mut pass: Pass<'_>,
    ) -> Result<(Vec<Tensor>, Gradients)> {
        let [tokens, targets] = [&batch.tokens, &batch.targets].map(|ids| tensor(batch, ids));
        let (tokens, targets, places) = (tokens?, targets?, batch.counted());
        let reference = self.reference().likelihoods(batch)?;
        let hidden = self.backbone.hidden(&tokens, &self.adapters, &mut pass)?;
        let weight = self.backbone.head().tensor();
        let head = Head { cap: self.backbone.logit_cap(), ..Head::new(&weight) };
        let scores = no_grad(|| token_scores(&hidden, head, &targets, &places))?;
        let likelihoods = batch.of_sequences(scores.nll.iter().map(|nll| -nll));
        let pairs = batch.pairs(&likelihoods, &reference);
        let loss: f64 = pairs.iter().map(|pair| pair.loss(smoothing)).sum::<f64>() / normalizer;
        // Weights of what is minimised, -log p.
        let slopes: Vec<f64> = pairs.iter().flat_map(|pair| pair.slopes(smoothing)).collect();
        let sequence = batch.sequence_of();
        let weight_at = |place: usize| if batch.weights[place] > 0.0 { -slopes[sequence(place)] } else { 0.0 };
        let weights = (0..batch.tokens.len()).map(weight_at);
        let weights = Tensor::from_vec(weights.collect::<Vec<f64>>(), targets.shape())?.to_dtype(hidden.dtype())?;
        let targets = Targets { tokens: &targets, weights: &weights, smoothing: 0.0, normalizer };
        let gradients = cross_entropy(&hidden, head, targets)?.backward()?;
        Ok((vec![Tensor::scalar(loss)], gradients))
    }

    /// What adds up to the figures of a batch of pairs, of which the model scores the targets by `likelihoods`.
    ///
    /// # Errors
    /// Those of the operators.
    pub(super) fn score_pairs(
        &self,
        batch: &Batch,
        smoothing: f64,
        nll: impl Iterator<Item = f64>,
    ) -> Result<PairSums> {
        let likelihoods = batch.of_sequences(nll.map(|nll| -nll));
        let reference = self.reference().likelihoods(batch)?;
        Ok(PairSums::of(&batch.pairs(&likelihoods, &reference), smoothing))
    }

    /// The model with the adapter off.
    fn reference(&self) -> Model {
        Model { adapters: AdapterSet::none(&self.backbone.placement()), ..self.clone() }
    }

    /// The log-likelihood of the answer in every sequence, in nats.
    fn likelihoods(&self, batch: &Batch) -> Result<Vec<f64>> {
        let mut pass = divided(batch, Pass::evaluation());
        let (tokens, targets) = (tensor(batch, &batch.tokens)?, tensor(batch, &batch.targets)?);
        let scores = self.backbone.scores(&tokens, &targets, &batch.counted(), &self.adapters, &mut pass)?;
        Ok(batch.of_sequences(scores.nll.iter().map(|nll| -nll)))
    }
}

fn tensor(batch: &Batch, ids: &[u32]) -> Result<Tensor> {
    Tensor::from_vec(ids.to_vec(), [batch.sequences, batch.length])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::fit::BackboneSnapshot;
    use crate::tasks::Sequence;
    use hankel_models::StepKey;
    use hankel_models::adapters::Context;

    const TEXT: &str = "precision = \"f64\"\n[task]\nkind = \"parity\"\nlength = 24\n[backbone]\nlayers = 1\nd_model = 8\nheads = 2\n[train]\nsteps = \
        5\n";

    /// Against central differences, for adapters of either sort, packed and padded.
    #[test]
    fn gradients() {
        let hrm = "[[adapter]]\nkind = \"hrm\"\nstate_dim = 3\ngate_init = 1.0\nb_std = 0.5\nc_std = 0.5\n";
        for adapter in [hrm, "[[adapter]]\nkind = \"lora\"\nrank = 2\ninit = \"pissa\"\ntargets = \"all-linear\"\n"] {
            let (config, _) = Config::load(&format!("{TEXT}{adapter}"), "t.toml", &[]).unwrap();
            let snapshot = BackboneSnapshot::new(&config).unwrap();
            let placement = snapshot.backbone().placement();
            let context = Context { placement: &placement, length: 24, steps: Some(5), pretrained: false };
            let settings = config.adapter[0].method.settings(&context).unwrap().unwrap();
            let parameters = snapshot.backbone().parameters();
            let model = snapshot.with_adapters(AdapterSet::on(&settings, &placement, &parameters, 0).unwrap()).unwrap();
            let vocabulary = model.backbone.vocabulary() as u32;
            let example = |first: u32, n: usize| {
                let ids: Vec<u32> = (0..=n as u32).map(|i| (first + i * i) % vocabulary).collect();
                let weights = (0..n).map(|i| f32::from(u8::from(i > 1))).collect();
                Sequence { tokens: ids[..n].to_vec(), targets: ids[1..].to_vec(), weights }
            };
            let examples = [example(0, 5), example(1, 4), example(0, 3), example(1, 6)];
            for batch in [Batch::packed(&examples), Batch::padded(&examples)] {
                let batch = Batch { preference: Some(0.7), ..batch };
                let differentiate = || {
                    let pass = divided(&batch, Pass::training(StepKey { seed: 0, step: 0 }));
                    model.differentiate_pairs(&batch, (0.1, 3.0), pass).unwrap()
                };
                // Away from where it starts, at which every answer has the reference's likelihood.
                for (k, parameter) in model.adapters.parameters().iter().enumerate() {
                    let moved = parameter
                        .tensor()
                        .to_f64_vec()
                        .iter()
                        .enumerate()
                        .map(|(i, x)| x + 0.1 * ((i + k) as f64).sin())
                        .collect();
                    parameter.set(&Tensor::from_vec::<f64>(moved, parameter.tensor().shape()).unwrap()).unwrap();
                }
                let (_, gradients) = differentiate();
                let mut largest = 0.0_f64;
                for parameter in model.adapters.parameters().iter().filter(|parameter| parameter.is_trainable()) {
                    let value = parameter.tensor().detach();
                    let own = gradients.get(&parameter.tensor()).unwrap().to_f64_vec();
                    for at in [0, own.len() / 2, own.len() - 1] {
                        let loss = |step: f64| {
                            let mut moved = value.to_f64_vec();
                            moved[at] += step;
                            parameter.set(&Tensor::from_vec(moved, value.shape()).unwrap()).unwrap();
                            differentiate().0[0].item().unwrap()
                        };
                        let numeric = (loss(1e-5) - loss(-1e-5)) / 2e-5;
                        assert!((own[at] - numeric).abs() < 1e-8, "{}: {} {numeric}", parameter.name(), own[at]);
                        largest = largest.max(numeric.abs());
                    }
                    parameter.set(&value).unwrap();
                }
                assert!(largest > 1e-3, "the loss does not depend on the adapter");
            }
        }
    }
}
