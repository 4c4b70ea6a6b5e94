//! The difference of two systems by the numbers that are stored.

use super::Missing;
use super::double::{Double, Matrix, sin_cos};
use crate::continuous::Original;
use crate::coordinates::AsStored;
use crate::linalg::{above, beside, block_diagonal};
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
    /// T of all states `x = T z`, where the system in discrete time has other states z.
    pub t: Option<Mat<f64>>,
}

/// The numbers of one system.
struct Numbers<'a> {
    a: (Matrix, Mat<f64>),
    b: MatRef<'a, f64>,
    c: MatRef<'a, f64>,
    d: Option<MatRef<'a, f64>>,
    rate: Option<f64>,
    t: Option<MatRef<'a, f64>>,
}

impl<'a> Numbers<'a> {
    fn of(system: &'a LinearSystem) -> Self {
        let exactly = |a: &Mat<f64>| (Matrix::of(a.as_ref()), Mat::zeros(a.nrows(), a.ncols()));
        let rate = system.map().map(|map| map.rate);
        if let Some(stored) = system.stored() {
            let AsStored { a, b, c, d, .. } = stored;
            // In discrete time it is the system's own, which may have been left out on both sides.
            let d = if rate.is_some() { d.as_ref().map(Mat::as_ref) } else { system.d() };
            return Self { a: exactly(a), b: b.as_ref(), c: c.as_ref(), d, rate, t: Some(stored.t()) };
        }
        if let Some(Original { map, a, b, c, d }) = system.image_of() {
            let d = d.as_ref().map(Mat::as_ref);
            return Self { a: exactly(a), b: b.as_ref(), c: c.as_ref(), d, rate: Some(map.rate), t: None };
        }
        Self { a: state_matrix(system), b: system.b(), c: system.c(), d: system.d(), rate: None, t: None }
    }

    /// Whether they are those of the system in discrete time.
    fn are_own(&self) -> bool {
        self.rate.is_none() && self.t.is_none()
    }
}

impl Joint {
    /// `full - reduced`.
    ///
    /// # Errors
    /// Systems of which only one is the image of one in continuous time, or by another map.
    pub fn new(full: &LinearSystem, reduced: &LinearSystem) -> Result<Self, Missing> {
        let (one, two) = (Numbers::of(full), Numbers::of(reduced));
        if one.rate != two.rate {
            return Err("the systems are not the images of two in continuous time by one map");
        }
        let (n, k) = (full.states(), reduced.states());
        let a = Matrix::from_fn(n + k, n + k, |i, j| match (i < n, j < n) {
            (true, true) => one.a.0.at(i, j),
            (false, false) => two.a.0.at(i - n, j - n),
            _ => Double::default(),
        });
        let gains = (!(one.are_own() && two.are_own()))
            .then(|| (above(one.b, two.b), beside(one.c, (two.c * Scale(-1.0)).as_ref())));
        let own =
            |t: Option<MatRef<'_, f64>>, states| t.map_or_else(|| Mat::identity(states, states), |t| t.to_owned());
        let t = (one.t.is_some() || two.t.is_some())
            .then(|| block_diagonal(own(one.t, n).as_ref(), own(two.t, k).as_ref()));
        let radius = block_diagonal(one.a.1.as_ref(), two.a.1.as_ref());
        Ok(Self { a, radius, gains, direct: difference(one.d, two.d), rate: one.rate, t })
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

/// The state matrix of a system and what its entries may differ by: without rounding where it is diagonal, dense or was written out, else
/// with sines and cosines in twice the precision.
fn state_matrix(system: &LinearSystem) -> (Matrix, Mat<f64>) {
    let n = system.states();
    let mut radius = Mat::zeros(n, n);
    let (StateMatrix::Modal(modes), None) = (system.a(), system.written()) else {
        let entries = system.written().map_or_else(|| system.a().to_dense(), |a| a.to_owned());
        return (Matrix::of(entries.as_ref()), radius);
    };
    let (mut a, mut i) = (Matrix::zeros(n, n), 0);
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
    (a, radius)
}
