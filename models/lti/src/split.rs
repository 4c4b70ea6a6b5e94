//! The stable part of a system, which is reduced, apart from the rest, which is kept.
//!
//! ```text
//! A = V diag(A_k, A_s) V^-1     G = G_k + G_s     || G - (G_k + G_sr) || = || G_s - G_sr ||
//! ```
//!
//! Of a diagonal or modal A the parts are its modes. Of a dense one they come from the spectral projection `(1 + sign S) / 2`, with
//! `S = (A / r - 1)^-1 (A / r + 1)` for a radius r between the poles of both parts, so that poles on the circle and Jordan blocks
//! are kept, too (J. D. Roberts, Int. J. Control 32 (1980)). MATLAB: `stabsep`; SLICOT: TB01KD.

use super::linalg::{beside, eigenvalues, eigenvectors, in_even_units, invert, product};
use super::methods::sign;
use super::norms::FrequencyResponse;
use super::norms::balance::suitable_units;
use super::system::check_shape;
use super::{LinearSystem, LtiError, MIN_RATE, Mode, Result, StateMatrix};
use faer::linalg::solvers::Solve;
use faer::{Mat, MatRef, Scale, c64};
use std::f64::consts::{FRAC_PI_2, PI};

/// Where poles of a dense matrix are kept, all that are at most this far inside the circle are kept, too: rounding moves a multiple pole
/// by a root of the rounding error, so that a double integrator gets one pole inside and one outside. Gramians treat slower poles than
/// this as faster ones.
const MARGIN: f64 = MIN_RATE;

/// That distance as a multiple of what rounding moves a pole by to first order, if that is more, and its maximum: rounding moves poles of
/// higher multiplicity farther inside.
pub(crate) const CLUSTER: f64 = 10.0;
pub(crate) const FARTHEST: f64 = 1e-2;

/// Units of states whose ratio is larger hide poles from eigenvalues that are computed in them.
const FAR_APART: f64 = 256.0;

/// Angles at which the sum of both parts is compared with the system, and how much of its gain may be missing.
const SAMPLES: usize = 6;
const SUM: f64 = 1e-6;

/// How far the trace of a projection may be from the number of poles: rounding that the refinement takes back.
const OFF: f64 = 0.1;
const REFINEMENTS: usize = 3;
/// Unknowns of its linear systems.
const MOST_UNKNOWNS: usize = 400;

/// States that are kept as they are.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// State matrix.
    pub a: StateMatrix,
    /// Input matrix.
    pub b: Mat<f64>,
    /// Output matrix.
    pub c: Mat<f64>,
}

/// A system in two parts.
#[derive(Debug, Clone)]
pub struct Split {
    /// The part with the poles inside the circle, and the direct term.
    pub stable: LinearSystem,
    /// The other part; without states where the system is stable.
    pub kept: Kept,
}

/// Splits a system in discrete time. A stable one stays as it is.
///
/// # Errors
/// Shapes that do not fit; poles of both parts too close to be told apart.
pub fn split(a: StateMatrix, b: Mat<f64>, c: Mat<f64>, d: Option<Mat<f64>>) -> Result<Split> {
    let system = LinearSystem::with_any_poles(a, b, c, d)?;
    if let Some(modes) = system.a().modes() {
        let states = |of_stable: bool| {
            let mut first = 0;
            let mut found = Vec::new();
            for mode in &modes {
                if (mode.pole().radius < 1.0) == of_stable {
                    found.extend(first..first + mode.states());
                }
                first += mode.states();
            }
            found
        };
        let form = |of_stable: bool| {
            let chosen: Vec<Mode> = modes.iter().copied().filter(|m| (m.pole().radius < 1.0) == of_stable).collect();
            match system.a() {
                StateMatrix::Diagonal(_) => StateMatrix::Diagonal(
                    chosen.iter().map(|mode| if let Mode::Real(a) = mode { *a } else { 0.0 }).collect(),
                ),
                _ => StateMatrix::Modal(chosen),
            }
        };
        let part = |of_stable: bool| {
            let at = states(of_stable);
            let b = Mat::from_fn(at.len(), system.inputs(), |i, j| system.b()[(at[i], j)]);
            let c = Mat::from_fn(system.outputs(), at.len(), |i, j| system.c()[(i, at[j])]);
            (form(of_stable), b, c)
        };
        let (a, b, c) = part(true);
        let stable = LinearSystem::new(a, b, c, system.d().map(|d| d.to_owned()))?;
        let (a, b, c) = part(false);
        return Ok(Split { stable, kept: Kept { a, b, c } });
    }
    split_dense(system)
}

/// The parts of a system whose first `kept` states are apart from the others, as reductions are written; `None` where they are not, or
/// where the others are not stable.
///
/// # Errors
/// Shapes that do not fit.
pub fn split_leading(
    a: &StateMatrix,
    b: &Mat<f64>,
    c: &Mat<f64>,
    d: Option<&Mat<f64>>,
    kept: usize,
) -> Result<Option<Split>> {
    let (whole, n) = (a.to_dense(), a.states());
    check_shape("B", b.as_ref(), (n, b.ncols()))?;
    check_shape("C", c.as_ref(), (c.nrows(), n))?;
    let apart = (0..n).all(|j| (0..n).all(|i| (i < kept) == (j < kept) || whole[(i, j)] == 0.0));
    if kept > n || !apart {
        return Ok(None);
    }
    let block = |first: usize, states: usize| {
        StateMatrix::from_square(whole.submatrix(first, first, states, states).to_owned())
    };
    let (b_s, c_s) = (b.subrows(kept, n - kept).to_owned(), c.subcols(kept, n - kept).to_owned());
    match LinearSystem::new(block(kept, n - kept), b_s, c_s, d.cloned()) {
        Ok(stable) => {
            let (b, c) = (b.subrows(0, kept).to_owned(), c.subcols(0, kept).to_owned());
            Ok(Some(Split { stable, kept: Kept { a: block(0, kept), b, c } }))
        }
        Err(LtiError::Unstable { .. }) => Ok(None),
        Err(other) => Err(other),
    }
}

fn split_dense(system: LinearSystem) -> Result<Split> {
    let a = system.a().to_dense();
    let n = a.nrows();
    let nothing = Kept {
        a: StateMatrix::Diagonal(Vec::new()),
        b: Mat::zeros(0, system.inputs()),
        c: Mat::zeros(system.outputs(), 0),
    };
    // In the units of the file rounding may hide an integrator.
    let suitable = suitable_units(a.as_ref(), system.b(), system.c(), 1.0);
    let suited = Mat::from_fn(n, n, |i, j| a[(i, j)] / suitable[i] * suitable[j]);
    let (even, evened) = in_even_units(suited.as_ref());
    let units: Vec<f64> = evened.iter().zip(&suitable).map(|(even, suitable)| even * suitable).collect();
    // Rounding of A moves poles by about this. Poles that are more than a thousand times as far inside the circle have a distance, and so
    // a gain, that is known to three digits. If all are, the system is stable as it is; else each pole is looked at.
    let rounding = n as f64 * f64::EPSILON * even.norm_l2().max(1.0);
    let (least, most) =
        suitable.iter().fold((f64::MAX, 0.0_f64), |(low, high), unit| (low.min(*unit), high.max(*unit)));
    // Those that the system has already, where its units are not far apart.
    let own = if most <= FAR_APART * least { system.eigenvalues() } else { eigenvalues(even.as_ref())? };
    if own.iter().all(|pole| pole.norm() < 1.0 - 1e3 * rounding) {
        return Ok(Split { stable: system.stable()?, kept: nothing });
    }
    // That of the bilinear map is as large as the matrix in the units in which it is made.
    let before = n as f64 * f64::EPSILON * suited.norm_l2().max(1.0);
    let (poles, moved) = poles_and_their_rounding(&even, rounding, (before, &evened))?;
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| poles[*a].norm().total_cmp(&poles[*b].norm()));
    let moduli: Vec<f64> = order.iter().map(|i| poles[*i].norm()).collect();
    // Of a pole of multiplicity k rounding makes k poles a k-th root of itself apart.
    let is_kept = |i: usize| moduli[i] >= 1.0 - MARGIN.max((CLUSTER * moved[order[i]]).min(FARTHEST));
    let inside = (0..n).find(|i| is_kept(*i)).unwrap_or(n);
    let parts = match leading_block(&a, n - inside)? {
        Some(exact) => exact,
        None if inside == 0 => (Mat::identity(n, n), Mat::identity(n, n), Mat::zeros(0, n), Mat::zeros(n, 0)),
        None => {
            let (l_k, r_k, l_s, r_s) = projections(&even, inside, between(moduli[inside - 1], moduli[inside]))?;
            let left = |l: Mat<f64>| Mat::from_fn(l.nrows(), n, |i, j| l[(i, j)] / units[j]);
            let right = |r: Mat<f64>| Mat::from_fn(n, r.ncols(), |i, j| r[(i, j)] * units[i]);
            (left(l_k), right(r_k), left(l_s), right(r_s))
        }
    };
    let (left_kept, right_kept, left, right) = parts;
    let of = |left: &Mat<f64>, right: &Mat<f64>| {
        let within = product(left.as_ref(), product(a.as_ref(), right.as_ref()).as_ref());
        (within, product(left.as_ref(), system.b()), product(system.c(), right.as_ref()))
    };
    let (a, b, c) = of(&left, &right);
    let stable = LinearSystem::new(StateMatrix::from_square(a), b, c, system.d().map(|d| d.to_owned()));
    let stable = stable.map_err(|error| match error {
        // A pole of the part, not of the system.
        LtiError::Unstable { .. } => LtiError::Unsupported(
            "its stable part cannot be told from the others: A is so far from normal that rounding moves poles across the stability \
             boundary"
                .into(),
        ),
        other => other,
    })?;
    let (a, b, c) = of(&left_kept, &right_kept);
    let kept = Kept { a: StateMatrix::Dense(a), b, c };
    check_sum(&system, &stable, &kept)?;
    Ok(Split { stable, kept })
}

/// The poles of a matrix, and what rounding of it moves each by to first order: its condition number, `1 / |w^T v|` of its left and right
/// eigenvectors of unit length, times as far; the more of `rounding` and of that in other units, in which a state is so many times as large.
pub(crate) fn poles_and_their_rounding(
    a: &Mat<f64>,
    rounding: f64,
    other: (f64, &[f64]),
) -> Result<(Vec<c64>, Vec<f64>)> {
    let ((poles, right), (others, left)) = (eigenvectors(a.as_ref())?, eigenvectors(a.transpose())?);
    // Of a pair that of the pole above the axis.
    let vector = |values: &[c64], vectors: &Mat<f64>, at: usize| -> Vec<c64> {
        let first = if values[at].im < 0.0 { at - 1 } else { at };
        let im = |k: usize| if values[at].im == 0.0 { 0.0 } else { vectors[(k, first + 1)] };
        (0..vectors.nrows()).map(|k| c64::new(vectors[(k, first)], im(k))).collect()
    };
    let mut moved = Vec::with_capacity(poles.len());
    for (at, pole) in poles.iter().enumerate() {
        let nearest =
            (0..others.len()).min_by(|i, j| (others[*i] - pole).norm().total_cmp(&(others[*j] - pole).norm()));
        let (v, w) = (vector(&poles, &right, at), vector(&others, &left, nearest.expect("as many as poles")));
        let cosine = v.iter().zip(&w).map(|(v, w)| v * w).sum::<c64>().norm();
        let length = |vector: &[c64], unit: &dyn Fn(usize) -> f64| {
            vector.iter().enumerate().map(|(i, x)| (x.norm() * unit(i)).powi(2)).sum::<f64>().sqrt()
        };
        let (before, units) = other;
        let lengths = length(&v, &|i| units[i]) * length(&w, &|i| 1.0 / units[i]);
        let far = rounding.max(before * lengths) / cosine;
        // Eigenvectors that are not known are those of a pole that rounding has moved.
        moved.push(if far.is_finite() { far } else { f64::INFINITY });
    }
    Ok((poles, moved))
}

/// Checks that both parts together are the system: of a matrix far from normal, rounding can leave nothing of it.
fn check_sum(system: &LinearSystem, stable: &LinearSystem, kept: &Kept) -> Result<()> {
    let kept = LinearSystem::with_any_poles(kept.a.clone(), kept.b.clone(), kept.c.clone(), None)?;
    let missing = FrequencyResponse::direct(&system.difference(stable)?.difference(&kept)?);
    let (whole, reduced) = (FrequencyResponse::direct(system), FrequencyResponse::direct(stable));
    // Not at 0 and pi, where integrators have no gain that is finite. Poles of a system that is sampled fast are all near 1, and its
    // gain at larger angles is nothing but rounding: at their own angles and rates it is not.
    let mut angles: Vec<f64> = (0..SAMPLES).map(|i| (i as f64 + 0.5) / SAMPLES as f64 * PI).collect();
    angles.extend(stable.eigenvalues().into_iter().map(angle_of));
    let gains: Vec<[f64; 3]> = angles
        .into_iter()
        .map(|angle| Ok([missing.gain(angle)?, whole.gain(angle)?, reduced.gain(angle)?]))
        .collect::<Result<_>>()?;
    // What a reduction can lose is a share of the stable part.
    let most = gains.iter().map(|[_, _, stable]| *stable).fold(0.0, f64::max);
    // False also where a gain is NaN.
    let agrees = |[missing, whole, _]: &[f64; 3]| *missing <= SUM * (whole + most);
    match gains.iter().find(|gains| !agrees(gains)) {
        None => Ok(()),
        Some([missing, whole, _]) => Err(LtiError::Unsupported(format!(
            "its stable part cannot be told from the others: A is so far from normal that rounding makes the sum of both parts miss its gain of {whole:.1e} by {missing:.1e}"
        ))),
    }
}

/// Where the gain of a pole begins to fall: that far from its own end of the circle.
fn angle_of(pole: c64) -> f64 {
    let (angle, rate) = (pole.arg().abs(), 1.0 - pole.norm());
    if angle <= FRAC_PI_2 { angle.max(rate) } else { PI - (PI - angle).max(rate) }
}

/// A radius between two moduli, well away from both, and from 0.
fn between(inner: f64, outer: f64) -> f64 {
    (inner.max(0.25 * outer) * outer).sqrt()
}

type Bases = (Mat<f64>, Mat<f64>, Mat<f64>, Mat<f64>);

/// The parts of a matrix whose first `kept` states are apart from the others already, and outside: as reductions are written.
fn leading_block(a: &Mat<f64>, kept: usize) -> Result<Option<Bases>> {
    let n = a.nrows();
    let apart = (0..n).all(|j| (0..n).all(|i| (i < kept) == (j < kept) || a[(i, j)] == 0.0));
    if !apart || eigenvalues(a.submatrix(0, 0, kept, kept))?.iter().any(|l| l.norm() < 1.0 - MARGIN) {
        return Ok(None);
    }
    let identity = Mat::<f64>::identity(n, n);
    Ok(Some((
        identity.subrows(0, kept).to_owned(),
        identity.subcols(0, kept).to_owned(),
        identity.subrows(kept, n - kept).to_owned(),
        identity.subcols(kept, n - kept).to_owned(),
    )))
}

/// `(L_k, R_k, L_s, R_s)` with `L R = 1` within each part and `L_k A R_s = L_s A R_k = 0`.
fn projections(a: &Mat<f64>, inside: usize, radius: f64) -> Result<Bases> {
    let n = a.nrows();
    let identity = Mat::<f64>::identity(n, n);
    let scaled = a * Scale(1.0 / radius);
    let s = (&scaled - &identity).partial_piv_lu().solve(&scaled + &identity);
    let sign = sign(&s)?;
    let outside = (&identity + &sign) * Scale(0.5);
    let within = (&identity - &sign) * Scale(0.5);
    let trace: f64 = (0..n).map(|i| within[(i, i)]).sum();
    if (trace - inside as f64).abs() > OFF {
        return Err(LtiError::Unsupported(
            "its stable part cannot be told from the others: beside the rounding of A, poles lie too near the stability boundary on both \
             sides of it"
                .into(),
        ));
    }
    let basis = |m: &Mat<f64>, count: usize| m.col_piv_qr().compute_thin_Q().subcols(0, count).to_owned();
    let mut basis = beside(basis(&outside, n - inside).as_ref(), basis(&within, inside).as_ref());
    let kept = n - inside;
    for _ in 0..REFINEMENTS {
        basis = apart(a, &basis, kept);
    }
    let inverse = invert(basis.as_ref());
    let rows = |first: usize, count: usize| inverse.subrows(first, count).to_owned();
    let columns = |first: usize, count: usize| basis.subcols(first, count).to_owned();
    Ok((rows(0, kept), columns(0, kept), rows(kept, inside), columns(kept, inside)))
}

/// A basis of two invariant subspaces, of which the first has `kept` vectors, brought nearer to them by a step of Newton's method:
///
/// ```text
/// T^-1 A T = [A_k E; F A_s]     A_k X - X A_s = -E     A_s Y - Y A_k = -F     T [1 X; Y 1]
/// ```
///
/// As it is where the equations are too large to be solved as linear systems.
fn apart(a: &Mat<f64>, basis: &Mat<f64>, kept: usize) -> Mat<f64> {
    let n = a.nrows();
    let inside = n - kept;
    if kept * inside > MOST_UNKNOWNS {
        return basis.clone();
    }
    let inner = product(invert(basis.as_ref()).as_ref(), product(a.as_ref(), basis.as_ref()).as_ref());
    let block = |i: usize, j: usize, rows: usize, columns: usize| inner.submatrix(i, j, rows, columns);
    let (a_k, a_s) = (block(0, 0, kept, kept), block(kept, kept, inside, inside));
    let mut step = Mat::<f64>::identity(n, n);
    step.submatrix_mut(0, kept, kept, inside).copy_from(sylvester(a_k, a_s, block(0, kept, kept, inside)));
    step.submatrix_mut(kept, 0, inside, kept).copy_from(sylvester(a_s, a_k, block(kept, 0, inside, kept)));
    let moved = product(basis.as_ref(), step.as_ref());
    if moved.is_all_finite() { moved } else { basis.clone() }
}

/// X with `P X - X Q = -E`.
fn sylvester(p: MatRef<'_, f64>, q: MatRef<'_, f64>, e: MatRef<'_, f64>) -> Mat<f64> {
    let (rows, columns) = (p.nrows(), q.nrows());
    let place = |i: usize, j: usize| i + rows * j;
    let mut equations = Mat::<f64>::zeros(rows * columns, rows * columns);
    for (i, j) in (0..columns).flat_map(|j| (0..rows).map(move |i| (i, j))) {
        (0..rows).for_each(|k| equations[(place(i, j), place(k, j))] += p[(i, k)]);
        (0..columns).for_each(|k| equations[(place(i, j), place(i, k))] -= q[(k, j)]);
    }
    let right = Mat::from_fn(rows * columns, 1, |at, _| -e[(at % rows, at / rows)]);
    let found = equations.partial_piv_lu().solve(&right);
    Mat::from_fn(rows, columns, |i, j| found[(place(i, j), 0)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::norms::hinf_sweep;

    /// A double integrator, an unstable pole and three stable ones, mixed by a change of coordinates.
    #[test]
    fn integrators_and_unstable_poles_are_kept() {
        let blocks = Mat::from_fn(6, 6, |i, j| match (i, j) {
            (0, 0 | 1) | (1, 1) => 1.0,
            (2, 2) => 1.3,
            (3, 3) | (4, 4) => 0.6,
            (3, 4) => -0.5,
            (4, 3) => 0.5,
            (5, 5) => -0.2,
            _ => 0.0,
        });
        let t = Mat::from_fn(6, 6, |i, j| ((3 * i + 2 * j) as f64).sin() + if i == j { 3.0 } else { 0.0 });
        let a = product(
            product(t.as_ref(), blocks.as_ref()).as_ref(),
            t.partial_piv_lu().solve(Mat::<f64>::identity(6, 6)).as_ref(),
        );
        let b = Mat::from_fn(6, 2, |i, j| 1.0 / (1.0 + (i + j) as f64));
        let c = Mat::from_fn(1, 6, |_, j| 1.0 - 0.1 * j as f64);
        let parts = split(StateMatrix::Dense(a.clone()), b.clone(), c.clone(), None).unwrap();
        assert_eq!((parts.kept.a.states(), parts.stable.states()), (3, 3));
        // The Markov parameters of the sum are those of the system.
        let markov = |a: &Mat<f64>, b: &Mat<f64>, c: &Mat<f64>| -> Vec<f64> {
            let mut x = b.clone();
            (0..8)
                .map(|_| {
                    let y = (c * &x)[(0, 0)];
                    x = a * &x;
                    y
                })
                .collect()
        };
        let (whole, kept) = (markov(&a, &b, &c), markov(&parts.kept.a.to_dense(), &parts.kept.b, &parts.kept.c));
        let stable = markov(&parts.stable.a().to_dense(), &parts.stable.b().to_owned(), &parts.stable.c().to_owned());
        for ((whole, kept), stable) in whole.iter().zip(kept).zip(stable) {
            assert!((whole - kept - stable).abs() < 1e-10 * whole.abs().max(1.0), "{whole} {kept} {stable}");
        }
    }

    /// Integrators of multiplicity k in general coordinates.
    #[test]
    fn integrators_of_higher_order_are_kept_whole() {
        for k in 1..=4 {
            for seed in 0..6 {
                let n = k + 3;
                let blocks = Mat::from_fn(n, n, |i, j| match (i, j) {
                    (i, j) if i == j => [0.6, 0.3, -0.4].get(i.wrapping_sub(k)).copied().unwrap_or(1.0),
                    (i, j) if j == i + 1 && j < k => 1.0,
                    _ => 0.0,
                });
                let general =
                    Mat::from_fn(n, n, |i, j| ((7 * i + 5 * j + 11 * seed) as f64).sin() + f64::from(u8::from(i == j)));
                let q = general.qr().compute_thin_Q();
                let a = product(product(q.as_ref(), blocks.as_ref()).as_ref(), q.transpose());
                let (b, c) = (Mat::from_fn(n, 1, |i, _| 1.0 + i as f64), Mat::from_fn(1, n, |_, j| 2.0 - j as f64));
                let parts = split(StateMatrix::Dense(a), b, c, None).unwrap_or_else(|e| panic!("{k} {seed}: {e}"));
                assert_eq!((parts.kept.a.states(), parts.stable.states()), (k, 3), "{k} {seed}");
            }
        }
    }

    /// States in units of their own are no other system: as many poles are kept, and the stable part has the same gain.
    #[test]
    fn units_of_states_change_nothing() {
        // A chain with an integrator, and poles 0.5 and 0.9995.
        let entries = [[1.0, 0.3, 0.2], [0.0, 0.9995, -0.4], [0.0, 0.0, 0.5]];
        let t = [[1.0, 0.5, 0.2], [-0.3, 1.0, 0.4], [0.1, -0.2, 1.0]];
        let (a, t) = (Mat::from_fn(3, 3, |i, j| entries[i][j]), Mat::from_fn(3, 3, |i, j| t[i][j]));
        let a = product(product(t.as_ref(), a.as_ref()).as_ref(), invert(t.as_ref()).as_ref());
        let gain = |units: [f64; 3]| {
            let a = Mat::from_fn(3, 3, |i, j| a[(i, j)] * units[i] / units[j]);
            let b = Mat::from_fn(3, 1, |i, _| units[i] / (1.0 + i as f64));
            let c = Mat::from_fn(1, 3, |_, j| (1.0 + j as f64) / units[j]);
            let parts = split(StateMatrix::Dense(a), b, c, None).unwrap();
            assert_eq!((parts.kept.a.states(), parts.stable.states()), (1, 2));
            hinf_sweep(&FrequencyResponse::new(&parts.stable)).unwrap().value
        };
        let expected = gain([1.0; 3]);
        for units in [[1e9, 1.0, 1e-6], [3e-12, 1.0, 7e11], [1.0, 1e-15, 1.0]] {
            let found = gain(units);
            assert!((found / expected - 1.0).abs() < 1e-9, "{units:?}: {found} {expected}");
        }
    }

    /// `1 / (s (s + 10))` and `1 / (s^2 (s + 10))`, held over steps of h, in any units: of the partial fractions -0.1 / (s + 10) and
    /// 0.01 / (s + 10) are stable.
    #[test]
    fn integrators_sampled_fast_are_split_in_any_units() {
        for h in [1e-1, 1e-2, 1e-3, 1e-4, 1e-5] {
            let lag = -f64::exp_m1(-10.0 * h) / 10.0;
            // Integrals of it, whose first terms cancel.
            let series = |first: i32| -> f64 {
                let term = |k: i32| (-10.0_f64).powi(k - first) * h.powi(k) / (1..=k).map(f64::from).product::<f64>();
                (first..first + 25).map(term).sum()
            };
            let (second, third) = (series(2), series(3));
            let a = [[1.0, h, second], [0.0, 1.0, lag], [0.0, 0.0, 1.0 - 10.0 * lag]];
            let b = [third, second, lag];
            for (first, gain) in [(1, 0.01), (0, 0.001)] {
                for units in [[1.0; 3], [1e6, 1.0, 1e-6], [1e-6, 1.0, 1e6], [1.0, 1e-9, 1.0], [1e9, 1e-9, 1.0]] {
                    let states = 3 - first;
                    let of = |i: usize| units[i + first];
                    let a = Mat::from_fn(states, states, |i, j| a[i + first][j + first] * of(i) / of(j));
                    let b = Mat::from_fn(states, 1, |i, _| b[i + first] * of(i));
                    let c = Mat::from_fn(1, states, |_, j| if j == 0 { 1.0 / of(0) } else { 0.0 });
                    let parts =
                        split(StateMatrix::Dense(a), b, c, None).map_err(|e| format!("{h} {units:?}: {e}")).unwrap();
                    assert_eq!(parts.kept.a.states(), states - 1, "{h} {units:?}");
                    let found = hinf_sweep(&FrequencyResponse::new(&parts.stable)).unwrap().value;
                    assert!((found / gain - 1.0).abs() < 1e-5, "{h} {units:?}: {found} {gain}");
                }
            }
        }
    }

    /// `1 / (s (s + 10) (s^2 + 2 s + 400))` in controller form, its states in units 1,000 apart, held over steps of 1 ms.
    #[test]
    fn an_integrator_in_units_far_apart_is_kept() {
        let a = [
            [9.878_627_300e-1, -4.194_527_107e-4, -3.975_816_729e-6, 0.0],
            [9.939_541_823e-1, 9.997_901_802e-1, -1.991_954_146e-6, 0.0],
            [4.979_885_364e-1, 9.999_300_447e-1, 9.999_993_353e-1, 0.0],
            [1.661_643_727e-1, 4.999_825_089e-1, 9.999_998_337e-1, 1.0],
        ];
        let b = [9.939_541_823e-4, 4.979_885_364e-4, 1.661_643_727e-4, 4.156_628_420e-5];
        let a = Mat::from_fn(4, 4, |i, j| a[i][j]);
        let b = Mat::from_fn(4, 1, |i, _| b[i]);
        let with_delays = |delays: usize| {
            let n = 4 + delays;
            let entry = |i: usize, j: usize| match (i, j) {
                (i, j) if i < 4 && j < 4 => a[(i, j)],
                (i, 4) if i < 4 => b[(i, 0)],
                (i, j) if i >= 4 && j == i + 1 => 1.0,
                _ => 0.0,
            };
            let input = |i: usize| if delays == 0 { b[(i, 0)] } else { f64::from(u8::from(i + 1 == n)) };
            let (a, b) = (Mat::from_fn(n, n, entry), Mat::from_fn(n, 1, |i, _| input(i)));
            (a, b, Mat::from_fn(1, n, |_, j| if j == 3 { 1e-9 } else { 0.0 }))
        };
        for delays in 0..4 {
            let (a, b, c) = with_delays(delays);
            let parts = split(StateMatrix::Dense(a), b, c, None).unwrap_or_else(|e| panic!("{delays}: {e}"));
            assert_eq!((parts.kept.a.states(), parts.stable.states()), (1, 3 + delays));
            assert!((parts.kept.a.to_dense()[(0, 0)] - 1.0).abs() < 1e-14);
        }
    }

    #[test]
    fn parts_whose_sum_is_another_system_are_refused() {
        let a = StateMatrix::Dense(Mat::from_fn(2, 2, |i, j| [[1.5, 1.0], [0.0, 0.5]][i][j]));
        let (b, c) = (Mat::from_fn(2, 1, |_, _| 1.0), Mat::from_fn(1, 2, |_, _| 1.0));
        let system = LinearSystem::with_any_poles(a, b, c, None).unwrap();
        let Split { stable, mut kept } = split_dense(system.clone()).unwrap();
        check_sum(&system, &stable, &kept).unwrap();
        kept.b *= Scale(1.0 + 1e-4);
        let refused = check_sum(&system, &stable, &kept).unwrap_err().to_string();
        assert!(refused.contains("so far from normal"), "{refused}");
        kept.b *= Scale(f64::NAN);
        assert!(check_sum(&system, &stable, &kept).is_err());
    }

    #[test]
    fn a_stable_system_stays_as_it_is_and_modes_are_taken_apart_exactly() {
        let modal = StateMatrix::Modal(vec![Mode::Real(1.0), Mode::Real(0.5), Mode::Pair { radius: 1.1, angle: 1.0 }]);
        let (b, c) = (Mat::from_fn(4, 1, |i, _| i as f64 + 1.0), Mat::from_fn(1, 4, |_, j| j as f64 - 1.0));
        let parts = split(modal, b, c, None).unwrap();
        assert_eq!(parts.kept.a, StateMatrix::Modal(vec![Mode::Real(1.0), Mode::Pair { radius: 1.1, angle: 1.0 }]));
        assert_eq!(parts.kept.b.col_as_slice(0), [1.0, 3.0, 4.0]);
        let again =
            split(parts.stable.a().clone(), parts.stable.b().to_owned(), parts.stable.c().to_owned(), None).unwrap();
        assert_eq!((again.stable, again.kept.a.states()), (parts.stable.clone(), 0));
        assert_eq!(hinf_sweep(&FrequencyResponse::new(&parts.stable)).unwrap().value, 0.0);
    }
}
