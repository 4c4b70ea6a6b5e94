//! What varies from one run through a model to the next: dropout, recompute, and the state of a stream.

use crate::adapters::StreamSite;
use hankel_core::{Random, Tensor};
use std::collections::BTreeMap;

/// Keys of the random numbers of one training step.
#[derive(Debug, Clone, Copy)]
pub struct StepKey {
    /// The run's seed.
    pub seed: u64,
    /// The number of the micro-batch since the start of training.
    pub step: u64,
}

impl StepKey {
    /// The random numbers of `name` in this step.
    pub fn random(&self, name: &str) -> Random {
        Random::new(self.seed, name, self.step)
    }
}

/// One run through a model.
#[derive(Default)]
pub struct Pass<'a> {
    /// Set while training: dropout is active and draws from this key.
    pub training: Option<StepKey>,
    /// Keep only the input of each block and compute the block again in the backward pass.
    pub recompute: bool,
    /// Go on from this state and leave the new one in it.
    pub state: Option<&'a mut State>,
    /// Append the residual stream after each layer.
    pub trace: Option<&'a mut Vec<Tensor>>,
    /// Append the states of every recurrent adapter.
    pub trajectories: Option<&'a mut Vec<Trajectory>>,
}

/// The states that a recurrent adapter ran through.
pub struct Trajectory {
    /// Index of the layer.
    pub layer: usize,
    /// Its site.
    pub site: StreamSite,
    /// `[batch, T, state_dim]`.
    pub states: Tensor,
}

impl<'a> Pass<'a> {
    /// A run for evaluation.
    pub fn evaluation() -> Self {
        Self::default()
    }

    /// A run for training.
    pub fn training(key: StepKey) -> Self {
        Pass { training: Some(key), ..Self::default() }
    }

    /// A run that continues a stream.
    pub fn streaming(state: &'a mut State) -> Self {
        Pass { state: Some(state), ..Self::default() }
    }
}

/// What a model remembers of a stream: keys and values of attention, states of recurrences, and the position.
#[derive(Default, Clone)]
pub struct State {
    /// Tokens seen.
    pub position: usize,
    layers: Vec<LayerState>,
}

impl State {
    /// The memory of layer `index`.
    pub fn layer(&mut self, index: usize) -> &mut LayerState {
        if self.layers.len() <= index {
            self.layers.resize_with(index + 1, LayerState::default);
        }
        &mut self.layers[index]
    }
}

/// The memory of one layer.
#[derive(Default, Clone)]
pub struct LayerState {
    /// Keys and values `[batch, steps, width]` of the tokens seen.
    pub keys_values: Option<(Tensor, Tensor)>,
    /// States `[batch, state_dim]` of stream adapters, by site.
    pub streams: BTreeMap<&'static str, Tensor>,
}
