//! HRM as a linear system: how poles and input matrix follow from the trained numbers (R1, R2).
//!
//! | form | poles | rows of the input matrix |
//! | --- | --- | --- |
//! | diagonal, `free` | `exp(-exp(log_a + log_dt))` | `B` |
//! | diagonal, `zoh` | as `free` | `B (1 - a) / exp(log_a)` |
//! | diagonal, `zoh-clamped` | `exp(-dt exp(log_a))`, `dt = clamp(softplus(log_dt), 1e-4, 0.1)` | as `zoh` |
//! | diagonal, mode `signed` | `(-1)^i exp(-exp(log_a + log_dt))` | `B` |
//! | diagonal, mode `complex` | `exp(-exp(log_a + log_dt)) exp(+-i angle)` | `B` |
//! | modal, dense | as stored | `B` |

use faer::MatRef;
use hankel_files::{Discretization, HrmDynamics, HrmLayerFile};
use hankel_lti::{LinearSystem, Mode, Result, Shared, StateMatrix};

/// The discrete-time system (A, B, C) of a layer in f64, *without* the gate.
///
/// # Errors
/// Poles on or outside the unit circle; values that are not finite.
pub fn linear_system(layer: &HrmLayerFile, discretization: Discretization) -> Result<LinearSystem> {
    system_of(&layer.dynamics, [&layer.b, &layer.c], (layer.state_dim, layer.width), discretization)
}

/// The same from the numbers of a layer, which may have no states: B row-major [d, D], C row-major [D, d]. Both are shared, but for a B
/// whose rows have factors.
///
/// # Errors
/// As [`linear_system`].
pub fn system_of(
    dynamics: &HrmDynamics,
    [b, c]: [&Shared; 2],
    (state_dim, width): (usize, usize),
    discretization: Discretization,
) -> Result<LinearSystem> {
    let gains = gains(dynamics, state_dim, discretization);
    let mut b = b.clone();
    if gains.iter().any(|gain| *gain != 1.0) {
        let rows = b.chunks_mut(width.max(1));
        rows.zip(gains).for_each(|(row, gain)| row.iter_mut().for_each(|x| *x *= gain));
    }
    LinearSystem::from_rows(state_matrix(dynamics, state_dim, discretization), (b, width), (c.clone(), width))
}

/// Factor between each trained row of B and the row of the discretised system; 1 where the form has no such factor.
fn gains(dynamics: &HrmDynamics, state_dim: usize, discretization: Discretization) -> Vec<f64> {
    match dynamics {
        HrmDynamics::Diagonal { log_a, log_dt } => {
            log_a.iter().zip(log_dt).map(|(a, dt)| discretize(*a, *dt, discretization).1).collect()
        }
        _ => vec![1.0; state_dim],
    }
}

/// `exp(-rate)`, below 1 for rates below rounding, too: for every value of the parameters the pole is stable (R1).
pub fn pole_radius(rate: f64) -> f64 {
    let radius = (-rate).exp();
    // Not `min`, which would turn a NaN into a stable pole.
    if radius < 1.0 || radius.is_nan() { radius } else { 1.0_f64.next_down() }
}

/// The state matrix A of a layer with `state_dim` states.
pub fn state_matrix(dynamics: &HrmDynamics, state_dim: usize, discretization: Discretization) -> StateMatrix {
    let radii = |log_a: &[f64], log_dt: &[f64], by: Discretization| -> Vec<f64> {
        log_a.iter().zip(log_dt).map(|(a, dt)| pole_radius(discretize(*a, *dt, by).0)).collect()
    };
    match dynamics {
        HrmDynamics::Diagonal { log_a, log_dt } => StateMatrix::Diagonal(radii(log_a, log_dt, discretization)),
        HrmDynamics::Signed { log_a, log_dt } => {
            let radii = radii(log_a, log_dt, Discretization::Free);
            StateMatrix::Diagonal(radii.iter().enumerate().map(|(i, r)| if i % 2 == 0 { *r } else { -r }).collect())
        }
        HrmDynamics::Complex { log_a, log_dt, angle } => {
            let pair = |(radius, &angle)| Mode::Pair { radius, angle };
            StateMatrix::Modal(radii(log_a, log_dt, Discretization::Free).into_iter().zip(angle).map(pair).collect())
        }
        HrmDynamics::Modal(modes) => StateMatrix::Modal(modes.clone()),
        HrmDynamics::Dense(a) => StateMatrix::Dense(MatRef::from_row_major_slice(a, state_dim, state_dim).to_owned()),
    }
}

/// Rate `-ln a` and factor of the input row for one state.
fn discretize(log_a: f64, log_dt: f64, discretization: Discretization) -> (f64, f64) {
    let decay = log_a.exp();
    let zoh_gain = |rate: f64, step: f64| if decay == 0.0 { step } else { -(-rate).exp_m1() / decay };
    match discretization {
        Discretization::Free => ((log_a + log_dt).exp(), 1.0),
        Discretization::Zoh => {
            let rate = (log_a + log_dt).exp();
            (rate, zoh_gain(rate, log_dt.exp()))
        }
        Discretization::ZohClamped => {
            // softplus(x) = max(x, 0) + ln(1 + exp(-|x|)), which does not overflow.
            let step = (log_dt.max(0.0) + (-log_dt.abs()).exp().ln_1p()).clamp(1e-4, 0.1);
            let rate = step * decay;
            (rate, zoh_gain(rate, step))
        }
    }
}
