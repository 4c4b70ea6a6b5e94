//! `hankel-shared`: one recurrence for the whole depth of the network, behind a gate of its own in each layer.
//!
//! ```text
//! s_t = a * s_{t-1} + B x_t         a = exp(-exp(log_a + log_dt)), B [d, D]
//! y_t = C s_t                       C [D, d]
//! ```
//!
//! `B`, `C`, `log_a` and `log_dt` are the same in all layers (those of one site); states and gates are each layer's own. With L
//! layers it has `2 d D + 2 d + L` parameters where HRM has `L (2 d D + 2 d + 1)`.

use crate::adapters::stream::{Memory, Place, StreamAdapter, StreamKind, last_states};
use crate::parameter::{Parameter, Role};
use hankel_core::{Result, Tensor};
use hankel_ops::{Poles, ScanPath, add, exp, linear, scale, scan};
use serde::{Deserialize, Serialize};

/// Settings of [`HankelShared`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Number of states d.
    pub state_dim: usize,
    /// Fastest initial pole.
    pub a_min: f64,
    /// Slowest initial pole; 1 - 1/T when not given.
    pub a_max: Option<f64>,
    /// Standard deviation of the initial B.
    pub b_std: f64,
    /// Standard deviation of the initial C.
    pub c_std: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { state_dim: 16, a_min: 0.5, a_max: None, b_std: 0.02, c_std: 0.02 }
    }
}

/// The adapter of one layer, whose parameters are those of all layers.
pub struct HankelShared {
    b: Parameter,
    c: Parameter,
    log_a: Parameter,
    log_dt: Parameter,
    path: ScanPath,
}

impl StreamKind for HankelShared {
    const KIND: &'static str = "hankel-shared";
    const SIZE: Option<&'static str> = Some("state_dim");
    type Settings = Settings;

    fn new(settings: &Settings, place: &Place<'_>) -> Result<Self> {
        let (d, width, common) = (settings.state_dim, place.d_model, place.common());
        Ok(HankelShared {
            log_a: common.log_rates("log_a", d, settings.a_min, settings.a_max)?,
            log_dt: common.parameter("log_dt", Role::Rate, &Tensor::zeros::<f32>([d]))?,
            b: common.normal("b", [d, width], settings.b_std)?,
            c: common.normal("c", [width, d], settings.c_std)?,
            path: ScanPath::auto(),
        })
    }
}

impl StreamAdapter for HankelShared {
    fn parameters(&self) -> Vec<Parameter> {
        [&self.b, &self.c, &self.log_a, &self.log_dt].map(Clone::clone).into()
    }

    fn forward(&self, x: &Tensor, memory: Option<&Memory>) -> Result<(Tensor, Memory)> {
        let rate = exp(&add(&self.log_a.tensor(), &self.log_dt.tensor())?)?;
        let poles = Poles::Diagonal(exp(&scale(&rate, -1.0)?)?);
        let before = memory.and_then(|memory| memory.first());
        let path = if x.shape()[1] == 1 { ScanPath::Sequential } else { self.path };
        let s = scan(&linear(x, &self.b.tensor(), None)?, &poles, before, path)?;
        Ok((linear(&s, &self.c.tensor(), None)?, vec![last_states(&s, before)?]))
    }

    fn state_dim(&self) -> usize {
        self.log_a.elements()
    }
}
