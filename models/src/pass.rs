//! What varies from one run through a model to the next: dropout, recompute, and the state of a stream.

use crate::adapters::{Memory, StreamSite};
pub use crate::spans::Spans;
use hankel_core::{DType, Error, Random, Result, Tensor, checkpoint, scope};
use hankel_ops::{KeyValues, row_squares};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

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
    /// Element type in which recompute keeps those inputs, `bf16` say; their own when not given.
    pub kept: Option<DType>,
    /// Go on from this state and leave the new one in it.
    pub state: Option<&'a mut State>,
    /// Append the residual stream after each layer.
    pub trace: Option<&'a mut Vec<Tensor>>,
    /// Append the states of every recurrent adapter.
    pub trajectories: Option<&'a mut Vec<Trajectory>>,
    /// Append what every stream adapter reads.
    pub inputs: Option<&'a mut Vec<SiteInput>>,
    /// Add zeros to what every stream adapter puts out, and append them (`[batch, T, d_model]`): the gradient by them is that by the output.
    pub probes: Option<&'a mut Vec<SiteInput>>,
    /// Append how large is what every stream adapter adds.
    pub contributions: Option<&'a mut Vec<Contribution>>,
    /// Where documents begin in a batch of one sequence that holds several, end to end; the first begins at 0. Positions,
    /// attention and recurrences start afresh at each. Not together with a state.
    pub documents: Option<Spans>,
    /// Where turns begin in a batch of one sequence, every document's beginning among them: positions and attention start
    /// afresh at each, and recurrences go on. What was said in an earlier turn is known by what stream adapters remember and
    /// by nothing else. Not together with a state, which [`State::begin_turn`] serves.
    pub turns: Option<Spans>,
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

/// What a stream adapter read.
pub struct SiteInput {
    /// Index of the layer.
    pub layer: usize,
    /// Its site.
    pub site: StreamSite,
    /// `[batch, T, d_model]`.
    pub x: Tensor,
}

/// What a stream adapter adds to the stream, token by token.
pub struct Contribution {
    /// Index of the layer.
    pub layer: usize,
    /// Its site.
    pub site: StreamSite,
    /// `||y_t||^2`, before the gate: `[batch T]`.
    pub output: Tensor,
    /// `||h_t||^2` of the stream that `gate y_t` is added to: `[batch T]`.
    pub stream: Tensor,
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

    /// Records what a stream adapter adds to `h`, `y` before the gate (both `[batch, T, D]`), if that is asked for.
    pub(crate) fn contribution(
        &mut self,
        (layer, site): (usize, StreamSite),
        h: &Tensor,
        y: impl FnOnce() -> Result<Tensor>,
    ) -> Result<()> {
        let Some(contributions) = &mut self.contributions else { return Ok(()) };
        let squares = |x: &Tensor| row_squares(&x.detach().reshape([x.shape().rows(), x.shape().last()])?);
        contributions.push(Contribution { layer, site, output: squares(&y()?)?, stream: squares(h)? });
        Ok(())
    }

    /// Checks documents and turns against tokens `[batch, T]`.
    ///
    /// # Errors
    /// When they do not divide a single sequence, a document begins within a turn, or a state is to be carried over their
    /// borders.
    pub(crate) fn check_documents(&self, model: &'static str, [batch, steps]: [usize; 2]) -> Result<()> {
        for (name, starts) in [("documents", &self.documents), ("turns", &self.turns)] {
            let Some(starts) = starts.as_ref().map(Spans::starts) else { continue };
            let ordered = starts.windows(2).all(|pair| pair[0] < pair[1]);
            let inside = starts.first() == Some(&0) && starts.last().is_some_and(|&last| last < steps);
            if batch != 1 || !ordered || !inside || self.state.is_some() {
                let problem = format!("{name} beginning at {starts:?} do not divide one stateless sequence of {steps}");
                return Err(Error::invalid(model, problem));
            }
        }
        if let (Some(turns), Some(documents)) = (&self.turns, &self.documents)
            && let Some(start) = documents.starts().iter().find(|start| turns.starts().binary_search(start).is_err())
        {
            return Err(Error::invalid(model, format!("no turn begins where the document at {start} does")));
        }
        Ok(())
    }

    /// Where attention starts afresh.
    fn spans(&self) -> Option<&Spans> {
        self.turns.as_ref().or(self.documents.as_ref())
    }

    /// The position of each token of a sequence of `steps` in its document or turn, a state's tokens counted.
    pub(crate) fn positions(&self, steps: usize) -> Vec<u32> {
        let first = self.state.as_ref().map_or(0, |state| state.position);
        let starts = self.spans().map_or(&[0][..], Spans::starts);
        let ends = starts[1..].iter().copied().chain([steps]);
        starts.iter().zip(ends).flat_map(|(&start, end)| first as u32..(first + end - start) as u32).collect()
    }

    /// Runs `f` on the documents of `inputs` `[1, T, width]`, several below each other as [`Spans::apart`] has them, and lays the
    /// results end to end; without documents, on `inputs` as they are.
    pub(crate) fn by_document(&self, inputs: &[&Tensor], f: impl Fn(&[&Tensor]) -> Result<Tensor>) -> Result<Tensor> {
        match &self.documents {
            Some(documents) => documents.apart(None, inputs, f),
            None => f(inputs),
        }
    }

    /// The same, on turns. Those of at most `border` tokens are not with longer ones.
    pub(crate) fn by_turn(
        &self,
        border: Option<usize>,
        inputs: &[&Tensor],
        f: impl Fn(&[&Tensor]) -> Result<Tensor>,
    ) -> Result<Tensor> {
        match self.spans() {
            Some(spans) => spans.apart(border, inputs, f),
            None => f(inputs),
        }
    }

    /// Runs layer `index` on `x`, keeping only `x` for the backward pass if this run recomputes.
    pub(crate) fn layer(
        &mut self,
        index: usize,
        x: &Tensor,
        forward: impl Fn(&Tensor, &mut Pass) -> Result<Tensor> + Send + 'static,
    ) -> Result<Tensor> {
        let name = format!("layers.{index}");
        let x = if !self.recompute || self.training.is_none() {
            scope(name, || forward(x, self))?
        } else {
            let (training, documents, turns) = (self.training, self.documents.clone(), self.turns.clone());
            let before = self.state.as_mut().map(|state| {
                let memory = state.layer(index).clone();
                (State { position: state.position, length: state.length, layers: Vec::new() }, memory)
            });
            let after = Arc::new(Mutex::new(None));
            let slot = Arc::clone(&after);
            // The scope is entered in each of the two runs, since the second one is in the backward pass.
            let run = move |x: &[Tensor]| {
                scope(name.clone(), || {
                    let mut state = before.clone().map(|(mut state, memory)| {
                        *state.layer(index) = memory;
                        state
                    });
                    let (documents, turns) = (documents.clone(), turns.clone());
                    let mut pass = Pass { training, documents, turns, state: state.as_mut(), ..Pass::default() };
                    let y = forward(&x[0], &mut pass)?;
                    let memory = state.map(|mut state| std::mem::take(state.layer(index)));
                    *slot.lock().unwrap_or_else(PoisonError::into_inner) = memory;
                    Ok(y)
                })
            };
            let y = checkpoint(self.kept, &[x], run)?;
            if let (Some(state), Some(memory)) =
                (&mut self.state, after.lock().unwrap_or_else(PoisonError::into_inner).take())
            {
                *state.layer(index) = memory;
            }
            y
        };
        if let Some(trace) = &mut self.trace {
            trace.push(x.clone());
        }
        Ok(x)
    }
}

/// What a model remembers of a stream: keys and values of attention, states of recurrences, and the position.
#[derive(Default, Clone)]
pub struct State {
    /// Tokens seen.
    pub position: usize,
    /// Tokens that the stream will have at least, as far as is known: some models turn short sequences by other angles.
    pub length: usize,
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

    /// Forgets keys, values and positions; what stream adapters remember stays.
    pub fn begin_turn(&mut self) {
        self.position = 0;
        self.layers.iter_mut().for_each(|layer| layer.keys_values = KeyValues::default());
    }
}

/// The memory of one layer.
#[derive(Default, Clone)]
pub struct LayerState {
    /// Keys and values of the tokens seen.
    pub keys_values: KeyValues,
    /// What stream adapters remember, by site: for recurrent ones the states `[batch, state_dim]`.
    pub streams: BTreeMap<&'static str, Memory>,
}
