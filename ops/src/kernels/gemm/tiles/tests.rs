use super::*;
use crate::kernels::scratch::Scratch;
use crate::kernels::simd::dispatch;
use hankel_core::Random;
use pulp::WithSimd;

fn values(len: usize, name: &str) -> Vec<f32> {
    Random::new(1, name, 0).normal_vec::<f32>(len, 1.0)
}

/// A product with the part `k` of the sum, added to ones.
struct Product<'a, P> {
    products: P,
    a: Mat<'a, f32>,
    b: Mat<'a, f32>,
    k: Range<usize>,
}

impl<P: Products<f32>> WithSimd for Product<'_, P> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Vec<f32> {
        let Product { products, a, b, k } = self;
        let mut packed = Scratch::new(P::steps(b.rows) * P::cols::<S>(b.cols));
        let mut room = Scratch::new(P::room(a.rows, a.cols));
        products.pack::<S>(b, &mut packed);
        let (left, right) = (products.left(a, &mut room), Packed { data: &packed, k: b.rows, n: b.cols });
        let mut out = vec![1.0; a.rows * b.cols];
        products.product(simd, 0.5, left, right, true, &mut out, b.cols, |_, _| k.clone());
        out
    }
}

fn rounded(x: &[f32]) -> Vec<f32> {
    x.iter().map(|&x| half::bf16::from_f32(x).to_f32()).collect()
}

fn agrees(m: usize, k: usize, n: usize, transposed: [bool; 2], from: usize) {
    let (mut a, b) = (values(m * k, "a"), values(k * n, "b"));
    let at = |i: usize, p: usize| if transposed[0] { p * m + i } else { i * k + p };
    // What comes before the sum is zero, as its users promise.
    (0..m).for_each(|i| (0..from).for_each(|p| a[at(i, p)] = 0.0));
    let expected = |a: &[f32], b: &[f32]| -> Vec<f64> {
        let of_b = |p: usize, j: usize| if transposed[1] { b[j * k + p] } else { b[p * n + j] };
        let sum = |i: usize, j: usize| (0..k).map(|p| f64::from(a[at(i, p)]) * f64::from(of_b(p, j))).sum::<f64>();
        (0..m * n).map(|at| 1.0 + 0.5 * sum(at / n, at % n)).collect()
    };
    let matrix =
        |data, rows, cols, t: bool| if t { Mat::new(data, cols, rows).t() } else { Mat::new(data, rows, cols) };
    let (left, right) = (matrix(&a, m, k, transposed[0]), matrix(&b, k, n, transposed[1]));
    let close = |found: Vec<f32>, expected: Vec<f64>, how: &str| {
        for (i, (&found, expected)) in found.iter().zip(expected).enumerate() {
            let error = (f64::from(found) - expected).abs();
            assert!(error < 1e-5 * k as f64, "{how}: element {i} of {m} x {k} x {n}: {found} for {expected}");
        }
    };
    let part = from..k;
    close(dispatch(Product { products: Full, a: left, b: right, k: part.clone() }), expected(&a, &b), "full");
    let exact = expected(&rounded(&a), &rounded(&b));
    close(dispatch(Product { products: Rounded, a: left, b: right, k: part.clone() }), exact.clone(), "rounded");
    #[cfg(target_arch = "x86_64")]
    if let Some(dot) = crate::kernels::gemm::bf16::DotProducts::detect() {
        close(dispatch(Product { products: Pairs(dot), a: left, b: right, k: part.clone() }), exact.clone(), "pairs");
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(unit) = MatrixUnit::detect() {
        close(dispatch(Product { products: unit, a: left, b: right, k: part }), exact, "matrix unit");
    }
}

proptest::proptest! {
    #[test]
    fn products_are_those_of_their_operands(
        m in 1_usize..30, k in 1_usize..50, n in 1_usize..70, left: bool, right: bool, from in 0_usize..9,
    ) {
        agrees(m, k, n, [left, right], from.min(k - 1));
    }
}
