//! Optimizer, gradient clipping and learning-rate schedules.

mod adamw;
mod schedule;

#[cfg(test)]
pub(crate) mod golden;

pub use adamw::{AdamW, Moments, Rate};
pub use schedule::factor;

use hankel_core::{DType, Float, Result, Tensor, parallel};

/// Euclidean norm of all elements of all `gradients` together, summed in double precision.
///
/// # Errors
/// When a gradient is not of a floating-point type.
pub fn global_norm<'a>(gradients: impl IntoIterator<Item = &'a Tensor>) -> Result<f64> {
    fn squares<T: Float>(gradient: &Tensor) -> Result<f64> {
        let data = gradient.data::<T>()?;
        Ok(parallel::sum(data.len(), parallel::GRAIN, |range| data[range].iter().map(|x| x.f64() * x.f64()).sum()))
    }
    let mut sum = 0.0;
    for gradient in gradients {
        sum += match gradient.dtype() {
            DType::F64 => squares::<f64>(gradient)?,
            _ => squares::<f32>(gradient)?,
        };
    }
    Ok(f64::sqrt(sum))
}

/// Factor that brings gradients of global norm `norm` down to `limit`; 1 when they are below it or `limit` is 0.
///
/// The rule of PyTorch: `min(1, limit / (norm + 1e-6))`.
pub fn clip_factor(norm: f64, limit: f64) -> f64 {
    if limit > 0.0 { (limit / (norm + 1e-6)).min(1.0) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::golden::{Golden, close};
    use super::*;

    fn clips<T: Float>() {
        let golden = Golden::open("clip");
        for (index, case) in golden.facts()["cases"].as_array().unwrap().iter().enumerate() {
            let at = |what: &str| format!("c{index}.{what}");
            let gradients: Vec<Tensor> = (0..3).map(|i| golden.tensor::<T>(&at(&format!("g{i}")))).collect();
            let norm = global_norm(&gradients).unwrap();
            close::<T>(&golden, &at("norm"), &Tensor::full([1], norm));
            let factor = T::of(clip_factor(norm, case["max_norm"].as_f64().unwrap()));
            for (i, gradient) in gradients.iter().enumerate() {
                let clipped = gradient.data::<T>().unwrap().iter().map(|&x| x * factor).collect();
                let clipped = Tensor::from_vec(clipped, gradient.shape()).unwrap();
                close::<T>(&golden, &at(&format!("clipped{i}")), &clipped);
            }
        }
    }

    #[test]
    fn clips_as_pytorch_does() {
        clips::<f64>();
        clips::<f32>();
        assert_eq!(clip_factor(1e9, 0.0), 1.0);
    }
}
