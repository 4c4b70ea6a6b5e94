//! Approximation optimal in the H2 norm, by two-sided iteration from balanced truncation, and from the modes of `modal` and `energy`.
//!
//! ```text
//! A X A_r^T - X + B B_r^T = 0     A^T Y A_r - Y + C^T C_r = 0
//! V = orth(X)   W = orth(Y)   L = (W^T V)^-1 W^T   R = V      A_r <- L A R   B_r <- L B   C_r <- C R
//! ```
//!
//! A fixed point meets the first-order conditions for `||G - G_r||_2` to be least (D. A. Wilson 1970; in discrete time P. Van Dooren,
//! K. A. Gallivan and P.-A. Absil, Appl. Math. Letters 21 (2008)): with `P_r` and `Q_r` the Gramians of the reduced system,
//! `Q_r B_r = Y^T B`, `C_r P_r = C X` and `Q_r A_r P_r = Y^T A X`. The iteration is TSIA (Y. Xu and T. Zeng, Int. J. Numer. Anal. Model. 8 (2011)), which
//! computes what IRKA does (S. Gugercin, A. C. Antoulas and C. Beattie, SIAM J. Matrix Anal. Appl. 30 (2008)) without eigenvectors. It
//! need not descend: the best of all iterates and starts is kept, balanced truncation where none is better. The optimum found is a local one. The
//! H-infinity error has no bound.
//!
//! The bilinear map does not keep H2 norms. In continuous time ([`reduce_continuous`]) the projections are those of the continuous
//! matrices; X and Y, which are blocks of Gramians, are still those of the images. Since `(z - A_d)^-1 B_d = (rate - i omega) / sqrt(2 rate)
//! (i omega - A)^-1 B`, the H2 norm of a strictly proper `(A, B, C)` is that of the image `(A_d, B_d, C)` with C left as it is.

use super::{Accepts, Bound, Definition, Method, Projection, Reduced, bt, energy, modal, project};
use crate::continuous::Continuous;
use crate::linalg::{compress_columns, product};
use crate::norms::h2_norm;
use crate::stein::{Powers, stein_factor};
use crate::{HankelSpectrum, LinearSystem, LtiError, Result, StateMatrix};
use faer::Mat;
use faer::linalg::solvers::Solve;

/// H2-optimal approximation.
pub const METHOD: Method = Method(&Definition {
    name: "h2",
    summary: "Smallest H2 error (mean square under white noise) found from bt, modal and energy; never above theirs (no H-infinity bound)",
    bound: Bound::None,
    bounds: None,
    gramians: Accepts::AnalyticOrWeighted,
    direct_term: false,
    reduce,
});

const ITERATIONS: usize = 200;

/// Relative change of the squared error, measured against the system's, at which the iteration has settled.
const SETTLED: f64 = 1e-14;

fn reduce(system: &LinearSystem, spectrum: &HankelSpectrum, order: usize) -> Result<Reduced> {
    let starts = starts(system, spectrum, order)?;
    // An orthogonal change of inputs and outputs leaves the norm as it is.
    let (b, c) = (compress_columns(system.b()), compress_columns(system.c().transpose()).transpose().to_owned());
    let full = Image { a: system.a().to_dense(), b, measured: c.clone(), c };
    let projected = |left: &Mat<f64>, right: &Mat<f64>| {
        let a = product(left.as_ref(), product(full.a.as_ref(), right.as_ref()).as_ref());
        let (b, c) = (product(left.as_ref(), full.b.as_ref()), product(full.c.as_ref(), right.as_ref()));
        Some(Image { a, b, measured: c.clone(), c })
    };
    let found = search_from(&full, &starts, projected);
    let found = found.into_iter().filter_map(|Projection { left, right }| project(system, left, right, None).ok());
    best(starts, found, |reduced| h2_norm(&system.difference(&reduced.system)?))
}

/// As [`METHOD`] does, for the H2 norm in continuous time. `image` is the system in discrete time, with its Hankel singular values; the
/// reduced system is an image, too, and its projection is to be applied to the continuous matrices.
///
/// # Errors
/// Those of balanced truncation.
pub fn reduce_continuous(
    image: &LinearSystem,
    continuous: &Continuous,
    spectrum: &HankelSpectrum,
    order: usize,
) -> Result<Reduced> {
    let image_of = |projection: Projection| -> Result<Reduced> {
        let (a, b, c) = continuous.projected(&projection.left, &projection.right);
        let (a, b, c, d) =
            continuous.map.discrete(&StateMatrix::Dense(a), b.as_ref(), c.as_ref(), Some(continuous.d.as_ref()))?;
        let system = LinearSystem::new(a, b, c, Some(d))?;
        Ok(Reduced { system, projection: Some(projection), bound: None, kept: None })
    };
    let mut projections = starts(image, spectrum, order)?.into_iter().filter_map(|start| start.projection);
    let Some(balanced) = projections.next() else { return (bt::METHOD.0.reduce)(image, spectrum, order) };
    let mut starts = vec![image_of(balanced)?];
    starts.extend(projections.filter_map(|start| image_of(start).ok()));
    let small = Continuous {
        b: compress_columns(continuous.b.as_ref()),
        c: compress_columns(continuous.c.transpose()).transpose().to_owned(),
        ..continuous.clone()
    };
    let image_of_matrices = |a: &StateMatrix, b: Mat<f64>, measured: Mat<f64>| -> Result<Image> {
        let (a, b, c, _) = small.map.discrete(a, b.as_ref(), measured.as_ref(), None)?;
        Ok(Image { a: a.to_dense(), b, c, measured })
    };
    let full = image_of_matrices(&small.a, small.b.clone(), small.c.clone())?;
    let projected = |left: &Mat<f64>, right: &Mat<f64>| {
        let (a, b, c) = small.projected(left, right);
        image_of_matrices(&StateMatrix::Dense(a), b, c).ok()
    };
    let found = search_from(&full, &starts, projected).into_iter().filter_map(|found| image_of(found).ok());
    let proper = image.with_outputs_only(continuous.c.clone());
    best(starts, found, |reduced| {
        let Some(Projection { right, .. }) = &reduced.projection else { return Ok(f64::INFINITY) };
        let c = product(continuous.c.as_ref(), right.as_ref());
        h2_norm(&proper.difference(&reduced.system.with_outputs_only(c))?)
    })
}

/// What the iteration starts from: balanced truncation, then the modes that `modal` and `energy` keep, where there are any.
fn starts(system: &LinearSystem, spectrum: &HankelSpectrum, order: usize) -> Result<Vec<Reduced>> {
    let mut starts = vec![super::reduce(system, spectrum, bt::METHOD, order)?];
    if order > 0 && order < system.states() {
        let modes = [modal::METHOD, energy::METHOD].map(|method| super::reduce(system, spectrum, method, order));
        starts.extend(modes.into_iter().flatten());
    }
    starts.iter_mut().for_each(|start| start.bound = None);
    Ok(starts)
}

/// What the iteration finds from every start; nothing where all states are kept, or none.
fn search_from(
    full: &Image,
    starts: &[Reduced],
    projected: impl Fn(&Mat<f64>, &Mat<f64>) -> Option<Image>,
) -> Vec<Projection> {
    if matches!(starts, [only] if only.system.states() == 0 || only.system.states() == full.a.nrows()) {
        return Vec::new();
    }
    let powers = Powers::of(full.a.as_ref());
    starts.iter().filter_map(|start| search(full, &powers, start, &projected)).collect()
}

/// The reduction of the least error; the first start, where no other is better.
fn best(
    starts: Vec<Reduced>,
    found: impl Iterator<Item = Reduced>,
    error: impl Fn(&Reduced) -> Result<f64>,
) -> Result<Reduced> {
    let mut candidates = starts.into_iter().chain(found);
    let mut best = candidates.next().ok_or(LtiError::NoStates)?;
    let mut least = error(&best)?;
    for candidate in candidates {
        if let Ok(error) = error(&candidate)
            && error < least
        {
            (least, best) = (error, candidate);
        }
    }
    Ok(best)
}

/// A system as the iteration sees it.
struct Image {
    a: Mat<f64>,
    b: Mat<f64>,
    c: Mat<f64>,
    /// The output matrix with which its H2 norm is the one that counts.
    measured: Mat<f64>,
}

/// The best projection of the iteration, if one is better than the start. `projected` is the image of a projected system.
fn search(
    full: &Image,
    powers: &Powers,
    start: &Reduced,
    projected: &impl Fn(&Mat<f64>, &Mat<f64>) -> Option<Image>,
) -> Option<Projection> {
    let Projection { left, right } = start.projection.as_ref()?;
    let (mut left, mut right) = (left.clone(), right.clone());
    let mut best: Option<(f64, Projection)> = None;
    let (mut start_cost, mut previous) = (f64::INFINITY, f64::INFINITY);
    for iteration in 0..=ITERATIONS {
        let Some(Image { a: a_r, b: b_r, c: c_r, measured }) = projected(&left, &right) else { break };
        let stable = StateMatrix::Dense(a_r.clone()).spectral_radius().is_ok_and(|radius| radius < 1.0);
        if !stable {
            break;
        }
        let Ok(factor) = stein_factor(a_r.as_ref(), b_r.as_ref()) else { break };
        let x = powers.sylvester(product(full.b.as_ref(), b_r.transpose()).as_ref(), a_r.transpose());
        // ||G - G_r||^2 = ||G||^2 + ||G_r||^2 - 2 <G, G_r>, without the part that does not change.
        let size = product(measured.as_ref(), factor.as_ref()).norm_l2().powi(2);
        let both = product(measured.transpose(), product(full.measured.as_ref(), x.as_ref()).as_ref());
        let inner: f64 = (0..both.nrows()).map(|i| both[(i, i)]).sum();
        let cost = size - 2.0 * inner;
        if !cost.is_finite() {
            break;
        }
        if iteration == 0 {
            start_cost = cost;
        } else if cost < best.as_ref().map_or(start_cost, |best| best.0) {
            best = Some((cost, Projection { left: left.clone(), right: right.clone() }));
        }
        if (previous - cost).abs() <= SETTLED * cost.abs() {
            break;
        }
        previous = cost;
        let y = powers.transposed_sylvester(product(full.c.transpose(), c_r.as_ref()).as_ref(), a_r.as_ref());
        let (w, v) = (y.qr().compute_thin_Q(), x.qr().compute_thin_Q());
        left = product(w.transpose(), v.as_ref()).partial_piv_lu().solve(w.transpose());
        right = v;
        if !left.norm_max().is_finite() {
            break;
        }
    }
    best.map(|best| best.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GramianFactors, Mode};

    /// Where the modes hardly overlap, the best of them are a better start than balanced truncation of one state.
    #[test]
    fn it_is_never_worse_than_balanced_truncation_or_the_best_modes() {
        for seed in 0..20 {
            let number = |i: usize| ((i * (seed + 3)) as f64 + 0.7 * seed as f64).sin();
            let pair = |i: usize| Mode::Pair { radius: 0.9 + 0.09 * number(i), angle: 0.3 + 0.8 * i as f64 };
            let a = StateMatrix::Modal(vec![pair(0), pair(1), pair(2), Mode::Real(0.5)]);
            let (b, c) = (Mat::from_fn(7, 1, |i, _| number(10 + i)), Mat::from_fn(1, 7, |_, j| number(20 + j)));
            let system = LinearSystem::new(a, b, c, None).unwrap();
            let spectrum = HankelSpectrum::new(&GramianFactors::analytic(&system).unwrap()).unwrap();
            for order in 1..7 {
                let error = |method| {
                    let reduced = super::super::reduce(&system, &spectrum, method, order).unwrap();
                    h2_norm(&system.difference(&reduced.system).unwrap()).unwrap()
                };
                let found = error(METHOD);
                for other in [bt::METHOD, modal::METHOD, energy::METHOD] {
                    assert!(found <= error(other) * (1.0 + 1e-12), "{seed} {order} {}", other.name());
                }
            }
        }
    }

    #[test]
    fn the_first_order_conditions_hold() {
        let a = StateMatrix::Diagonal(vec![0.95, 0.8, -0.6, 0.3, 0.1]);
        let b = Mat::from_fn(5, 2, |i, j| ((2 * i + 3 * j) as f64).cos());
        let c = Mat::from_fn(2, 5, |i, j| 1.0 + ((i + 4 * j) as f64).sin());
        let system = LinearSystem::new(a, b, c, None).unwrap();
        let spectrum = HankelSpectrum::new(&GramianFactors::analytic(&system).unwrap()).unwrap();
        for order in 1..4 {
            let reduced = reduce(&system, &spectrum, order).unwrap().system;
            let (a, a_r) = (system.a().to_dense(), reduced.a().to_dense());
            let powers = Powers::of(a.as_ref());
            let x = powers.sylvester((system.b() * reduced.b().transpose()).as_ref(), a_r.transpose());
            let y = powers.transposed_sylvester((system.c().transpose() * reduced.c()).as_ref(), a_r.as_ref());
            let factors = GramianFactors::analytic(&reduced).unwrap();
            let (p, q) = (factors.controllability(), factors.observability());
            let holds = |left: Mat<f64>, right: Mat<f64>| {
                assert!((&left - &right).norm_l2() < 1e-5 * left.norm_l2(), "{order}: {left:?} {right:?}");
            };
            holds(&q * reduced.b(), y.transpose() * system.b());
            holds(reduced.c() * &p, system.c() * &x);
            holds(&q * &a_r * &p, y.transpose() * &a * &x);
        }
    }
}
