//! `hankel-shared`: one recurrence for the whole depth of the network, behind a gate of its own in each layer.
//!
//! ```text
//! s_t = a * s_{t-1} + B x_t         a = exp(-exp(log_a + log_dt)), B [d, D]
//! y_t = C s_t                       C [D, d]
//! ```
//!
//! `B`, `C`, `log_a` and `log_dt` are the same in all layers (those of one site); states and gates are each layer's own. With L
//! layers it has `2 d D + 2 d + L` parameters where HRM has `L (2 d D + 2 d + 1)`.

use crate::adapters::stream::initial::radius;
use crate::adapters::stream::{Memory, Recurrence, SiteContext, StreamAdapter, StreamKind, checks};
use crate::parameter::{Parameter, Role};
use crate::settings::{Key, SettingsError, settings};
use hankel_core::{Result, Tensor};
use hankel_ops::{Poles, ScanPath};

settings! {
    /// Settings of [`HankelShared`].
    pub struct Settings {
        /// Number of states d of every layer.
        pub state_dim: usize = "16",
        /// Fastest initial pole.
        pub a_min: f64 = "0.5",
        /// Slowest initial pole.
        pub a_max: Option<f64> = "`1 - 1/T`",
        /// Standard deviation of the initial B.
        pub b_std: f64 = "0.02",
        /// Standard deviation of the initial C.
        pub c_std: f64 = "0.02; 0 on a pretrained backbone",
    }
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
}

impl StreamKind for HankelShared {
    const KIND: &'static str = "hankel-shared";
    const ABOUT: &'static str = "One recurrence for all layers, behind a gate of its own in each.";
    const SIZE: Option<&'static str> = Some("state_dim");
    const OUTPUT_STD: Option<&'static str> = Some("c_std");
    type Settings = Settings;

    fn keys() -> Vec<Key> {
        Settings::keys()
    }

    fn check(settings: &Settings) -> std::result::Result<(), SettingsError> {
        let Settings { state_dim, a_min, a_max, b_std, c_std } = *settings;
        checks::sizes(&[("state_dim", state_dim, checks::MOST)])?;
        checks::poles(Some(a_min), a_max)?;
        checks::deviations(&[("b_std", b_std), ("c_std", c_std)])
    }

    fn new(settings: &Settings, context: &SiteContext<'_>) -> Result<Self> {
        let (d, width, common) = (settings.state_dim, context.d_model, context.common());
        Ok(HankelShared {
            log_a: common.log_rates("log_a", d, settings.a_min, settings.a_max)?,
            log_dt: common.parameter("log_dt", Role::Rate, &Tensor::zeros::<f32>([d]))?,
            b: common.normal("b", [d, width], settings.b_std)?,
            c: common.normal("c", [width, d], settings.c_std)?,
        })
    }
}

impl StreamAdapter for HankelShared {
    fn parameters(&self) -> Vec<Parameter> {
        [&self.b, &self.c, &self.log_a, &self.log_dt].map(Clone::clone).into()
    }

    fn forward(&self, x: &Tensor, memory: Option<&Memory>) -> Result<(Tensor, Memory)> {
        let poles = Poles::Diagonal(radius(&self.log_a, &self.log_dt)?);
        let (b, c, path) = (self.b.tensor(), self.c.tensor(), ScanPath::default());
        Recurrence { poles, b, c, path }.forward(x, memory)
    }

    fn state_dim(&self) -> usize {
        self.log_a.elements()
    }
}
