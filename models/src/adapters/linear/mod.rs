//! Adapters at linear sites: each changes one projection of the backbone.
//!
//! A [`LinearAdapter`] is what is attached to one projection; its type is a [`LinearKind`], which a line in the registry makes a
//! value of `adapter.kind`. Files are PEFT's ([`peft`]); [`merge`] folds adapters into the weights that they change.

mod context;
mod entry;
pub mod low_rank;
pub mod merge;
pub mod peft;
mod training;

pub use context::LinearContext;
pub(crate) use entry::LinearEntry;
pub use merge::WeightChange;
pub use training::{Allocation, SharedTraining};

use super::Placement;
use super::kind::Context;
use super::placement::LinearSite;
use crate::linear::Linear;
use crate::parameter::Parameter;
use crate::pass::Pass;
use crate::settings::{Key, SettingsError, Table};
use crate::weights;
use crate::weights::arrays::NamedArrays;
use hankel_core::{Result, Tensor};
use hankel_ops::add;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::Any;
use std::sync::Arc;

/// Gives a weight as it is stored, before it was quantised.
pub type StoredWeight<'a> = dyn Fn() -> Result<Tensor> + 'a;

/// The adapter of one projection.
pub trait LinearAdapter: Any + Send + Sync {
    /// Name of the projection: `model.layers.2.self_attn.q_proj`.
    fn path(&self) -> &str;

    /// What is learnt, and what files hold.
    fn parameters(&self) -> Vec<Parameter>;

    /// `base + ` the adapted projection of `x` `[batch, T, in]`; without `base` the projection alone.
    ///
    /// # Errors
    /// Those of the operators.
    fn apply(&self, layer: &Linear, base: Option<&Tensor>, x: &Tensor, pass: &Pass) -> Result<Tensor>;

    /// How the weight changes when the adapter is folded into it.
    ///
    /// # Errors
    /// Those of the operators.
    fn weight_change(&self) -> Result<WeightChange>;

    /// The rank of the update, if it has one.
    fn rank(&self) -> Option<usize> {
        None
    }

    /// Values per token that the backward pass needs beside the projection's input, for estimates of memory.
    fn saved_per_token(&self) -> usize {
        0
    }

    /// Whether it starts from the weight that it is attached to ([`LinearAdapter::start_at`]).
    fn needs_weight(&self) -> bool {
        false
    }

    /// Whether it makes up for the quantisation of the weight, and means nothing on another.
    fn needs_nf4(&self) -> bool {
        false
    }

    /// Sets what depends on the weight `[out, in]` it is attached to, so that the model starts unchanged.
    ///
    /// # Errors
    /// Those of the operators, and of `stored` where it is needed.
    fn start_at(&self, _weight: &Tensor, _stored: &StoredWeight<'_>) -> Result<()> {
        Ok(())
    }

    /// Makes what depends on the weight as it is stored, and is in no file, if it is not there.
    ///
    /// # Errors
    /// Those of the operators and of `stored`.
    fn complete(&self, _stored: &StoredWeight<'_>) -> Result<()> {
        Ok(())
    }

    /// Bytes that it holds beside its parameters, for estimates of memory.
    fn held_bytes(&self) -> usize {
        0
    }
}

impl dyn LinearAdapter {
    /// The adapter as what it is.
    pub fn downcast_ref<A: LinearAdapter>(&self) -> Option<&A> {
        (self as &dyn Any).downcast_ref()
    }
}

/// A linear adapter that a configuration can name.
pub trait LinearKind: LinearAdapter + Sized {
    /// The value of `adapter.kind`: letters, digits and `-`.
    const KIND: &'static str;

    /// One sentence for the documentation.
    const ABOUT: &'static str = "";

    /// The setting that a parameter budget is solved for. The number of parameters must grow with it.
    const SIZE: Option<&'static str> = None;

    /// Settings of which one must be given, unless there is a budget.
    const REQUIRED: &'static [&'static str] = &[];

    /// `peft_type` of `adapter_config.json`.
    const PEFT_TYPE: &'static str;

    /// What can be set.
    type Settings: Serialize + DeserializeOwned;

    /// The keys of configurations with their documentation.
    fn keys() -> Vec<Key>;

    /// Settings for those that are not `given`.
    fn defaults(given: &Table, context: &Context<'_>) -> Self::Settings;

    /// The projections that get one, see [`Placement::select`].
    fn targets(settings: &Self::Settings) -> &[String];

    /// Checks complete settings by themselves; targets are checked elsewhere.
    ///
    /// # Errors
    /// Names the setting and the problem.
    fn check(settings: &Self::Settings) -> std::result::Result<(), SettingsError>;

    /// The adapter of one projection, with its initial parameters.
    ///
    /// # Errors
    /// When a setting is out of range.
    fn new(settings: &Self::Settings, context: &LinearContext<'_>) -> Result<Self>;

    /// Number of trainable values at one projection.
    fn count(settings: &Self::Settings, layer: usize, site: &LinearSite) -> usize;

    /// The settings in a few words.
    fn describe(settings: &Self::Settings) -> String;

    /// The fields of `adapter_config.json` beside the envelope and `target_modules`.
    fn write_peft(settings: &Self::Settings) -> Table;

    /// Makes the fields of `adapter_config.json` what PEFT takes, where that depends on the projections, at `paths`, that the settings
    /// name.
    fn fit_peft(_settings: &Self::Settings, _paths: &[&str], _fields: &mut Table) {}

    /// Settings from `adapter_config.json`.
    ///
    /// # Errors
    /// When a field is missing, malformed, or has an effect that is not implemented.
    fn read_peft(fields: &peft::Fields<'_>) -> weights::Result<Self::Settings>;

    /// Whether an `adapter_config.json` of this `peft_type` is of this kind.
    fn owns(_file: &Table) -> bool {
        true
    }

    /// Holds the settings against the tensors of a file before memory is taken for them.
    ///
    /// # Errors
    /// Says which tensor does not fit.
    fn check_arrays(_settings: &Self::Settings, _arrays: &NamedArrays) -> std::result::Result<(), String> {
        Ok(())
    }

    /// Keys that a resolved configuration leaves out unless they were given: they follow from what is not known yet.
    fn open(_settings: &Self::Settings, _context: &Context<'_>) -> &'static [&'static str] {
        &[]
    }

    /// Makes other settings fit a size that was just changed.
    fn fit_size(_settings: &mut Self::Settings) {}

    /// What is done to all adapters of a set together while they are trained, if anything.
    fn training(_settings: &Self::Settings, _adapters: Vec<Arc<Self>>) -> Option<Arc<dyn SharedTraining>> {
        None
    }
}

/// `base + y`, or `y`.
pub(crate) fn add_base(base: Option<&Tensor>, y: &Tensor) -> Result<Tensor> {
    base.map_or_else(|| Ok(y.clone()), |base| add(base, y))
}

/// Checks that targets are named and match something.
pub(crate) fn check_targets(targets: &[String], placement: &Placement) -> std::result::Result<(), SettingsError> {
    SettingsError::unless(!targets.is_empty(), "targets", || {
        "must name at least one linear site, for example [\"q_proj\", \"v_proj\"]".to_owned()
    })?;
    let selected = placement.select(targets);
    selected.map(|_| ()).map_err(|error| SettingsError::new("targets", format!("cannot be attached: {error}")))
}
