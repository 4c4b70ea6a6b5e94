//! A transfer function in the coordinates in which A is diagonal, where every frequency costs as much as there are states.

use crate::Result;
use crate::linalg::{complex_spectral_norm, complex_spectral_norm_above, product};
use crate::poles::Pole;
use crate::system::LinearSystem;
use faer::{Mat, MatRef, c64};
use pulp::Arch;
use rayon::prelude::*;

/// `G(z) = D + sum_k R_k / (z - value_k)` with residues of rank one, but for rounding that the condition of the eigenvectors amplifies:
/// for finding peaks, and for bounds of what is known at a point to be well evaluated.
#[derive(Debug, Clone)]
pub(super) struct PartialFractions {
    values: Vec<c64>,
    /// One of each complex pair, as [`PartialFractions::curvature`] wants them.
    bends: Vec<Bends>,
    form: Form,
    d: Mat<f64>,
}

/// How residues are held, so that memory stays O(d^2).
#[derive(Debug, Clone)]
enum Form {
    /// Entry by entry, [p m, d]: of a real pole R, of a pair Re R and Im R. Many frequencies are then one real product.
    Entries(Mat<f64>),
    /// `R_k = left_k right_k`: [p, n] and [n, m].
    Vectors(Mat<c64>, Mat<c64>),
}

/// Terms of the bound of the second derivative that are added side by side.
const LANES: usize = 8;

/// The data of [`LANES`] poles, one array per quantity; unused lanes have size 0.
#[derive(Debug, Clone)]
struct Bends {
    re: [f64; LANES],
    im: [f64; LANES],
    angle: [f64; LANES],
    /// Squared distances from the circle.
    depth: [f64; LANES],
    /// `|| R_k || (1 + |l_k|)`, and the same of the conjugate, if that is another pole.
    size: [f64; LANES],
    mirrored: [f64; LANES],
}

impl Bends {
    fn of(terms: &[(c64, f64)]) -> Self {
        let zero = [0.0; LANES];
        let mut found = Self { re: zero, im: zero, angle: zero, depth: [1.0; LANES], size: zero, mirrored: zero };
        for (i, &(value, size)) in terms.iter().enumerate() {
            let pole = Pole::polar(value.norm(), value.im.atan2(value.re));
            let Pole { radius, angle, .. } = pole;
            let value = pole.value();
            (found.re[i], found.im[i], found.angle[i]) = (value.re, value.im, angle);
            found.depth[i] = (1.0 - radius) * (1.0 - radius);
            found.size[i] = size * (1.0 + radius);
            found.mirrored[i] = if value.im == 0.0 { 0.0 } else { found.size[i] };
        }
        found
    }
}

/// Residues have no more entries than this times the states, or are held as vectors.
const ENTRIES_PER_STATE: usize = 4;

/// Frequencies that are evaluated together.
pub(super) const BATCH: usize = 64;

impl PartialFractions {
    /// Of balanced matrices, whose states were multiplied by `units`. `None` where eigenvectors are too close to dependent.
    pub fn new(system: &LinearSystem, (b, c, d): (&Mat<f64>, &Mat<f64>, &Mat<f64>), units: &[f64]) -> Option<Self> {
        let over = |x: f64, unit: f64| if unit == 0.0 { 0.0 } else { x / unit };
        let b = Mat::from_fn(b.nrows(), b.ncols(), |i, j| over(b[(i, j)], units[i]));
        let c = Mat::from_fn(c.nrows(), c.ncols(), |i, j| c[(i, j)] * units[j]);
        let (n, p, m) = (b.nrows(), c.nrows(), b.ncols());
        let (mut right, mut left) = (Mat::<c64>::zeros(m, n), Mat::<c64>::zeros(p, n));
        let mut values: Vec<c64> = Vec::with_capacity(n);
        for block in system.blocks() {
            let (first, states, basis) = (values.len(), block.states(), block.basis()?);
            left.subcols_mut(first, states).copy_from(block.outputs(basis, c.subcols(first, states)));
            right.subcols_mut(first, states).copy_from(block.inputs(basis, b.subrows(first, states)));
            values.extend(&block.values);
        }
        if !(left.norm_max().is_finite() && right.norm_max().is_finite()) {
            return None;
        }
        let chosen: Vec<usize> = (0..n).filter(|&k| values[k].im >= 0.0).collect();
        let term = |&k: &usize| (values[k], left.col(k).norm_l2() * right.col(k).norm_l2());
        let terms: Vec<(c64, f64)> = chosen.iter().map(term).collect();
        let bends = terms.chunks(LANES).map(Bends::of).collect();
        let form = if p * m <= ENTRIES_PER_STATE * n {
            let mut entries = Mat::zeros(p * m, n);
            let mut column = 0;
            for &k in &chosen {
                let pair = values[k].im != 0.0;
                for j in 0..m {
                    for i in 0..p {
                        let entry: c64 = left[(i, k)] * right[(j, k)];
                        entries[(i + p * j, column)] = entry.re;
                        if pair {
                            entries[(i + p * j, column + 1)] = entry.im;
                        }
                    }
                }
                column += if pair { 2 } else { 1 };
            }
            Form::Entries(entries)
        } else {
            Form::Vectors(left, right.transpose().to_owned())
        };
        let values: Vec<c64> = match &form {
            Form::Entries(_) => chosen.iter().map(|&k| values[k]).collect(),
            Form::Vectors(..) => values,
        };
        Some(Self { values, bends, form, d: d.clone() })
    }

    /// The transfer function at angles `omegas`.
    fn at(&self, omegas: &[f64]) -> Vec<Mat<c64>> {
        let points = omegas.iter().map(|&angle| Pole { radius: 1.0, angle, rate: 0.0 }.value());
        let (p, m) = self.d.shape();
        match &self.form {
            Form::Entries(entries) => {
                let count = omegas.len();
                let mut factors = Mat::zeros(entries.ncols(), 2 * count);
                for (column, z) in points.enumerate() {
                    let mut row = 0;
                    let mut put = |row: usize, factor: c64| {
                        (factors[(row, column)], factors[(row, count + column)]) = (factor.re, factor.im);
                    };
                    for value in &self.values {
                        let above = (z - value).inv();
                        if value.im == 0.0 {
                            put(row, above);
                            row += 1;
                            continue;
                        }
                        // R / (z - l) and its mirror image: Re R (s + t) + Im R i (s - t).
                        let below = (z - value.conj()).inv();
                        put(row, above + below);
                        put(row + 1, (above - below) * c64::new(0.0, 1.0));
                        row += 2;
                    }
                }
                let found = product(entries.as_ref(), factors.as_ref());
                let entry = |column: usize, i: usize, j: usize| {
                    let at = i + p * j;
                    c64::new(found[(at, column)] + self.d[(i, j)], found[(at, count + column)])
                };
                (0..count).map(|column| Mat::from_fn(p, m, |i, j| entry(column, i, j))).collect()
            }
            Form::Vectors(left, right) => points.map(|z| self.by_vectors(left.as_ref(), right, z)).collect(),
        }
    }

    fn by_vectors(&self, left: MatRef<'_, c64>, right: &Mat<c64>, z: c64) -> Mat<c64> {
        let mut x = right.clone();
        let gains: Vec<c64> = self.values.iter().map(|value| (z - value).inv()).collect();
        for column in x.col_iter_mut() {
            column.iter_mut().zip(&gains).for_each(|(x, gain)| *x *= gain);
        }
        let mut g = crate::linalg::complex_product(left, x.as_ref());
        for (column, d) in g.col_iter_mut().zip(self.d.col_iter()) {
            column.iter_mut().zip(d.iter()).for_each(|(x, d)| *x += *d);
        }
        g
    }

    /// The gain at an angle.
    pub fn gain(&self, omega: f64) -> Result<f64> {
        complex_spectral_norm(self.at(&[omega])[0].as_ref())
    }

    /// The gains at many angles. Where a gain cannot exceed the larger of `floor` and half of the largest nearby, an upper bound stands for
    /// it.
    pub fn gains(&self, omegas: &[f64], floor: f64) -> Result<Vec<f64>> {
        let chunks = omegas.par_chunks(BATCH).map(|chunk| {
            let responses = self.at(chunk);
            let sums: Vec<f64> = responses.iter().map(Mat::norm_l2).collect();
            let rank = self.d.nrows().min(self.d.ncols()).max(1) as f64;
            let floor = floor.max(0.5 * sums.iter().copied().fold(0.0, f64::max) / rank.sqrt());
            let gain = |(g, &sum): (&Mat<c64>, &f64)| {
                if sum <= floor { Ok(sum) } else { complex_spectral_norm_above(g.as_ref(), floor) }
            };
            responses.iter().zip(&sums).map(gain).collect::<Result<Vec<f64>>>()
        });
        Ok(chunks.collect::<Result<Vec<_>>>()?.concat())
    }

    /// A bound of the norm of the second derivative by the angle, at all angles from `low` to `high`.
    ///
    /// Of `R / (e^{it} - l)` it is `|| R z (z + l) / (z - l)^3 ||`, at most `|| R || (1 + |l|) / distance^3`.
    pub fn curvature(&self, low: f64, high: f64) -> f64 {
        let ends = [low, high].map(|angle| Pole { radius: 1.0, angle, rate: 0.0 }.value());
        Arch::new().dispatch(|| {
            let mut sums = [0.0; LANES];
            for bends in &self.bends {
                for (i, sum) in sums.iter_mut().enumerate() {
                    let (re, im) = (bends.re[i], bends.im[i]);
                    let square = |end: c64, im: f64| (end.re - re) * (end.re - re) + (end.im - im) * (end.im - im);
                    let nearer = |x: f64, y: f64| if x < y { x } else { y };
                    let between = low <= bends.angle[i] && bends.angle[i] <= high;
                    let apart = nearer(square(ends[0], im), square(ends[1], im));
                    let apart = if between { bends.depth[i] } else { apart };
                    let mirrored = nearer(square(ends[0], -im), square(ends[1], -im));
                    *sum += bends.size[i] / (apart * apart.sqrt()) + bends.mirrored[i] / (mirrored * mirrored.sqrt());
                }
            }
            sums.iter().sum()
        })
    }
}
