//! The recurrence's coefficients as functions of what is learnt (R1, R2, R5).
//!
//! | form | learnt | poles | input matrix |
//! | --- | --- | --- | --- |
//! | diagonal, `free` | `log_a`, `log_dt` | `a = exp(-rate)`, `rate = exp(log_a + log_dt)` | `B` |
//! | diagonal, `zoh` | `log_a`, `log_dt` | as `free` | rows of `B` times `(1 - a) / exp(log_a)` |
//! | diagonal, `zoh-clamped` | `log_a`, `log_dt` | `rate = exp(log_a) clamp(softplus(log_dt), 1e-4, 0.1)` | as `zoh` |
//! | diagonal, mode `signed` | `log_a`, `log_dt` | `(-1)^i exp(-rate_i)` | `B` |
//! | diagonal, mode `complex` | `log_a`, `log_dt`, `angle` of each pair | `exp(-rate) exp(+-i angle)` | `B` |
//! | modal | `log_decay` of each real pole and pair, `angle` of each pair | radius `exp(-exp(log_decay))`, so that it is below 1 always | `B` |
//! | dense | nothing | those of `a`, stable when it was made | `B` |
//!
//! Signs are fixed. A pole could only change its own by passing through 0, where its state remembers nothing and has nothing to
//! learn from, and a pole that can be both (a hyperbolic tangent) loses the even resolution of time scales that a logarithm of
//! the rate has near 1 and -1. With both signs at every time scale, `C` chooses.
//!
//! `1 - a` is computed as `-expm1(-rate)`. Where the rate is so small that its quotient with `exp(log_a)` is the step itself, both have
//! the same constant added to their exponents: neither is 0, and quotient and gradients are those of the limit.

use super::settings::HrmConfig;
use crate::adapters::stream::SiteContext;
use crate::adapters::stream::initial::{alternating, log_spaced, radius};
use crate::lti::StateMatrix;
use crate::parameter::{Parameter, Role};
use crate::weights::{Discretization, HrmMode};
use faer::MatRef;
use hankel_core::{Error, Result, Tensor};
use hankel_ops::{Poles, add, clamp, exp, expm1, multiply, scale, scale_rows, softplus};
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// Initial rates of the diagonal form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateInit {
    /// `-ln a` log-spaced from `-ln a_min` down to `-ln a_max`, `log_dt = 0`.
    #[default]
    LogSpaced,
    /// The same rates, held in `log_dt` with `log_a = 0`: with `zoh` the rows of B are scaled by `1 - a`, so that every state is a
    /// moving average of its input, however slow its pole.
    LogSpacedDt,
    /// The released code's: `log_a_n = ln(n + 1)`, `log_dt` uniform in `[ln 1e-4, ln 0.1]`.
    S4dReal,
}

/// What is learnt about the poles.
#[derive(Clone)]
pub enum Dynamics {
    /// Real poles in (0, 1).
    Diagonal {
        /// `[d]`.
        log_a: Parameter,
        /// `[d]`.
        log_dt: Parameter,
        /// How they act.
        discretization: Discretization,
    },
    /// Real poles in (-1, 1).
    Signed {
        /// `[d]`.
        log_a: Parameter,
        /// `[d]`.
        log_dt: Parameter,
        /// `[d]`: 1, -1, 1, -1 ...
        sign: Tensor,
    },
    /// Complex pairs, each two states: blocks `exp(-rate) [cos -sin; sin cos]`.
    Complex {
        /// `[d / 2]`.
        log_a: Parameter,
        /// `[d / 2]`.
        log_dt: Parameter,
        /// `[d / 2]`, in radians, any number.
        angle: Parameter,
    },
    /// Poles of a reduced adapter: `real` signed ones, then `pairs` of complex ones, each pair two states.
    Modal {
        /// `[real + pairs]`: radius `exp(-exp(log_decay))`.
        log_decay: Parameter,
        /// `[pairs]`, in radians.
        angle: Parameter,
        /// `[real]`: 1 or -1.
        sign: Tensor,
    },
    /// The state matrix of a reduced adapter whose eigenvectors are too ill-conditioned for the modal form. It is not trained:
    /// a step could carry a pole out of the unit circle.
    Dense {
        /// `[d, d]`, frozen.
        a: Parameter,
    },
}

/// What the scan needs.
pub struct Coefficients {
    /// Poles.
    pub poles: Poles,
    /// Input matrix `[d, D]`.
    pub b: Tensor,
}

/// What raises `exponent` to [`LOWEST`] where it is below it, and 0 elsewhere; a constant to gradients.
fn lift(exponent: &Tensor) -> Result<Tensor> {
    let exponent = exponent.detach();
    add(&clamp(&exponent, LOWEST, f64::from(f32::MAX))?, &scale(&exponent, -1.0)?)
}

/// Angles from 0 to pi, slow and fast pairs everywhere among them: multiples of the golden ratio never cluster, however many
/// are taken.
fn spread_angles(pairs: usize) -> Vec<f32> {
    /// `(sqrt 5 - 1) / 2`.
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    (0..pairs).map(|i| (PI * (GOLDEN * i as f64).fract()) as f32).collect()
}

const STEP_MIN: f64 = 1e-4;
const STEP_MAX: f64 = 0.1;
/// Rates below `exp` of this are rates of a state that forgets nothing: `exp(-rate)` and `(1 - exp(-rate)) / rate` are 1 to the
/// last bit of a double. In f32, `exp` of it and of its negative are far from the ends of the range.
const LOWEST: f64 = -40.0;

impl Dynamics {
    pub(super) fn new(config: &HrmConfig, context: &SiteContext<'_>) -> Result<Self> {
        let d = config.state_dim;
        // Both signs, or both states of a pair, have the same time scale.
        let rates = if config.mode == HrmMode::Positive { d } else { d.div_ceil(2) };
        let (mut log_a, mut log_dt): (Vec<f32>, Vec<f32>) = match config.rate_init {
            RateInit::LogSpaced => (log_spaced(rates, config.a_min, config.a_max), vec![0.0; rates]),
            RateInit::LogSpacedDt => (vec![0.0; rates], log_spaced(rates, config.a_min, config.a_max)),
            RateInit::S4dReal => {
                let random = context.random("log_dt");
                let (low, high) = (STEP_MIN.ln(), STEP_MAX.ln());
                let log_dt = |i: usize| (low + (high - low) * random.uniform(i as u64)) as f32;
                ((0..rates).map(|i| ((i + 1) as f64).ln() as f32).collect(), (0..rates).map(log_dt).collect())
            }
        };
        if config.mode == HrmMode::Signed {
            for values in [&mut log_a, &mut log_dt] {
                *values = (0..d).map(|i| values[i / 2]).collect();
            }
        }
        let rate = |entry: &str, values: Vec<f32>| {
            let shape = [values.len()];
            context.parameter(entry, Role::Rate, &Tensor::from_vec(values, shape)?)
        };
        let (log_a, log_dt) = (rate("log_a", log_a)?, rate("log_dt", log_dt)?);
        Ok(match config.mode {
            HrmMode::Positive => Dynamics::Diagonal { log_a, log_dt, discretization: config.discretization },
            HrmMode::Signed => Dynamics::Signed { log_a, log_dt, sign: alternating(d)? },
            HrmMode::Complex => Dynamics::Complex { log_a, log_dt, angle: rate("angle", spread_angles(rates))? },
        })
    }

    pub(crate) fn set_trainable_log_dt(&self, trainable: bool) -> Result<()> {
        match self {
            Dynamics::Diagonal { log_dt, .. } | Dynamics::Signed { log_dt, .. } | Dynamics::Complex { log_dt, .. } => {
                log_dt.set_trainable(trainable)
            }
            _ => Ok(()),
        }
    }

    /// Refuses a state matrix that is not stable in the element type it is held in.
    pub(crate) fn check_stable(&self) -> Result<()> {
        let Dynamics::Dense { a } = self else { return Ok(()) };
        let (value, d) = (a.tensor(), self.state_dim());
        let values = value.to_f64_vec();
        let matrix = StateMatrix::Dense(MatRef::from_row_major_slice(&values, d, d).to_owned());
        match matrix.spectral_radius() {
            Ok(radius) if radius < 1.0 => Ok(()),
            Ok(radius) => {
                let problem = format!(
                    "{} in {} has an eigenvalue of modulus {radius}, which must be below 1: rounding carried it there; compute \
                     in f64, or keep another number of states",
                    a.name(),
                    value.dtype()
                );
                Err(Error::invalid("hrm", problem))
            }
            Err(error) => Err(Error::invalid("hrm", format!("{}: {error}", a.name()))),
        }
    }

    /// Number of states.
    pub fn state_dim(&self) -> usize {
        match self {
            Dynamics::Diagonal { log_a, .. } | Dynamics::Signed { log_a, .. } => log_a.elements(),
            Dynamics::Complex { angle, .. } => 2 * angle.elements(),
            Dynamics::Modal { log_decay, angle, .. } => log_decay.elements() + angle.elements(),
            Dynamics::Dense { a } => a.tensor().shape()[0],
        }
    }

    /// What determines the poles.
    pub fn parameters(&self) -> Vec<Parameter> {
        match self {
            Dynamics::Diagonal { log_a, log_dt, .. } | Dynamics::Signed { log_a, log_dt, .. } => {
                vec![log_a.clone(), log_dt.clone()]
            }
            Dynamics::Complex { log_a, log_dt, angle } => vec![log_a.clone(), log_dt.clone(), angle.clone()],
            Dynamics::Modal { log_decay, angle, .. } => vec![log_decay.clone(), angle.clone()],
            Dynamics::Dense { a } => vec![a.clone()],
        }
    }

    /// Poles and input matrix for the learnt matrix `b` `[d, D]`.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn coefficients(&self, b: &Tensor) -> Result<Coefficients> {
        match self {
            Dynamics::Diagonal { log_a, log_dt, discretization } => {
                if *discretization == Discretization::Free {
                    return Ok(Coefficients { poles: Poles::Diagonal(radius(log_a, log_dt)?), b: b.clone() });
                }
                let (log_a, log_dt) = (log_a.tensor(), log_dt.tensor());
                let (log_a, rate) = if *discretization == Discretization::Zoh {
                    let exponent = add(&log_a, &log_dt)?;
                    let lift = lift(&exponent)?;
                    (add(&log_a, &lift)?, exp(&add(&exponent, &lift)?)?)
                } else {
                    let log_a = add(&log_a, &lift(&log_a)?)?;
                    let rate = multiply(&exp(&log_a)?, &clamp(&softplus(&log_dt)?, STEP_MIN, STEP_MAX)?)?;
                    (log_a, rate)
                };
                let minus_rate = scale(&rate, -1.0)?;
                let one_minus_a = scale(&expm1(&minus_rate)?, -1.0)?;
                let b = scale_rows(b, &multiply(&one_minus_a, &exp(&scale(&log_a, -1.0)?)?)?)?;
                Ok(Coefficients { poles: Poles::Diagonal(exp(&minus_rate)?), b })
            }
            Dynamics::Signed { log_a, log_dt, sign } => {
                let radius = radius(log_a, log_dt)?;
                let no_angles = radius.full_like([0], 0.0)?;
                let poles = Poles::modal(&radius, &no_angles, &sign.to_dtype(radius.dtype())?)?;
                Ok(Coefficients { poles, b: b.clone() })
            }
            Dynamics::Complex { log_a, log_dt, angle } => {
                let radius = radius(log_a, log_dt)?;
                let no_signs = Tensor::zeros_of(radius.dtype(), [0])?;
                Ok(Coefficients { poles: Poles::modal(&radius, &angle.tensor(), &no_signs)?, b: b.clone() })
            }
            Dynamics::Modal { log_decay, angle, sign } => {
                let radius = exp(&scale(&exp(&log_decay.tensor())?, -1.0)?)?;
                Ok(Coefficients {
                    poles: Poles::modal(&radius, &angle.tensor(), &sign.to_dtype(radius.dtype())?)?,
                    b: b.clone(),
                })
            }
            Dynamics::Dense { a } => Ok(Coefficients { poles: Poles::Dense(a.tensor()), b: b.clone() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hankel_core::DType;

    /// The row of a state that forgets nothing is held for a step, however small `exp(log_a)` is, and learns how long that is.
    #[test]
    fn held_rows_have_a_limit() {
        const LOG_A: [f64; 8] = [-500.0, -120.0, -90.0, -60.0, -38.0, -30.0, -1.0, 1.5];
        const LOG_DT: f64 = -3.0;
        let (small, sigmoid) = (LOG_DT.exp(), 1.0 / (1.0 + (-LOG_DT).exp()));
        // The step, and its slope by log_dt.
        let cases = [(Discretization::Zoh, small, small), (Discretization::ZohClamped, small.ln_1p(), sigmoid)];
        let cases = cases.into_iter().flat_map(|case| [(case, DType::F32), (case, DType::F64)]);
        for ((discretization, step, slope), dtype) in cases {
            let rate = |name: &str, values: [f64; 8]| {
                let values = Tensor::from_vec(values.to_vec(), [8]).unwrap().to_dtype(dtype).unwrap();
                let parameter = Parameter::new(name, Role::Rate, &values);
                parameter.set_trainable(true).unwrap();
                parameter
            };
            let (log_a, log_dt) = (rate("log_a", LOG_A), rate("log_dt", [LOG_DT; 8]));
            let dynamics = Dynamics::Diagonal { log_a: log_a.clone(), log_dt: log_dt.clone(), discretization };
            let ones = Tensor::full([8, 1], 1.0_f64).to_dtype(dtype).unwrap();
            let b = dynamics.coefficients(&ones).unwrap().b;
            let gradients = b.backward_with(ones).unwrap();
            let gradient = |parameter: &Parameter| gradients.get(&parameter.tensor()).unwrap().to_f64_vec();
            let found = [b.to_f64_vec(), gradient(&log_a), gradient(&log_dt)];
            for (i, log_a) in LOG_A.into_iter().enumerate() {
                let rate = log_a.exp() * step;
                let gain = -(-rate).exp_m1() / log_a.exp();
                let expected = [gain, step * (-rate).exp() - gain, slope * (-rate).exp()];
                for (found, expected) in found.iter().map(|found| found[i]).zip(expected) {
                    assert!((found - expected).abs() < 1e-5 * step, "{dtype}, {log_a}: {found} for {expected}");
                }
            }
        }
    }
}
