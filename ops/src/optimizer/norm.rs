//! The norm of all gradients, and clipping by it.

use super::gpu;
use hankel_core::{DType, Float, Result, Tensor, parallel, trace};

/// Euclidean norm of all elements of all `gradients` together: a scalar where they are.
///
/// On the CPU an `f64`, summed in double precision. On a GPU an `f32`, summed in pieces whose order depends on the shapes
/// alone; it neither overflows nor vanishes before the norm itself does, and is NaN when an element is not finite.
///
/// # Errors
/// When a gradient is not of a floating-point type, or they are on different devices.
pub fn gradient_norm<'a>(gradients: impl IntoIterator<Item = &'a Tensor>) -> Result<Tensor> {
    fn squares<T: Float>(gradient: &Tensor) -> Result<f64> {
        let data = gradient.data::<T>()?;
        Ok(parallel::sum(data.len(), parallel::GRAIN, |range| data[range].iter().map(|x| x.f64() * x.f64()).sum()))
    }
    let _event = trace::kernel("optimizer", "gradient_norm");
    let gradients: Vec<&Tensor> = gradients.into_iter().collect();
    if let Some(gpu) = gradients.first().and_then(|gradient| gradient.gpu()) {
        return gpu::gradient_norm(gpu, &gradients);
    }
    let mut sum = 0.0;
    for gradient in gradients {
        sum += match gradient.dtype() {
            DType::F64 => squares::<f64>(gradient)?,
            _ => squares::<f32>(gradient)?,
        };
    }
    Ok(Tensor::scalar(f64::sqrt(sum)))
}

/// Factor that brings gradients of global norm `norm` down to `limit`; 1 when they are below it or `limit` is 0, NaN where the norm is.
///
/// The rule of PyTorch: `min(1, limit / (norm + 1e-6))`.
pub fn clip_factor(norm: f64, limit: f64) -> f64 {
    let factor = limit / (norm + 1e-6);
    // `min` would drop NaN.
    if limit <= 0.0 || factor >= 1.0 { 1.0 } else { factor }
}
