//! Adapters on the residual stream, and the interface by which anyone adds a kind of their own.
//!
//! A [`StreamAdapter`] maps what it reads, `x` `[batch, T, D]`, to `y` of the same shape, in which no step depends on a later one.
//! Everything else belongs to this harness: where it is attached and what it reads there, the gate, `out_t = h_t + gate y_t`, states
//! carried from chunk to chunk, documents packed into one sequence, files, and names. A type that also implements [`StreamKind`] and
//! is registered ([`register`]) is a value of `adapter.kind` in configurations like any other. `docs/sandbox.md` is the way through it.

pub(crate) mod checks;
mod conformance;
mod context;
mod entry;
mod files;
pub(crate) mod initial;
pub(crate) mod keys;
#[cfg(test)]
mod mistakes;
mod recurrence;
mod settings;
mod system;
#[cfg(test)]
mod tests;
mod truncation;

pub use super::registry::{kind, kinds, register};
pub use conformance::conformance;
pub use context::SiteContext;
pub(crate) use entry::StreamEntry;
pub use recurrence::Recurrence;
pub use settings::SiteSettings;
pub use system::{Reduction, VaryingSystem};
pub use truncation::{Calibration, StreamCertificate, StreamLayerCertificate, StreamTruncation};

use super::config::AdapterConfig;
use super::kind::Context;
use super::{AdapterSet, Placement};
use crate::lti::{self, LinearSystem, Mode};
use crate::parameter::{Parameter, Role};
use crate::pass::{Pass, SiteInput, Trajectory};
use crate::settings::{Key, SettingsError, Table};
use crate::weights::{self, StreamInput, StreamSite};
use hankel_core::{Error, Result, Tensor, no_grad};
use hankel_ops::{Gate, add, add_linear, add_scaled, linear, narrow_time, scan};
use serde::{Serialize, de::DeserializeOwned};
use std::any::Any;
use std::collections::BTreeSet;
use std::path::Path;
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

/// Makes an adapter of these settings at a site. Fails if a parameter has a name that the harness needs, or two have the same name: files,
/// optimizers and checkpoints know parameters by their names.
pub(crate) fn make<K: StreamKind>(settings: &K::Settings, context: &SiteContext<'_>) -> Result<K> {
    let adapter = K::new(settings, context)?;
    let mut seen = BTreeSet::new();
    for parameter in adapter.parameters() {
        let name = parameter.name();
        let own = name.rsplit_once(&format!(".{}.", K::KIND)).map_or(name, |(_, own)| own);
        if ["gate", "left", "right"].contains(&own) {
            return Err(Error::invalid(
                K::KIND,
                format!("a parameter is called {own}, as one of the harness is: rename it"),
            ));
        }
        if !seen.insert(name.to_owned()) {
            return Err(Error::invalid(K::KIND, format!("two parameters are called {own}: rename one")));
        }
    }
    Ok(adapter)
}

/// A map of sequences, causal and with a memory.
pub trait StreamAdapter: Any + Send + Sync {
    /// What is learnt, in a fixed order; the gate is not among it.
    fn parameters(&self) -> Vec<Parameter>;

    /// `y` `[batch, T, D]` for `x` `[batch, T, D]`, and the memory after the last step. `memory` is that of the chunk before;
    /// none at the beginning of a sequence. Reading a sequence in chunks, down to single steps, must give what reading it at
    /// once gives.
    ///
    /// # Errors
    /// Those of the operators.
    fn forward(&self, x: &Tensor, memory: Option<&Memory>) -> Result<(Tensor, Memory)>;

    /// The linear recurrence that the adapter is, if it is one whose coefficients do not depend on the input. Its states can be
    /// recorded, its exactness measured, and its output is added to the stream together with the gate.
    ///
    /// # Errors
    /// Those of the operators.
    fn recurrence(&self) -> Result<Option<Recurrence>> {
        Ok(None)
    }

    /// The diagonal system with changing coefficients that the adapter is along `x`, if it is one: what truncation along data
    /// works on.
    ///
    /// # Errors
    /// Those of the operators.
    fn system(&self, _x: &Tensor) -> Result<Option<VaryingSystem>> {
        Ok(None)
    }

    /// The linear system (A, B, C) in f64 that the adapter is, without its gate, if its coefficients do not depend on the input: its
    /// Hankel singular values are reported.
    fn linear_system(&self) -> Option<lti::Result<LinearSystem>> {
        None
    }

    /// Poles of that system, for the log; empty where they are not at hand.
    fn poles(&self) -> Vec<Mode> {
        Vec::new()
    }

    /// Number of states, for reports; 0 without any.
    fn state_dim(&self) -> usize {
        0
    }

    /// Values per token that the backward pass needs beside what the adapter reads, for estimates of memory: ten a state and the
    /// output `[D]` where nothing better is known.
    fn saved_per_token(&self, d_model: usize) -> usize {
        10 * self.state_dim() + d_model
    }

    /// `|gate|` times the sum of the Hankel singular values, a scalar with gradients for everything it depends on; `None` where
    /// there is nothing to penalise.
    ///
    /// # Errors
    /// When the gradient is not known, or parameters are not finite.
    fn hankel_sum(&self, _gate: &Parameter) -> Result<Option<Tensor>> {
        Ok(None)
    }

    /// Refuses parameters that cannot be used in the element type that they are held in.
    ///
    /// # Errors
    /// Says which one and why.
    fn check_rounded(&self) -> Result<()> {
        Ok(())
    }
}

/// A stream adapter that a configuration can name.
pub trait StreamKind: StreamAdapter + Sized {
    /// The value of `adapter.kind`: letters, digits and `-`.
    const KIND: &'static str;

    /// The setting that a parameter budget is solved for, `state_dim` say. The number of parameters must grow with it.
    const SIZE: Option<&'static str> = None;

    /// The setting that is the standard deviation of the initial output matrix, if there is one. On a pretrained backbone it is 0 unless
    /// it is given, and with an output of 0 the adapter begins as the identity: behind [`SiteSettings::identity`].
    const OUTPUT_STD: Option<&'static str> = None;

    /// One sentence for the documentation.
    const ABOUT: &'static str = "";

    /// Settings of which one must be given, unless there is a budget.
    const REQUIRED: &'static [&'static str] = &[];

    /// What can be set, each with a default.
    type Settings: Serialize + DeserializeOwned + Default;

    /// The adapter at a site, with its initial parameters.
    ///
    /// # Errors
    /// When a setting is out of range.
    fn new(settings: &Self::Settings, context: &SiteContext<'_>) -> Result<Self>;

    /// The keys of configurations with their documentation; without any, the names of the settings.
    fn keys() -> Vec<Key> {
        let names = crate::settings::write(&Self::Settings::default()).unwrap_or_default();
        names.iter().map(|(name, _)| Key::new(name, "", "")).collect()
    }

    /// Settings for those that are not `given`.
    fn defaults(_given: &Table, _context: &Context<'_>) -> Self::Settings {
        Self::Settings::default()
    }

    /// Where it is, what it reads and its gate, when that is not given. On a pretrained backbone an adapter should begin as the
    /// identity: an output of 0 ([`StreamKind::OUTPUT_STD`]), or a gate of 0.
    fn site_defaults(_settings: &Self::Settings, _pretrained: bool) -> SiteSettings {
        SiteSettings::default()
    }

    /// Checks complete settings; what is not checked here is refused by [`StreamKind::new`].
    ///
    /// # Errors
    /// Names the setting and the problem.
    fn check(_settings: &Self::Settings) -> std::result::Result<(), SettingsError> {
        Ok(())
    }

    /// Keys that a resolved configuration leaves out unless they were given, having no effect.
    fn open(_settings: &Self::Settings) -> &'static [&'static str] {
        &[]
    }

    /// Keys that have no effect beside these settings, each with what is to be said where it is given.
    fn idle(_settings: &Self::Settings) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    /// Settings of the larger adapter that this one begins as a truncation of, by what training sequences do to it
    /// ([`AdapterSet::empirical_start`]); `None` for a start that needs no data.
    fn begins_from(_settings: &Self::Settings) -> Option<Self::Settings> {
        None
    }

    /// Sizes are multiples of this.
    fn size_step(_settings: &Self::Settings) -> usize {
        1
    }

    /// Number of trainable values at one site, the gate not counted; without it, adapters are made and counted.
    fn count(_settings: &Self::Settings, _d_model: usize) -> Option<usize> {
        None
    }

    /// The settings in a few words.
    fn describe(settings: &Self::Settings) -> String {
        let settings = crate::settings::write(settings).unwrap_or_default();
        let size = Self::SIZE.and_then(|key| settings.get(key).map(|size| format!("{key} = {size}")));
        size.unwrap_or_default()
    }

    /// Whether an `adapter_config.json` is one of this kind.
    fn owns(file: &Table) -> bool {
        files::is_of_kind(file, Self::KIND)
    }

    /// Writes the directory, all or nothing, replacing one that is there.
    ///
    /// # Errors
    /// When it cannot be written; what was there is still there then.
    fn save(
        set: &AdapterSet,
        config: &AdapterConfig,
        directory: &Path,
        base_model: Option<&str>,
    ) -> weights::Result<()> {
        files::save(set, config, directory, base_model)
    }

    /// Reads a directory that [`StreamKind::owns`] says is of this kind.
    ///
    /// # Errors
    /// When a file is missing or malformed, or it was made for another backbone.
    fn load(directory: &Path, file: &Table, placement: &Placement, _length: usize) -> weights::Result<AdapterSet> {
        files::load(directory, file, placement)
    }
}

/// An adapter at its site, behind its gate. Cloning shares the parameters.
#[derive(Clone)]
pub struct Stream {
    site: StreamSite,
    input: StreamInput,
    gate: Parameter,
    adapter: Arc<dyn StreamAdapter>,
    width: usize,
    /// The smaller state, once truncated along data.
    reduction: Option<Arc<Reduction>>,
}

impl Stream {
    pub(crate) fn new(
        adapter: Arc<dyn StreamAdapter>,
        settings: &SiteSettings,
        context: &SiteContext<'_>,
    ) -> Result<Self> {
        let gate = context.parameter("gate", Role::Gate, &Tensor::full([1], settings.gate_init as f32))?;
        gate.set_trainable(settings.train_gate)?;
        let (site, input, width) = (context.site, settings.input, context.d_model);
        Ok(Stream { site, input, gate, adapter, width, reduction: None })
    }

    /// Assembles an adapter from loaded parts.
    pub(crate) fn from_parts(
        adapter: Arc<dyn StreamAdapter>,
        site: StreamSite,
        input: StreamInput,
        gate: Parameter,
        width: usize,
    ) -> Self {
        Stream { site, input, gate, adapter, width, reduction: None }
    }

    /// The adapter itself.
    pub fn adapter(&self) -> &dyn StreamAdapter {
        &*self.adapter
    }

    /// The adapter as what it is.
    pub fn downcast_ref<A: StreamAdapter>(&self) -> Option<&A> {
        (self.adapter() as &dyn Any).downcast_ref()
    }

    /// Where it is.
    pub fn site(&self) -> StreamSite {
        self.site
    }

    /// What it reads.
    pub fn input(&self) -> StreamInput {
        self.input
    }

    /// Number of states.
    pub fn state_dim(&self) -> usize {
        self.reduction.as_ref().map_or_else(|| self.adapter.state_dim(), |reduction| reduction.order())
    }

    /// Values per token that the backward pass needs beside what the adapter reads, for estimates of memory.
    pub fn saved_per_token(&self) -> usize {
        self.adapter.saved_per_token(self.width)
    }

    /// The gate's present value.
    pub fn gate(&self) -> f64 {
        self.gate.tensor().to_f64_vec()[0]
    }

    /// See [`StreamAdapter::hankel_sum`].
    pub(super) fn hankel_sum(&self) -> Result<Option<Tensor>> {
        self.adapter.hankel_sum(&self.gate)
    }

    /// The same adapter behind a gate of its own that holds `value`, frozen.
    pub(super) fn with_gate(&self, value: f64) -> Result<Stream> {
        let gate = Parameter::new(self.gate.name(), Role::Gate, &self.gate.tensor().full_like([1], value)?);
        Ok(Stream { gate, ..self.clone() })
    }

    /// What is learnt, the gate included.
    pub fn parameters(&self) -> Vec<Parameter> {
        let mut all = self.adapter.parameters();
        all.push(self.gate.clone());
        all
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

    /// The stream after the adapter in layer `layer`: `h + gate y`.
    pub(crate) fn forward(&self, layer: usize, inputs: StreamInputs<'_>, pass: &mut Pass<'_>) -> Result<Tensor> {
        let x = inputs.read(self.input)?;
        if let Some(read) = &mut pass.inputs {
            read.push(SiteInput { layer, site: self.site, x: x.detach() });
        }
        let probed;
        let residual = if let Some(probes) = &mut pass.probes {
            let zeros = inputs.residual.full_like(inputs.residual.shape().clone(), 0.0)?.parameter()?;
            probed = add(inputs.residual, &zeros)?;
            probes.push(SiteInput { layer, site: self.site, x: zeros });
            &probed
        } else {
            inputs.residual
        };
        if self.reduction.is_none()
            && let Some(recurrence) = self.adapter.recurrence()?
        {
            return self.add_recurrence(&recurrence, layer, (residual, x), pass);
        }
        let y = if let Some(state) = &mut pass.state {
            let memories = &mut state.layer(layer).streams;
            let (y, memory) = self.output(x, memories.get(self.site.module()))?;
            memories.insert(self.site.module(), memory.iter().map(Tensor::detach).collect());
            y
        } else {
            pass.by_document(&[x], |x| Ok(self.output(x[0], None)?.0))?
        };
        pass.contribution((layer, self.site), residual, || Ok(y.clone()))?;
        add_scaled(residual, &y, &self.gate.tensor())
    }

    /// `h + gate C s`, in one pass.
    fn add_recurrence(
        &self,
        recurrence: &Recurrence,
        layer: usize,
        (h, x): (&Tensor, &Tensor),
        pass: &mut Pass<'_>,
    ) -> Result<Tensor> {
        let states = self.states(recurrence, layer, x, pass)?;
        if let Some(trajectories) = &mut pass.trajectories {
            trajectories.push(Trajectory { layer, site: self.site, states: states.detach() });
        }
        pass.contribution((layer, self.site), h, || linear(&states, &recurrence.c, None))?;
        add_linear(h, &states, &recurrence.c, None, Gate::Learned(&self.gate.tensor()))
    }

    /// The states `[batch, T, d]` for `x`. A state in `pass` holds the final ones of what came before and gets those of this part.
    pub(crate) fn states(
        &self,
        recurrence: &Recurrence,
        layer: usize,
        x: &Tensor,
        pass: &mut Pass<'_>,
    ) -> Result<Tensor> {
        let u = linear(x, &recurrence.b, None)?;
        let (module, path) = (self.site.module(), recurrence.path);
        let memory = pass.state.as_mut().and_then(|state| state.layer(layer).streams.get(module).cloned());
        let initial = memory.as_ref().and_then(|memory| memory.first());
        let states = pass.by_document(&[&u], |u| scan(u[0], &recurrence.poles, initial, path))?;
        if let Some(state) = pass.state.as_mut().filter(|_| u.shape()[1] > 0) {
            state.layer(layer).streams.insert(module, vec![last_states(&states, None)?.detach()]);
        }
        Ok(states)
    }
}

/// The three readings of a site; `sublayer` may be left out when nothing reads it.
#[derive(Clone, Copy)]
pub struct StreamInputs<'a> {
    /// The stream after the sub-layer, to which the output is added.
    pub residual: &'a Tensor,
    /// The normalised input of the sub-layer.
    pub norm: &'a Tensor,
    /// The output of the sub-layer.
    pub sublayer: Option<&'a Tensor>,
}

impl<'a> StreamInputs<'a> {
    /// The reading that is asked for.
    pub(crate) fn read(&self, input: StreamInput) -> Result<&'a Tensor> {
        match input {
            StreamInput::Residual => Ok(self.residual),
            StreamInput::Norm => Ok(self.norm),
            StreamInput::Sublayer => {
                self.sublayer.ok_or_else(|| Error::invalid("adapter", "the output of the sub-layer was not given"))
            }
        }
    }
}
