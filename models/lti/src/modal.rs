//! Conversions between the forms of A, each checked against the transfer function (R5).

use super::linalg::{eigenvectors, product, singular_values};
use super::norms::balance::suitable_units;
use super::norms::deviation;
use super::system::{LinearSystem, Mode, StateMatrix};
use super::{LtiError, Result};
use faer::{Mat, c64};
use std::f64::consts::{PI, SQRT_2};

/// Largest relative change of the transfer function a conversion may cause.
pub const CONVERSION_TOLERANCE: f64 = 1e-8;

/// Eigenvector matrices worse conditioned than this are not tried: the check would fail.
const MAX_CONDITION: f64 = 1e12;

/// A system in another form, with the change of coordinates that led there.
#[derive(Debug, Clone)]
pub struct Conversion {
    /// The same system in the new form.
    pub system: LinearSystem,
    /// New coordinates from old ones, `x' = T x`, [d, d].
    pub transformation: Mat<f64>,
    /// The inverse of the transformation.
    pub inverse: Mat<f64>,
    /// Condition number of the (column-normalised) eigenvector matrix; 1 where no eigenvectors were needed.
    pub condition: f64,
    /// Measured relative H-infinity deviation of the transfer function.
    pub deviation: f64,
}

/// Brings any system to real modal form. A diagonal or modal one stays as it is; of a dense one the real modes come first, then the pairs,
/// slowest first, each scaled so that its rows of B and columns of C have equal norm.
///
/// # Errors
/// [`LtiError::Conversion`] if eigenvectors are too ill-conditioned for the transfer function to survive to 1e-8.
pub fn to_modal(system: &LinearSystem) -> Result<Conversion> {
    to_modal_within(system, CONVERSION_TOLERANCE)
}

/// The same, where the transfer function may change by `tolerance` of its H-infinity norm.
///
/// # Errors
/// Those of [`to_modal`].
pub fn to_modal_within(system: &LinearSystem, tolerance: f64) -> Result<Conversion> {
    let n = system.states();
    if let Some(modes) = system.a().modes() {
        let same = system.with_realization(StateMatrix::Modal(modes), system.b().to_owned(), system.c().to_owned())?;
        return Ok(Conversion {
            system: same,
            transformation: Mat::identity(n, n),
            inverse: Mat::identity(n, n),
            condition: 1.0,
            deviation: 0.0,
        });
    }
    let refuse = |reason: String| LtiError::Conversion { form: "modal", reason };
    // In units in which the states are alike: in those of the file vectors of poles far apart may look dependent.
    let (a, c) = (system.a().to_dense(), system.c());
    let units = suitable_units(a.as_ref(), system.b(), c, 1.0);
    let (modes, vectors) = real_eigenvectors(&Mat::from_fn(n, n, |i, j| a[(i, j)] / units[i] * units[j]))?;
    let values = singular_values(vectors.as_ref())?;
    let condition = values.first().copied().unwrap_or(1.0) / values.last().copied().unwrap_or(1.0);
    if condition.is_nan() || condition > MAX_CONDITION {
        return Err(refuse(format!("the eigenvectors are linearly dependent (condition number {condition:.1e})")));
    }
    let lu = vectors.partial_piv_lu();
    let mut b = Mat::from_fn(n, system.inputs(), |i, j| system.b()[(i, j)] / units[i]);
    faer::linalg::solvers::SolveCore::solve_in_place_with_conj(&lu, faer::Conj::No, b.as_mut());
    let mut transformation = Mat::from_fn(n, n, |i, j| if i == j { 1.0 / units[i] } else { 0.0 });
    faer::linalg::solvers::SolveCore::solve_in_place_with_conj(&lu, faer::Conj::No, transformation.as_mut());
    let mut inverse = Mat::from_fn(n, n, |i, j| vectors[(i, j)] * units[i]);
    let mut c = product(c, inverse.as_ref());
    let mut state = 0;
    for mode in &modes {
        let range = state..state + mode.states();
        let norm_b = range.clone().map(|i| b.row(i).norm_l2()).fold(0.0, f64::hypot);
        let norm_c = range.clone().map(|i| c.col(i).norm_l2()).fold(0.0, f64::hypot);
        if norm_b > 0.0 && norm_c > 0.0 {
            let scale = (norm_c / norm_b).sqrt();
            for i in range.clone() {
                for k in 0..b.ncols() {
                    b[(i, k)] *= scale;
                }
                for k in 0..c.nrows() {
                    c[(k, i)] /= scale;
                }
                for k in 0..n {
                    transformation[(i, k)] *= scale;
                    inverse[(k, i)] /= scale;
                }
            }
        }
        state = range.end;
    }
    let modal = system.with_realization(StateMatrix::Modal(modes), b, c)?;
    let deviation = deviation(system, &modal)?;
    if deviation.is_nan() || deviation > tolerance {
        return Err(refuse(format!(
            "the transfer function would change by {deviation:.1e} (condition number of the eigenvectors {condition:.1e})"
        )));
    }
    Ok(Conversion { system: modal, transformation, inverse, condition, deviation })
}

/// Writes A out as a dense matrix; exact.
///
/// # Errors
/// Poles that are not stable when they are computed from the dense matrix.
pub fn to_dense(system: &LinearSystem) -> Result<LinearSystem> {
    system.with_realization(StateMatrix::Dense(system.a().to_dense()), system.b().to_owned(), system.c().to_owned())
}

/// Modes (real ones first, each kind slowest first) and a real basis in which A is block-diagonal: eigenvectors of real poles, `[Im v, Re v]`-planes
/// of pairs, columns of unit norm per mode.
fn real_eigenvectors(a: &Mat<f64>) -> Result<(Vec<Mode>, Mat<f64>)> {
    let n = a.nrows();
    if n == 0 {
        return Ok((Vec::new(), Mat::zeros(0, 0)));
    }
    let (s, u) = eigenvectors(a.as_ref())?;
    let mut order: Vec<usize> = (0..n).filter(|&i| s[i].im >= 0.0).collect();
    order.sort_by(|&i, &j| (s[i].im != 0.0).cmp(&(s[j].im != 0.0)).then(s[j].norm().total_cmp(&s[i].norm())));
    let mut modes = Vec::new();
    let mut basis = Mat::zeros(n, n);
    let mut column = 0;
    for i in order {
        let value: c64 = s[i];
        // Of a pair the next column is the imaginary part.
        let mode = if value.im == 0.0 {
            Mode::Real(value.re)
        } else {
            // Strictly inside (0, pi): on disk the end points denote real poles.
            Mode::Pair { radius: value.norm(), angle: value.im.atan2(value.re).min(PI.next_down()) }
        };
        if column + mode.states() > n {
            break;
        }
        match mode {
            Mode::Real(_) => basis.col_mut(column).copy_from(u.col(i)),
            Mode::Pair { .. } => {
                // A (p + i q) = r e^{i t} (p + i q) gives A [p, -q] = [p, -q] r [cos t, -sin t; sin t, cos t].
                for k in 0..n {
                    basis[(k, column)] = SQRT_2 * u[(k, i)];
                    basis[(k, column + 1)] = -SQRT_2 * u[(k, i + 1)];
                }
            }
        }
        column += mode.states();
        modes.push(mode);
    }
    if column != n {
        return Err(LtiError::Conversion {
            form: "modal",
            reason: "its complex eigenvalues do not come in conjugate pairs".into(),
        });
    }
    Ok((modes, basis))
}
