//! The gradient of the sum of Hankel singular values, to train adapters that truncate well.

use super::gramians::{GramianFactors, gramians};
use super::hankel::HankelSpectrum;
use super::linalg::product;
use super::poles::{MIN_RATE, Pole};
use super::system::{LinearSystem, StateMatrix};
use super::{LtiError, Result};
use faer::{Mat, MatRef};

/// `sum sigma_i` and its derivatives with respect to the diagonal of A and the matrices B and C.
#[derive(Debug, Clone)]
pub struct HankelSum {
    /// The sum.
    pub value: f64,
    /// With respect to a, `[d]`.
    pub a: Vec<f64>,
    /// With respect to B, [d, m].
    pub b: Mat<f64>,
    /// With respect to C, [p, d].
    pub c: Mat<f64>,
}

/// The sum of the Hankel singular values of a diagonal system with its gradient, in closed form.
///
/// With the balancing projections T_l, T_r and `P = T_l^T T_l`, `Q = T_r T_r^T`,
///
/// ```text
/// d sum sigma = 1/2 <P, dWc> + 1/2 <Q, dWo>,      Wc = K o (B B^T), Wo = K o (C^T C), K_ij = 1 / (1 - a_i a_j)
/// dB = (P o K) B,   dC = C (Q o K),   da_i = sum_j a_j K_ij (P o Wc + Q o Wo)_ij
/// ```
///
/// (`o` is the elementwise product). The sum is smooth where values coincide, since it is symmetric in them; values below
/// rounding are left out, as a nuclear norm has no gradient at zero. Poles slower than the clamp of the Gramians (R2) get the
/// derivative 0. For a gate g multiply the value and all derivatives by |g|; its own derivative is `sign(g) value`.
///
/// # Errors
/// A state matrix that is not diagonal.
pub fn hankel_sum(system: &LinearSystem) -> Result<HankelSum> {
    let StateMatrix::Diagonal(a) = system.a() else {
        return Err(LtiError::Unsupported("the gradient of the Hankel singular values needs a diagonal A".into()));
    };
    let d = a.len();
    let spectrum = HankelSpectrum::new(&GramianFactors::analytic(system)?)?;
    let (left, right) = spectrum.projections(spectrum.rank())?;
    let p = product(left.transpose(), left.as_ref());
    let q = product(right.as_ref(), right.transpose());
    let poles: Vec<Pole> = a.iter().map(|&a| Pole::real(a).clamped()).collect();
    let k = Mat::from_fn(d, d, |i, j| 1.0 / poles[i].one_minus_product(poles[j]).re);
    let (wc, wo) = gramians(system)?;
    let times_k = |m: &Mat<f64>| Mat::from_fn(d, d, |i, j| m[(i, j)] * k[(i, j)]);
    let derivative = |i: usize| {
        if Pole::real(a[i]).rate < MIN_RATE {
            return 0.0;
        }
        (0..d).map(|j| poles[j].value().re * k[(i, j)] * (p[(i, j)] * wc[(i, j)] + q[(i, j)] * wo[(i, j)])).sum()
    };
    let b: MatRef<'_, f64> = system.b();
    Ok(HankelSum {
        value: spectrum.values().iter().sum(),
        a: (0..d).map(derivative).collect(),
        b: product(times_k(&p).as_ref(), b),
        c: product(system.c(), times_k(&q).as_ref()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(a: &[f64], b: &Mat<f64>, c: &Mat<f64>) -> LinearSystem {
        LinearSystem::new(StateMatrix::Diagonal(a.to_vec()), b.clone(), c.clone(), None).unwrap()
    }

    fn sum(a: &[f64], b: &Mat<f64>, c: &Mat<f64>) -> f64 {
        let factors = GramianFactors::analytic(&system(a, b, c)).unwrap();
        HankelSpectrum::new(&factors).unwrap().values().iter().sum()
    }

    /// Fourth-order central difference of `f` at 0.
    fn slope(f: impl Fn(f64) -> f64, h: f64) -> f64 {
        (8.0 * (f(h) - f(-h)) - (f(2.0 * h) - f(-2.0 * h))) / (12.0 * h)
    }

    fn check(a: &[f64], b: &Mat<f64>, c: &Mat<f64>) {
        let got = hankel_sum(&system(a, b, c)).unwrap();
        assert!((got.value - sum(a, b, c)).abs() < 1e-13 * got.value);
        let scale = got.a.iter().fold(0.0, |m: f64, x| m.max(x.abs())).max(got.b.norm_max()).max(got.c.norm_max());
        let close = |x: f64, y: f64| assert!((x - y).abs() < 1e-8 * scale, "{x} {y} {scale}");
        for i in 0..a.len() {
            let moved = |h: f64| {
                let mut a = a.to_vec();
                a[i] += h;
                sum(&a, b, c)
            };
            close(got.a[i], slope(moved, 1e-3 * (1.0 - a[i].abs())));
            for k in 0..b.ncols() {
                let moved = |h: f64| {
                    let mut b = b.clone();
                    b[(i, k)] += h;
                    sum(a, &b, c)
                };
                close(got.b[(i, k)], slope(moved, 1e-4));
            }
            for k in 0..c.nrows() {
                let moved = |h: f64| {
                    let mut c = c.clone();
                    c[(k, i)] += h;
                    sum(a, b, &c)
                };
                close(got.c[(k, i)], slope(moved, 1e-4));
            }
        }
    }

    #[test]
    fn gradient_matches_central_differences() {
        let b = Mat::from_fn(5, 3, |i, k| ((3 * i + k) as f64).sin());
        let c = Mat::from_fn(4, 5, |k, i| ((i + 5 * k) as f64).cos());
        check(&[0.9, 0.5, -0.3, 0.99, 0.1], &b, &c);
        // Repeated poles and equal Hankel singular values (two decoupled equal systems).
        let b = Mat::from_fn(2, 2, |i, k| f64::from(u8::from(i == k)));
        check(&[0.7, 0.7], &b, &b);
    }

    #[test]
    fn other_forms_are_refused() {
        let one = Mat::<f64>::identity(1, 1);
        let dense =
            LinearSystem::new(StateMatrix::Dense(one.clone() * faer::Scale(0.5)), one.clone(), one, None).unwrap();
        assert!(hankel_sum(&dense).unwrap_err().to_string().contains("diagonal"));
    }
}
