//! Named tensors that a model owns and an optimizer may change.

use hankel_core::{DType, Device, Result, Tensor, scope};
use std::sync::{Arc, PoisonError, RwLock};

/// How an optimizer treats a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// A matrix: weight decay applies.
    Matrix,
    /// Gains and biases: no decay.
    Vector,
    /// The scalar gate of a stream adapter: no decay, its own learning rate if one is set.
    Gate,
    /// What determines the poles of a recurrence (`log_a`, `log_dt`, radii, angles): no decay, its own learning rate.
    Rate,
    /// What an adapter is measured from (PiSSA, LoftQ): never trained, and not counted as the adapter's.
    Start,
}

/// A named tensor shared by the modules that use it. Cloning gives another handle to the same value.
#[derive(Clone, Debug)]
pub struct Parameter {
    name: Arc<str>,
    role: Role,
    rate: f64,
    value: Arc<RwLock<Tensor>>,
}

impl Parameter {
    /// A frozen parameter.
    pub fn new(name: impl Into<Arc<str>>, role: Role, value: &Tensor) -> Self {
        Parameter { name: name.into(), role, rate: 1.0, value: Arc::new(RwLock::new(value.detach())) }
    }

    /// Its name in files and tables.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How an optimizer treats it.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The same with a learning rate of `ratio` times that of its role.
    #[must_use]
    pub fn with_rate(self, ratio: f64) -> Self {
        Parameter { rate: ratio, ..self }
    }

    /// What the learning rate of its role is multiplied by.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The present value; a leaf of the graph while trainable.
    pub fn tensor(&self) -> Tensor {
        self.value.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it is trained.
    pub fn is_trainable(&self) -> bool {
        self.tensor().is_tracked()
    }

    /// Trains or freezes it.
    ///
    /// # Errors
    /// When it is to be trained but is neither `f32` nor `f64`.
    pub fn set_trainable(&self, trainable: bool) -> Result<()> {
        self.update(|value| {
            if trainable != value.is_tracked() {
                *value = if trainable { value.parameter()? } else { value.detach() };
            }
            Ok(())
        })
    }

    /// Gives it another value of the same shape; trainable or frozen, of its type and where it was before.
    ///
    /// # Errors
    /// When shapes differ.
    pub fn set(&self, new: &Tensor) -> Result<()> {
        self.update(|value| {
            if value.shape() != new.shape() {
                let problem = format!("{} has shape {}, the new value {}", self.name, value.shape(), new.shape());
                return Err(hankel_core::Error::shape("parameter", problem));
            }
            let new = new.to_dtype(value.dtype())?.to_device(value.device())?;
            *value = if value.is_tracked() { new.parameter()? } else { new };
            Ok(())
        })
    }

    /// Converts it to another element type; trainable or frozen as before.
    ///
    /// # Errors
    /// When the type is not a float.
    pub fn to_dtype(&self, dtype: DType) -> Result<()> {
        self.update(|value| {
            let converted = value.to_dtype(dtype)?;
            *value = if value.is_tracked() { converted.parameter()? } else { converted };
            Ok(())
        })
    }

    /// Moves it to another device; trainable or frozen as before.
    ///
    /// # Errors
    /// When there is no room for it, or the device cannot hold its type.
    pub fn to_device(&self, device: Device) -> Result<()> {
        self.update(|value| {
            if value.device() != device {
                let moved = scope(&*self.name, || value.to_device(device))?;
                *value = if value.is_tracked() { moved.parameter()? } else { moved };
            }
            Ok(())
        })
    }

    /// Changes the value in place.
    pub fn update<R>(&self, f: impl FnOnce(&mut Tensor) -> R) -> R {
        f(&mut self.value.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Number of values.
    pub fn elements(&self) -> usize {
        self.tensor().elements()
    }
}

/// Number of values of the trainable ones among `parameters`.
pub fn trainable_count(parameters: &[Parameter]) -> usize {
    parameters.iter().filter(|p| p.is_trainable()).map(Parameter::elements).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hankel_core::gpu::for_tests;

    #[test]
    fn what_a_kernel_cannot_see_at_once_is_refused_by_name() {
        let Some(gpu) = for_tests() else { return };
        let rows = gpu.facts().max_binding as usize / 4096 + 1;
        let parameter = Parameter::new("model.embed_tokens.weight", Role::Matrix, &Tensor::zeros::<f32>([rows, 1024]));
        let refused = parameter.to_device(Device::Gpu(gpu)).unwrap_err().to_string();
        for part in ["model.embed_tokens.weight", &(4096 * rows).to_string(), &gpu.facts().max_binding.to_string()] {
            assert!(refused.contains(part), "{refused}");
        }
        assert_eq!(parameter.tensor().device(), Device::Cpu);
        gpu.check().unwrap();
    }
}
