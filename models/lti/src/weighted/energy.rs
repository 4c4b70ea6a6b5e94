//! The driving term X of a weighted Gramian, and the factor `Bh Bh^T >= X` that takes its place.

use crate::linalg::{beside, compress_columns, exponent, product, spectral_norm, times_power_of_two};
use crate::stein::{Powers, stein_factor};
use crate::{LinearSystem, LtiError, Result};
use faer::{Mat, MatRef, Scale};

/// Share of `B B^T`, relative to X, that is added to |X|. More brings the bound nearer to that of balanced truncation, less brings the
/// weight out more.
const SHARE: f64 = 0.05;

/// Directions below this, relative to the largest, are rounding.
const NEGLIGIBLE: f64 = 1e-13;

/// The matrices of a weight that drives an input: `x' = a x + b w, u = c x + d w`.
pub(super) struct Drive {
    a: Mat<f64>,
    b: Mat<f64>,
    c: Mat<f64>,
    d: Option<Mat<f64>>,
}

impl Drive {
    /// An input weight.
    pub fn of(weight: &LinearSystem) -> Self {
        let owned = |m: MatRef<'_, f64>| m.to_owned();
        Self { a: weight.a().to_dense(), b: owned(weight.b()), c: owned(weight.c()), d: weight.d().map(owned) }
    }

    /// An output weight, seen from the transposed system.
    pub fn of_transpose(weight: &LinearSystem) -> Self {
        let turned = |m: MatRef<'_, f64>| m.transpose().to_owned();
        let a = weight.a().to_dense();
        Self { a: turned(a.as_ref()), b: turned(weight.c()), c: turned(weight.b()), d: weight.d().map(turned) }
    }
}

/// Coordinates of some states, [r, d] and [d, r], `to back = I`.
pub(super) struct Coordinates {
    pub to: Mat<f64>,
    pub back: Mat<f64>,
}

/// `B = gain map`, with `gain gain^T` in the place of X; for the side of the output B is C transposed.
pub(super) struct Modified {
    /// Bh, [d, k].
    pub gain: Mat<f64>,
    /// K, [k, m].
    pub map: Mat<f64>,
}

impl Modified {
    /// The same product with K divided by `norm`.
    pub fn with_map_over(self, norm: f64) -> Self {
        if norm > 0.0 { Self { gain: self.gain * Scale(norm), map: self.map * Scale(1.0 / norm) } } else { self }
    }
}

/// Bh and K for the input matrix `b` [d, m] driven by a weight.
pub(super) fn under_weight(
    a: MatRef<'_, f64>,
    b: MatRef<'_, f64>,
    weight: &Drive,
    coordinates: &Coordinates,
) -> Result<Modified> {
    in_unit_size(b, coordinates, |b| under_weight_in_unit_size(a, b, weight, coordinates))
}

/// Scales `b` so that squares of what it drives neither underflow nor overflow, and Bh back.
fn in_unit_size(
    b: MatRef<'_, f64>,
    coordinates: &Coordinates,
    modify: impl Fn(MatRef<'_, f64>) -> Result<Modified>,
) -> Result<Modified> {
    let unit = exponent(product(coordinates.to.as_ref(), b).as_ref());
    let side = modify(times_power_of_two(b, -unit).as_ref())?;
    Ok(Modified { gain: times_power_of_two(side.gain.as_ref(), unit), ..side })
}

fn under_weight_in_unit_size(
    a: MatRef<'_, f64>,
    b: MatRef<'_, f64>,
    weight: &Drive,
    coordinates: &Coordinates,
) -> Result<Modified> {
    let to = coordinates.to.as_ref();
    let direct = weight.d.as_ref().map(|d| compress_columns(product(to, product(b, d.as_ref()).as_ref()).as_ref()));
    let inputs = product(to, b);
    if weight.a.nrows() == 0 {
        // X is `(B D_v) (B D_v)^T`, whose factor is known to the last digit.
        let factor = direct.unwrap_or_else(|| Mat::zeros(to.nrows(), 0));
        let size = spectral_norm(factor.as_ref())?;
        return with_share(coordinates, &inputs, &factor, size * size);
    }
    let bc = product(b, weight.c.as_ref());
    let lv = stein_factor(weight.a.as_ref(), weight.b.as_ref())?;
    let pv = product(lv.as_ref(), lv.transpose());
    let mut rhs = product(product(bc.as_ref(), pv.as_ref()).as_ref(), weight.a.transpose());
    if let Some(d) = &weight.d {
        rhs += product(product(b, d.as_ref()).as_ref(), weight.b.transpose());
    }
    let p12 = Powers::of(a).sylvester(rhs.as_ref(), weight.a.transpose());
    let bc = product(to, bc.as_ref());
    let half = product(product(to, product(a, p12.as_ref()).as_ref()).as_ref(), bc.transpose());
    let root = product(bc.as_ref(), lv.as_ref());
    let mut x = &half + half.transpose() + product(root.as_ref(), root.transpose());
    if let Some(direct) = &direct {
        x += product(direct.as_ref(), direct.transpose());
    }
    modified(coordinates, &inputs, &x)
}

/// Bh and K in a band, from the share S of it: `X = S B B^T + B B^T S^T`.
pub(super) fn in_band(share: MatRef<'_, f64>, b: MatRef<'_, f64>, coordinates: &Coordinates) -> Result<Modified> {
    let to = coordinates.to.as_ref();
    in_unit_size(b, coordinates, |b| {
        let small = compress_columns(b);
        let inputs = product(to, small.as_ref());
        let shared = product(to, product(share, small.as_ref()).as_ref());
        let half = product(shared.as_ref(), inputs.transpose());
        let x = &half + half.transpose();
        modified(coordinates, &product(to, b), &x)
    })
}

/// |X| plus a share of `B B^T`; both in `coordinates`.
fn modified(coordinates: &Coordinates, inputs: &Mat<f64>, x: &Mat<f64>) -> Result<Modified> {
    let r = x.nrows();
    if r == 0 {
        return with_share(coordinates, inputs, &Mat::zeros(0, 0), 0.0);
    }
    let eigen =
        x.self_adjoint_eigen(faer::Side::Lower).map_err(|_| LtiError::NoConvergence("the eigenvalue decomposition"))?;
    let (u, s) = (eigen.U(), eigen.S().column_vector());
    let largest = (0..r).map(|i| s[i].abs()).fold(0.0, f64::max);
    // Rounding of a large value would show as noise in states of small ones, of which the share of B B^T takes care.
    let kept: Vec<usize> = (0..r).filter(|&i| s[i].abs() > NEGLIGIBLE * largest).collect();
    let factor = Mat::from_fn(r, kept.len(), |i, k| u[(i, kept[k])] * s[kept[k]].abs().sqrt());
    with_share(coordinates, inputs, &factor, largest)
}

/// `[factor, sqrt(share) B]` as `Bh`, and K with `Bh K = B` of the least norm. `size` is that of `factor factor^T`.
fn with_share(coordinates: &Coordinates, inputs: &Mat<f64>, factor: &Mat<f64>, size: f64) -> Result<Modified> {
    let (r, m) = inputs.shape();
    let small = compress_columns(inputs.as_ref());
    let largest = spectral_norm(small.as_ref())?;
    if r > 0 && largest > 0.0 && size == 0.0 {
        return Err(LtiError::Unsupported(
            "the weighted input does not reach the system: the weight vanishes where the system reads it, or its gain is beyond what \
             doubles can weigh"
                .into(),
        ));
    }
    if largest == 0.0 {
        return Ok(Modified { gain: Mat::zeros(coordinates.back.nrows(), 0), map: Mat::zeros(0, m) });
    }
    let share = (SHARE * size).sqrt() / largest;
    let all = compress_columns(beside(factor.as_ref(), (small * Scale(share)).as_ref()).as_ref());
    let svd = all.thin_svd().map_err(|_| LtiError::NoConvergence("the singular value decomposition"))?;
    let (u, s) = (svd.U(), svd.S().column_vector());
    let rank = (0..s.nrows()).take_while(|&i| s[i] > NEGLIGIBLE * s[0]).count();
    let u = u.subcols(0, rank);
    let hat = Mat::from_fn(r, rank, |i, k| u[(i, k)] * s[k]);
    let mut map = product(u.transpose(), inputs.as_ref());
    for k in 0..rank {
        map.row_mut(k).iter_mut().for_each(|x| *x /= s[k]);
    }
    Ok(Modified { gain: product(coordinates.back.as_ref(), hat.as_ref()), map })
}
