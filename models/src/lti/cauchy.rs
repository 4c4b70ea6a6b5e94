//! Cholesky-like factors of the Gramians of a system with known poles, without ever forming the Gramian.
//!
//! For poles l_i and input rows b_i the Gramian is the Cauchy-like matrix `W_ij = b_i b_j^H / (1 - l_i conj(l_j))`. One
//! step of outer-product Cholesky keeps that shape: with the pivot row rotated to `(beta, 0, ..., 0)`,
//!
//! ```text
//! column:           L_j = b_j0 sqrt(1 - |l_p|^2) / (1 - l_j conj(l_p))
//! Schur complement: b_j0 <- b_j0 (l_j - l_p) / (1 - l_j conj(l_p))
//! ```
//!
//! (the generalised Schur algorithm with diagonal pivoting, T. Kailath and A. H. Sayed, Displacement structure, SIAM
//! Review 37 (1995)). Nothing is subtracted but poles, so there is no square root of a rounded, slightly negative pivot:
//! rank deficiency (zero rows, repeated poles) ends the recursion instead of breaking it. Rows keep an error relative to
//! their own size; with one input every *entry* is a product of a few accurate factors, and small Hankel singular values
//! come out with all their digits.

use super::poles::Pole;
use faer::{Mat, c64};

/// Factor L, [d, k], with `L L^H = W` for the rows b_i of `rows` [d, m] and the given poles; k is the rank.
pub fn cauchy_factor(poles: &[Pole], mut rows: Mat<c64>) -> Mat<c64> {
    let d = poles.len();
    let defects: Vec<f64> = poles.iter().map(|p| p.one_minus_product(*p).re).collect();
    let mut columns: Vec<Vec<c64>> = Vec::new();
    let mut remaining: Vec<usize> = (0..d).collect();
    while let Some((position, weight)) = remaining
        .iter()
        .map(|&i| rows.row(i).norm_l2() / defects[i].sqrt())
        .enumerate()
        .max_by(|a, b| a.1.total_cmp(&b.1))
    {
        if weight == 0.0 {
            break;
        }
        let p = remaining.swap_remove(position);
        rotate_row_to_first_column(&mut rows, p, &remaining);
        let mut column = vec![c64::new(0.0, 0.0); d];
        column[p] = c64::new(weight, 0.0);
        let defect = defects[p].sqrt();
        for &j in &remaining {
            let denominator = poles[j].one_minus_product(poles[p]);
            column[j] = rows[(j, 0)] * defect / denominator;
            rows[(j, 0)] *= poles[j].minus(poles[p]) / denominator;
        }
        columns.push(column);
    }
    Mat::from_fn(d, columns.len(), |i, k| columns[k][i])
}

/// Applies to the rows `p` and `others` the unitary transformation of columns that maps row p to `(norm, 0, ..., 0)`.
fn rotate_row_to_first_column(rows: &mut Mat<c64>, p: usize, others: &[usize]) {
    let m = rows.ncols();
    let norm = rows.row(p).norm_l2();
    let first = rows[(p, 0)];
    let phase = if first == c64::new(0.0, 0.0) { c64::new(1.0, 0.0) } else { first / first.norm() };
    // Householder vector v = row^H + phase^* norm e_0: the sign that does not cancel. It maps the row to -phase norm e_0^T.
    let mut v: Vec<c64> = (0..m).map(|k| rows[(p, k)].conj() / norm).collect();
    v[0] += phase.conj();
    let scale = 2.0 / v.iter().map(c64::norm_sqr).sum::<f64>();
    for &j in others {
        let dot: c64 = (0..m).map(|k| rows[(j, k)] * v[k]).sum::<c64>() * scale;
        for k in 0..m {
            let change = dot * v[k].conj();
            rows[(j, k)] -= change;
        }
        rows[(j, 0)] *= -phase.conj();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(d: usize, m: usize) -> Mat<c64> {
        Mat::from_fn(d, m, |i, k| c64::new(((3 * i + k) as f64).sin(), ((i + 5 * k) as f64).cos()))
    }

    fn check(poles: &[Pole], b: &Mat<c64>, rank: usize) {
        let l = cauchy_factor(poles, b.clone());
        assert_eq!(l.ncols(), rank);
        let gram = &l * l.adjoint();
        let bb = b * b.adjoint();
        let w = Mat::from_fn(poles.len(), poles.len(), |i, j| bb[(i, j)] / poles[i].one_minus_product(poles[j]));
        assert!((&gram - &w).norm_l2() < 1e-14 * w.norm_l2(), "{}", (&gram - &w).norm_l2() / w.norm_l2());
    }

    #[test]
    fn factor_reproduces_the_gramian() {
        let poles: Vec<Pole> = (0..6).map(|i| Pole::polar(0.3 + 0.1 * f64::from(i), f64::from(i) - 2.5)).collect();
        check(&poles, &rows(6, 1), 6);
        check(&poles, &rows(6, 3), 6);
        check(&poles, &rows(6, 6), 6);
    }

    #[test]
    fn repeated_poles_and_zero_rows_lower_the_rank() {
        let mut b = rows(5, 2);
        b[(1, 0)] = c64::new(0.0, 0.0);
        b[(1, 1)] = c64::new(0.0, 0.0);
        let poles = [0.5, 0.6, 0.7, 0.8, 0.9].map(Pole::real);
        check(&poles, &b, 4);
        // Four states at one pole and two inputs: rank 2.
        check(&[Pole::real(0.5); 4], &rows(4, 1), 1);
        assert_eq!(cauchy_factor(&poles, Mat::zeros(5, 2)).ncols(), 0);
    }
}
