//! `selective`: a recurrence that chooses, token by token, what to keep, what to take in and what to give out, after Mamba
//! (A. Gu and T. Dao, 2023).
//!
//! ```text
//! p_t    = P x_t                                   P [r, D]
//! rate_t = exp(log_a + log_dt + W p_t)             W [d, r]       a_t = exp(-rate_t)
//! u_t    = (B x_t) * (1 + S p_t)                   B [d, D], S [d, r]
//! s_t    = a_t * s_{t-1} + u_t                     s_{-1} = 0
//! y_t    = C (s_t * (1 + R p_t))                   C [D, d], R [d, r]
//! ```
//!
//! `*` is the elementwise product. The three selection maps see the token through the same `r` numbers `p_t`, which makes them
//! cheap: `r D + 3 d r` values more than HRM. `W`, `S` and `R` start at zero, so that with `mode = "positive"` the
//! adapter starts as the time-invariant HRM of the same `B`, `C` and rates; frozen there, it is HRM.
//!
//! `mode = "signed"` lets a token turn the sign of what is kept: `a_t = exp(-rate_t) tanh(v + V p_t)` lies in (-1, 1), with `v`
//! `[d]` and `V` `[d, r]` (`d + d r` values more). With it one state can count modulo two: flipped by one token, kept by another,
//! it is the parity, which no recurrence with constant poles or with positive ones can hold (R. Grazzi et al., Unlocking
//! state-tracking in linear RNNs through negative eigenvalues, 2024). `v` starts at 1 and -1 in turn and `V` at zero. There is no
//! truncation in this mode: the averaged Gramians are for positive poles.

use crate::adapters::stream::initial::alternating;
use crate::adapters::stream::{Memory, SiteContext, StreamAdapter, StreamKind, VaryingSystem, checks};
use crate::parameter::{Parameter, Role};
use crate::settings::{Key, SettingsError, settings};
use hankel_core::{Result, Tensor};
use hankel_ops::{add, clamp, exp, linear, multiply, scale, softplus};
use serde::{Deserialize, Serialize};

/// Logarithm of the fastest rate: beyond `exp(-exp(4.4))`, which is 5e-36, nothing is left of a state anyway, and the
/// gradient of `exp(-rate)` would become infinity times zero.
const FASTEST: f64 = 4.4;
/// Logarithm of the slowest rate.
const SLOWEST: f64 = -80.0;

settings! {
    /// Settings of [`Selective`].
    pub struct Settings {
        /// Number of states d of every layer.
        pub state_dim: usize = "16",
        /// Rank r of the selection maps: they read a token through r numbers.
        pub selection_rank: usize = "4",
        /// Fastest initial pole; times tanh(1) = 0.76 with `mode = "signed"`.
        pub a_min: f64 = "0.5",
        /// Slowest initial pole; times tanh(1) = 0.76 with `mode = "signed"`.
        pub a_max: Option<f64> = "`1 - 1/T`",
        /// Standard deviation of the initial B.
        pub b_std: f64 = "0.02",
        /// Standard deviation of the initial C.
        pub c_std: f64 = "0.02; 0 on a pretrained backbone",
        /// Standard deviation of the initial P.
        pub p_std: f64 = "0.1",
        /// Which poles it can have: `"positive"`, or `"signed"` by the token.
        pub mode: Mode = r#"`"positive"`"#,
    }
}

/// The sign of the poles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Between 0 and 1.
    #[default]
    Positive,
    /// Between -1 and 1, by the token.
    Signed,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            state_dim: 16,
            selection_rank: 4,
            a_min: 0.5,
            a_max: None,
            b_std: 0.02,
            c_std: 0.02,
            p_std: 0.1,
            mode: Mode::Positive,
        }
    }
}

/// The adapter of one layer.
pub struct Selective {
    b: Parameter,
    c: Parameter,
    log_a: Parameter,
    log_dt: Parameter,
    p: Parameter,
    /// W, S and R.
    selection: [Parameter; 3],
    /// v and V.
    sign: Option<[Parameter; 2]>,
}

impl StreamKind for Selective {
    const KIND: &'static str = "selective";
    const ABOUT: &'static str = "A selective recurrence, after Mamba: decay, input and output depend on the token.";
    const SIZE: Option<&'static str> = Some("state_dim");
    const OUTPUT_STD: Option<&'static str> = Some("c_std");
    type Settings = Settings;

    fn keys() -> Vec<Key> {
        Settings::keys()
    }

    fn check(settings: &Settings) -> std::result::Result<(), SettingsError> {
        let Settings { state_dim, selection_rank, a_min, a_max, b_std, c_std, p_std, .. } = *settings;
        checks::sizes(&[("state_dim", state_dim, checks::MOST), ("selection_rank", selection_rank, checks::MOST)])?;
        checks::poles(Some(a_min), a_max)?;
        checks::deviations(&[("b_std", b_std), ("c_std", c_std), ("p_std", p_std)])
    }

    fn new(settings: &Settings, context: &SiteContext<'_>) -> Result<Self> {
        let (d, r, width) = (settings.state_dim, settings.selection_rank, context.d_model);
        Ok(Selective {
            log_a: context.log_rates("log_a", d, settings.a_min, settings.a_max)?,
            log_dt: context.parameter("log_dt", Role::Rate, &Tensor::zeros::<f32>([d]))?,
            b: context.normal("b", [d, width], settings.b_std)?,
            c: context.normal("c", [width, d], settings.c_std)?,
            p: context.normal("p", [r, width], settings.p_std)?,
            selection: [
                context.zeros("select_rate", [d, r])?,
                context.zeros("select_input", [d, r])?,
                context.zeros("select_output", [d, r])?,
            ],
            sign: match settings.mode {
                Mode::Positive => None,
                Mode::Signed => {
                    let start = context.parameter("sign", Role::Rate, &alternating(d)?)?;
                    Some([start, context.zeros("select_sign", [d, r])?])
                }
            },
        })
    }
}

impl StreamAdapter for Selective {
    fn parameters(&self) -> Vec<Parameter> {
        let Selective { b, c, log_a, log_dt, p, selection, sign } = self;
        [b, c, log_a, log_dt, p].into_iter().chain(selection).chain(sign.iter().flatten()).cloned().collect()
    }

    fn forward(&self, x: &Tensor, memory: Option<&Memory>) -> Result<(Tensor, Memory)> {
        let p = self.seen(x)?;
        let system = self.along(x, &p)?;
        let Some([start, selection]) = &self.sign else { return system.forward(x, memory) };
        let sign = tanh(&linear(&p, &selection.tensor(), Some(&start.tensor()))?)?;
        system.forward_with(&multiply(&system.poles()?, &sign)?, x, memory)
    }

    fn system(&self, x: &Tensor) -> Result<Option<VaryingSystem>> {
        if self.sign.is_some() { Ok(None) } else { self.along(x, &self.seen(x)?).map(Some) }
    }

    fn state_dim(&self) -> usize {
        self.log_a.elements()
    }
}

impl Selective {
    /// `p_t`.
    fn seen(&self, x: &Tensor) -> Result<Tensor> {
        linear(x, &self.p.tensor(), None)
    }

    fn along(&self, x: &Tensor, p: &Tensor) -> Result<VaryingSystem> {
        let one = x.full_like([self.state_dim()], 1.0)?;
        let selected = |i: usize, base: &Tensor| linear(p, &self.selection[i].tensor(), Some(base));
        let log_rate = selected(0, &add(&self.log_a.tensor(), &self.log_dt.tensor())?)?;
        Ok(VaryingSystem {
            rate: exp(&clamp(&log_rate, SLOWEST, FASTEST)?)?,
            input: selected(1, &one)?,
            output: selected(2, &one)?,
            b: self.b.tensor(),
            c: self.c.tensor(),
        })
    }
}

/// `tanh x = 2 exp(-softplus(-2 x)) - 1`.
fn tanh(x: &Tensor) -> Result<Tensor> {
    let sigmoid = exp(&scale(&softplus(&scale(x, -2.0)?)?, -1.0)?)?;
    add(&scale(&sigmoid, 2.0)?, &x.full_like(x.shape(), -1.0)?)
}
