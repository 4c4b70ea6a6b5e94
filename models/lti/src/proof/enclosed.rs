//! Matrices that are known to lie near others: midpoints in twice the precision, with a radius for each entry.

use super::double::{Double, Matrix, SMALL, UNIT};
use crate::linalg::product;
use faer::{Mat, MatRef, Scale};

/// More than what rounding in sums of products of moduli takes away.
const UP: f64 = 1.0 + 1e-11;

/// All matrices whose entries differ from those of `middle` by at most those of `radius`.
#[derive(Debug, Clone)]
pub struct Enclosed {
    /// The midpoint.
    pub middle: Matrix,
    /// What entries may differ by.
    pub radius: Mat<f64>,
}

/// An upper bound of `a b` for entries that are not negative.
pub fn product_above(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Mat<f64> {
    let mut out = product(a, b) * Scale(UP);
    for column in out.col_iter_mut() {
        column.iter_mut().for_each(|x| *x += SMALL);
    }
    out
}

fn sum_above(a: &Mat<f64>, b: &Mat<f64>) -> Mat<f64> {
    (a + b) * Scale(UP)
}

impl Enclosed {
    /// The matrix itself.
    pub fn exactly(middle: Matrix) -> Self {
        let radius = Mat::zeros(middle.rows(), middle.columns());
        Self { middle, radius }
    }

    /// A matrix of entries of others; none is a zero.
    pub fn blocks<'a>(
        rows: usize,
        columns: usize,
        pick: impl Fn(usize, usize) -> Option<(&'a Self, usize, usize)>,
    ) -> Self {
        Self {
            middle: Matrix::from_fn(rows, columns, |i, j| {
                pick(i, j).map_or(Double::default(), |(part, i, j)| part.middle.at(i, j))
            }),
            radius: Mat::from_fn(rows, columns, |i, j| pick(i, j).map_or(0.0, |(part, i, j)| part.radius[(i, j)])),
        }
    }

    /// Upper bounds of the moduli.
    fn moduli(&self) -> Mat<f64> {
        sum_above(&self.middle.moduli(), &self.radius)
    }

    /// The transpose.
    pub fn transposed(&self) -> Self {
        Self { middle: self.middle.transposed(), radius: self.radius.transpose().to_owned() }
    }

    /// All products.
    pub fn times(&self, other: &Self) -> Self {
        self.around(other, self.middle.times(&other.middle))
    }

    /// All products that are symmetric.
    pub fn times_symmetric(&self, other: &Self) -> Self {
        let Self { middle, radius } = self.around(other, self.middle.times_symmetric(&other.middle));
        // What is known of the upper triangle is so of the lower one.
        let radius = Mat::from_fn(radius.nrows(), radius.ncols(), |i, j| radius[(i.min(j), i.max(j))]);
        Self { middle, radius }
    }

    fn around(&self, other: &Self, middle: Matrix) -> Self {
        // One rounding for each product and each sum.
        let roundings = 2.0 * UNIT * (self.middle.columns() as f64 + 2.0);
        let other_radius = &other.radius + other.middle.moduli() * Scale(roundings);
        let one = product_above(self.middle.moduli().as_ref(), other_radius.as_ref());
        let two = product_above(self.radius.as_ref(), other.moduli().as_ref());
        Self { middle, radius: sum_above(&one, &two) }
    }

    /// All differences.
    pub fn minus(&self, other: &Self) -> Self {
        let middle = self.middle.combined(&other.middle, |a, b| a - b);
        let rounding = middle.moduli() * Scale(2.0 * UNIT);
        let radius = sum_above(&sum_above(&self.radius, &other.radius), &rounding);
        Self { middle, radius }
    }

    /// A multiple.
    pub fn scaled(&self, factor: f64) -> Self {
        let middle = self.middle.combined(&self.middle, |a, _| a * Double::of(factor));
        let radius = sum_above(&(&self.radius * Scale(factor.abs())), &(middle.moduli() * Scale(2.0 * UNIT)));
        Self { middle, radius }
    }
}

/// Encloses the inverse of a lower triangular matrix; `None` where it is too close to singular.
pub fn inverse_of_lower(t: &Matrix) -> Option<Enclosed> {
    around_inverse(t, t.inverse_of_lower())
}

/// Encloses the inverse of a matrix; `None` where it is too close to singular.
pub fn inverse(t: &Matrix) -> Option<Enclosed> {
    around_inverse(t, t.solve(&Matrix::identity(t.rows())))
}

/// With `S` the computed inverse and `E = I - S T`, `T^-1 = (I - E)^-1 S = S + E S + (E + E^2 + ...) E S`, and an entry of the last sum
/// is at most `r_i / (1 - max r)` times the largest of its column of `|E| |S|`, for the sums r of the rows of `|E|`.
fn around_inverse(t: &Matrix, computed: Matrix) -> Option<Enclosed> {
    let n = t.rows();
    let inverse = Enclosed::exactly(computed);
    let product = inverse.times(&Enclosed::exactly(t.clone()));
    let defect = Enclosed::exactly(Matrix::identity(n)).minus(&product).moduli();
    let rows: Vec<f64> = (0..n).map(|i| UP * defect.row(i).iter().sum::<f64>()).collect();
    let largest = rows.iter().copied().fold(0.0, f64::max);
    if rows.iter().any(|row| !row.is_finite()) || largest > 0.1 {
        return None;
    }
    let first = product_above(defect.as_ref(), inverse.middle.moduli().as_ref());
    let columns: Vec<f64> = (0..n).map(|j| first.col(j).iter().copied().fold(0.0, f64::max)).collect();
    let rest = Mat::from_fn(n, n, |i, j| UP * rows[i] / (1.0 - largest) * columns[j]);
    Some(Enclosed { middle: inverse.middle, radius: sum_above(&first, &rest) })
}

/// Whether all symmetric matrices enclosed are positive definite.
///
/// A matrix E with `|E| <= R` is at most the diagonal matrix of `t_i = d_i sum_j R_ij / d_j`, for any positive `d` (Gershgorin, after
/// scaling by d). And where elimination of `K - diag(t)` meets positive pivots only, `K - diag(t)` differs from a positive definite
/// matrix by at most `c u sqrt(K_ii K_jj)`, c a little above the number of rows (N. J. Higham, Accuracy and Stability of Numerical
/// Algorithms, 2002, theorems 10.3 and 10.5; S. M. Rump, Verification of positive definiteness, BIT 46 (2006)): so t has that, too.
pub fn is_positive_definite(k: &Enclosed) -> bool {
    let n = k.middle.rows();
    let diagonal: Vec<f64> = (0..n).map(|i| k.middle.at(i, i).hi).collect();
    // In this range nothing is lost by underflow.
    if !diagonal.iter().all(|d| (1e-90..1e90).contains(d)) {
        return false;
    }
    let units: Vec<f64> = diagonal.iter().map(|d| d.sqrt()).collect();
    let elimination = 4.0 * UNIT * (n as f64 + 3.0) * n as f64;
    let mut shifted = k.middle.clone();
    for i in 0..n {
        let enclosure = units[i] * (0..n).map(|j| k.radius[(i, j)] / units[j]).sum::<f64>();
        let slack = UP * (enclosure + elimination * diagonal[i]) + SMALL;
        shifted.set(i, i, k.middle.at(i, i) - Double::of(slack));
    }
    shifted.has_positive_pivots()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(n: usize, f: impl Fn(usize, usize) -> f64) -> Enclosed {
        Enclosed::exactly(Matrix::from_fn(n, n, |i, j| Double::of(f(i, j))))
    }

    #[test]
    fn products_enclose_what_they_are_products_of() {
        // All entries 1 up to 1e-20: products of 8 terms, 8 up to 1.6e-19.
        let near_one = |delta: f64| {
            let entry = Double::of(1.0) + Double::of(delta);
            Enclosed { middle: Matrix::from_fn(8, 8, |_, _| entry), radius: Mat::from_fn(8, 8, |_, _| 1e-20) }
        };
        let product = near_one(0.5e-20).times(&near_one(-0.5e-20));
        for i in 0..8 {
            let off = (product.middle.at(i, 0) - Double::of(8.0)).hi.abs();
            assert!(off <= product.radius[(i, 0)] && product.radius[(i, 0)] < 2e-19);
        }
        let exact = matrix(8, |i, j| (i + j) as f64);
        let product = exact.times(&exact);
        assert!(product.radius.norm_max() < 1e-26 && product.radius.norm_max() > 0.0);
    }

    #[test]
    fn inverses_are_enclosed() {
        let t = Matrix::from_fn(12, 12, |i, j| Double::of(if j > i { 0.0 } else { 1.0 / (1.0 + (i + j) as f64) }));
        let inverse = inverse_of_lower(&t).unwrap();
        let identity = inverse.times(&Enclosed::exactly(t.clone()));
        for i in 0..12 {
            for j in 0..12 {
                let off = (identity.middle.at(i, j) - Double::of(f64::from(u8::from(i == j)))).hi.abs();
                assert!(off <= identity.radius[(i, j)] && identity.radius[(i, j)] < 1e-6, "{off}");
            }
        }
        let singular = Matrix::from_fn(2, 2, |i, j| Double::of(f64::from(u8::from(i == 1 && j == 0))));
        assert!(inverse_of_lower(&singular).is_none() && super::inverse(&singular).is_none());
        // [3 1; 5 2] and [2 -1; -5 3].
        let full = Matrix::from_fn(2, 2, |i, j| Double::of([[3.0, 1.0], [5.0, 2.0]][i][j]));
        let inverse = super::inverse(&full).unwrap();
        for (i, j, entry) in [(0, 0, 2.0), (0, 1, -1.0), (1, 0, -5.0), (1, 1, 3.0)] {
            let off = (inverse.middle.at(i, j) - Double::of(entry)).hi.abs();
            assert!(off <= inverse.radius[(i, j)] && inverse.radius[(i, j)] < 1e-27, "{off}");
        }
    }

    #[test]
    fn only_what_is_positive_definite_for_sure_passes() {
        let hilbert = |shift: f64| {
            let entry = |i: usize, j: usize| 1.0 / (1.0 + (i + j) as f64);
            matrix(6, |i, j| entry(i, j) - if i == j { shift } else { 0.0 })
        };
        // The smallest eigenvalue of the Hilbert matrix of six rows is 1.0827994845655e-7.
        assert!(is_positive_definite(&hilbert(1.0827e-7)) && !is_positive_definite(&hilbert(1.0829e-7)));
        let mut wide = hilbert(1e-7);
        wide.radius = Mat::from_fn(6, 6, |_, _| 1e-10);
        assert!(is_positive_definite(&wide));
        wide.radius = Mat::from_fn(6, 6, |_, _| 1e-8);
        assert!(!is_positive_definite(&wide));
        wide.radius[(0, 3)] = f64::NAN;
        assert!(!is_positive_definite(&wide));
    }
}
