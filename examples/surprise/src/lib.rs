//! `surprise`: an adapter that tells how far each token is from the running mean of those before it.
//!
//! ```text
//! v_t = B x_t                           B [d, D]
//! m_t = a * m_{t-1} + (1 - a) * v_t     a = exp(-exp(log_rate)), m_{-1} = 0
//! y_t = C (v_t - m_t)^2                 C [D, d]
//! ```

use hankel_core::{Result, Tensor};
use hankel_models::Parameter;
use hankel_models::adapters::stream::{Memory, SiteContext, StreamAdapter, StreamKind, last_states};
use hankel_ops::{Poles, ScanPath, add, exp, expm1, linear, multiply, scale, scale_columns, scan};
use serde::{Deserialize, Serialize};

/// What a configuration can set, with defaults.
#[derive(Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Number of running means d.
    pub means: usize,
    /// Standard deviation of the initial B and C.
    pub std: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { means: 16, std: 0.05 }
    }
}

/// The adapter of one layer.
pub struct Surprise {
    b: Parameter,
    c: Parameter,
    log_rate: Parameter,
}

impl StreamKind for Surprise {
    const KIND: &'static str = "surprise";
    const SIZE: Option<&'static str> = Some("means");
    type Settings = Settings;

    fn new(settings: &Settings, context: &SiteContext<'_>) -> Result<Self> {
        let (d, width) = (settings.means, context.d_model);
        Ok(Surprise {
            log_rate: context.log_rates("log_rate", d, 0.5, None)?,
            b: context.normal("b", [d, width], settings.std)?,
            c: context.normal("c", [width, d], settings.std)?,
        })
    }
}

impl StreamAdapter for Surprise {
    fn parameters(&self) -> Vec<Parameter> {
        vec![self.b.clone(), self.c.clone(), self.log_rate.clone()]
    }

    fn forward(&self, x: &Tensor, memory: Option<&Memory>) -> Result<(Tensor, Memory)> {
        let minus_rate = scale(&exp(&self.log_rate.tensor())?, -1.0)?;
        let (a, one_minus_a) = (exp(&minus_rate)?, scale(&expm1(&minus_rate)?, -1.0)?);
        let v = linear(x, &self.b.tensor(), None)?;
        let before = memory.and_then(|memory| memory.first());
        let m = scan(&scale_columns(&v, &one_minus_a, None)?, &Poles::Diagonal(a), before, ScanPath::Chunked)?;
        let difference = add(&v, &scale(&m, -1.0)?)?;
        let y = linear(&multiply(&difference, &difference)?, &self.c.tensor(), None)?;
        Ok((y, vec![last_states(&m, before)?]))
    }

    fn state_dim(&self) -> usize {
        self.log_rate.elements()
    }
}
