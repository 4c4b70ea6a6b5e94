//! Thin wrappers over faer for the few dense computations needed here.

use super::gram::gram_of_rows;
use super::largest::largest_eigenvalue;
use super::{LtiError, Result};
use faer::diag::Diag;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd::{ComputeEigenvectors, evd_real, evd_scratch};
use faer::linalg::qr::no_pivoting::factor::{qr_in_place, qr_in_place_scratch, recommended_block_size};
use faer::linalg::solvers::DenseSolveCore;
use faer::{Mat, MatRef, Par, Spec, c64};

/// Columns of B that are folded into the triangle at once: with them it stays in the cache.
const FOLD: usize = 224;

/// Columns per row from which the rows of B are likely to be far from dependent, so that [`cholesky_of_gram`] is tried.
const MANY: usize = 16;

/// Lower-triangular-like `L` of shape [d, min(d, m)] with `L L^T = B B^T`, by QR decompositions of B^T: of some columns of B,
/// then of the triangle on top of the next ones, and so on.
///
/// Every row of L carries an error relative to that row of B alone, so rows of very different size keep their digits.
pub fn compress_columns(b: MatRef<'_, f64>) -> Mat<f64> {
    let (d, m) = b.shape();
    if m <= d {
        return b.to_owned();
    }
    if m >= MANY * d
        && let Some(l) = cholesky_of_gram(b)
    {
        return l;
    }
    let fold = FOLD.max(d);
    let rows = (d + fold).min(m);
    let block = recommended_block_size::<f64>(rows, d);
    // On this thread unless the matrix is large: layers are what is shared out.
    let par = parallelism(rows * d, d);
    let mut memory = MemBuffer::new(qr_in_place_scratch::<f64>(rows, d, block, par, Spec::default()));
    let mut coefficients = Mat::zeros(block, d);
    let mut stacked = Mat::<f64>::zeros(rows, d);
    stacked.copy_from(b.subcols(0, rows).transpose());
    let mut next = rows;
    loop {
        let (stack, parameters) = (MemStack::new(&mut memory), Spec::default());
        qr_in_place(stacked.as_mut(), coefficients.as_mut(), par, stack, parameters);
        if next == m {
            return Mat::from_fn(d, d, |i, j| if j <= i { stacked[(j, i)] } else { 0.0 });
        }
        let taken = fold.min(m - next);
        for j in 0..d {
            stacked.col_as_slice_mut(j)[j + 1..].fill(0.0);
        }
        stacked.submatrix_mut(d, 0, taken, d).copy_from(b.subcols(next, taken).transpose());
        next += taken;
    }
}

/// [`compress_columns`] of `b * 2^exponent`, without a copy of `b` where nothing can leave the range of numbers.
pub fn compress_scaled_columns(b: MatRef<'_, f64>, exponent: i32) -> Mat<f64> {
    const HARMLESS: i32 = 100;
    if exponent.abs() <= HARMLESS {
        return times_power_of_two(compress_columns(b).as_ref(), exponent);
    }
    compress_columns(times_power_of_two(b, exponent).as_ref())
}

/// The triangle of [`compress_columns`] as the Cholesky factor of `B B^T`, in a third of the time; `None` where squaring would cost
/// digits.
///
/// The Gram matrix of rows scaled to unit length has errors of a few roundings. Its factor has them divided by the smallest
/// pivot, the squared distance of a row from the space of those before it: one digit at most is given up.
fn cholesky_of_gram(b: MatRef<'_, f64>) -> Option<Mat<f64>> {
    const SMALLEST_PIVOT: f64 = 0.1;
    let d = b.nrows();
    let rows: Option<Vec<&[f64]>> = b.row_iter().map(|row| Some(row.try_as_row_major()?.as_slice())).collect();
    let mut l = rows.map_or_else(|| product(b, b.transpose()), |rows| gram_of_rows(&rows));
    let norms: Vec<f64> = (0..d).map(|i| l[(i, i)].sqrt()).collect();
    if !norms.iter().all(|norm| (1e-140..1e140).contains(norm)) {
        return None;
    }
    for j in 0..d {
        for i in 0..d {
            l[(i, j)] = if i < j { 0.0 } else { l[(i, j)] / (norms[i] * norms[j]) };
        }
    }
    for j in 0..d {
        let pivot = l[(j, j)];
        if pivot.is_nan() || pivot < SMALLEST_PIVOT {
            return None;
        }
        for i in j..d {
            l[(i, j)] /= pivot.sqrt();
        }
        for k in j + 1..d {
            let factor = l[(k, j)];
            for i in k..d {
                l[(i, k)] -= factor * l[(i, j)];
            }
        }
    }
    for j in 0..d {
        for i in j..d {
            l[(i, j)] *= norms[i];
        }
    }
    Some(l)
}

/// As [`compress_columns`], dropping directions below rounding: shape [d, numerical rank of B].
pub fn compress_columns_to_rank(b: MatRef<'_, f64>) -> Mat<f64> {
    let small = compress_columns(b);
    if small.norm_max() == 0.0 {
        return Mat::zeros(small.nrows(), 0);
    }
    let qr = small.transpose().col_piv_qr();
    let r = qr.thin_R();
    let largest = r[(0, 0)].abs();
    let rank = (0..r.nrows()).take_while(|&i| r[(i, i)].abs() > f64::EPSILON * largest).count();
    let (forward, _) = qr.P().arrays();
    let mut out = Mat::zeros(small.nrows(), rank);
    for (k, &original) in forward.iter().enumerate() {
        for i in 0..rank {
            out[(original, i)] = r[(i, k)];
        }
    }
    out
}

/// Largest singular value of a real matrix.
pub fn spectral_norm(m: MatRef<'_, f64>) -> Result<f64> {
    Ok(singular_values(m)?.first().copied().unwrap_or(0.0))
}

/// Singular values of a real matrix, descending.
pub fn singular_values(m: MatRef<'_, f64>) -> Result<Vec<f64>> {
    if m.nrows() == 0 || m.ncols() == 0 {
        return Ok(Vec::new());
    }
    m.singular_values().map_err(|_| LtiError::NoConvergence("the singular value decomposition"))
}

/// Eigenvalues of a real square matrix.
pub fn eigenvalues(m: MatRef<'_, f64>) -> Result<Vec<c64>> {
    if m.nrows() == 0 {
        return Ok(Vec::new());
    }
    let (moved, shift) = apart(in_even_units(m).0);
    let values = moved.eigenvalues().map_err(|_| LtiError::NoConvergence("the eigenvalue decomposition"))?;
    Ok(values.into_iter().map(|value| value - shift).collect())
}

/// Eigenvalues and eigenvectors of unit length of a real square matrix. Pairs of eigenvalues follow each other, that above the real axis
/// first; of its eigenvector `x + i y` there are the columns x and y, turned to be orthogonal, which makes the plane's basis as
/// well conditioned as it can be.
pub fn eigenvectors(m: MatRef<'_, f64>) -> Result<(Vec<c64>, Mat<f64>)> {
    let n = m.nrows();
    let (even, units) = in_even_units(m);
    let (moved, shift) = apart(even);
    let (mut re, mut im, mut vectors) = (Diag::zeros(n), Diag::zeros(n), Mat::zeros(n, n));
    let par = faer::get_global_parallelism();
    let (no, yes) = (ComputeEigenvectors::No, ComputeEigenvectors::Yes);
    let mut memory = MemBuffer::new(evd_scratch::<f64>(n, no, yes, par, Spec::default()));
    let (stack, right) = (MemStack::new(&mut memory), Some(vectors.as_mut()));
    evd_real(moved.as_ref(), re.as_mut(), im.as_mut(), None, right, par, stack, Spec::default())
        .map_err(|_| LtiError::NoConvergence("the eigenvalue decomposition"))?;
    let mut values: Vec<c64> = (0..n).map(|i| c64::new(re[i] - shift, im[i])).collect();
    (0..n).for_each(|j| vectors.col_as_slice_mut(j).iter_mut().zip(&units).for_each(|(x, unit)| *x *= unit));
    let mut i = 0;
    while i < n {
        if im[i] == 0.0 {
            let norm = vectors.col(i).norm_l2();
            vectors.col_as_slice_mut(i).iter_mut().for_each(|x| *x /= norm);
            i += 1;
            continue;
        }
        if i + 1 == n {
            return Err(LtiError::NoConvergence("the eigenvalue decomposition"));
        }
        // (x + i y) e^{i t} has orthogonal parts for this angle.
        let (x, y) = (vectors.col(i), vectors.col(i + 1));
        let (xx, yy, xy) = (x.squared_norm_l2(), y.squared_norm_l2(), x.transpose() * y);
        let (sin, cos) = (-0.5 * f64::atan2(2.0 * xy, xx - yy)).sin_cos();
        // The conjugate of the eigenvector belongs to the conjugate.
        let above = if im[i] < 0.0 { -1.0 } else { 1.0 };
        values[i].im *= above;
        values[i + 1] = values[i].conj();
        let norm = (xx + yy).sqrt();
        for k in 0..n {
            let (x, y) = (vectors[(k, i)] / norm, above * vectors[(k, i + 1)] / norm);
            let (sin, cos) = (above * sin, cos);
            (vectors[(k, i)], vectors[(k, i + 1)]) = (x * cos - y * sin, x * sin + y * cos);
        }
        i += 2;
    }
    Ok((values, vectors))
}

/// `m` plus a multiple of the identity, and that multiple.
///
/// For matrices of 75 rows and more faer sorts eigenvalues by modulus within a window, and does not end where rounding changes the order of equal
/// ones (0.24; Hamiltonian matrices have `s` and `-s` both). The multiple tells such pairs apart; it is small beside the matrix, so
/// that the error stays a rounding error of its size.
fn apart(mut m: Mat<f64>) -> (Mat<f64>, f64) {
    const SORTED_FROM: usize = 75;
    const SHARE: f64 = 0.011_235_813;
    let shift = if m.nrows() < SORTED_FROM { 0.0 } else { SHARE * m.norm_max() };
    if shift != 0.0 {
        (0..m.nrows()).for_each(|i| m[(i, i)] += shift);
    }
    (m, shift)
}

/// `T^-1 m T` with the diagonal of T, powers of two, that makes every row about as large as its column: LAPACK's GEBAL without its
/// permutations (R. James, J. Langou, B. Lowery, On matrix balancing and eigenvector computation, 2014). Without it, eigenvalues are as
/// inexact as the largest unit of a state makes m. The diagonal does not count: it is the same in all units, and hides the rest of a matrix near
/// the identity, as of a system that is sampled fast.
pub fn in_even_units(m: MatRef<'_, f64>) -> (Mat<f64>, Vec<f64>) {
    /// Rounds; most matrices take a few.
    const ROUNDS: usize = 50;
    /// What a change has to save.
    const WORTH: f64 = 0.95;
    /// Units stay between this power of two and its inverse, so that no product of two overflows.
    const FARTHEST: i32 = 300;
    let n = m.nrows();
    let mut even = m.to_owned();
    (0..n).for_each(|i| even[(i, i)] = 0.0);
    let mut exponents = vec![0_i32; n];
    for _ in 0..ROUNDS {
        let mut settled = true;
        for i in 0..n {
            let (column, row) = (even.col(i).norm_l2(), even.row(i).norm_l2());
            if !(column > 0.0 && row > 0.0 && (row / column).is_normal()) {
                continue;
            }
            let most = (0.5 * (row / column).log2()).round() as i32;
            let exponent = (exponents[i] + most).clamp(-FARTHEST, FARTHEST) - exponents[i];
            let factor = f64::from(exponent).exp2();
            if factor * column + row / factor < WORTH * (column + row) {
                settled = false;
                exponents[i] += exponent;
                (0..n).for_each(|j| even[(j, i)] *= factor);
                (0..n).for_each(|j| even[(i, j)] /= factor);
            }
        }
        if settled {
            break;
        }
    }
    (0..n).for_each(|i| even[(i, i)] = m[(i, i)]);
    (even, exponents.into_iter().map(|exponent| f64::from(exponent).exp2()).collect())
}

/// The inverse of a real square matrix; not finite where there is none.
pub fn invert(m: MatRef<'_, f64>) -> Mat<f64> {
    m.partial_piv_lu().inverse()
}

/// `a * b` of complex matrices.
pub fn complex_product(a: MatRef<'_, c64>, b: MatRef<'_, c64>) -> Mat<c64> {
    let mut out = Mat::zeros(a.nrows(), b.ncols());
    let par = parallelism(a.nrows() * a.ncols(), b.ncols());
    faer::linalg::matmul::matmul(out.as_mut(), faer::Accum::Replace, a, b, c64::new(1.0, 0.0), par);
    out
}

/// A real matrix as a complex one.
pub fn to_complex(m: MatRef<'_, f64>) -> Mat<c64> {
    Mat::from_fn(m.nrows(), m.ncols(), |i, j| c64::new(m[(i, j)], 0.0))
}

/// Largest singular value of a complex matrix, from the eigenvalues of the smaller of `G^H G` and `G G^H`.
///
/// Squaring costs no accuracy here: the *largest* eigenvalue of a Gram matrix is computed to full relative accuracy.
pub fn complex_spectral_norm(g: MatRef<'_, c64>) -> Result<f64> {
    complex_spectral_norm_above(g, 0.0)
}

/// Larger matrices are reduced in blocks.
const FEW: usize = 24;

/// [`complex_spectral_norm`] if it is above `floor`, else an upper bound of it that is at most `floor`. The bound may be the fourth root of
/// the sum of the fourth powers of all singular values.
pub fn complex_spectral_norm_above(g: MatRef<'_, c64>, floor: f64) -> Result<f64> {
    if g.nrows() == 0 || g.ncols() == 0 {
        return Ok(0.0);
    }
    if g.nrows().min(g.ncols()) == 1 {
        return Ok(g.norm_l2());
    }
    let scale = g.norm_max();
    if scale == 0.0 || !scale.is_finite() {
        return Ok(scale);
    }
    let g = g * faer::Scale(c64::new(1.0 / scale, 0.0));
    let gram = if g.nrows() < g.ncols() { &g * g.adjoint() } else { g.adjoint() * &g };
    // A little more, for the rounding of sums.
    let bound = scale * gram.norm_l2().sqrt() * (1.0 + 1e-12);
    if bound <= floor {
        return Ok(bound);
    }
    if gram.nrows() <= FEW
        && let Some(largest) = largest_eigenvalue(gram.clone())
    {
        return Ok(scale * largest.max(0.0).sqrt());
    }
    let values = gram
        .self_adjoint_eigenvalues(faer::Side::Lower)
        .map_err(|_| LtiError::NoConvergence("the symmetric eigenvalue decomposition"))?;
    Ok(scale * values.last().copied().unwrap_or(0.0).max(0.0).sqrt())
}

/// `[a 0; 0 b]`.
pub fn block_diagonal(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Mat<f64> {
    let mut out = Mat::zeros(a.nrows() + b.nrows(), a.ncols() + b.ncols());
    out.submatrix_mut(0, 0, a.nrows(), a.ncols()).copy_from(a);
    out.submatrix_mut(a.nrows(), a.ncols(), b.nrows(), b.ncols()).copy_from(b);
    out
}

/// `[a b]`.
pub fn beside(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Mat<f64> {
    let mut out = Mat::zeros(a.nrows(), a.ncols() + b.ncols());
    out.submatrix_mut(0, 0, a.nrows(), a.ncols()).copy_from(a);
    out.submatrix_mut(0, a.ncols(), b.nrows(), b.ncols()).copy_from(b);
    out
}

/// `[a; b]`.
pub fn above(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Mat<f64> {
    let mut out = Mat::zeros(a.nrows() + b.nrows(), a.ncols());
    out.submatrix_mut(0, 0, a.nrows(), a.ncols()).copy_from(a);
    out.submatrix_mut(a.nrows(), 0, b.nrows(), b.ncols()).copy_from(b);
    out
}

/// The exponent of the power of two nearest below the largest entry; 0 for a matrix of zeros.
pub fn exponent(m: MatRef<'_, f64>) -> i32 {
    let largest = m.norm_max();
    if largest > 0.0 && largest.is_finite() { largest.log2().floor() as i32 } else { 0 }
}

/// The largest modulus in every row, in the order in which the matrix lies in memory.
fn row_maxima(m: MatRef<'_, f64>) -> Vec<f64> {
    // Not `f64::max`, which takes twice the time: a NaN is found where systems are made.
    let larger = |largest: f64, x: f64| if x.abs() > largest { x.abs() } else { largest };
    let mut rows = vec![0.0_f64; m.nrows()];
    if m.row_stride() == 1 {
        for column in m.col_iter() {
            rows.iter_mut().zip(column.iter()).for_each(|(largest, x)| *largest = larger(*largest, *x));
        }
        return rows;
    }
    for (largest, row) in rows.iter_mut().zip(m.row_iter()) {
        *largest = match row.try_as_row_major() {
            Some(row) => {
                // Chains that the processor runs side by side.
                let (chunks, rest) = row.as_slice().as_chunks::<16>();
                let mut chains = [0.0_f64; 16];
                for chunk in chunks {
                    chains.iter_mut().zip(chunk).for_each(|(largest, x)| *largest = larger(*largest, *x));
                }
                chains.iter().chain(rest).fold(0.0, |largest, x| larger(largest, *x))
            }
            None => row.iter().fold(0.0, |largest, x| larger(largest, *x)),
        };
    }
    rows
}

/// The exponent of the largest gain of a state, `|row i of b| |column i of c|`, split in halves: exponents of the powers of two to divide
/// B [d, m] and C [p, d] by, so that squares of gains neither underflow nor overflow. They do not depend on the units of the states: a
/// state with tiny inputs and huge outputs may have gain 1.
pub fn gain_exponents(b: MatRef<'_, f64>, c: MatRef<'_, f64>) -> (i32, i32) {
    let (rows, columns) = (row_maxima(b), row_maxima(c.transpose()));
    let size = |x: f64| if x.is_finite() { x.log2().floor() as i32 } else { 0 };
    let gains = rows.iter().zip(&columns).filter(|(row, column)| **row > 0.0 && **column > 0.0);
    let gains = gains.map(|(&row, &column)| size(row) + size(column));
    let largest = gains.max().unwrap_or(0);
    (largest / 2, largest - largest / 2)
}

/// `m * 2^exponent`: exact, unless an entry leaves the range of normal numbers.
pub fn times_power_of_two(m: MatRef<'_, f64>, exponent: i32) -> Mat<f64> {
    Mat::from_fn(m.nrows(), m.ncols(), |i, j| ldexp(m[(i, j)], exponent))
}

/// `x * 2^exponent`, in steps that do not leave the range before the result does.
pub fn ldexp(x: f64, exponent: i32) -> f64 {
    let third = exponent / 3;
    x * 2_f64.powi(third) * 2_f64.powi(third) * 2_f64.powi(exponent - 2 * third)
}

/// `a * b`, on the calling thread unless the matrices are large: layers are what is shared out.
pub fn product(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Mat<f64> {
    let mut out = Mat::zeros(a.nrows(), b.ncols());
    let par = parallelism(a.nrows() * a.ncols(), b.ncols());
    faer::linalg::matmul::matmul(out.as_mut(), faer::Accum::Replace, a, b, 1.0, par);
    out
}

/// All threads for a computation of `entries * columns` multiplications that is worth it, by sizes alone.
pub fn parallelism(entries: usize, columns: usize) -> Par {
    const WORTH: usize = 1 << 25;
    if entries.saturating_mul(columns) >= WORTH { Par::rayon(0) } else { Par::Seq }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of very different size with values in (-1, 1), by the golden-ratio sequence.
    fn rows(d: usize, m: usize) -> Mat<f64> {
        let value = |k: usize| 2.0 * (k as f64 * 0.618_033_988_749_895 + 0.1 * ((k * k) as f64).sin()).fract() - 1.0;
        Mat::from_fn(d, m, |i, j| value(i * m + j + 7 * i) * 10_f64.powi(5 * i as i32 - 10))
    }

    /// Largest error of `L L^T` against `B B^T`, relative to the two rows of B that an entry comes from.
    fn error(l: MatRef<'_, f64>, b: MatRef<'_, f64>) -> f64 {
        let (found, expected) = (product(l, l.transpose()), product(b, b.transpose()));
        let size = |i: usize| b.row(i).norm_l2().max(f64::MIN_POSITIVE);
        let entry = |(i, j)| (found[(i, j)] - expected[(i, j)]).abs() / (size(i) * size(j));
        (0..b.nrows()).flat_map(|i| (0..b.nrows()).map(move |j| (i, j))).map(entry).fold(0.0, f64::max)
    }

    #[test]
    fn rows_of_every_size_keep_their_digits() {
        // One piece, several, a last one of one column; few columns, and so many that the Gram matrix is taken.
        for (d, m) in [(1, 2), (3, 7), (5, 60), (20, 244), (20, 245), (20, 319), (5, 80), (7, 1000)] {
            let b = rows(d, m);
            let l = compress_columns(b.as_ref());
            assert_eq!(l.shape(), (d, d));
            assert!(error(l.as_ref(), b.as_ref()) < 1e-13, "{d} {m}");
            assert!((0..d).all(|j| (0..j).all(|i| l[(i, j)] == 0.0)));
        }
    }

    #[test]
    fn the_gram_matrix_is_left_alone_where_it_would_cost_digits() {
        let mut b = rows(4, 400);
        assert!(cholesky_of_gram(b.as_ref()).is_some());
        for j in 0..400 {
            b[(2, j)] = b[(1, j)] * (1.0 + 1e-3 * (j as f64).sin());
        }
        assert!(cholesky_of_gram(b.as_ref()).is_none());
        assert!(error(compress_columns(b.as_ref()).as_ref(), b.as_ref()) < 1e-13);
        b.row_mut(3).fill(0.0);
        assert!(cholesky_of_gram(b.as_ref()).is_none());
        assert_eq!(compress_columns(b.as_ref()).row(3).norm_max(), 0.0);
        b[(0, 0)] = f64::NAN;
        assert!(cholesky_of_gram(b.as_ref()).is_none());
    }
}
