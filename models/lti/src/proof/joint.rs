//! The difference of two systems by the numbers that are stored.

use super::Missing;
use super::double::{Double, Matrix, sin_cos};
use crate::linalg::{above, beside};
use crate::{LinearSystem, Mode, StateMatrix};
use faer::{Mat, MatRef, Scale};

/// Both systems together, in the time in which they are stored.
pub struct Joint {
    /// The state matrix, block by block.
    pub a: Matrix,
    /// What its entries may differ by.
    pub radius: Mat<f64>,
    /// B and C, where they are not those of the system in discrete time.
    pub gains: Option<(Mat<f64>, Mat<f64>)>,
    /// Terms whose sum is the direct term, [p, m] each: none, the difference, or the difference and its rounding.
    pub direct: Vec<Mat<f64>>,
    /// Rate of the bilinear map, in continuous time.
    pub rate: Option<f64>,
}

impl Joint {
    /// `full - reduced`.
    ///
    /// # Errors
    /// Systems of which only one is the image of one in continuous time, or by another map.
    pub fn new(full: &LinearSystem, reduced: &LinearSystem) -> Result<Self, Missing> {
        match (full.image_of(), reduced.image_of()) {
            (None, None) => {
                let (a, radius) = state_matrix([full, reduced]);
                Ok(Self { a, radius, gains: None, direct: difference(full.d(), reduced.d()), rate: None })
            }
            (Some(one), Some(two)) if one.map == two.map => {
                let (n, k) = (one.a.nrows(), two.a.nrows());
                let a = Matrix::from_fn(n + k, n + k, |i, j| match (i < n, j < n) {
                    (true, true) => Double::of(one.a[(i, j)]),
                    (false, false) => Double::of(two.a[(i - n, j - n)]),
                    _ => Double::default(),
                });
                let minus = &two.c * Scale(-1.0);
                Ok(Self {
                    a,
                    radius: Mat::zeros(n + k, n + k),
                    gains: Some((above(one.b.as_ref(), two.b.as_ref()), beside(one.c.as_ref(), minus.as_ref()))),
                    direct: difference(one.d.as_ref().map(Mat::as_ref), two.d.as_ref().map(Mat::as_ref)),
                    rate: Some(one.map.rate),
                })
            }
            _ => Err("the systems are not the images of two in continuous time by one map"),
        }
    }
}

/// `one - two`, with its rounding if there is any; nothing if it is zero.
fn difference(one: Option<MatRef<'_, f64>>, two: Option<MatRef<'_, f64>>) -> Vec<Mat<f64>> {
    let Some((p, m)) = one.or(two).map(|d| d.shape()) else { return Vec::new() };
    let entry = |d: Option<MatRef<'_, f64>>, i, j| d.map_or(0.0, |d| d[(i, j)]);
    let exact = |i, j| Double::of(entry(one, i, j)) - Double::of(entry(two, i, j));
    let terms = [Mat::from_fn(p, m, |i, j| exact(i, j).hi), Mat::from_fn(p, m, |i, j| exact(i, j).lo)];
    terms.into_iter().filter(|term| term.norm_max() > 0.0).collect()
}

/// The state matrix of both systems together: without rounding where it is diagonal, dense or was written out, else with sines and
/// cosines in twice the precision.
fn state_matrix(systems: [&LinearSystem; 2]) -> (Matrix, Mat<f64>) {
    let n = systems.iter().map(|system| system.states()).sum();
    let (mut a, mut radius) = (Matrix::zeros(n, n), Mat::zeros(n, n));
    let mut i = 0;
    for system in systems {
        let (StateMatrix::Modal(modes), None) = (system.a(), system.written()) else {
            let entries = system.written().map_or_else(|| system.a().to_dense(), |a| a.to_owned());
            for row in 0..entries.nrows() {
                (0..entries.ncols()).for_each(|j| a.set(i + row, i + j, Double::of(entries[(row, j)])));
            }
            i += entries.nrows();
            continue;
        };
        for &mode in modes {
            match mode {
                Mode::Real(pole) => a.set(i, i, Double::of(pole)),
                Mode::Pair { radius: modulus, angle } => {
                    let (sin, cos) = sin_cos(angle);
                    let (sin, cos) = (sin * Double::of(modulus), cos * Double::of(modulus));
                    a.set(i, i, cos);
                    a.set(i + 1, i + 1, cos);
                    a.set(i, i + 1, -sin);
                    a.set(i + 1, i, sin);
                    radius.submatrix_mut(i, i, 2, 2).fill(modulus * 2_f64.powi(-83));
                }
            }
            i += mode.states();
        }
    }
    (a, radius)
}
