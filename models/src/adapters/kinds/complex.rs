//! `complex`: a recurrence whose poles turn. Each pair of states is scaled and rotated at every step, so that it can remember
//! phases, count modulo small numbers and carry alternations, which positive real poles cannot.
//!
//! ```text
//! s_t = A s_{t-1} + B x_t         B [d, D], d even
//! y_t = C s_t                     C [D, d]
//! A   = blocks  r_i [ cos w_i  -sin w_i ]        r_i = exp(-exp(log_decay_i))
//!                   [ sin w_i   cos w_i ]
//! ```
//!
//! The radii start as HRM's poles do, and the angles spread evenly between 0 and pi, slow and fast pairs everywhere among them.

use crate::adapters::dynamics::spread_angles;
use crate::adapters::stream::{Memory, Place, StreamAdapter, StreamKind, last_states};
use crate::parameter::{Parameter, Role};
use hankel_core::{Result, Tensor};
use hankel_ops::{Poles, ScanPath, exp, linear, scale, scan};
use serde::{Deserialize, Serialize};

/// Settings of [`Complex`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Number of pairs of poles, of two states each.
    pub pairs: usize,
    /// Least initial radius.
    pub a_min: f64,
    /// Largest initial radius; 1 - 1/T when not given.
    pub a_max: Option<f64>,
    /// Standard deviation of the initial B.
    pub b_std: f64,
    /// Standard deviation of the initial C.
    pub c_std: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { pairs: 8, a_min: 0.5, a_max: None, b_std: 0.02, c_std: 0.02 }
    }
}

/// The adapter of one layer.
pub struct Complex {
    b: Parameter,
    c: Parameter,
    log_decay: Parameter,
    angle: Parameter,
}

impl StreamKind for Complex {
    const KIND: &'static str = "complex";
    const SIZE: Option<&'static str> = Some("pairs");
    type Settings = Settings;

    fn new(settings: &Settings, place: &Place<'_>) -> Result<Self> {
        let (pairs, d, width) = (settings.pairs, settings.pairs.saturating_mul(2), place.d_model);
        let log_decay = place.log_rates("log_decay", pairs, settings.a_min, settings.a_max)?;
        Ok(Complex {
            log_decay,
            angle: place.parameter("angle", Role::Rate, &Tensor::from_vec(spread_angles(pairs), [pairs])?)?,
            b: place.normal("b", [d, width], settings.b_std)?,
            c: place.normal("c", [width, d], settings.c_std)?,
        })
    }
}

impl StreamAdapter for Complex {
    fn parameters(&self) -> Vec<Parameter> {
        [&self.b, &self.c, &self.log_decay, &self.angle].map(Clone::clone).into()
    }

    fn forward(&self, x: &Tensor, memory: Option<&Memory>) -> Result<(Tensor, Memory)> {
        let radius = exp(&scale(&exp(&self.log_decay.tensor())?, -1.0)?)?;
        let no_real_poles = Tensor::zeros_of(x.dtype(), [0])?;
        let poles = Poles::modal(&radius, &self.angle.tensor(), &no_real_poles)?;
        let before = memory.and_then(|memory| memory.first());
        let path = if x.shape()[1] == 1 { ScanPath::Sequential } else { ScanPath::Chunked };
        let s = scan(&linear(x, &self.b.tensor(), None)?, &poles, before, path)?;
        Ok((linear(&s, &self.c.tensor(), None)?, vec![last_states(&s, before)?]))
    }

    fn state_dim(&self) -> usize {
        2 * self.angle.elements()
    }
}
