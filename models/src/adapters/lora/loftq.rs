//! LoftQ (Li et al., 2023, algorithm 1): quantised weight and factors, found in turn.
//!
//! ```text
//! Q_t = nf4(W - s B_{t-1} A_{t-1})        s B_t A_t = part of rank r of W - Q_t        t = 1 .. T,  B_0 = 0
//! ```
//!
//! `Q_1` is the quantised weight that the backbone has. With more rounds the projection has a weight of its own, `Q_T`. Files hold the
//! factors that it was made with, `B_{T-1}` and `A_{T-1}`, which never change: with `W` as it is stored they give the same bits.

use super::principal::principal;
use super::{Lora, LoraConfig, LoraInit};
use crate::adapters::linear::merge::Update;
use crate::adapters::linear::{LinearContext, SharedTraining, StoredWeight};
use crate::parameter::{Parameter, Role};
use crate::settings::Table;
use crate::weights::arrays::NamedArrays;
use hankel_core::{DType, Device, Error, Result, Tensor};
use hankel_ops::linear::nf4;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// What a projection has of its own where there is more than one round. Cloning shares it.
#[derive(Clone)]
pub(super) struct Own {
    /// `A_{T-1}` and `B_{T-1}`, frozen.
    before: [Parameter; 2],
    /// `Q_T`; `None` until the weight as it is stored is known.
    weight: Arc<RwLock<Option<Tensor>>>,
}

impl Own {
    /// Of a projection whose weight is not known yet; `None` where one round is all.
    pub(super) fn new(settings: &LoraConfig, context: &LinearContext<'_>) -> Option<Self> {
        let (rank, site) = (settings.rank, context.site);
        let parameter = |name: &str, shape: [usize; 2]| {
            Parameter::new(format!("{}.{name}.weight", context.path()), Role::Start, &Tensor::zeros::<f32>(shape))
        };
        let before = || [parameter("loftq_A", [rank, site.inputs]), parameter("loftq_B", [site.outputs, rank])];
        let is_own = settings.init == LoraInit::Loftq && settings.loftq_iter > 1;
        is_own.then(|| Own { before: before(), weight: Arc::default() })
    }

    pub(super) fn parameters(&self) -> &[Parameter; 2] {
        &self.before
    }

    /// `scale B_{T-1} A_{T-1}`, which was taken from the weight before it was quantised.
    pub(super) fn taken(&self, scale: f64) -> Update {
        let [a, b] = &self.before;
        Update::low_rank(scale, &a.tensor(), &b.tensor())
    }

    /// `Q_T`, on `device`.
    ///
    /// # Errors
    /// When it was not made yet, or the device has no room.
    pub(super) fn weight(&self, device: Device) -> Result<Tensor> {
        let known = self.weight.read().unwrap_or_else(PoisonError::into_inner).clone();
        let weight = known.ok_or_else(|| {
            let problem =
                "a weight of LoftQ is not made yet: AdapterSet::complete makes it of the weights as they are stored";
            Error::invalid("lora", problem)
        })?;
        if weight.device() == device {
            return Ok(weight);
        }
        let moved = weight.to_device(device)?;
        self.set(Some(moved.clone()));
        Ok(moved)
    }

    /// Bytes of `Q_T`.
    pub(super) fn bytes(&self) -> usize {
        self.weight.read().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, Tensor::bytes)
    }

    fn set(&self, weight: Option<Tensor>) {
        *self.weight.write().unwrap_or_else(PoisonError::into_inner) = weight;
    }

    /// Makes `Q_T` again, unless it is there.
    pub(super) fn complete(&self, path: &str, scale: f64, stored: &StoredWeight<'_>) -> Result<()> {
        if self.weight.read().unwrap_or_else(PoisonError::into_inner).is_none() {
            self.set(Some(self.quantize(&unquantized(path, stored()?)?, scale)?));
        }
        Ok(())
    }

    fn quantize(&self, stored: &Tensor, scale: f64) -> Result<Tensor> {
        nf4::quantize(&self.taken(scale).taken_from(stored)?, true)
    }
}

impl Lora {
    /// Sets the factors, and the weight if it is this projection's own, by so many `rounds`.
    pub(super) fn start_loftq(&self, stored: Tensor, rounds: usize) -> Result<()> {
        let stored = unquantized(&self.path, stored)?;
        let &[outputs, inputs] = &stored.shape()[..] else {
            return Err(Error::shape("lora", format!("{} has shape {}", self.path, stored.shape())));
        };
        let (exact, rank) = (stored.to_f64_vec(), self.a.tensor().shape()[0]);
        let mut quantized = nf4::quantize(&stored, true)?;
        for round in 1.. {
            let decoded = quantized.to_dtype(DType::F32)?.to_f64_vec();
            let lost: Vec<f64> = exact.iter().zip(decoded).map(|(exact, decoded)| exact - decoded).collect();
            let [a, b] = principal((&lost, outputs, inputs), rank, self.scale, self.random)?;
            self.a.set(&a)?;
            self.b.set(&b)?;
            let Some(own) = self.own.as_ref().filter(|_| round < rounds) else { break };
            // As they are in files.
            own.before[0].set(&self.a.tensor())?;
            own.before[1].set(&self.b.tensor())?;
            quantized = own.quantize(&stored, self.scale)?;
        }
        if let Some(own) = &self.own {
            own.set(Some(quantized));
        }
        Ok(())
    }
}

/// A weight as it is stored, if it is not in blocks.
fn unquantized(path: &str, stored: Tensor) -> Result<Tensor> {
    if matches!(stored.dtype(), DType::F32 | DType::BF16 | DType::F16) {
        return Ok(stored);
    }
    let problem = format!(
        "init = \"loftq\" starts from the weights before they were quantised, and {path} is stored as {}: take the model in bf16, \
         f16 or f32 with `backbone.quantize = \"nf4\"`",
        stored.dtype()
    );
    Err(Error::invalid("lora", problem))
}

/// The factors that the weights of all projections were made with, in checkpoints.
pub(super) struct Rounds(pub(super) Vec<Arc<Lora>>);

impl Rounds {
    fn own(&self) -> impl Iterator<Item = &Own> {
        self.0.iter().filter_map(|adapter| adapter.own.as_ref())
    }
}

impl SharedTraining for Rounds {
    fn save(&self) -> Result<BTreeMap<String, Tensor>> {
        let all = self.own().flat_map(|own| &own.before);
        Ok(all.map(|parameter| (parameter.name().to_owned(), parameter.tensor())).collect())
    }

    /// Another processor may have found other factors: their weights are made again by [`AdapterSet::complete`].
    ///
    /// [`AdapterSet::complete`]: crate::AdapterSet::complete
    fn restore(&self, saved: &BTreeMap<String, Tensor>) -> Result<()> {
        if saved.len() != 2 * self.own().count() {
            return Err(Error::invalid("lora", "the saved state is that of other adapters"));
        }
        for own in self.own() {
            for parameter in &own.before {
                let missing = || Error::invalid("lora", format!("the saved state has no {}", parameter.name()));
                let value = saved.get(parameter.name()).ok_or_else(missing)?;
                if value.to_f64_vec() != parameter.tensor().to_f64_vec() {
                    parameter.set(value)?;
                    own.set(None);
                }
            }
        }
        Ok(())
    }

    /// They are among the parameters of the directory already.
    fn finish(&self, _: &mut Table, _: &mut NamedArrays) {}
}
