//! Thin wrappers over faer for the few dense computations needed here.

use super::{LtiError, Result};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::qr::no_pivoting::factor::{qr_in_place, qr_in_place_scratch, recommended_block_size};
use faer::{Mat, MatRef, Par, c64};

/// Columns of B that are folded into the triangle at once: with them it stays in the cache.
const FOLD: usize = 224;

/// Lower-triangular-like `L` of shape [d, min(d, m)] with `L L^T = B B^T`, by QR decompositions of B^T: of some columns of B,
/// then of the triangle on top of the next ones, and so on.
///
/// Every row of L carries an error relative to that row of B alone, so rows of very different size keep their digits.
pub fn compress_columns(b: MatRef<'_, f64>) -> Mat<f64> {
    let (d, m) = b.shape();
    if m <= d {
        return b.to_owned();
    }
    let fold = FOLD.max(d);
    let rows = (d + fold).min(m);
    let block = recommended_block_size::<f64>(rows, d);
    let mut memory = MemBuffer::new(qr_in_place_scratch::<f64>(rows, d, block, Par::Seq, Default::default()));
    let mut coefficients = Mat::zeros(block, d);
    let mut stacked = Mat::<f64>::zeros(rows, d);
    stacked.copy_from(b.subcols(0, rows).transpose());
    let mut next = rows;
    loop {
        let (stack, parameters) = (MemStack::new(&mut memory), Default::default());
        // On this thread: layers are what is shared out.
        qr_in_place(stacked.as_mut(), coefficients.as_mut(), Par::Seq, stack, parameters);
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
    m.eigenvalues().map_err(|_| LtiError::NoConvergence("the eigenvalue decomposition"))
}

/// Largest singular value of a complex matrix, from the eigenvalues of the smaller of `G^H G` and `G G^H`.
///
/// Squaring costs no accuracy here: the *largest* eigenvalue of a Gram matrix is computed to full relative accuracy.
pub fn complex_spectral_norm(g: MatRef<'_, c64>) -> Result<f64> {
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

/// `a * b` on the calling thread: the matrices here are far too small to share out.
pub fn product(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Mat<f64> {
    let mut out = Mat::zeros(a.nrows(), b.ncols());
    faer::linalg::matmul::matmul(out.as_mut(), faer::Accum::Replace, a, b, 1.0, Par::Seq);
    out
}
