//! HRM, the recurrent adapter (paper, section "Method"; R1, R2).
//!
//! ```text
//! u_t   = B x_t                   B [d, D]
//! s_t   = a * s_{t-1} + u_t       s_{-1} = 0
//! out_t = h_t + gate * C s_t      C [D, d], gate a scalar
//! ```
//!
//! `h` is the residual stream after the sub-layer; `x` is `h` itself (`input = "residual"`), the normalised input of the
//! sub-layer (`"norm"`) or its output before the residual sum (`"sublayer"`).

mod dynamics;
mod exactness;
mod file;
mod hankel_sum;
mod settings;
mod start;
mod system;
mod truncation;

pub use dynamics::{Coefficients, Dynamics, RateInit};
pub use exactness::{Deviation, Exactness};
pub use settings::{HrmConfig, HrmInit};
pub use start::EmpiricalStart;
pub use truncation::{Truncated, TruncationError};

use super::config::AdapterConfig;
use super::kind::Context;
use super::stream::{Memory, Recurrence, SiteContext, SiteSettings, StreamAdapter, StreamKind};
use super::{AdapterSet, Placement};
use crate::lti::{self, LinearSystem, Mode};
use crate::parameter::Parameter;
use crate::settings::{Key, SettingsError, Table};
use crate::weights::{self, HrmMode, HrmPreset, StreamInput};
use hankel_core::{Result, Tensor};
use hankel_ops::ScanPath;
use std::path::Path;

/// One recurrent adapter, without its gate. Cloning shares the parameters.
#[derive(Clone)]
pub struct Hrm {
    path: ScanPath,
    pub(crate) b: Parameter,
    pub(crate) c: Parameter,
    pub(crate) dynamics: Dynamics,
}

impl Hrm {
    /// Assembles an adapter from loaded parts.
    pub(crate) fn from_parts(path: ScanPath, [b, c]: [Parameter; 2], dynamics: Dynamics) -> Self {
        Hrm { path, b, c, dynamics }
    }
}

impl StreamAdapter for Hrm {
    /// `b`, `c`, and what determines the poles.
    fn parameters(&self) -> Vec<Parameter> {
        let mut all = vec![self.b.clone(), self.c.clone()];
        all.extend(self.dynamics.parameters());
        all
    }

    fn forward(&self, x: &Tensor, memory: Option<&Memory>) -> Result<(Tensor, Memory)> {
        self.linear_recurrence()?.forward(x, memory)
    }

    fn recurrence(&self) -> Result<Option<Recurrence>> {
        self.linear_recurrence().map(Some)
    }

    fn linear_system(&self) -> Option<lti::Result<LinearSystem>> {
        Some(self.system())
    }

    fn poles(&self) -> Vec<Mode> {
        self.state_matrix().modes().unwrap_or_default()
    }

    fn state_dim(&self) -> usize {
        self.dynamics.state_dim()
    }

    fn saved_per_token(&self, _: usize) -> usize {
        2 * self.state_dim()
    }

    fn hankel_sum(&self, gate: &Parameter) -> Result<Option<Tensor>> {
        self.sum_of_singular_values(gate)
    }

    fn check_rounded(&self) -> Result<()> {
        self.dynamics.check_stable()
    }
}

impl Hrm {
    fn linear_recurrence(&self) -> Result<Recurrence> {
        let Coefficients { poles, b } = self.dynamics.coefficients(&self.b.tensor())?;
        Ok(Recurrence { poles, b, c: self.c.tensor(), path: self.path })
    }
}

impl StreamKind for Hrm {
    const KIND: &'static str = "hrm";
    const ABOUT: &'static str = "The recurrent adapter of the paper.";
    const SIZE: Option<&'static str> = Some("state_dim");
    const REQUIRED: &'static [&'static str] = &["state_dim"];
    type Settings = HrmConfig;

    fn new(settings: &HrmConfig, context: &SiteContext<'_>) -> Result<Self> {
        let (d, width) = (settings.state_dim, context.d_model);
        let adapter = Hrm {
            path: settings.scan,
            b: context.normal("b", [d, width], settings.b_std)?,
            c: context.normal("c", [width, d], settings.c_std)?,
            dynamics: Dynamics::new(settings, context)?,
        };
        adapter.dynamics.set_trainable_log_dt(settings.train_log_dt)?;
        Ok(adapter)
    }

    fn keys() -> Vec<Key> {
        HrmConfig::keys()
    }

    fn defaults(given: &Table, context: &Context<'_>) -> HrmConfig {
        HrmConfig::defaults(given, context)
    }

    fn site_defaults(settings: &HrmConfig, _: bool) -> SiteSettings {
        match settings.preset {
            HrmPreset::Paper => SiteSettings::default(),
            HrmPreset::Released => SiteSettings { input: StreamInput::Norm, ..SiteSettings::default() },
            HrmPreset::Identity => SiteSettings::identity(),
        }
    }

    fn check(settings: &HrmConfig) -> std::result::Result<(), SettingsError> {
        settings.check()
    }

    fn open(settings: &HrmConfig) -> &'static [&'static str] {
        match (settings.rate_init, settings.init) {
            (RateInit::S4dReal, HrmInit::Normal) => &["a_min", "a_max", "init", "init_states"],
            (RateInit::S4dReal, HrmInit::EmpiricalBt) => &["a_min", "a_max"],
            (_, HrmInit::Normal) => &["init", "init_states"],
            (_, HrmInit::EmpiricalBt) => &[],
        }
    }

    fn idle(settings: &HrmConfig) -> Vec<(&'static str, &'static str)> {
        let mut idle = Vec::new();
        if settings.rate_init == RateInit::S4dReal {
            let problem = "has no effect with `rate_init = \"s4d_real\"`, which `preset = \"released\"` has: leave it out, \
                           or set `rate_init = \"log_spaced\"`, too";
            idle.extend([("a_min", problem), ("a_max", problem)]);
        }
        if settings.init == HrmInit::Normal {
            idle.push(("init_states", "is for `init = \"empirical-bt\"`: set that, too"));
        }
        idle
    }

    /// The larger adapter: drawn at random, with `init_states` states. If C is to begin at 0, here it is drawn like B: without a C all
    /// Hankel singular values would be 0.
    fn begins_from(settings: &HrmConfig) -> Option<HrmConfig> {
        let &HrmConfig { init_states: state_dim, b_std, c_std, .. } = settings;
        let c_std = if c_std == 0.0 { b_std } else { c_std };
        let larger = HrmConfig { init: HrmInit::Normal, state_dim, c_std, ..settings.clone() };
        (settings.init == HrmInit::EmpiricalBt).then_some(larger)
    }

    /// States in complex pairs come by twos.
    fn size_step(settings: &HrmConfig) -> usize {
        if settings.mode == HrmMode::Complex { 2 } else { 1 }
    }

    fn count(settings: &HrmConfig, d_model: usize) -> Option<usize> {
        Some(settings.parameters_per_site(d_model))
    }

    fn describe(settings: &HrmConfig) -> String {
        let mode = settings.mode;
        let mode = if mode == HrmMode::Positive { String::new() } else { format!(", {} poles", mode.name()) };
        let init = match settings.init {
            HrmInit::Normal => String::new(),
            HrmInit::EmpiricalBt => format!(", empirical-bt of {} states", settings.init_states),
        };
        format!("d = {}, {:?} preset{mode}{init}", settings.state_dim, settings.preset).to_lowercase()
    }

    fn owns(file: &Table) -> bool {
        file.get("peft_type").is_some_and(|kind| kind == "HRM")
    }

    fn save(
        set: &AdapterSet,
        config: &AdapterConfig,
        directory: &Path,
        base_model: Option<&str>,
    ) -> weights::Result<()> {
        file::save(set, config, directory, base_model)
    }

    fn load(directory: &Path, _: &Table, placement: &Placement, length: usize) -> weights::Result<AdapterSet> {
        file::load(directory, placement, length)
    }
}
