//! Adapters on the residual stream, and the interface by which anyone adds a kind of their own.
//!
//! A [`StreamAdapter`] maps what it reads, `x` `[batch, T, D]`, to `y` of the same shape. Everything else belongs to this
//! harness: where it is attached and what it reads there, the gate, `out_t = h_t + gate y_t`, states carried from chunk to
//! chunk, documents packed into one sequence, files, and names. A type that also implements [`StreamKind`] and is registered
//! ([`register`]) is a value of `adapter.kind` in configurations like any other. `docs/sandbox.md` is the way through it.

mod config;
mod conformance;
mod files;
mod place;
mod registry;
mod system;
mod truncation;

pub use config::StreamConfig;
pub use conformance::conformance;
pub(crate) use files::PEFT_TYPE;
pub use place::Place;
pub(crate) use place::Shared;
pub use registry::{Kind, SettingsError, kind, kinds, register};
pub use system::{Reduction, VaryingSystem};
pub use truncation::{Calibration, StreamCertificate, StreamLayerCertificate, StreamTruncation};

use super::hrm::{Hrm, StreamInputs};
use crate::parameter::{Parameter, Role};
use crate::pass::{Pass, SiteInput, Trajectory};
use crate::weights::{HrmInput, HrmSite as StreamSite};
use hankel_core::{Error, Result, Tensor, no_grad};
use hankel_ops::{add_scaled, linear, narrow_time};
use serde::{Serialize, de::DeserializeOwned};
use std::sync::Arc;

/// What a stream adapter remembers of the tokens it has read: tensors whose first dimension is the batch.
pub type Memory = Vec<Tensor>;

/// What a recurrence leaves behind: the states `[batch, d]` after the last step of `states` `[batch, T, d]`, or, if there was no
/// step, those `before` it.
///
/// # Errors
/// When `states` has another number of dimensions.
pub fn last_states(states: &Tensor, before: Option<&Tensor>) -> Result<Tensor> {
    let &[batch, steps, d] = &states.shape()[..] else {
        return Err(Error::shape("last_states", format!("expected [batch, T, d], found {}", states.shape())));
    };
    match (steps, before) {
        (0, Some(before)) => Ok(before.clone()),
        (0, None) => states.full_like([batch, d], 0.0),
        _ => narrow_time(states, steps - 1, 1)?.reshape([batch, d]),
    }
}

/// A map of sequences, causal and with a memory.
pub trait StreamAdapter: Send + Sync {
    /// What is learnt, in a fixed order; the gate is not among it.
    fn parameters(&self) -> Vec<Parameter>;

    /// `y` `[batch, T, D]` for `x` `[batch, T, D]`, and the memory after the last step. `memory` is that of the chunk before;
    /// none at the beginning of a sequence. Reading a sequence in chunks, down to single steps, must give what reading it at
    /// once gives.
    ///
    /// # Errors
    /// Those of the operators.
    fn forward(&self, x: &Tensor, memory: Option<&Memory>) -> Result<(Tensor, Memory)>;

    /// The diagonal system with changing coefficients that the adapter is along `x`, if it is one: what truncation works on.
    ///
    /// # Errors
    /// Those of the operators.
    fn system(&self, _x: &Tensor) -> Result<Option<VaryingSystem>> {
        Ok(None)
    }

    /// Number of states, for reports; 0 without any.
    fn state_dim(&self) -> usize {
        0
    }
}

/// A stream adapter that a configuration can name.
pub trait StreamKind: StreamAdapter + Sized + 'static {
    /// The value of `adapter.kind`: letters, digits and `-`.
    const KIND: &'static str;

    /// The setting that a parameter budget is solved for, `state_dim` say. The number of parameters must grow with it in a
    /// straight line or faster.
    const SIZE: Option<&'static str> = None;

    /// What can be set, each with a default.
    type Settings: Serialize + DeserializeOwned + Default;

    /// The adapter at `place`, with its initial parameters.
    ///
    /// # Errors
    /// When a setting is out of range.
    fn new(settings: &Self::Settings, place: &Place<'_>) -> Result<Self>;
}

/// A kind of the sandbox at its site. Cloning shares the parameters.
#[derive(Clone)]
pub struct Attached {
    site: StreamSite,
    input: HrmInput,
    gate: Parameter,
    adapter: Arc<dyn StreamAdapter>,
    width: usize,
    /// The smaller state, once truncated.
    reduction: Option<Arc<Reduction>>,
}

impl Attached {
    pub(crate) fn new(config: &StreamConfig, place: &Place<'_>) -> Result<Self> {
        let gate = place.parameter("gate", Role::Gate, &Tensor::full([1], config.gate_init as f32))?;
        gate.set_trainable(config.train_gate)?;
        let kind = kind(&config.kind).ok_or_else(|| Error::invalid("adapter", registry::unknown(&config.kind)))?;
        let adapter = kind.build(&config.settings, place)?;
        Ok(Attached { site: place.site, input: config.input, gate, adapter, width: place.d_model, reduction: None })
    }

    /// The adapter itself.
    pub fn adapter(&self) -> &dyn StreamAdapter {
        &*self.adapter
    }

    pub(crate) fn is_truncated(&self) -> bool {
        self.reduction.is_some()
    }

    /// The system of the adapter on a single token of zeros, if it is one.
    pub(crate) fn example(&self) -> Result<Option<VaryingSystem>> {
        let x = self.gate.tensor().full_like([1, 1, self.width], 0.0)?;
        no_grad(|| self.adapter.system(&x))
    }

    /// `y` and the memory, of the truncated adapter if it is one.
    fn output(&self, x: &Tensor, memory: Option<&Memory>) -> Result<(Tensor, Memory)> {
        let Some(reduction) = &self.reduction else { return self.adapter.forward(x, memory) };
        let system = self.adapter.system(x)?;
        let system = system.ok_or_else(|| Error::invalid("truncated", "this kind gives no system along its input"))?;
        reduction.forward(&system, x, memory)
    }

    /// `h + gate y`.
    fn forward(&self, layer: usize, inputs: StreamInputs<'_>, pass: &mut Pass<'_>) -> Result<Tensor> {
        let x = inputs.read(self.input)?;
        let y = if let Some(state) = &mut pass.state {
            let memories = &mut state.layer(layer).streams;
            let (y, memory) = self.output(x, memories.get(self.site.module()))?;
            memories.insert(self.site.module(), memory.iter().map(Tensor::detach).collect());
            y
        } else {
            pass.by_document(&[x], |x| Ok(self.output(x[0], None)?.0))?
        };
        pass.contribution((layer, self.site), inputs.residual, || Ok(y.clone()))?;
        add_scaled(inputs.residual, &y, &self.gate.tensor())
    }
}

/// What is attached to a stream site. Cloning shares the parameters.
#[derive(Clone)]
pub enum Stream {
    /// The recurrent adapter of the paper.
    Hrm(Hrm),
    /// A registered kind.
    Attached(Attached),
}

impl Stream {
    /// The recurrent adapter of the paper, if it is one.
    pub fn hrm(&self) -> Option<&Hrm> {
        if let Stream::Hrm(hrm) = self { Some(hrm) } else { None }
    }

    /// What it reads.
    pub fn input(&self) -> HrmInput {
        match self {
            Stream::Hrm(hrm) => hrm.input(),
            Stream::Attached(attached) => attached.input,
        }
    }

    /// Number of states.
    pub fn state_dim(&self) -> usize {
        match self {
            Stream::Hrm(hrm) => hrm.state_dim(),
            Stream::Attached(attached) => {
                attached.reduction.as_ref().map_or_else(|| attached.adapter.state_dim(), |reduction| reduction.order())
            }
        }
    }

    /// The gate's present value.
    pub fn gate(&self) -> f64 {
        let gate = match self {
            Stream::Hrm(hrm) => &hrm.gate,
            Stream::Attached(attached) => &attached.gate,
        };
        gate.tensor().to_f64_vec()[0]
    }

    /// The same adapter behind a gate of its own that holds `value`, frozen.
    pub(super) fn with_gate(&self, value: f64) -> Result<Stream> {
        let mut held = self.clone();
        let gate = match &mut held {
            Stream::Hrm(hrm) => &mut hrm.gate,
            Stream::Attached(attached) => &mut attached.gate,
        };
        *gate = Parameter::new(gate.name(), Role::Gate, &gate.tensor().full_like([1], value)?);
        Ok(held)
    }

    /// What is learnt, the gate included.
    pub fn parameters(&self) -> Vec<Parameter> {
        match self {
            Stream::Hrm(hrm) => hrm.parameters(),
            Stream::Attached(attached) => {
                let mut all = attached.adapter.parameters();
                all.push(attached.gate.clone());
                all
            }
        }
    }

    /// The stream after the adapter in layer `layer`.
    pub(crate) fn forward(&self, layer: usize, inputs: StreamInputs<'_>, pass: &mut Pass<'_>) -> Result<Tensor> {
        if let Some(read) = &mut pass.inputs {
            let site = match self {
                Stream::Hrm(hrm) => hrm.site(),
                Stream::Attached(attached) => attached.site,
            };
            read.push(SiteInput { layer, site, x: inputs.read(self.input())?.detach() });
        }
        let hrm = match self {
            Stream::Attached(attached) => return attached.forward(layer, inputs, pass),
            Stream::Hrm(hrm) => hrm,
        };
        let states = hrm.states(layer, inputs, pass)?;
        if let Some(trajectories) = &mut pass.trajectories {
            trajectories.push(Trajectory { layer, site: hrm.site(), states: states.detach() });
        }
        pass.contribution((layer, hrm.site()), inputs.residual, || linear(&states, &hrm.c.tensor(), None))?;
        hrm.output(inputs.residual, &states)
    }
}
