//! The optimizer's part of a step, as `train fit` makes it: the norm of all gradients, clipping, `AdamW`.

use anyhow::{Context, Result};
use hankel_core::{Gradients, Tensor};
use hankel_models::{Parameter, Role};
use hankel_ops::optimizer::{AdamW, Moments, Rate, Scale, clip_factor, gradient_norm};

/// Parameters with their moments. The settings are those of `torch_side.py`.
pub struct Optimizer {
    trained: Vec<(Parameter, Moments)>,
    steps: u64,
}

const LEARNING_RATE: f64 = 1e-3;
const WEIGHT_DECAY: f64 = 0.01;
const CLIP: f64 = 1.0;

impl Optimizer {
    /// For those of `parameters` that are trained.
    pub fn new(parameters: Vec<Parameter>) -> Result<Self> {
        let trained = parameters.into_iter().filter(Parameter::is_trainable);
        let trained = trained.map(|parameter| Ok((parameter.clone(), Moments::new(&parameter.tensor())?)));
        Ok(Optimizer { trained: trained.collect::<Result<_>>()?, steps: 0 })
    }

    /// The gradient of each trained parameter.
    pub fn gradients(&self, gradients: &Gradients) -> Result<Vec<(String, Tensor)>> {
        let of = |(parameter, _): &(Parameter, Moments)| {
            let gradient = gradients.get(&parameter.tensor()).with_context(|| format!("no d {}", parameter.name()))?;
            Ok((format!("gradient/{}", parameter.name()), gradient.clone()))
        };
        self.trained.iter().map(of).collect()
    }

    /// One step; the norm of all gradients.
    pub fn step(&mut self, gradients: &Gradients) -> Result<f64> {
        let gradients = self.gradients(gradients)?;
        let norm = gradient_norm(gradients.iter().map(|(_, gradient)| gradient))?.item()?;
        let scale = Scale::By(clip_factor(norm, CLIP));
        let optimizer = AdamW { betas: [0.9, 0.999], eps: 1e-8 };
        self.steps += 1;
        for ((parameter, moments), (_, gradient)) in self.trained.iter_mut().zip(&gradients) {
            let weight_decay = if parameter.role() == Role::Matrix { WEIGHT_DECAY } else { 0.0 };
            let rate = Rate { lr: LEARNING_RATE, weight_decay };
            parameter.update(|value| optimizer.update(value, gradient, moments, self.steps, scale, rate))?;
        }
        Ok(norm)
    }
}
