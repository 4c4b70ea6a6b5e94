//! `householder`: a small state that every token reflects, once or several times, after DeltaProduct (J. Siems et al., 2025).
//!
//! ```text
//! for j = 1 ... r, with x_t the token:
//!     k    = K_j x_t / |K_j x_t|                        K_j [h n, D], each head's k [n] of norm 1
//!     beta = 2 sigmoid(W_j x_t + w_j)                   W_j [h, D], w_j [h], between 0 and 2
//!     v    = V_j x_t                                    V_j [h m, D]
//!     S    <- S (I - beta k k^T) + beta v k^T           S [m, n] of each head, begun at a learned one
//! y_t = C S                                             C [D, h m n]
//! ```
//!
//! `I - beta k k^T` is a Householder reflection at `beta` = 2, a projection at 1 and the identity at 0: its eigenvalue along `k` is
//! between -1 and 1, so no token makes the state grow beyond what `V` writes. One reflection for each token holds what transpositions
//! generate and counts modulo 2 (R. Grazzi et al., Unlocking state-tracking in linear RNNs through negative eigenvalues, 2024);
//! products of `r` are every orthogonal map that moves at most `r` directions, rotations with `r` = 2, and do not commute.
//!
//! `C S` reads the state as one vector of `h m n` numbers. Steps of a token are steps of [`delta_scan()`], of which the last is read.

use crate::adapters::stream::initial::repeated;
use crate::adapters::stream::keys::{MOST_HEADS, MOST_STATES, sigmoid, unit};
use crate::adapters::stream::{Memory, SiteContext, StreamAdapter, StreamKind, checks, last_states};
use crate::parameter::{Parameter, Role};
use crate::settings::{Key, SettingsError, settings};
use hankel_core::{Result, Tensor};
use hankel_ops::{delta_scan, linear, narrow_time, scale};

/// The most reflections of a token.
const MOST_REFLECTIONS: usize = 8;

settings! {
    /// Settings of [`Householder`].
    pub struct Settings {
        /// Number of heads h of every layer.
        pub heads: usize = "2",
        /// Size n of the vectors that are reflected.
        pub state_dim: usize = "4",
        /// Number m of vectors that a head reflects together.
        pub value_dim: usize = "2",
        /// Reflections r of each token, 1 to 8.
        pub reflections: usize = "1",
        /// Initial beta of a token with `W x = 0`, between 0 and 2.
        pub beta_init: f64 = "1.5",
        /// Standard deviation of the initial W.
        pub beta_std: f64 = "0.02",
        /// Standard deviation of the initial K.
        pub k_std: f64 = "0.1",
        /// Standard deviation of the initial V.
        pub v_std: f64 = "0.02",
        /// Standard deviation of the states that it begins with.
        pub start_std: f64 = "1",
        /// Standard deviation of the initial C.
        pub c_std: f64 = "0.02; 0 on a pretrained backbone",
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            heads: 2,
            state_dim: 4,
            value_dim: 2,
            reflections: 1,
            beta_init: 1.5,
            beta_std: 0.02,
            k_std: 0.1,
            v_std: 0.02,
            start_std: 1.0,
            c_std: 0.02,
        }
    }
}

/// The adapter of one layer.
pub struct Householder {
    /// K, V and W of all reflections of a token, one below the other.
    k: Parameter,
    v: Parameter,
    beta: Parameter,
    beta_bias: Parameter,
    c: Parameter,
    start: Parameter,
    heads: usize,
    keys: usize,
    reflections: usize,
}

impl StreamKind for Householder {
    const KIND: &'static str = "householder";
    const ABOUT: &'static str = "A small state that every token transforms by one or more Householder reflections.";
    const SIZE: Option<&'static str> = Some("heads");
    const OUTPUT_STD: Option<&'static str> = Some("c_std");
    type Settings = Settings;

    fn keys() -> Vec<Key> {
        Settings::keys()
    }

    fn check(settings: &Settings) -> std::result::Result<(), SettingsError> {
        let Settings { heads, state_dim, value_dim, reflections, beta_init, .. } = *settings;
        let Settings { beta_std, k_std, v_std, start_std, c_std, .. } = *settings;
        checks::sizes(&[
            ("heads", heads, MOST_HEADS),
            ("state_dim", state_dim, MOST_STATES),
            ("value_dim", value_dim, MOST_STATES),
            ("reflections", reflections, MOST_REFLECTIONS),
        ])?;
        checks::deviations(&[
            ("beta_std", beta_std),
            ("k_std", k_std),
            ("v_std", v_std),
            ("start_std", start_std),
            ("c_std", c_std),
        ])?;
        SettingsError::unless(beta_init > 0.0 && beta_init < 2.0, "beta_init", || {
            format!("must be between 0 and 2, found {beta_init}")
        })
    }

    fn new(settings: &Settings, context: &SiteContext<'_>) -> Result<Self> {
        let &Settings { heads, state_dim: n, value_dim: m, reflections: r, .. } = settings;
        let (width, state) = (context.d_model, heads * m * n);
        // The sigmoid of this is beta / 2.
        let bias = (settings.beta_init / (2.0 - settings.beta_init)).ln();
        let start = context.random("start").normal_vec::<f32>(state, settings.start_std);
        Ok(Householder {
            k: context.normal("k", [r * heads * n, width], settings.k_std)?,
            v: context.normal("v", [r * heads * m, width], settings.v_std)?,
            beta: context.normal("beta", [r * heads, width], settings.beta_std)?,
            beta_bias: context.parameter("beta_bias", Role::Vector, &Tensor::full([r * heads], bias as f32))?,
            c: context.normal("c", [width, state], settings.c_std)?,
            start: context.parameter("start", Role::Vector, &Tensor::from_vec(start, [state])?)?,
            heads,
            keys: n,
            reflections: r,
        })
    }
}

impl StreamAdapter for Householder {
    fn parameters(&self) -> Vec<Parameter> {
        let Householder { k, v, beta, beta_bias, c, start, .. } = self;
        [k, v, beta, beta_bias, c, start].into_iter().cloned().collect()
    }

    fn forward(&self, x: &Tensor, memory: Option<&Memory>) -> Result<(Tensor, Memory)> {
        let &Householder { heads, keys, reflections: r, .. } = self;
        let (batch, steps, state) = (x.shape()[0], x.shape()[1], self.state_dim());
        let before = match memory.and_then(|memory| memory.first()) {
            Some(before) => before.clone(),
            None => repeated(&self.start.tensor(), batch)?,
        };
        // The reflections of a token are steps one after the other.
        let k = unit(&linear(x, &self.k.tensor(), None)?, keys, [batch, steps * r, heads * keys])?;
        let v = linear(x, &self.v.tensor(), None)?.reshape([batch, steps * r, state / keys])?;
        let beta = sigmoid(&linear(x, &self.beta.tensor(), Some(&self.beta_bias.tensor()))?)?;
        let beta = scale(&beta, 2.0)?.reshape([batch, steps * r, heads])?;
        let states = delta_scan(&k, &v, &beta, Some(&before))?;
        let last =
            narrow_time(&states.reshape([batch * steps, r, state])?, r - 1, 1)?.reshape([batch, steps, state])?;
        Ok((linear(&last, &self.c.tensor(), None)?, vec![last_states(&last, Some(&before))?]))
    }

    fn state_dim(&self) -> usize {
        self.start.elements()
    }

    fn saved_per_token(&self, d_model: usize) -> usize {
        // Keys, their norm's input, values and shares, and the states, at every step.
        let step = 3 * self.heads * self.keys + 2 * self.state_dim() / self.keys + 5 * self.heads + self.state_dim();
        self.reflections * step + self.state_dim() + d_model
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::StreamSite;
    use crate::adapters::shared::SharedParameters;

    /// Two reflections for each token hold the product of permutations of three things, which does not commute, without end.
    #[test]
    fn two_reflections_follow_permutations() {
        const LENGTH: usize = 600;
        // Tokens: the identity, the transposition of the first two, and the cycle, which is two reflections.
        let half = 0.5_f32.sqrt();
        let (first, last) = ([half, -half, 0.0], [0.0, half, -half]);
        let settings = Settings { heads: 1, state_dim: 3, value_dim: 1, reflections: 2, ..Settings::default() };
        let shared = SharedParameters::default();
        let context = SiteContext::new("householder", [0, 3, 8], StreamSite::Mlp, 1, &shared);
        let adapter = Householder::new(&settings, &context).unwrap();
        let set = |parameter: &Parameter, values: Vec<f32>| {
            parameter.set(&Tensor::from_vec(values, parameter.tensor().shape()).unwrap()).unwrap();
        };
        // Columns are tokens: k of the first reflection, then of the second.
        let keys = [[first, first, last], [last, last, first]];
        set(&adapter.k, keys.iter().flat_map(|token| (0..3).flat_map(|i| token.map(|key| 30.0 * key[i]))).collect());
        set(&adapter.v, vec![0.0; 6]);
        // beta is 0 or 2: none for the identity, one for the transposition, two for the cycle.
        set(&adapter.beta, vec![-60.0, 60.0, 60.0, -60.0, -60.0, 60.0]);
        set(&adapter.beta_bias, vec![0.0; 2]);
        set(&adapter.start, vec![1.0, 2.0, 3.0]);
        set(&adapter.c, vec![1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
        let random = hankel_core::Random::new(7, "tokens", 0);
        let tokens: Vec<usize> = (0..LENGTH as u64).map(|i| random.below(i, 3)).collect();
        let x: Vec<f32> = tokens.iter().flat_map(|&token| [0, 1, 2].map(|i| f32::from(u8::from(i == token)))).collect();
        let (y, _) = adapter.forward(&Tensor::from_vec(x, [1, LENGTH, 3]).unwrap(), None).unwrap();
        let mut state = [1.0, 2.0, 3.0];
        for (token, y) in tokens.iter().zip(y.to_f64_vec().chunks(3)) {
            if *token == 2 {
                state.swap(1, 2);
            }
            if *token > 0 {
                state.swap(0, 1);
            }
            let worst = y.iter().zip(state).map(|(y, s)| (y - s).abs()).max_by(f64::total_cmp).unwrap_or(0.0);
            assert!(worst < 1e-3, "{y:?} instead of {state:?}");
        }
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        for (settings, key) in [
            (Settings { reflections: 0, ..Settings::default() }, "reflections"),
            (Settings { heads: usize::MAX, ..Settings::default() }, "heads"),
            (Settings { beta_init: 2.0, ..Settings::default() }, "beta_init"),
        ] {
            let problem = Householder::check(&settings).unwrap_err().to_string();
            assert!(problem.contains(key), "{problem}");
        }
    }
}
