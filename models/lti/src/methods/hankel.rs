//! Optimal approximation in the Hankel norm.
//!
//! Of all stable systems of order r, the one found here comes closest to G in the Hankel norm: the distance is exactly
//! `sigma_{r+1}`, the least there is (V. M. Adamjan, D. Z. Arov and M. G. Krein 1971). The construction is that of K. Glover
//! (Int. J. Control 39 (1984), section 6), in continuous time, where the bilinear map `z = (1 + s) / (1 - s)` takes the
//! system: it leaves both Gramians as they are. With a balanced realisation ordered so that the m states of
//! `gamma = sigma_{r+1}` come last, and `Sigma_1` the other values,
//!
//! ```text
//! Gamma = Sigma_1^2 - gamma^2,   U = -C_2 pinv(B_2^T)
//! A' = Gamma^-1 (gamma^2 A_11^T + Sigma_1 A_11 Sigma_1 - gamma C_1^T U B_1^T)
//! B' = Gamma^-1 (Sigma_1 B_1 + gamma C_1^T U),   C' = C_1 Sigma_1 + gamma U B_1^T
//! ```
//!
//! has exactly r stable poles, and its stable part is the answer. The Hankel norm does not see a direct term; leaving that of
//! the system as it is makes the H-infinity error at most `2 (sigma_{r+1} + ... + sigma_d)`: twice Glover's bound for the best
//! direct term, which cannot be farther from it than that bound (the value at infinity). SLICOT: AB09CD; MATLAB: `hankelmr`.

use super::{Accepts, Bound, Definition, Method, Reduced};
use crate::linalg::product;
use crate::{GramianFactors, HankelSpectrum, LinearSystem, LtiError, Result, StateMatrix};
use faer::linalg::solvers::Solve;
use faer::{Mat, MatRef};
use std::f64::consts::SQRT_2;

/// Optimal Hankel norm approximation.
pub const METHOD: Method = Method(&Definition {
    name: "hankel",
    summary: "The best approximation in the Hankel norm (Glover bound; Hankel norm error sigma_next)",
    bound: Bound::HankelSingularValues,
    bounds: None,
    gramians: Accepts::Analytic,
    direct_term: false,
    reduce,
});

fn reduce(system: &LinearSystem, spectrum: &HankelSpectrum, order: usize) -> Result<Reduced> {
    let system = optimal_hankel_norm(system, spectrum, order)?;
    Ok(Reduced { system, projection: None, bound: spectrum.guarantee(order), kept: None })
}

/// Values closer than this, relatively, count as one value of higher multiplicity.
const SAME: f64 = 1e-7;

/// Newton steps towards the sign of a matrix: it converges quadratically once the eigenvalues are scaled.
const SIGN_STEPS: usize = 60;

/// The system of order `order` with the smallest Hankel norm of the difference.
///
/// # Errors
/// `sigma_r` and `sigma_{r+1}` too close to be told apart (there is a better order); a result that misses the optimum because
/// the construction is too ill-conditioned in double precision.
fn optimal_hankel_norm(system: &LinearSystem, spectrum: &HankelSpectrum, order: usize) -> Result<LinearSystem> {
    let (n, sigma) = (spectrum.rank(), spectrum.values());
    if order > n {
        return Err(LtiError::OrderTooLarge { order, states: n });
    }
    if order == 0 || order == n {
        let (left, right) = spectrum.projections(order)?;
        let a = product(left.as_ref(), system.a().apply(right.as_ref()).as_ref());
        let (b, c) = (product(left.as_ref(), system.b()), product(system.c(), right.as_ref()));
        return system.with_realization(StateMatrix::Dense(a), b, c);
    }
    let gamma = sigma[order];
    let same = |value: f64| (value - gamma).abs() <= SAME * gamma;
    if same(sigma[order - 1]) {
        let first = sigma.iter().position(|&value| same(value)).unwrap_or(0);
        return Err(LtiError::Unsupported(format!(
            "the Hankel singular values {order} and {} are equal: no optimal approximation of order {order} is better than \
             that of order {first}",
            order + 1
        )));
    }
    let last = (order..n).take_while(|&i| same(sigma[i])).count();
    let balanced = continuous(system, spectrum)?;
    let kept: Vec<usize> = (0..order).chain(order + last..n).collect();
    let middle: Vec<usize> = (order..order + last).collect();
    let approximation = glover(&balanced, &kept, &middle, sigma, gamma);
    let stable = stable_part(&approximation, order)?;
    let (a, b, c) = discrete(&stable);
    let result = system.with_realization(StateMatrix::Dense(a), b, c)?;
    check(system, &result, gamma)?;
    Ok(result)
}

/// A, B and C of a continuous-time system.
struct Continuous {
    a: Mat<f64>,
    b: Mat<f64>,
    c: Mat<f64>,
}

/// The balanced realisation of all states above rounding, in continuous time.
fn continuous(system: &LinearSystem, spectrum: &HankelSpectrum) -> Result<Continuous> {
    let n = spectrum.rank();
    let (left, right) = spectrum.projections(n)?;
    let a = product(left.as_ref(), system.a().apply(right.as_ref()).as_ref());
    let (b, c) = (product(left.as_ref(), system.b()), product(system.c(), right.as_ref()));
    let one = Mat::<f64>::identity(n, n);
    let plus = (&a + &one).partial_piv_lu();
    let root = faer::Scale(SQRT_2);
    Ok(Continuous {
        a: plus.solve(&a - &one),
        b: plus.solve(b) * root,
        c: product(c.as_ref(), plus.solve(one).as_ref()) * root,
    })
}

/// Back to discrete time.
fn discrete(system: &Continuous) -> (Mat<f64>, Mat<f64>, Mat<f64>) {
    let one = Mat::<f64>::identity(system.a.nrows(), system.a.nrows());
    let minus = (&one - &system.a).partial_piv_lu();
    let root = faer::Scale(SQRT_2);
    let c = product(system.c.as_ref(), minus.solve(&one).as_ref()) * root;
    (minus.solve(&one + &system.a), minus.solve(&system.b) * root, c)
}

fn glover(g: &Continuous, kept: &[usize], middle: &[usize], sigma: &[f64], gamma: f64) -> Continuous {
    let rows = |m: MatRef<'_, f64>, at: &[usize]| Mat::from_fn(at.len(), m.ncols(), |i, j| m[(at[i], j)]);
    let columns = |m: MatRef<'_, f64>, at: &[usize]| Mat::from_fn(m.nrows(), at.len(), |i, j| m[(i, at[j])]);
    let a = columns(rows(g.a.as_ref(), kept).as_ref(), kept);
    let (b, c) = (rows(g.b.as_ref(), kept), columns(g.c.as_ref(), kept));
    let (b2, c2) = (rows(g.b.as_ref(), middle), columns(g.c.as_ref(), middle));
    // U = -C_2 W with W = pinv(B_2^T): [outputs, inputs] is never formed.
    let w = product(b2.as_ref(), b2.transpose()).partial_piv_lu().solve(&b2);
    let c_u = product(product(c.transpose(), c2.as_ref()).as_ref(), w.as_ref()) * faer::Scale(-1.0);
    let u_b = product(c2.as_ref(), product(w.as_ref(), b.transpose()).as_ref()) * faer::Scale(-1.0);
    let s = |i: usize| sigma[kept[i]];
    let over = |i: usize| 1.0 / ((s(i) - gamma) * (s(i) + gamma));
    let c_u_b = product(c_u.as_ref(), b.transpose());
    let n = kept.len();
    Continuous {
        a: Mat::from_fn(n, n, |i, j| {
            over(i) * (gamma * gamma * a[(j, i)] + s(i) * a[(i, j)] * s(j) - gamma * c_u_b[(i, j)])
        }),
        b: Mat::from_fn(n, b.ncols(), |i, j| over(i) * (s(i) * b[(i, j)] + gamma * c_u[(i, j)])),
        c: Mat::from_fn(c.nrows(), n, |i, j| c[(i, j)] * s(j) + gamma * u_b[(i, j)]),
    }
}

/// The part of a system with its `order` stable poles, by the spectral projection `(1 - sign A) / 2`.
fn stable_part(system: &Continuous, order: usize) -> Result<Continuous> {
    let n = system.a.nrows();
    let projection = (Mat::<f64>::identity(n, n) - sign(&system.a)?) * faer::Scale(0.5);
    let trace: f64 = (0..n).map(|i| projection[(i, i)]).sum();
    if (trace - order as f64).abs() > 1e-6 {
        return Err(ill_conditioned());
    }
    let basis = |m: MatRef<'_, f64>| m.col_piv_qr().compute_thin_Q().subcols(0, order).to_owned();
    let (right, left) = (basis(projection.as_ref()), basis(projection.transpose()));
    let left = product(left.transpose(), right.as_ref()).partial_piv_lu().solve(left.transpose());
    Ok(Continuous {
        a: product(left.as_ref(), product(system.a.as_ref(), right.as_ref()).as_ref()),
        b: product(left.as_ref(), system.b.as_ref()),
        c: product(system.c.as_ref(), right.as_ref()),
    })
}

/// `sign A` by Newton's iteration, scaled by norms (N. J. Higham, Functions of Matrices, 2008, section 5.5).
pub fn sign(a: &Mat<f64>) -> Result<Mat<f64>> {
    let mut x = a.clone();
    for _ in 0..SIGN_STEPS {
        let inverse = x.partial_piv_lu().solve(Mat::<f64>::identity(x.nrows(), x.nrows()));
        let scale = (inverse.norm_l2() / x.norm_l2()).sqrt();
        if !(scale.is_finite() && scale > 0.0) {
            return Err(ill_conditioned());
        }
        // Near the end scaling would only disturb.
        let scale = if (scale - 1.0).abs() < 1e-2 { 1.0 } else { scale };
        let next = (&x * faer::Scale(scale) + &inverse * faer::Scale(1.0 / scale)) * faer::Scale(0.5);
        let change = (&next - &x).norm_l2();
        x = next;
        if change <= 1e-14 * x.norm_l2() {
            return Ok(x);
        }
    }
    // Rounding may keep the last digits moving: the projection's trace and the check of the result decide.
    Ok(x)
}

/// The largest Hankel singular value of the difference must be `gamma`.
fn check(full: &LinearSystem, reduced: &LinearSystem, gamma: f64) -> Result<()> {
    let error = full.difference(reduced)?;
    let norm = HankelSpectrum::new(&GramianFactors::analytic(&error)?)?.values().first().copied().unwrap_or(0.0);
    if norm <= gamma * (1.0 + 1e-6) { Ok(()) } else { Err(ill_conditioned()) }
}

fn ill_conditioned() -> LtiError {
    LtiError::Unsupported(
        "the optimal Hankel norm approximation of this order is too ill-conditioned for double precision; use bt, or \
         another order"
            .into(),
    )
}
