//! Weight-decomposed low-rank adaptation (DoRA, Liu et al., 2024): magnitude and direction of each row apart.
//!
//! ```text
//! y_i = (m_i / n_i) (W x + s B A x)_i + b_i,    n_i = || row i of W + s B A ||
//! ```
//!
//! `n` is a constant in the backward pass (section 4.3 of the paper), as PEFT has it. It comes from the low-rank
//! identity of [`inverse_row_norms`]: the sum `W + s B A` never exists, and the frozen weight is seen only as the product
//! that a projection is and as the norms of its rows, so it may be stored in any form. `m` starts at the norms of the
//! rows of `W`, so that the model starts unchanged. Dropout acts as in PEFT: where it is active,
//! `y = W (x - drop(x)) + b + (m / n) (W + s B A) drop(x)`.

use super::kind::Context;
use super::linear::low_rank::check_rank_of;
use super::linear::peft::Fields;
use super::linear::{LinearAdapter, LinearContext, LinearKind, StoredWeight, WeightChange, add_base};
use super::lora::{Lora, LoraConfig};
use super::placement::LinearSite;
use crate::linear::Linear;
use crate::parameter::{Parameter, Role};
use crate::pass::Pass;
use crate::settings::{Key, SettingsError, Table};
use crate::weights;
use crate::weights::arrays::NamedArrays;
use hankel_core::{Result, Tensor};
use hankel_ops::{add, inverse_row_norms, linear, multiply, row_squares, scale, scale_columns};
use serde_json::Value;
use std::sync::{Mutex, PoisonError};

/// The adapter of one projection.
pub struct Dora {
    update: Lora,
    magnitude: Parameter,
    memory: Mutex<Memory>,
}

/// Norms that need not be computed again.
#[derive(Default)]
struct Memory {
    /// A frozen weight and the squared norms of its rows.
    squares: Option<(Tensor, Tensor)>,
    /// Weight, `A`, `B`, and what they gave. Evaluation alone keeps it: a stream of single tokens would spend more on
    /// norms than on its projections, and an optimizer would have to copy factors that are also held here.
    inverse: Option<([Tensor; 3], Tensor)>,
    /// Set by [`Dora::hold_norms`].
    held: bool,
}

impl LinearKind for Dora {
    const KIND: &'static str = "dora";
    const ABOUT: &'static str = "Low-rank updates of the directions of the weight's rows; their magnitudes are learned separately (Liu et al., 2024).";
    const SIZE: Option<&'static str> = Some("rank");
    const REQUIRED: &'static [&'static str] = &["rank"];
    const PEFT_TYPE: &'static str = "LORA";
    type Settings = LoraConfig;

    fn keys() -> Vec<Key> {
        // Its magnitudes start at the norms of the weight itself.
        LoraConfig::keys().into_iter().filter(|key| !["init", "loftq_iter"].contains(&&*key.name)).collect()
    }

    fn defaults(given: &Table, context: &Context<'_>) -> LoraConfig {
        LoraConfig::defaults(given, context.placement)
    }

    fn targets(settings: &LoraConfig) -> &[String] {
        &settings.targets
    }

    fn check(settings: &LoraConfig) -> std::result::Result<(), SettingsError> {
        settings.check()
    }

    /// With magnitudes of zero, to be filled from a file or by [`LinearAdapter::start_at`].
    fn new(settings: &LoraConfig, context: &LinearContext<'_>) -> Result<Self> {
        let zeros = Tensor::zeros::<f32>([context.site.outputs]);
        let magnitude = context.parameter("lora_magnitude_vector", Role::Vector, &zeros)?;
        Ok(Dora {
            update: Lora::new(settings, context)?,
            // As in PEFT, whose LoRA+ takes every vector to be of the kind of B.
            magnitude: magnitude.with_rate(settings.lora_plus_ratio),
            memory: Mutex::default(),
        })
    }

    fn count(settings: &LoraConfig, layer: usize, site: &LinearSite) -> usize {
        Lora::count(settings, layer, site) + site.outputs
    }

    fn describe(settings: &LoraConfig) -> String {
        settings.describe()
    }

    fn write_peft(settings: &LoraConfig) -> Table {
        settings.write_peft(true)
    }

    fn read_peft(fields: &Fields<'_>) -> weights::Result<LoraConfig> {
        LoraConfig::read_peft(fields)
    }

    fn owns(file: &Table) -> bool {
        file.get("use_dora") == Some(&Value::Bool(true))
    }

    fn check_arrays(settings: &LoraConfig, arrays: &NamedArrays) -> std::result::Result<(), String> {
        check_rank_of(arrays, settings.rank)
    }
}

impl LinearAdapter for Dora {
    fn path(&self) -> &str {
        self.update.path()
    }

    fn parameters(&self) -> Vec<Parameter> {
        let mut all = self.update.parameters();
        all.push(self.magnitude.clone());
        all
    }

    fn apply(&self, layer: &Linear, base: Option<&Tensor>, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let factor = multiply(&self.magnitude.tensor(), &self.inverse_norms(layer, pass)?)?;
        let dropped = self.update.dropped(x, pass)?;
        let seen = dropped.as_ref().unwrap_or(x);
        let direction = self.update.add_onto(&layer.product(seen)?, seen)?;
        let mut y = scale_columns(&direction, &factor, layer.bias().as_ref())?;
        if let Some(dropped) = &dropped {
            y = add(&y, &layer.product(&add(x, &scale(dropped, -1.0)?)?)?)?;
        }
        add_base(base, &y)
    }

    fn weight_change(&self) -> Result<WeightChange> {
        Ok(WeightChange { norms: Some(self.magnitude.tensor().to_f64_vec()), ..self.update.weight_change()? })
    }

    fn rank(&self) -> Option<usize> {
        self.update.rank()
    }

    fn saved_per_token(&self) -> usize {
        self.update.saved_per_token()
    }

    fn needs_weight(&self) -> bool {
        true
    }

    /// Sets the magnitudes to the norms of the rows of the weight.
    fn start_at(&self, weight: &Tensor, _: &StoredWeight<'_>) -> Result<()> {
        let norms: Vec<f64> = row_squares(&weight.detach())?.to_f64_vec().iter().map(|square| square.sqrt()).collect();
        self.magnitude.set(&Tensor::from_vec(norms, self.magnitude.tensor().shape())?)
    }
}

impl Dora {
    /// `1 / n`, outside the graph.
    fn inverse_norms(&self, layer: &Linear, pass: &Pass) -> Result<Tensor> {
        let weight = layer.weight.tensor().detach();
        let [a, b] = self.update.factors()?.map(|factor| factor.detach());
        let key = [weight.clone(), a.clone(), b.clone()];
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, inverse)) = &memory.inverse
            && (memory.held || known.iter().zip(&key).all(|(x, y)| same(x, y)))
        {
            return Ok(inverse.clone());
        }
        let squares = match &memory.squares {
            Some((known, squares)) if same(known, &weight) => squares.clone(),
            _ => row_squares(&weight)?,
        };
        // A weight that learns changes in place; holding it here would make every update a copy.
        memory.squares = (!layer.weight.is_trainable()).then(|| (weight.clone(), squares.clone()));
        let inverse =
            inverse_row_norms(&squares.to_dtype(a.dtype())?, &linear(&a, &weight, None)?, &a, &b, self.update.scale())?;
        memory.inverse = (pass.training.is_none() || memory.held).then(|| (key, inverse.clone()));
        Ok(inverse)
    }

    /// Keeps the norms of the next pass for all later ones, whatever becomes of the factors: finite differences then see
    /// the function whose gradient the backward pass gives.
    #[doc(hidden)]
    pub fn hold_norms(&self, held: bool) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        (memory.held, memory.inverse) = (held, None);
    }

    /// The low-rank part.
    pub fn update(&self) -> &Lora {
        &self.update
    }
}

/// Whether two tensors are the same memory.
fn same(x: &Tensor, y: &Tensor) -> bool {
    std::ptr::eq(x.storage(), y.storage())
}
