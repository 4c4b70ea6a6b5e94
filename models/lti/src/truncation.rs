//! Reduction methods: from a system and the directions of its Hankel singular values to a smaller system.

use super::hankel::HankelSpectrum;
use super::hankel_norm::optimal_hankel_norm;
use super::linalg::{above, beside, product, singular_values};
use super::norms::{FrequencyResponse, hinf_norm};
use super::system::{LinearSystem, Mode, StateMatrix};
use super::{LtiError, Result};
use faer::linalg::solvers::Solve;
use faer::{Mat, MatRef};
use serde::{Deserialize, Serialize};

/// How the smaller system is made from the larger one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Square-root balanced truncation (M. S. Tombs and I. Postlethwaite, Int. J. Control 46 (1987)).
    /// Error at most `2 sum of the discarded values` (K. Glover 1984; in discrete time U. M. Al-Saggaf and G. F. Franklin,
    /// IEEE TAC 32 (1987)).
    #[default]
    Bt,
    /// The same transfer function from orthonormal bases, where balancing would be ill-conditioned
    /// (A. Varga, Proc. IEEE CDC 1991).
    Bfsr,
    /// Singular perturbation: the discarded states are taken at rest, which keeps the gain at frequency 0 and makes a direct
    /// term (Y. Liu and B. D. O. Anderson, Int. J. Control 50 (1989)). Same bound.
    Spa,
    /// Keeps the modes with the largest H-infinity norm and drops the others unchanged: poles stay what they were. Error at
    /// most the sum of the discarded norms.
    Modal,
    /// Projection on the leading left singular vectors of B, blind to C and to the dynamics. No error bound: it is here to be
    /// compared with.
    Svd,
    /// The best approximation in the Hankel norm, [`optimal_hankel_norm`]. Same bound as balanced truncation in the
    /// H-infinity norm; its error in the Hankel norm is the least there is.
    Hankel,
}

impl Method {
    /// All methods.
    pub const ALL: [Self; 6] = [Self::Bt, Self::Bfsr, Self::Spa, Self::Modal, Self::Svd, Self::Hankel];

    /// The name used on the command line and in certificates.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bt => "bt",
            Self::Bfsr => "bfsr",
            Self::Spa => "spa",
            Self::Modal => "modal",
            Self::Svd => "svd",
            Self::Hankel => "hankel",
        }
    }
}

/// How the states of a reduced system follow from those of the full one.
#[derive(Debug, Clone)]
pub struct Projection {
    /// Reduced state from full state, `x_r = L x`, [r, d].
    pub left: Mat<f64>,
    /// Full state from reduced state, `x ~ R x_r`, [d, r]; `L R = I`.
    pub right: Mat<f64>,
}

/// A reduced system.
#[derive(Debug, Clone)]
pub struct Reduced {
    /// The smaller system.
    pub system: LinearSystem,
    /// How it follows from the full one; `None` for `hankel`, which is no projection.
    pub projection: Option<Projection>,
    /// Guaranteed bound of the H-infinity error, `None` where theory gives none.
    pub bound: Option<f64>,
    /// The states that were kept as they are, where that is what the method does.
    pub kept: Option<Vec<usize>>,
}

/// Reduces `system` to `order` states; `spectrum` are its Hankel singular values.
///
/// There is a bound if `spectrum` comes from the analytic Gramians of the system as it is ([`HankelSpectrum::guarantee`]).
///
/// # Errors
/// An order above the numerical rank (for `modal` and `svd`: above the number of states), a reduced system that is not
/// stable (possible only where theory gives no bound).
pub fn reduce(system: &LinearSystem, spectrum: &HankelSpectrum, method: Method, order: usize) -> Result<Reduced> {
    if order > system.states() {
        return Err(LtiError::OrderTooLarge { order, states: system.states() });
    }
    match method {
        Method::Bt => {
            let (left, right) = spectrum.projections(order)?;
            project(system, left, right, spectrum.guarantee(order))
        }
        Method::Bfsr => balancing_free(system, spectrum, order),
        Method::Spa => singular_perturbation(system, spectrum, order),
        Method::Modal => modal_truncation(system, order),
        Method::Svd => svd_truncation(system, order),
        Method::Hankel => Ok(Reduced {
            system: optimal_hankel_norm(system, spectrum, order)?,
            projection: None,
            bound: spectrum.guarantee(order),
            kept: None,
        }),
    }
}

/// `A_r = L A R, B_r = L B, C_r = C R`.
fn project(system: &LinearSystem, left: Mat<f64>, right: Mat<f64>, bound: Option<f64>) -> Result<Reduced> {
    let a = product(left.as_ref(), system.a().apply(right.as_ref()).as_ref());
    let b = product(left.as_ref(), system.b());
    let c = product(system.c(), right.as_ref());
    let projection = Some(Projection { left, right });
    Ok(Reduced { system: system.with_realization(StateMatrix::Dense(a), b, c)?, projection, bound, kept: None })
}

fn balancing_free(system: &LinearSystem, spectrum: &HankelSpectrum, order: usize) -> Result<Reduced> {
    if order > spectrum.rank() {
        return Err(LtiError::OrderTooLarge { order, states: spectrum.rank() });
    }
    let (left, right) = spectrum.directions(order);
    let (w, v) = (left.qr().compute_thin_Q(), right.qr().compute_thin_Q());
    let left = product(w.transpose(), v.as_ref()).partial_piv_lu().solve(w.transpose());
    project(system, left, v, spectrum.guarantee(order))
}

fn singular_perturbation(system: &LinearSystem, spectrum: &HankelSpectrum, order: usize) -> Result<Reduced> {
    // The result depends on the subspace of the discarded states, not on the basis in it: complements of the kept directions
    // are exact where the balanced directions of tiny singular values are mostly rounding. States that are not controllable or
    // not observable are left out beforehand: at rest, rounding would couple a slow one back in.
    let (w, v) = spectrum.directions(spectrum.rank());
    let (w, v) = (w.qr().compute_thin_Q(), v.qr().compute_thin_Q());
    let w = product(w.transpose(), v.as_ref()).partial_piv_lu().solve(w.transpose());
    let (left, right) = spectrum.projections(order)?;
    let (complement, dual) = (
        null_space(product(left.as_ref(), v.as_ref()).as_ref()),
        null_space(product(w.as_ref(), right.as_ref()).transpose()),
    );
    let dual = product(dual.transpose(), complement.as_ref()).partial_piv_lu().solve(dual.transpose());
    let (complement, dual) = (product(v.as_ref(), complement.as_ref()), product(dual.as_ref(), w.as_ref()));
    let rest = spectrum.rank() - order;
    let (left, right) = (above(left.as_ref(), dual.as_ref()), beside(right.as_ref(), complement.as_ref()));
    let a = product(left.as_ref(), system.a().apply(right.as_ref()).as_ref());
    let b = product(left.as_ref(), system.b());
    let c = product(system.c(), right.as_ref());
    let block = |i: usize, j: usize, rows: usize, cols: usize| a.submatrix(i, j, rows, cols);
    // x2 = A21 x1 + A22 x2 + B2 u, solved for x2 = X x1 + U u.
    let at_rest = (Mat::<f64>::identity(rest, rest) - block(order, order, rest, rest)).partial_piv_lu();
    let x = at_rest.solve(block(order, 0, rest, order));
    let u = at_rest.solve(b.subrows(order, rest));
    let (a12, c2) = (block(0, order, order, rest), c.subcols(order, rest));
    let a_r = block(0, 0, order, order) + product(a12, x.as_ref());
    let b_r = b.subrows(0, order) + product(a12, u.as_ref());
    let c_r = c.subcols(0, order) + product(c2, x.as_ref());
    let mut d_r = product(c2, u.as_ref());
    if let Some(d) = system.d() {
        d_r += d;
    }
    Ok(Reduced {
        system: LinearSystem::new(StateMatrix::Dense(a_r), b_r, c_r, Some(d_r))?,
        projection: Some(Projection {
            left: left.subrows(0, order).to_owned(),
            right: right.subcols(0, order).to_owned(),
        }),
        bound: spectrum.guarantee(order),
        kept: None,
    })
}

/// Orthonormal basis, [d, d - r], of the vectors that the r independent rows of `m` [r, d] map to zero.
fn null_space(m: MatRef<'_, f64>) -> Mat<f64> {
    let q = m.transpose().qr().compute_Q();
    q.subcols(m.nrows(), m.ncols() - m.nrows()).to_owned()
}

/// H-infinity norm of every mode of a diagonal or modal system on its own; of a pair the upper end of its enclosure, so that
/// sums of these numbers are bounds.
///
/// # Errors
/// A dense A: bring it to modal form first.
pub fn mode_scores(system: &LinearSystem) -> Result<Vec<f64>> {
    let modes = system.a().modes().ok_or_else(|| {
        LtiError::Unsupported("modal truncation needs A in diagonal or modal form; convert the system first".into())
    })?;
    let mut state = 0;
    let mut scores = Vec::with_capacity(modes.len());
    for mode in modes {
        let rows = (state, mode.states());
        let b = system.b().subrows(rows.0, rows.1);
        let c = system.c().subcols(rows.0, rows.1);
        scores.push(match mode {
            // A first-order system peaks where z is nearest to its pole, at 1 - |a|.
            Mode::Real(_) => b.norm_l2() * c.norm_l2() / -(-mode.pole().rate).exp_m1(),
            Mode::Pair { .. } => {
                let alone = LinearSystem::new(StateMatrix::Modal(vec![mode]), b.to_owned(), c.to_owned(), None)?;
                hinf_norm(&FrequencyResponse::new(&alone)?)?.1.upper
            }
        });
        state += mode.states();
    }
    Ok(scores)
}

fn modal_truncation(system: &LinearSystem, order: usize) -> Result<Reduced> {
    let scores = mode_scores(system)?;
    let modes = system.a().modes().unwrap_or_default();
    let mut by_score: Vec<usize> = (0..modes.len()).collect();
    by_score.sort_by(|&i, &j| scores[j].total_cmp(&scores[i]));
    let mut keep = vec![false; modes.len()];
    let mut states = 0;
    for &i in &by_score {
        // A pair is kept whole or not at all; a real mode further down may still fill the place.
        if states + modes[i].states() <= order {
            keep[i] = true;
            states += modes[i].states();
        }
    }
    let bound = by_score.iter().rev().filter(|&&i| !keep[i]).map(|&i| scores[i]).sum();
    let mut rows = Vec::new();
    let mut state = 0;
    for (mode, &kept) in modes.iter().zip(&keep) {
        if kept {
            rows.extend(state..state + mode.states());
        }
        state += mode.states();
    }
    let kept: Vec<Mode> = modes.iter().zip(&keep).filter(|(_, k)| **k).map(|(m, _)| *m).collect();
    let a = match system.a() {
        StateMatrix::Diagonal(a) => StateMatrix::Diagonal(rows.iter().map(|&i| a[i]).collect()),
        _ => StateMatrix::Modal(kept),
    };
    let left = Mat::from_fn(rows.len(), system.states(), |i, j| if rows[i] == j { 1.0 } else { 0.0 });
    let b = Mat::from_fn(rows.len(), system.inputs(), |i, j| system.b()[(rows[i], j)]);
    let c = Mat::from_fn(system.outputs(), rows.len(), |i, j| system.c()[(i, rows[j])]);
    let right = left.transpose().to_owned();
    let projection = Some(Projection { left, right });
    Ok(Reduced { system: system.with_realization(a, b, c)?, projection, bound: Some(bound), kept: Some(rows) })
}

fn svd_truncation(system: &LinearSystem, order: usize) -> Result<Reduced> {
    let small = super::linalg::compress_columns(system.b());
    // Padded to d columns, so that a B of low rank still has d left singular vectors.
    let padded = beside(small.as_ref(), Mat::zeros(small.nrows(), small.nrows() - small.ncols()).as_ref());
    let svd = padded.svd().map_err(|_| LtiError::NoConvergence("the singular value decomposition"))?;
    let u: MatRef<'_, f64> = svd.U().subcols(0, order);
    project(system, u.transpose().to_owned(), u.to_owned(), None)
}

/// Singular values of B, the numbers the `svd` method ranks its directions by.
pub fn input_singular_values(system: &LinearSystem) -> Result<Vec<f64>> {
    let mut values = singular_values(super::linalg::compress_columns(system.b()).as_ref())?;
    values.resize(system.states(), 0.0);
    Ok(values)
}

/// Bound of the H-infinity error that `method` guarantees for `order` states kept, without performing the reduction.
pub fn error_bound(
    system: &LinearSystem,
    spectrum: &HankelSpectrum,
    method: Method,
    order: usize,
) -> Result<Option<f64>> {
    Ok(match method {
        Method::Bt | Method::Bfsr | Method::Spa | Method::Hankel => spectrum.guarantee(order),
        Method::Modal => modal_truncation(system, order)?.bound,
        Method::Svd => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::norms::hinf_sweep;

    #[test]
    fn the_score_of_a_pair_is_an_upper_bound() {
        for (radius, angle) in [(0.5, 1.0), (0.99, 0.3), (0.9999, 2.5), (0.999_999, 1.234_567)] {
            let pair = StateMatrix::Modal(vec![Mode::Pair { radius, angle }]);
            let (b, c) = (Mat::from_fn(2, 1, |i, _| 1.0 - i as f64), Mat::from_fn(1, 2, |_, j| 0.1 + j as f64));
            let system = LinearSystem::new(pair, b, c, None).unwrap();
            let score = mode_scores(&system).unwrap()[0];
            // A gain that is attained is below the norm by some rounding, or by what lies between two frequencies.
            let attained = hinf_sweep(&FrequencyResponse::new(&system).unwrap()).unwrap().value;
            assert!((1.0 + 1e-7..1.0 + 1e-6).contains(&(score / attained)), "{radius} {angle}: {score} {attained}");
        }
    }
}
