//! AdamW (Loshchilov and Hutter, 2019) with a learning rate and a weight decay per role of a parameter.
//!
//! ```text
//! p <- p (1 - lr * decay)
//! m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2
//! p <- p - lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)        t from 1
//! ```

use hankel_core::{DType, Error, Float, Result, Tensor, parallel};

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

/// First and second moment of one parameter, of its shape and type.
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
    /// When it is not of a floating-point type.
    pub fn new(parameter: &Tensor) -> Result<Self> {
        let zeros = || match parameter.dtype() {
            DType::F32 => Ok(Tensor::zeros::<f32>(parameter.shape())),
            DType::F64 => Ok(Tensor::zeros::<f64>(parameter.shape())),
            found => Err(Error::DType { operator: "adamw", expected: "f32 or f64", found }),
        };
        Ok(Moments { first: zeros()?, second: zeros()?, second_since: 0 })
    }
}

impl AdamW {
    /// Step number `step` (from 1) of one parameter, with `gradient` multiplied by `scale` (clipping) first.
    ///
    /// # Errors
    /// When shapes or types do not fit.
    pub fn update(
        &self,
        parameter: &mut Tensor,
        gradient: &Tensor,
        moments: &mut Moments,
        step: u64,
        scale: f64,
        rate: Rate,
    ) -> Result<()> {
        if parameter.shape() != gradient.shape() {
            let problem = format!("gradient {} for a parameter {}", gradient.shape(), parameter.shape());
            return Err(Error::shape("adamw", problem));
        }
        match parameter.dtype() {
            DType::F32 => self.run::<f32>(parameter, gradient, moments, step, scale, rate),
            DType::F64 => self.run::<f64>(parameter, gradient, moments, step, scale, rate),
            found => Err(Error::DType { operator: "adamw", expected: "f32 or f64", found }),
        }
    }

    fn run<T: Float>(
        &self,
        parameter: &mut Tensor,
        gradient: &Tensor,
        moments: &mut Moments,
        step: u64,
        scale: f64,
        rate: Rate,
    ) -> Result<()> {
        let [b1, b2] = self.betas;
        let correction = |beta: f64, since: u64| 1.0 - beta.powf((step - since) as f64);
        let (keep1, keep2, add1, add2) = (T::of(b1), T::of(b2), T::of(1.0 - b1), T::of(1.0 - b2));
        let size = T::of(rate.lr / correction(b1, 0));
        let root = T::of(1.0 / correction(b2, moments.second_since).sqrt());
        let (eps, shrink, scale) = (T::of(self.eps), T::of(1.0 - rate.lr * rate.weight_decay), T::of(scale));
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
                    let g = g * scale;
                    *m = keep1 * *m + add1 * g;
                    *v = keep2 * *v + add2 * g * g;
                    *p = *p * shrink - size * *m / (v.sqrt() * root + eps);
                }
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::golden::{Golden, close};
    use super::*;

    fn follows<T: Float>(name: &str) {
        let golden = Golden::open(name);
        let facts = golden.facts();
        let number = |key: &str| facts[key].as_f64();
        let optimizer =
            AdamW { betas: [0, 1].map(|i| facts["betas"][i].as_f64().unwrap()), eps: number("eps").unwrap() };
        let steps = number("steps").unwrap() as usize;
        let lrs = number("lr").map_or_else(|| golden.values("lrs"), |lr| vec![lr; steps]);
        for parameter in ["p0", "p1", "p2"] {
            let at = |what: &str| format!("{parameter}.{what}");
            let mut value = golden.tensor::<T>(&at("init"));
            let gradients = golden.values(&at("grads"));
            let mut moments = Moments::new(&value).unwrap();
            for step in 1..=steps {
                let n = value.elements();
                let gradient = gradients[(step - 1) * n..step * n].iter().map(|&x| T::of(x)).collect();
                let gradient = Tensor::from_vec(gradient, value.shape()).unwrap();
                let rate = Rate { lr: lrs[step - 1], weight_decay: number("weight_decay").unwrap() };
                optimizer.update(&mut value, &gradient, &mut moments, step as u64, 1.0, rate).unwrap();
                let key = at(&format!("step{step}"));
                if golden.has(&key) {
                    close::<T>(&golden, &key, &value);
                }
            }
            close::<T>(&golden, &at("exp_avg"), &moments.first);
            close::<T>(&golden, &at("exp_avg_sq"), &moments.second);
        }
    }

    #[test]
    fn the_trajectories_of_pytorch() {
        for name in ["adamw_default", "adamw_cosine", "adamw_large_decay", "adamw_sparse", "adamw_tiny_gradients"] {
            follows::<f64>(name);
            follows::<f32>(name);
        }
    }

    #[test]
    fn shapes_must_agree() {
        let mut value = Tensor::zeros::<f32>([3]);
        let mut moments = Moments::new(&value).unwrap();
        let optimizer = AdamW { betas: [0.9, 0.999], eps: 1e-8 };
        let rate = Rate { lr: 1.0, weight_decay: 0.0 };
        let error = optimizer.update(&mut value, &Tensor::zeros::<f32>([4]), &mut moments, 1, 1.0, rate).unwrap_err();
        assert!(error.to_string().contains("gradient [4] for a parameter [3]"), "{error}");
    }
}
