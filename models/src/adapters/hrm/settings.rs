//! Settings of HRM.

use super::RateInit;
use crate::adapters::kind::Context;
use crate::adapters::stream::checks;
use crate::settings::{SettingsError, Table, settings};
use crate::weights::{Discretization, HrmMode, HrmPreset};
use hankel_ops::ScanPath;
use serde::de::{Deserializer, IntoDeserializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How B, C and the poles begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HrmInit {
    /// B and C normal, the poles by `rate_init`.
    #[default]
    Normal,
    /// The balanced truncation of an adapter of `init_states` states that begins in this way, by Gramians from data.
    EmpiricalBt,
}

settings! {
    /// Settings of HRM. [`HrmConfig::new`] fills in a preset; every field can be changed alone.
    pub struct HrmConfig {
        /// Where defaults come from: `"paper"`; `"identity"`, which leaves the model as it is before the first step, with `c_std = 0`,
        /// `gate_init = 1` and `input = "norm"`; `"released"` has `input = "norm"`, `discretization = "zoh-clamped"`, `rate_init = "s4d_real"`,
        /// `b_std = 1` (`1/sqrt(D)` from D = 1024 on) and `c_std = 1/sqrt(d)`.
        pub preset: HrmPreset = r#"`"identity"` on a pretrained backbone, else `"paper"`"#,
        /// Which poles it can have: `"positive"`, `"signed"` or `"complex"`.
        pub mode: HrmMode = r#"`"positive"`"#,
        /// Number of states d of every layer.
        pub state_dim: usize = "",
        /// How the parameters give the recurrence: `"free"`, `"zoh"`, `"zoh-clamped"` (R1 in [resolutions.md](resolutions.md)).
        pub discretization: Discretization = r#"`"free"`; that of `preset`"#,
        /// Initial decay rates: `"log_spaced"` between `a_min` and `a_max`; `"log_spaced_dt"`, the same held in `log_dt`, so that `"zoh"`
        /// scales the rows of B by `1 - a`; or `"s4d_real"`, the released ones.
        pub rate_init: RateInit = r#"`"log_spaced"`; that of `preset`"#,
        /// Fastest initial pole.
        pub a_min: f64 = "0.5",
        /// Slowest initial pole.
        pub a_max: f64 = "`1 - 1/T`",
        /// How the adapter begins: `"normal"`, B and C drawn; `"empirical-bt"`, the balanced truncation of a larger adapter drawn in the same way, by the
        /// states that it reaches on training sequences (R8 in [resolutions.md](resolutions.md)).
        pub init: HrmInit = r#"`"normal"`"#,
        /// Number of states of the larger adapter of `init = "empirical-bt"`.
        pub init_states: usize = "4 `state_dim`",
        /// Standard deviation of the initial B.
        pub b_std: f64 = "0.02; that of `preset`",
        /// Standard deviation of the initial C.
        pub c_std: f64 = r#"by `preset`: 0.02 (`"paper"`), 0 (`"identity"`), `1/sqrt(d)` (`"released"`)"#,
        /// Whether `log_dt` is trained.
        pub train_log_dt: bool = "true",
        /// How the recurrence is evaluated: `"sequential"`, `"chunked"` or `"fft"`, all the same within rounding (R3).
        #[serde(deserialize_with = "scan")]
        pub scan: ScanPath = r#"`"auto"`"#,
    }
}

/// A path, or `auto`.
fn scan<'de, D: Deserializer<'de>>(from: D) -> Result<ScanPath, D::Error> {
    #[derive(Deserialize, Serialize)]
    #[serde(rename_all = "snake_case")]
    enum Scan {
        Auto,
        Fft,
        Sequential,
        Chunked,
    }
    Scan::deserialize(from).map(|scan| match scan {
        Scan::Auto => ScanPath::default(),
        Scan::Fft => ScanPath::Fft,
        Scan::Sequential => ScanPath::Sequential,
        Scan::Chunked => ScanPath::Chunked,
    })
}

impl Default for HrmConfig {
    /// Those of the paper for 16 states on the small GPT.
    fn default() -> Self {
        HrmConfig::new(HrmPreset::Paper, 16, 128, 512)
    }
}

impl HrmConfig {
    /// The settings of `preset` for `state_dim` states on a stream of width `d_model` and sequences of `steps` tokens.
    pub fn new(preset: HrmPreset, state_dim: usize, d_model: usize, steps: usize) -> Self {
        let released = preset == HrmPreset::Released;
        let a_max = 1.0 - 1.0 / steps.max(2) as f64;
        HrmConfig {
            preset,
            mode: HrmMode::Positive,
            state_dim,
            discretization: if released { Discretization::ZohClamped } else { Discretization::Free },
            rate_init: if released { RateInit::S4dReal } else { RateInit::LogSpaced },
            a_min: 0.5_f64.min(a_max),
            a_max,
            init: HrmInit::Normal,
            init_states: state_dim.saturating_mul(4),
            b_std: match (released, d_model >= 1024) {
                (false, _) => 0.02,
                (true, false) => 1.0,
                (true, true) => 1.0 / (d_model as f64).sqrt(),
            },
            c_std: match preset {
                HrmPreset::Paper => 0.02,
                HrmPreset::Released => 1.0 / (state_dim.max(1) as f64).sqrt(),
                HrmPreset::Identity => 0.0,
            },
            train_log_dt: true,
            scan: ScanPath::default(),
        }
    }

    /// Settings for those that are not `given`: a preset and a size change others.
    pub(super) fn defaults(given: &Table, context: &Context<'_>) -> Self {
        fn read<'a, T: Deserialize<'a>>(value: Option<&'a Value>) -> Option<T> {
            T::deserialize(value?.into_deserializer()).ok()
        }
        let own = if context.pretrained { HrmPreset::Identity } else { HrmPreset::Paper };
        let preset = read(given.get("preset")).unwrap_or(own);
        let state_dim = read(given.get("state_dim")).unwrap_or(2);
        let defaults = HrmConfig::new(preset, state_dim, context.placement.d_model, context.length);
        let a_max = given.get("a_max").and_then(Value::as_f64).unwrap_or(defaults.a_max);
        HrmConfig { a_min: defaults.a_min.min(a_max), ..defaults }
    }

    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        let HrmConfig { state_dim: d, a_min, a_max, .. } = *self;
        SettingsError::unless(d >= 1, "state_dim", || format!("must be at least 1, found {d}"))?;
        SettingsError::unless(d <= 1 << 20, "state_dim", || format!("must be at most {}, found {d}", 1 << 20))?;
        let mode = self.mode.name();
        SettingsError::unless(self.mode != HrmMode::Complex || d.is_multiple_of(2), "state_dim", || {
            format!("must be even for `mode = {mode:?}`, which has two states in a pair")
        })?;
        let free = self.discretization == Discretization::Free;
        SettingsError::unless(self.mode == HrmMode::Positive || free, "mode", || {
            format!(
                "{mode:?} goes with `discretization = \"free\"` only: a hold of real decay rates has positive poles"
            )
        })?;
        let (init, wide) = (self.init, self.init_states);
        SettingsError::unless(init == HrmInit::Normal || (d..=1 << 20).contains(&wide), "init_states", || {
            format!(
                "must be at least `state_dim` = {d}, of which it is what is left, and at most {}, found {wide}",
                1 << 20
            )
        })?;
        SettingsError::unless(init == HrmInit::Normal || self.b_std > 0.0, "init", || {
            "\"empirical-bt\" goes by the states that data bring the adapter to, and with `b_std = 0` there are none"
                .to_owned()
        })?;
        checks::poles(Some(a_min), Some(a_max))?;
        checks::deviations(&[("b_std", self.b_std), ("c_std", self.c_std)])
    }

    /// Trainable values of one adapter on a stream of width `d_model` in the diagonal form, its gate not counted: `2 d D + 2 d`
    /// with everything trained (R1), and `2 d D + 3 d / 2` with complex pairs, which have a rate, a step and an angle each.
    pub fn parameters_per_site(&self, d_model: usize) -> usize {
        let d = self.state_dim;
        let (rates, angles) = if self.mode == HrmMode::Complex { (d / 2, d / 2) } else { (d, 0) };
        let steps = if self.train_log_dt { rates } else { 0 };
        2 * d * d_model + rates + steps + angles
    }
}
