//! `delta`: an associative memory that every token corrects by the delta rule, after delta-mem (J. Lei et al., arXiv 2605.12357,
//! 2026) and DeltaNet (S. Yang et al., 2024).
//!
//! ```text
//! k = K x_t / |K x_t|,   q = Q x_t / |Q x_t|            K, Q [h n, D], each head's of norm 1
//! v = V x_t                                             V [h m, D]
//! beta = sigmoid(W x_t + w)                             W [h, D], w [h], between 0 and 1
//! S_t = S_{t-1} (I - beta k k^T) + beta v k^T           S [m, n] of each head, S_{-1} = 0
//! y_t = C (S_t q)                                       C [D, h m]
//! ```
//!
//! What the memory answers to the key `k` moves by the share `beta` towards `v`. Delta-mem adds its answer to the queries and to the
//! output of attention; here it is added to the stream at its site, as with all kinds of this folder, so that kinds differ by their
//! recurrence alone. The eigenvalues of its state matrix are between 0 and 1: it forgets or keeps, and cannot turn a sign, which
//! `householder` can.

use crate::adapters::stream::keys::{MOST_HEADS, MOST_STATES, sigmoid, unit};
use crate::adapters::stream::{Memory, SiteContext, StreamAdapter, StreamKind, checks, last_states};
use crate::parameter::{Parameter, Role};
use crate::settings::{Key, SettingsError, settings};
use hankel_core::{Result, Tensor};
use hankel_ops::{delta_scan, linear, multiply};

settings! {
    /// Settings of [`Delta`].
    pub struct Settings {
        /// Number of heads h of every layer.
        pub heads: usize = "1",
        /// Size n of a key.
        pub state_dim: usize = "8",
        /// Size m of a value.
        pub value_dim: usize = "8",
        /// Initial beta of a token with `W x = 0`, between 0 and 1.
        pub beta_init: f64 = "0.5",
        /// Standard deviation of the initial W.
        pub beta_std: f64 = "0.02",
        /// Standard deviation of the initial K and Q.
        pub k_std: f64 = "0.1",
        /// Standard deviation of the initial V.
        pub v_std: f64 = "0.1",
        /// Standard deviation of the initial C.
        pub c_std: f64 = "0.02; 0 on a pretrained backbone",
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            heads: 1,
            state_dim: 8,
            value_dim: 8,
            beta_init: 0.5,
            beta_std: 0.02,
            k_std: 0.1,
            v_std: 0.1,
            c_std: 0.02,
        }
    }
}

/// The adapter of one layer.
pub struct Delta {
    k: Parameter,
    q: Parameter,
    v: Parameter,
    beta: Parameter,
    beta_bias: Parameter,
    c: Parameter,
    heads: usize,
    keys: usize,
    values: usize,
}

impl StreamKind for Delta {
    const KIND: &'static str = "delta";
    const ABOUT: &'static str = "An associative memory that every token corrects by the delta rule.";
    const SIZE: Option<&'static str> = Some("heads");
    const OUTPUT_STD: Option<&'static str> = Some("c_std");
    type Settings = Settings;

    fn keys() -> Vec<Key> {
        Settings::keys()
    }

    fn check(settings: &Settings) -> std::result::Result<(), SettingsError> {
        let Settings { heads, state_dim, value_dim, beta_init, beta_std, k_std, v_std, c_std } = *settings;
        checks::sizes(&[
            ("heads", heads, MOST_HEADS),
            ("state_dim", state_dim, MOST_STATES),
            ("value_dim", value_dim, MOST_STATES),
        ])?;
        checks::deviations(&[("beta_std", beta_std), ("k_std", k_std), ("v_std", v_std), ("c_std", c_std)])?;
        SettingsError::unless(beta_init > 0.0 && beta_init < 1.0, "beta_init", || {
            format!("must be between 0 and 1, found {beta_init}")
        })
    }

    fn new(settings: &Settings, context: &SiteContext<'_>) -> Result<Self> {
        let &Settings { heads, state_dim: n, value_dim: m, .. } = settings;
        let width = context.d_model;
        // The sigmoid of this is beta.
        let bias = (settings.beta_init / (1.0 - settings.beta_init)).ln();
        Ok(Delta {
            k: context.normal("k", [heads * n, width], settings.k_std)?,
            q: context.normal("q", [heads * n, width], settings.k_std)?,
            v: context.normal("v", [heads * m, width], settings.v_std)?,
            beta: context.normal("beta", [heads, width], settings.beta_std)?,
            beta_bias: context.parameter("beta_bias", Role::Vector, &Tensor::full([heads], bias as f32))?,
            c: context.normal("c", [width, heads * m], settings.c_std)?,
            heads,
            keys: n,
            values: m,
        })
    }
}

impl StreamAdapter for Delta {
    fn parameters(&self) -> Vec<Parameter> {
        let Delta { k, q, v, beta, beta_bias, c, .. } = self;
        [k, q, v, beta, beta_bias, c].into_iter().cloned().collect()
    }

    fn forward(&self, x: &Tensor, memory: Option<&Memory>) -> Result<(Tensor, Memory)> {
        let (batch, steps, width) = (x.shape()[0], x.shape()[1], self.heads * self.keys);
        let before = memory.and_then(|memory| memory.first());
        let of = |weight: &Parameter| unit(&linear(x, &weight.tensor(), None)?, self.keys, [batch, steps, width]);
        let v = linear(x, &self.v.tensor(), None)?;
        let beta = sigmoid(&linear(x, &self.beta.tensor(), Some(&self.beta_bias.tensor()))?)?;
        let states = delta_scan(&of(&self.k)?, &v, &beta, before)?;
        let answer = self.read(&states, &of(&self.q)?)?;
        Ok((linear(&answer, &self.c.tensor(), None)?, vec![last_states(&states, before)?]))
    }

    fn state_dim(&self) -> usize {
        self.heads * self.keys * self.values
    }

    fn saved_per_token(&self, d_model: usize) -> usize {
        6 * self.heads * self.keys + 2 * self.heads * self.values + 5 * self.heads + 3 * self.state_dim() + d_model
    }
}

impl Delta {
    /// `S q` of every head, `[batch, T, h m]`: the query is spread over the rows of S, and the products along each row are summed,
    /// both by a matrix of zeros and ones, the same for all heads.
    fn read(&self, states: &Tensor, q: &Tensor) -> Result<Tensor> {
        let &Delta { heads, keys: n, values: m, .. } = self;
        let (batch, steps) = (states.shape()[0], states.shape()[1]);
        let ones = |rows: usize, columns: usize, is_one: &dyn Fn(usize, usize) -> bool| {
            let one = |i: usize| f32::from(u8::from(is_one(i / columns, i % columns)));
            let matrix = Tensor::from_vec((0..rows * columns).map(one).collect(), [rows, columns])?;
            matrix.to_dtype(states.dtype())?.to_device(states.device())
        };
        let spread = ones(m * n, n, &|at, of| at % n == of)?;
        let sum = ones(m, m * n, &|row, at| at / n == row)?;
        let of_heads = |x: &Tensor, size: usize| x.reshape([batch, steps * heads, size]);
        let products = multiply(&of_heads(states, m * n)?, &linear(&of_heads(q, n)?, &spread, None)?)?;
        linear(&products, &sum, None)?.reshape([batch, steps, heads * m])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::StreamSite;
    use crate::adapters::shared::SharedParameters;

    /// Heads are read by themselves, also as many as there may be.
    #[test]
    fn heads_do_not_meet() {
        let settings = Settings { heads: 4096, state_dim: 2, value_dim: 1, c_std: 1.0, ..Settings::default() };
        let shared = SharedParameters::default();
        let adapter =
            Delta::new(&settings, &SiteContext::new("delta", [0, 5, 8], StreamSite::Mlp, 1, &shared)).unwrap();
        let states: Vec<f32> = (0..4096 * 2).map(|i| i as f32).collect();
        let q: Vec<f32> = (0..4096 * 2).map(|i| if i % 2 == 0 { 1.0 } else { -2.0 }).collect();
        let [states, q] = [states, q].map(|values| Tensor::from_vec(values, [1, 1, 8192]).unwrap());
        let read = adapter.read(&states, &q).unwrap().to_f64_vec();
        assert!(read.iter().enumerate().all(|(head, y)| *y == (2 * head) as f64 - 2.0 * (2 * head + 1) as f64));
    }

    /// What was stored under a key is what the key finds, whatever was stored under others since; storing again replaces it.
    #[test]
    fn what_is_stored_is_found() {
        // Of a token, the first two numbers are the key, the next two the query, the last the value; beta is 1.
        let settings = Settings { heads: 1, state_dim: 2, value_dim: 1, ..Settings::default() };
        let shared = SharedParameters::default();
        let adapter =
            Delta::new(&settings, &SiteContext::new("delta", [0, 5, 8], StreamSite::Mlp, 1, &shared)).unwrap();
        let set = |parameter: &Parameter, ones: &[usize], one: f32| {
            let mut values = vec![0.0; parameter.elements()];
            ones.iter().for_each(|&i| values[i] = one);
            parameter.set(&Tensor::from_vec(values, parameter.tensor().shape()).unwrap()).unwrap();
        };
        set(&adapter.k, &[0, 6], 30.0);
        set(&adapter.q, &[2, 8], 30.0);
        set(&adapter.v, &[4], 1.0);
        set(&adapter.beta, &[], 0.0);
        set(&adapter.beta_bias, &[0], 60.0);
        set(&adapter.c, &[0], 1.0);
        let (a, b) = ([1.0, 0.0], [0.0, 1.0]);
        let token = |key: [f32; 2], query: [f32; 2], value: f32| [key[0], key[1], query[0], query[1], value];
        let tokens = [token(a, a, 3.0), token(b, a, -5.0), token(b, b, 2.0), token(a, b, 7.0), token(b, a, 1.0)];
        let x = Tensor::from_vec(tokens.concat(), [1, 5, 5]).unwrap();
        let (y, _) = adapter.forward(&x, None).unwrap();
        let found: Vec<f64> = y.to_f64_vec().iter().step_by(5).copied().collect();
        let expected: [f64; 5] = [3.0, 3.0, 2.0, 2.0, 7.0];
        assert_eq!(found.len(), expected.len());
        let worst = found.iter().zip(expected).map(|(y, e)| (y - e).abs()).max_by(f64::total_cmp).unwrap_or(0.0);
        assert!(worst < 1e-3, "{found:?}");
    }
}
