//! The largest eigenvalue of a small Hermitian matrix, in a third of the time that all eigenvalues take.
//!
//! Householder reflections make the matrix tridiagonal with diagonal `d` and moduli `e` beside it. Its characteristic polynomial has real
//! roots only, so Newton's method comes down to the largest from above and never falls below it but for rounding (J. H. Wilkinson, The
//! Algebraic Eigenvalue Problem, 1965, chapter 7).

use faer::{Mat, c64};

/// Steps after which nothing comes of it; equal roots take one per digit.
const STEPS: usize = 200;

/// The largest eigenvalue of a Hermitian matrix, of which the lower triangle is read; `None` where the iteration does not end.
pub fn largest_eigenvalue(mut a: Mat<c64>) -> Option<f64> {
    let (diagonal, squares) = tridiagonal(&mut a);
    newton(&diagonal, &squares)
}

/// Diagonal and squared moduli beside it.
fn tridiagonal(a: &mut Mat<c64>) -> (Vec<f64>, Vec<f64>) {
    let n = a.nrows();
    let mut squares = Vec::with_capacity(n);
    let (mut v, mut w) = (vec![c64::new(0.0, 0.0); n], vec![c64::new(0.0, 0.0); n]);
    for k in 0..n.saturating_sub(1) {
        let column = &a.col_as_slice(k)[k + 1..];
        let square: f64 = column.iter().map(c64::norm_sqr).sum();
        squares.push(square);
        let below: f64 = column[1..].iter().map(c64::norm_sqr).sum();
        if below == 0.0 {
            continue;
        }
        // I - v v^H / (v^H v / 2) maps the column to a multiple of the first unit vector.
        let m = column.len();
        let (v, w) = (&mut v[..m], &mut w[..m]);
        v.copy_from_slice(column);
        let (length, first) = (square.sqrt(), v[0].norm());
        let phase = if first == 0.0 { c64::new(1.0, 0.0) } else { v[0] / first };
        v[0] += phase * length;
        let half = length * (length + first);
        // w = A v / half, of which half the part along v is taken off: A <- A - v w^H - w v^H.
        w.fill(c64::new(0.0, 0.0));
        for j in 0..m {
            let column = &a.col_as_slice(k + 1 + j)[k + 1..];
            w[j] += v[j] * column[j].re;
            let mut across = c64::new(0.0, 0.0);
            for i in j + 1..m {
                w[i] += column[i] * v[j];
                across += column[i].conj() * v[i];
            }
            w[j] += across;
        }
        let along: f64 = v.iter().zip(w.iter()).map(|(v, w)| v.re * w.re + v.im * w.im).sum();
        let share = 0.5 * along / (half * half);
        w.iter_mut().zip(v.iter()).for_each(|(w, v)| *w = *w / half - *v * share);
        for j in 0..m {
            let (vj, wj) = (v[j].conj(), w[j].conj());
            let column = &mut a.col_as_slice_mut(k + 1 + j)[k + 1..];
            for i in j..m {
                column[i] -= v[i] * wj + w[i] * vj;
            }
        }
    }
    ((0..n).map(|i| a[(i, i)].re).collect(), squares)
}

/// The largest eigenvalue of a tridiagonal matrix.
fn newton(diagonal: &[f64], squares: &[f64]) -> Option<f64> {
    let n = diagonal.len();
    let beside = |i: usize| squares.get(i).map_or(0.0, |square| square.sqrt());
    // Gershgorin's circles reach no further.
    let reach = (0..n).map(|i| diagonal[i] + beside(i) + if i == 0 { 0.0 } else { beside(i - 1) });
    let mut x = reach.fold(f64::NEG_INFINITY, f64::max);
    let size = diagonal.iter().fold(x.abs(), |size, d| size.max(d.abs()));
    if !size.is_finite() {
        return None;
    }
    for _ in 0..STEPS {
        // Ratios of leading minors of x - T, and the logarithmic derivative of the last.
        let (mut ratio, mut slope, mut sum) = (1.0, 0.0, 0.0);
        for i in 0..n {
            let over = if i == 0 { 0.0 } else { squares[i - 1] / ratio };
            let derivative = 1.0 + if i == 0 { 0.0 } else { over * slope };
            ratio = x - diagonal[i] - over;
            // Not above all roots of this minor: at the root, but for rounding.
            if ratio <= f64::EPSILON * size {
                return Some(x);
            }
            slope = derivative / ratio;
            sum += slope;
        }
        let step = 1.0 / sum;
        if step <= 2.0 * f64::EPSILON * size {
            return Some(x);
        }
        x -= step;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(a: &Mat<c64>) {
        let expected = a.self_adjoint_eigenvalues(faer::Side::Lower).unwrap();
        let size = expected.iter().fold(0.0_f64, |size, x| size.max(x.abs()));
        let found = largest_eigenvalue(a.clone()).unwrap();
        assert!((found - expected.last().unwrap()).abs() <= 1e-14 * size * a.nrows() as f64, "{found} {expected:?}");
    }

    #[test]
    fn it_is_that_of_all_eigenvalues() {
        for n in 1..16 {
            for rank in 1..=n {
                let g = Mat::from_fn(n, rank, |i, k| {
                    c64::new(((3 * i + 7 * k + n) as f64).sin(), ((i * k + 5 * i + rank) as f64).cos())
                        * 10_f64.powi(-(k as i32))
                });
                check(&(&g * g.adjoint()));
            }
            check(&Mat::from_fn(n, n, |i, j| c64::new(f64::from(u8::from(i == j)), 0.0)));
            check(&Mat::from_fn(n, n, |i, j| c64::new(if i == j { 1.0 + 1e-9 * i as f64 } else { 0.0 }, 0.0)));
        }
        // Equal ones that are not the only ones.
        let q = Mat::from_fn(6, 2, |i, k| c64::new(((2 * i + k) as f64).cos(), (i as f64 + 3.0 * k as f64).sin()));
        let q = q.qr().compute_thin_Q();
        check(&(&q * q.adjoint()));
        assert!(largest_eigenvalue(Mat::from_fn(2, 2, |_, _| c64::new(f64::NAN, 0.0))).is_none());
    }
}
