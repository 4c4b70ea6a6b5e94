//! Approximation optimal in the weighted H2 norm.
//!
//! ```text
//! J(A_r, B_r, C_r) = ||W (G - G_r) V||_2^2  ->  least
//! ```
//!
//! The squared H2 norm of an error under white noise behind V is its mean square, which is what a loss that is quadratic near its
//! minimum charges for; Enns' method and its modifications lower a weighted Hankel norm instead. The first-order conditions are those of
//! Y. Halevi (IEEE TAC 37 (1992)); interpolatory methods meet them nearly (T. Breiten, C. Beattie and S. Gugercin, Systems & Control
//! Letters 78 (2015)). Here J is lowered by its gradient, which two Stein equations give (`weighted::cascade`): the limited-memory method of Broyden,
//! Fletcher, Goldfarb and Shanno (J. Nocedal and S. J. Wright, Numerical Optimization, algorithm 7.4), with
//!
//! ```text
//! dA = Q_r^-1 g_A P_r^-1     dB = Q_r^-1 g_B S^-1     dC = T^-1 g_C P_r^-1
//! ```
//!
//! as its first metric at every step: P_r and Q_r are the Gramians of the reduced system between the weights, S and T the mean squares of
//! white noise behind V and before W. It turns with the coordinates of the states, so that the result does not depend on them. Steps that
//! leave the stable systems or do not lower J are halved.
//!
//! The search starts from balanced truncation under the weights and, where that has no weights, the H2-optimal system, and ends in the
//! better of both optima: the weighted H2 error is never above that of any start. The optimum is a local one; the H-infinity error has
//! no bound.

use super::{Method, Reduced, bt, h2, reduce};
use crate::autoregression::directions_read;
use crate::linalg::{beside, product};
use crate::norms::h2_norm;
use crate::weighted::cascade::{Cascade, Matrices, Value};
use crate::weighted::{Weighted, Weights};
use crate::{HankelSpectrum, LinearSystem, Result, StateMatrix};
use faer::{Mat, MatRef, Scale};
use std::collections::VecDeque;

const ITERATIONS: usize = 300;

/// Pairs of steps and changes of the gradient that are remembered.
const MEMORY: usize = 20;

/// For the search, white noise of this share of its mean square is added to a weight, in the directions that the system reads or shows.
/// Otherwise errors in what the weight does not excite would cost nothing, and the search would accept them to gain the last digit of what
/// it does excite.
const SHARE: f64 = 0.05;

/// Relative decrease of J over ten steps at which the search has settled.
const SETTLED: f64 = 1e-6;

/// Reduces `system` to `order` states. `spectrum` are its Hankel singular values, `weighted` those under the weights.
///
/// # Errors
/// Those of balanced truncation under the weights; weights that do not fit.
pub fn reduce_weighted(
    system: &LinearSystem,
    spectrum: &HankelSpectrum,
    weighted: &Weighted,
    weights: &Weights,
    order: usize,
) -> Result<Reduced> {
    let error = |reduced: &Reduced| h2_norm(&weights.around(&system.difference(&reduced.system)?)?);
    let start = Reduced { bound: None, ..reduce(system, &weighted.spectrum, bt::METHOD, order)? };
    if order == 0 || order == system.states() {
        return Ok(start);
    }
    let mut candidates = vec![start];
    candidates.extend(reduce(system, spectrum, h2::METHOD, order).ok());
    let (rows, columns) = (directions_read(system.c().transpose())?, directions_read(system.b())?);
    let read = |b: MatRef<'_, f64>| product(b, columns.transpose());
    let shown = |c: MatRef<'_, f64>| product(rows.as_ref(), c);
    let small = Weights {
        input: match &weights.input {
            Some(weight) => Some(with_white_noise(&weight.with_outputs(columns.as_ref())?)?),
            None => None,
        },
        output: match &weights.output {
            Some(weight) => {
                let turned = transposed(&weight.with_inputs(rows.transpose())?)?;
                Some(transposed(&with_white_noise(&turned)?)?)
            }
            None => None,
        },
    };
    let cascade = Cascade::new(system.a().to_dense(), read(system.b()), shown(system.c()), &small);
    for i in 0..candidates.len() {
        let start = &candidates[i].system;
        let start = Matrices { a: start.a().to_dense(), b: read(start.b()), c: shown(start.c()) };
        let Some(found) = descend(&cascade, start) else { continue };
        let b = product(found.b.as_ref(), columns.as_ref());
        let c = product(rows.transpose(), found.c.as_ref());
        // One that rounding has made unstable is no candidate.
        let found = system.with_realization(StateMatrix::Dense(found.a), b, c);
        candidates.extend(found.ok().map(|system| Reduced { system, projection: None, bound: None, kept: None }));
    }
    let mut best: Option<(f64, Reduced)> = None;
    for candidate in candidates {
        let error = error(&candidate)?;
        if best.as_ref().is_none_or(|best| error < best.0) {
            best = Some((error, candidate));
        }
    }
    best.map_or_else(|| reduce(system, &weighted.spectrum, Method::default(), order), |best| Ok(best.1))
}

/// A weight and, beside it, white noise of [`SHARE`] of its mean square.
fn with_white_noise(weight: &LinearSystem) -> Result<LinearSystem> {
    let channels = weight.outputs();
    let size = SHARE.sqrt() * h2_norm(weight)? / (channels.max(1) as f64).sqrt();
    let noise = Mat::<f64>::identity(channels, channels) * Scale(size);
    let own = weight.d().map_or_else(|| Mat::zeros(channels, weight.inputs()), |d| d.to_owned());
    let b = beside(weight.b(), Mat::zeros(weight.states(), channels).as_ref());
    LinearSystem::new(weight.a().clone(), b, weight.c().to_owned(), Some(beside(own.as_ref(), noise.as_ref())))
}

fn transposed(weight: &LinearSystem) -> Result<LinearSystem> {
    let turned = |m: MatRef<'_, f64>| m.transpose().to_owned();
    let a = StateMatrix::Dense(turned(weight.a().to_dense().as_ref()));
    LinearSystem::new(a, turned(weight.c()), turned(weight.b()), weight.d().map(turned))
}

/// The system with the least J that the search comes to; `None` where it does not leave its start.
fn descend(cascade: &Cascade, mut at: Matrices) -> Option<Matrices> {
    let mut value = cascade.value(&at)?;
    let start = value.cost;
    let mut memory: VecDeque<(Matrices, Matrices)> = VecDeque::new();
    let mut costs = vec![start];
    for _ in 0..ITERATIONS {
        let mut step = direction(cascade, &value, &memory);
        let mut slope = step.dot(&value.gradient);
        if slope.is_nan() || slope >= 0.0 {
            memory.clear();
            step = direction(cascade, &value, &memory);
            slope = step.dot(&value.gradient);
        }
        let Some((next, found)) = line_search(cascade, &at, &value, &step, slope) else {
            if memory.is_empty() {
                break;
            }
            memory.clear();
            continue;
        };
        let change = found.gradient.plus(-1.0, &value.gradient);
        let moved = next.plus(-1.0, &at);
        if moved.dot(&change) > 1e-12 * (moved.dot(&moved) * change.dot(&change)).sqrt() {
            memory.push_back((moved, change));
            if memory.len() > MEMORY {
                memory.pop_front();
            }
        }
        (at, value) = (next, found);
        costs.push(value.cost);
        let earlier = costs.len().checked_sub(11).map(|i| costs[i]);
        if earlier.is_some_and(|earlier| earlier - value.cost <= SETTLED * earlier.abs()) {
            break;
        }
    }
    (value.cost < start).then_some(at)
}

/// The two-loop recursion, downhill.
fn direction(cascade: &Cascade, value: &Value, memory: &VecDeque<(Matrices, Matrices)>) -> Matrices {
    let mut q = value.gradient.clone();
    let mut factors = Vec::with_capacity(memory.len());
    for (moved, change) in memory.iter().rev() {
        let factor = moved.dot(&q) / moved.dot(change);
        q = q.plus(-factor, change);
        factors.push(factor);
    }
    let mut r = cascade.in_metric(value, &q);
    for ((moved, change), factor) in memory.iter().zip(factors.into_iter().rev()) {
        let other = change.dot(&r) / moved.dot(change);
        r = r.plus(factor - other, moved);
    }
    Matrices { a: r.a * Scale(-1.0), b: r.b * Scale(-1.0), c: r.c * Scale(-1.0) }
}

/// The first of the steps 1, 1/2, 1/4, ... that lowers J by a share of what its slope promises.
fn line_search(
    cascade: &Cascade,
    at: &Matrices,
    value: &Value,
    step: &Matrices,
    slope: f64,
) -> Option<(Matrices, Value)> {
    const SHARE: f64 = 1e-4;
    const HALVINGS: i32 = 40;
    if slope.is_nan() || slope >= 0.0 {
        return None;
    }
    (0..HALVINGS).find_map(|halvings| {
        let length = 0.5_f64.powi(halvings);
        let next = at.plus(length, step);
        let found = cascade.value(&next)?;
        (found.cost < value.cost && found.cost <= value.cost + SHARE * length * slope).then_some((next, found))
    })
}
