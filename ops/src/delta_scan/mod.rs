//! Matrix states changed along one direction at a time: the delta rule, and products of Householder maps.
//!
//! ```text
//! S_t = S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T        S [m, n], k [n], v [m]
//! ```
//!
//! `k` `[batch, T, h n]`, `v` `[batch, T, h m]`, `beta` `[batch, T, h]`, initial state `[batch, h m n]` (zero if not given), output:
//! all states `[batch, T, h m n]`, for `h` heads side by side. The step moves what the state answers to `k_t` by a share `beta_t`
//! towards `v_t` (I. Schlag, K. Irie and J. Schmidhuber, 2021; S. Yang et al., DeltaNet, 2024). For keys of norm 1 and `beta_t` = 2 the
//! state is reflected; several steps for each token are DeltaProduct (J. Siems et al., 2025). Keys are taken as they are given.
//!
//! With `g_t` the gradient of the loss with respect to `S_t`, the adjoint states run backwards in time; `c_t = G_t k_t` and
//! `e_t = v_t - S_{t-1} k_t` are those of the rows,
//!
//! ```text
//! G_t = g_t + G_{t+1} (I - beta_{t+1} k_{t+1} k_{t+1}^T)
//! d v_t = beta_t c_t,   d beta_t = e_t . c_t,   d k_t = beta_t (G_t^T e_t - S_{t-1}^T c_t)
//! d S_{-1} = G_0 (I - beta_0 k_0 k_0^T)
//! ```

#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
mod cpu;
mod gpu;

use crate::check;
use crate::dispatch::on_device;
use hankel_core::{Error, Result, Tensor};

const NAME: &str = "delta_scan";

/// Steps of every sequence, heads, and the sizes n of a key and m of a value.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    steps: usize,
    heads: usize,
    keys: usize,
    values: usize,
}

impl Sizes {
    /// Rows of all heads.
    fn rows(self) -> usize {
        self.heads * self.values
    }

    /// Numbers in a state.
    fn state(self) -> usize {
        self.rows() * self.keys
    }

    fn of(k: &Tensor, v: &Tensor, beta: &Tensor) -> Result<Self> {
        let &[batch, steps, heads] = &beta.shape()[..] else {
            return Err(Error::shape(NAME, format!("beta has shape {}, expected [batch, T, heads]", beta.shape())));
        };
        let per_head = |name: &str, x: &Tensor| match &x.shape()[..] {
            &[b, t, all] if (b, t) == (batch, steps) && heads > 0 && all % heads == 0 && all > 0 => Ok(all / heads),
            _ => {
                let problem =
                    format!("{name} has shape {}, expected [{batch}, {steps}, multiple of {heads}]", x.shape());
                Err(Error::shape(NAME, problem))
            }
        };
        Ok(Sizes { batch, steps, heads, keys: per_head("k", k)?, values: per_head("v", v)? })
    }
}

/// What the gradients of keys, values and shares are computed from.
struct Saved {
    sizes: Sizes,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    states: Tensor,
    initial: Option<Tensor>,
}

/// All states of the recurrence.
///
/// # Errors
/// When shapes, element types or devices do not fit.
pub fn delta_scan(k: &Tensor, v: &Tensor, beta: &Tensor, initial: Option<&Tensor>) -> Result<Tensor> {
    check::float(NAME, k)?;
    let sizes = Sizes::of(k, v, beta)?;
    check::input(NAME, "v", v, v.shape(), k)?;
    check::input(NAME, "beta", beta, beta.shape(), k)?;
    if let Some(initial) = initial {
        check::input(NAME, "the initial state", initial, &[sizes.batch, sizes.state()], k)?;
    }
    let states = on_device!(k, forward(sizes, [k, v, beta], initial))?;
    let saved = Saved {
        sizes,
        k: k.detach(),
        v: v.detach(),
        beta: beta.detach(),
        states: states.detach(),
        initial: initial.map(Tensor::detach),
    };
    states.from_operator(NAME, &[Some(k), Some(v), Some(beta), initial], move |g, wanted| {
        let adjoint = on_device!(g, adjoint(&saved, &g))?;
        let d_initial = wanted[3].then(|| on_device!(g, initial_gradient(&saved, &adjoint))).transpose()?;
        let [d_k, d_v, d_beta] = on_device!(g, gradients(&saved, &adjoint))?.map(Some);
        Ok(vec![d_k, d_v, d_beta, d_initial])
    })
}
