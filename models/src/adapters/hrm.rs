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

use super::dynamics::{Dynamics, RateInit};
use crate::linear::normal;
use crate::parameter::{Parameter, Role};
use crate::pass::Pass;
use crate::weights::{Discretization, HrmInput, HrmMode, HrmPreset as Preset, HrmSite as StreamSite};
use hankel_core::{Error, Result, Tensor};
use hankel_ops::{Gate, ScanPath, add_linear, linear, narrow_time, scan};
use serde::{Deserialize, Serialize};

/// Settings of HRM. [`HrmConfig::new`] fills in a preset; every field can be changed alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HrmConfig {
    /// Where the defaults came from.
    pub preset: Preset,
    /// Which poles it can have.
    pub mode: HrmMode,
    /// Number of states d.
    pub state_dim: usize,
    /// Where the adapters are.
    pub sites: Vec<StreamSite>,
    /// What the recurrence reads.
    pub input: HrmInput,
    /// How the parameters determine the recurrence.
    pub discretization: Discretization,
    /// Initial rates.
    pub rate_init: RateInit,
    /// Fastest initial pole of `log_spaced`.
    pub a_min: f64,
    /// Slowest initial pole of `log_spaced`.
    pub a_max: f64,
    /// Standard deviation of the initial `B`.
    pub b_std: f64,
    /// Standard deviation of the initial `C`.
    pub c_std: f64,
    /// Initial gate.
    pub gate_init: f64,
    /// Whether the gate learns.
    pub train_gate: bool,
    /// Whether `log_dt` learns.
    pub train_log_dt: bool,
    /// How the recurrence is evaluated (R3).
    pub scan: ScanPath,
}

impl HrmConfig {
    /// The settings of `preset` for `state_dim` states on a stream of width `d_model` and sequences of `steps` tokens.
    pub fn new(preset: Preset, state_dim: usize, d_model: usize, steps: usize) -> Self {
        let released = preset == Preset::Released;
        let a_max = 1.0 - 1.0 / steps.max(2) as f64;
        HrmConfig {
            preset,
            mode: HrmMode::Positive,
            state_dim,
            sites: vec![StreamSite::Mlp],
            input: if released { HrmInput::Norm } else { HrmInput::Residual },
            discretization: if released { Discretization::ZohClamped } else { Discretization::Free },
            rate_init: if released { RateInit::S4dReal } else { RateInit::LogSpaced },
            a_min: 0.5_f64.min(a_max),
            a_max,
            b_std: match (released, d_model >= 1024) {
                (false, _) => 0.02,
                (true, false) => 1.0,
                (true, true) => 1.0 / (d_model as f64).sqrt(),
            },
            c_std: if released { 1.0 / (state_dim.max(1) as f64).sqrt() } else { 0.02 },
            gate_init: 0.1,
            train_gate: true,
            train_log_dt: true,
            scan: ScanPath::auto(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        if self.state_dim == 0 || self.state_dim > 1 << 20 {
            return Err(format!("state_dim = {} is out of range", self.state_dim));
        }
        if self.mode == HrmMode::Complex && !self.state_dim.is_multiple_of(2) {
            return Err(format!("state_dim = {} is odd: mode complex has two states in a pair", self.state_dim));
        }
        if self.mode != HrmMode::Positive && self.discretization != Discretization::Free {
            let mode = self.mode.name();
            return Err(format!(
                "mode = {mode:?} goes with discretization = \"free\" only: a hold of real decay rates has positive poles"
            ));
        }
        for (key, a) in [("a_min", self.a_min), ("a_max", self.a_max)] {
            if !(a > 0.0 && a < 1.0) {
                return Err(format!("{key} = {a} is not between 0 and 1"));
            }
        }
        if self.a_min > self.a_max {
            return Err(format!("a_min = {} is above a_max = {}", self.a_min, self.a_max));
        }
        for (key, value) in [("b_std", self.b_std), ("c_std", self.c_std), ("gate_init", self.gate_init)] {
            if !value.is_finite() {
                return Err(format!("{key} = {value} is not finite"));
            }
        }
        if self.sites.is_empty() {
            return Err("sites must name attention, mlp or both".to_owned());
        }
        Ok(())
    }

    /// Trainable values of one adapter on a stream of width `d_model` in the diagonal form: `2 d D + 2 d + 1` with
    /// everything trained (R1), and `2 d D + 3 d / 2 + 1` with complex pairs, which have a rate, a step and an angle each.
    pub fn parameters_per_site(&self, d_model: usize) -> usize {
        let d = self.state_dim;
        let (rates, angles) = if self.mode == HrmMode::Complex { (d / 2, d / 2) } else { (d, 0) };
        let steps = if self.train_log_dt { rates } else { 0 };
        2 * d * d_model + rates + steps + angles + usize::from(self.train_gate)
    }
}

/// The three readings of a site; `sublayer` may be left out when nothing reads it.
#[derive(Clone, Copy)]
pub struct StreamInputs<'a> {
    /// The stream after the sub-layer, to which the output is added.
    pub residual: &'a Tensor,
    /// The normalised input of the sub-layer.
    pub norm: &'a Tensor,
    /// The output of the sub-layer.
    pub sublayer: Option<&'a Tensor>,
}

impl<'a> StreamInputs<'a> {
    /// The reading that is asked for.
    pub(crate) fn read(&self, input: HrmInput) -> Result<&'a Tensor> {
        match input {
            HrmInput::Residual => Ok(self.residual),
            HrmInput::Norm => Ok(self.norm),
            HrmInput::Sublayer => {
                self.sublayer.ok_or_else(|| Error::invalid("adapter", "the output of the sub-layer was not given"))
            }
        }
    }
}

/// One recurrent adapter. Cloning shares the parameters.
#[derive(Clone)]
pub struct Hrm {
    site: StreamSite,
    input: HrmInput,
    path: ScanPath,
    pub(crate) b: Parameter,
    pub(crate) c: Parameter,
    pub(crate) gate: Parameter,
    pub(crate) dynamics: Dynamics,
}

impl Hrm {
    pub(crate) fn new(config: &HrmConfig, d_model: usize, layer: usize, site: StreamSite, seed: u64) -> Result<Self> {
        let (d, name) = (config.state_dim, format!("model.layers.{layer}.{}.hrm", site.module()));
        let adapter = Hrm {
            site,
            input: config.input,
            path: config.scan,
            b: normal(&format!("{name}.b"), &[d, d_model], config.b_std, seed)?,
            c: normal(&format!("{name}.c"), &[d_model, d], config.c_std, seed)?,
            gate: Parameter::new(format!("{name}.gate"), Role::Gate, &Tensor::full([1], config.gate_init as f32)),
            dynamics: Dynamics::new(config, &name, seed)?,
        };
        for parameter in adapter.parameters() {
            parameter.set_trainable(true)?;
        }
        adapter.gate.set_trainable(config.train_gate)?;
        adapter.dynamics.set_trainable_log_dt(config.train_log_dt)?;
        Ok(adapter)
    }

    /// Assembles an adapter from loaded parts.
    pub(crate) fn from_parts(
        config: &HrmConfig,
        site: StreamSite,
        [b, c, gate]: [Parameter; 3],
        dynamics: Dynamics,
    ) -> Self {
        Hrm { site, input: config.input, path: config.scan, b, c, gate, dynamics }
    }

    /// Where it is.
    pub(crate) fn site(&self) -> StreamSite {
        self.site
    }

    /// What it reads.
    pub fn input(&self) -> HrmInput {
        self.input
    }

    /// Number of states.
    pub fn state_dim(&self) -> usize {
        self.dynamics.state_dim()
    }

    /// The gate's present value.
    pub fn gate(&self) -> f64 {
        self.gate.tensor().to_f64_vec()[0]
    }

    /// The states `s` `[batch, T, d]` in layer `layer`. A state in `pass` holds the final ones of what came before and gets
    /// those of this part.
    pub(crate) fn states(&self, layer: usize, inputs: StreamInputs, pass: &mut Pass) -> Result<Tensor> {
        let x = inputs.read(self.input)?;
        let coefficients = self.dynamics.coefficients(&self.b.tensor())?;
        let u = linear(x, &coefficients.b, None)?;
        let steps = u.shape()[1];
        let path = if steps == 1 { ScanPath::Sequential } else { self.path };
        let module = self.site.module();
        let memory = pass.state.as_mut().and_then(|state| state.layer(layer).streams.get(module).cloned());
        let initial = memory.as_ref().and_then(|memory| memory.first());
        let states = pass.by_document(&[&u], |u| scan(u[0], &coefficients.poles, initial, path))?;
        if let Some(state) = pass.state.as_mut().filter(|_| steps > 0) {
            let last = narrow_time(&states, steps - 1, 1)?.reshape([u.shape()[0], self.state_dim()])?;
            state.layer(layer).streams.insert(module, vec![last.detach()]);
        }
        Ok(states)
    }

    /// `residual + gate C s`.
    pub(crate) fn output(&self, residual: &Tensor, states: &Tensor) -> Result<Tensor> {
        add_linear(residual, states, &self.c.tensor(), None, Gate::Learned(&self.gate.tensor()))
    }

    /// `b`, `c`, what determines the poles, and the gate.
    pub fn parameters(&self) -> Vec<Parameter> {
        let mut all = vec![self.b.clone(), self.c.clone()];
        all.extend(self.dynamics.parameters());
        all.push(self.gate.clone());
        all
    }
}
