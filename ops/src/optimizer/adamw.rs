//! AdamW (Loshchilov and Hutter, 2019) with a learning rate and a weight decay per role of a parameter.
//!
//! ```text
//! p <- p (1 - lr * decay)
//! m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2
//! p <- p - lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)        t from 1
//! ```

use super::{clip_factor, gpu};
use hankel_core::{DType, Error, Float, Result, Tensor, parallel, trace};

/// Settings that all parameters share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// Decay of the first and second moment.
    pub betas: [f64; 2],
    /// Added to the root of the second moment.
    pub eps: f64,
}

/// Settings of one parameter at one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Learning rate.
    pub lr: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

/// The factor of a gradient, applied first.
#[derive(Debug, Clone, Copy)]
pub enum Scale<'a> {
    /// A number.
    By(f64),
    /// [`clip_factor`] of a norm and a limit.
    Clip {
        /// [`gradient_norm`](super::gradient_norm), on the device of the parameter. Where it is not finite, nothing is
        /// updated: parameter and moments stay as they are.
        norm: &'a Tensor,
        /// The largest norm; 0 for none.
        limit: f64,
    },
}

/// First and second moment of one parameter, of its shape and type and on its device.
#[derive(Debug, Clone)]
pub struct Moments {
    /// Running mean of the gradient.
    pub first: Tensor,
    /// Running mean of its square.
    pub second: Tensor,
    /// The step after which the second moment was last set to zero.
    pub second_since: u64,
}

impl Moments {
    /// Zero moments for `parameter`.
    ///
    /// # Errors
    /// When it is not of a floating-point type, or there is no room for them.
    pub fn new(parameter: &Tensor) -> Result<Self> {
        let zeros = || parameter.full_like(parameter.shape(), 0.0);
        Ok(Moments { first: zeros()?, second: zeros()?, second_since: 0 })
    }
}

/// The numbers of one step, which all elements share.
#[derive(Clone, Copy)]
pub(super) struct Step {
    /// Decays of the moments.
    pub keep: [f64; 2],
    /// The share of the new gradient in them.
    pub add: [f64; 2],
    /// The rate, corrected for the first moments' start from zero.
    pub size: f64,
    /// Bias correction of the root of the second moment.
    pub root: f64,
    pub eps: f64,
    /// Factor of a parameter by weight decay.
    pub shrink: f64,
}

impl AdamW {
    /// Step number `step` (from 1) of one parameter.
    ///
    /// # Errors
    /// When shapes, types or devices do not fit, or `step` is not after the one in which the second moment began.
    pub fn update(
        &self,
        parameter: &mut Tensor,
        gradient: &Tensor,
        moments: &mut Moments,
        step: u64,
        scale: Scale,
        rate: Rate,
    ) -> Result<()> {
        for (name, tensor) in
            [("gradient", gradient), ("first moment", &moments.first), ("second moment", &moments.second)]
        {
            if parameter.shape() != tensor.shape() {
                let problem = format!("{name} {} for a parameter {}", tensor.shape(), parameter.shape());
                return Err(Error::shape("adamw", problem));
            }
        }
        if step <= moments.second_since {
            let problem = format!("step {step} of moments that began after step {}", moments.second_since);
            return Err(Error::invalid("adamw", problem));
        }
        let _event = trace::kernel("optimizer", "adamw");
        let [b1, b2] = self.betas;
        let correction = |beta: f64, since: u64| 1.0 - beta.powf((step - since) as f64);
        let numbers = Step {
            keep: self.betas,
            add: self.betas.map(|beta| 1.0 - beta),
            size: rate.lr / correction(b1, 0),
            root: 1.0 / correction(b2, moments.second_since).sqrt(),
            eps: self.eps,
            shrink: 1.0 - rate.lr * rate.weight_decay,
        };
        if let Some(gpu) = parameter.gpu() {
            return gpu::adamw(gpu, parameter, gradient, moments, numbers, scale);
        }
        let factor = match scale {
            Scale::By(factor) => factor,
            Scale::Clip { norm, limit } => {
                let norm = norm.item()?;
                if !norm.is_finite() {
                    return Ok(());
                }
                clip_factor(norm, limit)
            }
        };
        match parameter.dtype() {
            DType::F32 => run::<f32>(parameter, gradient, moments, numbers, factor),
            DType::F64 => run::<f64>(parameter, gradient, moments, numbers, factor),
            found => Err(Error::DType { operator: "adamw", expected: "f32 or f64", found }),
        }
    }
}

fn run<T: Float>(
    parameter: &mut Tensor,
    gradient: &Tensor,
    moments: &mut Moments,
    step: Step,
    factor: f64,
) -> Result<()> {
    let ([keep1, keep2], [add1, add2]) = (step.keep.map(T::of), step.add.map(T::of));
    let [size, root, eps, shrink] = [step.size, step.root, step.eps, step.shrink].map(T::of);
    let factor = T::of(factor);
    let g = gradient.data::<T>()?;
    // Three arrays change together: one parallel loop over the parameter, the moments cut along with it.
    let (first, second) = (moments.first.data_mut::<T>()?, moments.second.data_mut::<T>()?);
    let mut rows: Vec<(&mut [T], &mut [T], &mut [T], &[T])> = parameter
        .data_mut::<T>()?
        .chunks_mut(parallel::GRAIN)
        .zip(first.chunks_mut(parallel::GRAIN))
        .zip(second.chunks_mut(parallel::GRAIN))
        .zip(g.chunks(parallel::GRAIN))
        .map(|(((p, m), v), g)| (p, m, v, g))
        .collect();
    parallel::for_row_blocks(&mut rows, 1, 1, |_, rows| {
        for (p, m, v, g) in rows {
            for (((p, m), v), &g) in p.iter_mut().zip(m.iter_mut()).zip(v.iter_mut()).zip(*g) {
                let g = g * factor;
                *m = keep1 * *m + add1 * g;
                *v = keep2 * *v + add2 * g * g;
                *p = *p * shrink - size * *m / (v.sqrt() * root + eps);
            }
        }
    });
    Ok(())
}
