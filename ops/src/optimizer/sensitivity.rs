//! How much the loss depends on single elements of a parameter, as AdaLoRA scores them (Zhang et al., 2023, equations 8 to 10).
//!
//! ```text
//! I = |w g|,   J <- b1 J + (1 - b1) I,   U <- b2 U + (1 - b2) |I - J|
//! ```

use super::gpu;
use hankel_core::{DType, Error, Float, Result, Tensor, trace};

const NAME: &str = "sensitivity";

/// Running means of one parameter, of its shape and type and on its device.
#[derive(Debug, Clone)]
pub struct Sensitivity {
    /// `J`: the mean of `|w g|`.
    pub mean: Tensor,
    /// `U`: the mean of its distance from `J`.
    pub uncertainty: Tensor,
}

/// The numbers that all elements share.
#[derive(Clone, Copy)]
pub(super) struct Decays {
    pub keep: [f64; 2],
    pub add: [f64; 2],
    /// Of the gradient.
    pub factor: f64,
}

impl Sensitivity {
    /// Zeros for `parameter`.
    ///
    /// # Errors
    /// When it is not of a floating-point type, or there is no room for them.
    pub fn new(parameter: &Tensor) -> Result<Self> {
        let zeros = || parameter.full_like(parameter.shape(), 0.0);
        Ok(Sensitivity { mean: zeros()?, uncertainty: zeros()? })
    }

    /// Takes in a step: `parameter` as it is, `factor` times `gradient` as `g`, and the decays `b1` and `b2`.
    ///
    /// # Errors
    /// When shapes, types or devices do not fit.
    pub fn update(&mut self, parameter: &Tensor, gradient: &Tensor, factor: f64, betas: [f64; 2]) -> Result<()> {
        let others = [("gradient", gradient), ("mean", &self.mean), ("uncertainty", &self.uncertainty)];
        for (name, tensor) in others {
            if parameter.shape() != tensor.shape() {
                let problem = format!("{name} {} for a parameter {}", tensor.shape(), parameter.shape());
                return Err(Error::shape(NAME, problem));
            }
        }
        let _event = trace::kernel("optimizer", NAME);
        let decays = Decays { keep: betas, add: betas.map(|beta| 1.0 - beta), factor };
        if let Some(gpu) = parameter.gpu() {
            return gpu::sensitivity(gpu, parameter, gradient, self, decays);
        }
        match parameter.dtype() {
            DType::F32 => self.run::<f32>(parameter, gradient, decays),
            DType::F64 => self.run::<f64>(parameter, gradient, decays),
            found => Err(Error::DType { operator: NAME, expected: "f32 or f64", found }),
        }
    }

    fn run<T: Float>(&mut self, parameter: &Tensor, gradient: &Tensor, decays: Decays) -> Result<()> {
        let ([keep1, keep2], [add1, add2]) = (decays.keep.map(T::of), decays.add.map(T::of));
        let factor = T::of(decays.factor);
        let (w, g) = (parameter.data::<T>()?, gradient.data::<T>()?);
        let (mean, uncertainty) = (self.mean.data_mut::<T>()?, self.uncertainty.data_mut::<T>()?);
        for (((j, u), &w), &g) in mean.iter_mut().zip(uncertainty).zip(w).zip(g) {
            let importance = (w * g * factor).abs();
            *j = keep1 * *j + add1 * importance;
            *u = keep2 * *u + add2 * (importance - *j).abs();
        }
        Ok(())
    }
}
