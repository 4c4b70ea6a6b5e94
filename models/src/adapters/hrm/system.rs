//! HRM as a linear system: the numbers that it consists of, in f64.

use super::Hrm;
use super::dynamics::Dynamics;
use crate::adapters::StreamAdapter;
use crate::lti::{self, LinearSystem, Mode, Shared, StateMatrix};
use crate::parameter::Parameter;
use crate::reduce::hrm::{pole_radius, state_matrix, system_of};
use crate::weights::{Discretization, HrmDynamics};
use std::f64::consts::{PI, TAU};

/// The largest angle of a trained pair: the last f32 below pi.
const BELOW_PI: f64 = 3.141_592_5;

impl Hrm {
    /// State matrix, B `[d, D]` and C `[D, d]` (row-major) as they are trained, angles folded into `[0, pi]`.
    pub(super) fn numbers(&self) -> (HrmDynamics, [Vec<f64>; 2]) {
        let (dynamics, mirrored) = self.dynamics.numbers();
        let d = self.state_dim();
        let (mut b, mut c) = (self.b.tensor().to_f64_vec(), self.c.tensor().to_f64_vec());
        mirrored.into_iter().for_each(|state| mirror(state, &mut b, &mut c, d));
        (dynamics, [b, c])
    }

    /// The state matrix A; B and C are not read.
    pub(super) fn state_matrix(&self) -> StateMatrix {
        state_matrix(&self.dynamics.numbers().0, self.state_dim(), self.dynamics.discretization())
    }

    /// The system (A, B, C), without the gate.
    pub(super) fn system(&self) -> lti::Result<LinearSystem> {
        let (dynamics, numbers) = self.numbers();
        let [b, c] = numbers.map(Shared::from);
        system_of(&dynamics, [&b, &c], (self.state_dim(), self.b.tensor().shape()[1]), self.dynamics.discretization())
    }
}

impl Dynamics {
    fn discretization(&self) -> Discretization {
        match self {
            Dynamics::Diagonal { discretization, .. } => *discretization,
            _ => Discretization::Free,
        }
    }

    /// The numbers of the state matrix, and the states whose sign turned when the angles were folded.
    fn numbers(&self) -> (HrmDynamics, Vec<usize>) {
        let values = |parameter: &Parameter| parameter.tensor().to_f64_vec();
        let plain = |dynamics| (dynamics, Vec::new());
        match self {
            Dynamics::Diagonal { log_a, log_dt, .. } => {
                plain(HrmDynamics::Diagonal { log_a: values(log_a), log_dt: values(log_dt) })
            }
            Dynamics::Signed { log_a, log_dt, .. } => {
                plain(HrmDynamics::Signed { log_a: values(log_a), log_dt: values(log_dt) })
            }
            Dynamics::Complex { log_a, log_dt, angle } => {
                let (angles, mirrored) = fold_all(&values(angle), 0);
                let angle = angles.into_iter().map(|angle| angle.clamp(1e-30, BELOW_PI)).collect();
                (HrmDynamics::Complex { log_a: values(log_a), log_dt: values(log_dt), angle }, mirrored)
            }
            Dynamics::Modal { log_decay, angle, sign } => {
                let radii: Vec<f64> = values(log_decay).iter().map(|l| pole_radius(l.exp())).collect();
                let signs = sign.to_f64_vec();
                let (angles, mirrored) = fold_all(&values(angle), signs.len());
                let real = radii.iter().zip(&signs).map(|(r, s)| Mode::Real(r * s));
                // Two states must stay two states: an angle of exactly 0 or pi would be read as a single real pole.
                let angles = angles.into_iter().map(|angle| angle.clamp(f64::MIN_POSITIVE, PI.next_down()));
                let pairs = radii[signs.len()..].iter().zip(angles);
                let pairs = pairs.map(|(&radius, angle)| Mode::Pair { radius, angle });
                (HrmDynamics::Modal(real.chain(pairs).collect()), mirrored)
            }
            Dynamics::Dense { a } => plain(HrmDynamics::Dense(values(a))),
        }
    }
}

/// Angles within `[0, pi]`, and the second states of the pairs that were mirrored for it; the pairs begin at state `first`.
fn fold_all(angles: &[f64], first: usize) -> (Vec<f64>, Vec<usize>) {
    let folded: Vec<(f64, bool)> = angles.iter().map(|angle| fold(*angle)).collect();
    let mirrored = folded.iter().enumerate().filter(|(_, (_, mirrored))| *mirrored);
    (folded.iter().map(|(angle, _)| *angle).collect(), mirrored.map(|(i, _)| first + 2 * i + 1).collect())
}

/// An angle that training may have moved out of [0, pi]: that of the same two poles within, and whether the block was mirrored,
/// which turns the sign of its second state.
fn fold(angle: f64) -> (f64, bool) {
    let folded = angle.rem_euclid(TAU);
    if folded > PI { (TAU - folded, true) } else { (folded, false) }
}

/// Turns the sign of a state, in the row of `b` and the column of `c` `[D, d]`.
fn mirror(state: usize, b: &mut [f64], c: &mut [f64], d: usize) {
    let width = b.len() / d;
    b[state * width..][..width].iter_mut().for_each(|b| *b = -*b);
    c.chunks_mut(d).for_each(|row| row[state] = -row[state]);
}
