//! One-sided Jacobi SVD: small singular values of graded matrices to high *relative* accuracy.
//!
//! A bidiagonalising SVD has an error of `eps * sigma_1` in every value and so knows nothing of Hankel singular values
//! below it. The products `Lo^T Lc` met here are graded (rows and columns of very different size around a
//! well-conditioned core), for which a pivoted QR followed by Jacobi rotations keeps the digits of every value:
//! Z. Drmač and K. Veselić, New fast and accurate Jacobi SVD algorithm I, SIAM J. Matrix Anal. Appl. 29 (2008).

use super::linalg::product;
use super::{LtiError, Result};
use faer::{Mat, MatRef};

/// `M = U diag(values) V^T` with values descending; columns of U and V that belong to zero values are zero.
pub struct JacobiSvd {
    /// Left singular vectors, [rows, k].
    pub u: Mat<f64>,
    /// Singular values, `k = min(rows, columns)` of them.
    pub values: Vec<f64>,
    /// Right singular vectors, [columns, k].
    pub v: Mat<f64>,
}

const MAX_SWEEPS: usize = 60;

/// Singular value decomposition of `m`.
pub fn jacobi_svd(m: MatRef<'_, f64>) -> Result<JacobiSvd> {
    if m.nrows() < m.ncols() {
        let JacobiSvd { u, values, v } = jacobi_svd(m.transpose())?;
        return Ok(JacobiSvd { u: v, values, v: u });
    }
    let n = m.ncols();
    if m.norm_max() == 0.0 {
        return Ok(JacobiSvd { u: Mat::zeros(m.nrows(), n), values: vec![0.0; n], v: Mat::zeros(n, n) });
    }
    // M P = Q R. Rotating the columns of R^T, R^T J = W S, gives M P = (Q J) S W^T.
    let qr = m.col_piv_qr();
    let q = qr.compute_thin_Q();
    let (forward, _) = qr.P().arrays();
    let r = qr.thin_R();
    let columns = |entry: &dyn Fn(usize, usize) -> f64| -> Vec<Vec<f64>> {
        (0..n).map(|j| (0..n).map(|i| entry(i, j)).collect()).collect()
    };
    let mut x = columns(&|i, j| if j <= i { r[(j, i)] } else { 0.0 });
    let mut j = columns(&|i, j| if i == j { 1.0 } else { 0.0 });
    rotate_to_orthogonality(&mut x, &mut j)?;

    let norms: Vec<f64> = x.iter().map(|x| norm(x)).collect();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| norms[b].total_cmp(&norms[a]));
    let qj = product(q.as_ref(), Mat::from_fn(n, n, |row, k| j[k][row]).as_ref());
    let values: Vec<f64> = order.iter().map(|&k| norms[k]).collect();
    let mut u = Mat::zeros(m.nrows(), n);
    let mut v = Mat::zeros(n, n);
    for (to, &from) in order.iter().enumerate() {
        if norms[from] == 0.0 {
            continue;
        }
        u.col_mut(to).copy_from(qj.col(from));
        for (row, &original) in forward.iter().enumerate() {
            v[(original, to)] = x[from][row] / norms[from];
        }
    }
    Ok(JacobiSvd { u, values, v })
}

/// The same by bidiagonalisation: every value has an error of rounding of the largest, in a tenth of the time.
pub fn plain_svd(m: MatRef<'_, f64>) -> Result<JacobiSvd> {
    let svd = m.thin_svd().map_err(|_| LtiError::NoConvergence("the singular value decomposition"))?;
    let values: Vec<f64> = svd.S().column_vector().iter().copied().collect();
    Ok(JacobiSvd { u: svd.U().to_owned(), values, v: svd.V().to_owned() })
}

/// Rotates pairs of columns of `x` (and of `j` with them) until all are orthogonal to working precision.
fn rotate_to_orthogonality(x: &mut [Vec<f64>], j: &mut [Vec<f64>]) -> Result<()> {
    let n = x.len();
    let tolerance = f64::EPSILON * (n as f64).sqrt();
    for _ in 0..MAX_SWEEPS {
        let mut rotated = false;
        for p in 0..n {
            for q in p + 1..n {
                let [xp, xq] = x.get_disjoint_mut([p, q]).expect("two columns");
                let (np, nq) = (norm(xp), norm(xq));
                if np == 0.0 || nq == 0.0 {
                    continue;
                }
                // Cosine of the angle between the columns, formed so that tiny columns do not underflow.
                let cosine = sum(xp, xq, |a, b| (a / np) * (b / nq));
                if cosine.abs() <= tolerance {
                    continue;
                }
                let zeta = (nq / np - np / nq) / (2.0 * cosine);
                if zeta.is_infinite() {
                    continue; // sizes 300 orders of magnitude apart: the rotation is the identity
                }
                rotated = true;
                let t = zeta.signum() / (zeta.abs() + zeta.hypot(1.0));
                let cos = 1.0 / t.hypot(1.0);
                rotate(xp, xq, cos, cos * t);
                let [jp, jq] = j.get_disjoint_mut([p, q]).expect("two columns");
                rotate(jp, jq, cos, cos * t);
            }
        }
        if !rotated {
            return Ok(());
        }
    }
    Err(LtiError::NoConvergence("the Jacobi singular value decomposition"))
}

fn rotate(p: &mut [f64], q: &mut [f64], cos: f64, sin: f64) {
    for (p, q) in p.iter_mut().zip(q) {
        (*p, *q) = (cos * *p - sin * *q, sin * *p + cos * *q);
    }
}

/// Euclidean norm, without overflow or underflow; not a number if an entry is none.
fn norm(x: &[f64]) -> f64 {
    let squares = sum(x, x, |a, b| a * b);
    if (1e-280..1e280).contains(&squares) || squares.is_nan() {
        return squares.sqrt();
    }
    let largest = x.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
    if largest == 0.0 { 0.0 } else { largest * sum(x, x, |a, b| (a / largest) * (b / largest)).sqrt() }
}

/// The sum of `f` over pairs, in eight chains that the processor runs side by side.
#[inline(always)]
fn sum(a: &[f64], b: &[f64], f: impl Fn(f64, f64) -> f64) -> f64 {
    let (a, b) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut chains = [0.0; 8];
    for (a, b) in a.0.iter().zip(b.0) {
        for (chain, (&a, &b)) in chains.iter_mut().zip(a.iter().zip(b)) {
            *chain += f(a, b);
        }
    }
    let rest: f64 = a.1.iter().zip(b.1).map(|(&a, &b)| f(a, b)).sum();
    chains.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(m: MatRef<'_, f64>) -> Vec<f64> {
        let svd = jacobi_svd(m).unwrap();
        let k = svd.values.len();
        let s = Mat::from_fn(k, k, |i, j| if i == j { svd.values[i] } else { 0.0 });
        let back = &svd.u * &s * svd.v.transpose();
        assert!((&back - m).norm_l2() <= 1e-14 * m.norm_l2().max(1e-300));
        assert!(svd.values.windows(2).all(|w| w[0] >= w[1]));
        let plain = plain_svd(m).unwrap();
        let s = Mat::from_fn(k, k, |i, j| if i == j { plain.values[i] } else { 0.0 });
        assert!((&plain.u * &s * plain.v.transpose() - m).norm_l2() <= 1e-14 * m.norm_l2().max(1e-300));
        svd.values
    }

    #[test]
    fn reproduces_matrices_of_every_shape() {
        let entry = |i: usize, j: usize| ((i * 7 + j * 13) as f64).sin() + 0.1 * (i as f64 - j as f64);
        for (rows, cols) in [(1, 1), (5, 5), (9, 4), (4, 9), (3, 1), (0, 4), (4, 0)] {
            check(Mat::from_fn(rows, cols, entry).as_ref());
        }
        assert_eq!(check(Mat::<f64>::zeros(3, 3).as_ref()), [0.0; 3]);
        let rank_one = check(Mat::from_fn(4, 4, |i, j| ((i + 1) * (j + 1)) as f64).as_ref());
        assert!((rank_one[0] - 30.0).abs() < 1e-13 && rank_one[1] < 1e-13);
    }

    #[test]
    fn what_is_not_a_number_is_an_error_and_not_a_zero() {
        for broken in [f64::NAN, f64::INFINITY] {
            let m = Mat::from_fn(3, 3, |i, j| if (i, j) == (1, 2) { broken } else { (i + 2 * j) as f64 });
            let values = jacobi_svd(m.as_ref()).map(|svd| svd.values);
            assert!(values.is_err() || values.is_ok_and(|values| values.iter().any(|s| s.is_nan())));
        }
        let tiny = jacobi_svd(Mat::from_fn(2, 2, |i, j| 1e-200 * (1 + i * j) as f64).as_ref()).unwrap();
        assert!(tiny.values[1] > 0.3e-200 && tiny.values[0] < 3e-200);
    }

    #[test]
    fn small_values_of_a_graded_matrix_keep_their_digits() {
        // D X D with X = [2 1; 1 2] and D = diag(1, 1e-20): determinant 3e-40, largest value 2 to first order.
        let d = [1.0, 1e-20];
        let m = Mat::from_fn(2, 2, |i, j| d[i] * d[j] * if i == j { 2.0 } else { 1.0 });
        let values = check(m.as_ref());
        assert!((values[0] / 2.0 - 1.0).abs() < 1e-15);
        assert!((values[1] / 1.5e-40 - 1.0).abs() < 1e-14);
    }
}
