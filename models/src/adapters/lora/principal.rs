//! The part of a matrix with the largest singular values, from which PiSSA and LoftQ start.

use faer::diag::Diag;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::matmul::matmul;
use faer::linalg::svd::{ComputeSvdVectors, svd, svd_scratch};
use faer::{Accum, Mat, MatRef, Par, Spec};
use hankel_core::{Error, Random, Result, Tensor};

/// Matrices whose smaller side is above this are decomposed by a randomised method.
const FULL: usize = 512;
/// Columns of the random sketch beyond the rank.
const OVERSAMPLING: usize = 16;
/// Multiplications of the sketch with the matrix and its transpose.
const ITERATIONS: usize = 8;

/// `A` `[rank, in]` and `B` `[out, rank]` of the best approximation `scale B A` of `matrix` `[out, in]`, row-major: with
/// `matrix = U S V^T`, `B = U_r sqrt(S_r / scale)` and `A = sqrt(S_r / scale) V_r^T`.
///
/// Large matrices take a randomised subspace iteration (Halko, Martinsson and Tropp, 2011, algorithm 4.4), whose sketch is drawn from
/// `random`. On one thread: the result does not depend on how many there are.
///
/// # Errors
/// When the matrix has fewer than `rank` singular values, values are not finite, or the decomposition fails.
pub(super) fn principal(
    (matrix, outputs, inputs): (&[f64], usize, usize),
    rank: usize,
    scale: f64,
    random: Random,
) -> Result<[Tensor; 2]> {
    let fail = |problem: String| Error::invalid("lora", problem);
    if rank > outputs.min(inputs) {
        return Err(fail(format!(
            "a start from singular values needs at least rank = {rank} of them, and a matrix of {outputs} x {inputs} has {}",
            outputs.min(inputs)
        )));
    }
    if !matrix.iter().all(|value| value.is_finite()) {
        return Err(fail("a weight to start from is not finite".to_owned()));
    }
    let matrix = MatRef::from_row_major_slice(matrix, outputs, inputs);
    let failed = || fail("the singular value decomposition of a weight does not converge".to_owned());
    let (u, s, v) = if outputs.min(inputs) <= FULL {
        decompose(matrix).ok_or_else(failed)?
    } else {
        let width = (rank + OVERSAMPLING).min(outputs.min(inputs));
        let sketch = random.normal_vec::<f64>(inputs * width, 1.0);
        let mut v = MatRef::from_row_major_slice(&sketch, inputs, width).to_owned();
        // The left singular vectors are an orthonormal basis of the columns.
        let mut q = decompose(product(matrix, v.as_ref()).as_ref()).ok_or_else(failed)?.0;
        for _ in 0..ITERATIONS {
            v = decompose(product(matrix.transpose(), q.as_ref()).as_ref()).ok_or_else(failed)?.0;
            q = decompose(product(matrix, v.as_ref()).as_ref()).ok_or_else(failed)?.0;
        }
        let (u, s, v) = decompose(product(q.transpose(), matrix).as_ref()).ok_or_else(failed)?;
        (product(q.as_ref(), u.as_ref()), s, v)
    };
    let root = |k: usize| (s[k] / scale.abs()).sqrt();
    // Where the scale is negative, so is one factor.
    let sign = scale.signum();
    let a = (0..rank).flat_map(|k| (0..inputs).map(move |j| (k, j))).map(|(k, j)| root(k) * v[(j, k)]).collect();
    let b =
        (0..outputs).flat_map(|i| (0..rank).map(move |k| (i, k))).map(|(i, k)| sign * root(k) * u[(i, k)]).collect();
    Ok([Tensor::from_vec::<f64>(a, [rank, inputs])?, Tensor::from_vec::<f64>(b, [outputs, rank])?])
}

/// The thin singular value decomposition, on one thread.
fn decompose(matrix: MatRef<'_, f64>) -> Option<(Mat<f64>, Vec<f64>, Mat<f64>)> {
    let (m, n) = matrix.shape();
    let size = m.min(n);
    let (mut u, mut s, mut v) = (Mat::zeros(m, size), Diag::<f64>::zeros(size), Mat::zeros(n, size));
    let thin = ComputeSvdVectors::Thin;
    let scratch = svd_scratch::<f64>(m, n, thin, thin, Par::Seq, Spec::default());
    let (into_u, into_v) = (Some(u.as_mut()), Some(v.as_mut()));
    let mut memory = MemBuffer::new(scratch);
    svd(matrix, s.as_mut(), into_u, into_v, Par::Seq, MemStack::new(&mut memory), Spec::default()).ok()?;
    let values = s.column_vector().iter().copied().collect();
    Some((u, values, v))
}

fn product(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Mat<f64> {
    let mut out = Mat::zeros(a.nrows(), b.ncols());
    matmul(out.as_mut(), Accum::Replace, a, b, 1.0, Par::Seq);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `scale B A`, row-major.
    fn low_rank([a, b]: &[Tensor; 2], scale: f64) -> Vec<f64> {
        let (rank, inputs) = (a.shape()[0], a.shape()[1]);
        let (a, b) = (a.to_f64_vec(), b.to_f64_vec());
        let entry = |i: usize, j: usize| scale * (0..rank).map(|k| b[i * rank + k] * a[k * inputs + j]).sum::<f64>();
        (0..b.len() / rank).flat_map(|i| (0..inputs).map(move |j| (i, j))).map(|(i, j)| entry(i, j)).collect()
    }

    fn distance(x: &[f64], y: &[f64]) -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - y) * (x - y)).sum::<f64>().sqrt()
    }

    /// The error of the best approximation of rank r is the root of the sum of the squares of the other singular values
    /// (Eckart and Young, 1936).
    #[test]
    fn nothing_of_this_rank_is_nearer() {
        let (m, n) = (9, 6);
        let matrix = Random::new(3, "w", 0).normal_vec::<f64>(m * n, 1.0);
        let values = decompose(MatRef::from_row_major_slice(&matrix, m, n)).unwrap().1;
        for (rank, scale) in [(1, 1.0), (3, 0.5), (4, -2.0), (6, 1.0)] {
            let factors = principal((&matrix, m, n), rank, scale, Random::new(0, "s", 0)).unwrap();
            let rest = values[rank..].iter().map(|s| s * s).sum::<f64>().sqrt();
            assert!((distance(&low_rank(&factors, scale), &matrix) - rest).abs() < 1e-12, "rank {rank}");
        }
        let refused = principal((&matrix, m, n), 7, 1.0, Random::new(0, "s", 0)).unwrap_err().to_string();
        assert!(refused.contains("at least rank = 7") && refused.contains("9 x 6 has 6"), "{refused}");
        assert!(principal((&[f64::NAN], 1, 1), 1, 1.0, Random::new(0, "s", 0)).is_err());
    }

    /// The randomised method finds the part of rank 5 below a tail of noise at a hundredth of its size.
    #[test]
    fn large_matrices_by_sketching() {
        let (m, n, rank) = (FULL + 8, FULL + 40, 5);
        let [u, v] =
            [("u", m), ("v", n)].map(|(name, rows)| Random::new(1, name, 0).normal_vec::<f64>(rows * rank, 1.0));
        let mut matrix = Random::new(1, "noise", 0).normal_vec::<f64>(m * n, 0.1);
        for (i, row) in matrix.chunks_mut(n).enumerate() {
            for (j, entry) in row.iter_mut().enumerate() {
                *entry += (0..rank).map(|k| (k + 1) as f64 * u[i * rank + k] * v[j * rank + k]).sum::<f64>();
            }
        }
        let sketched = principal((&matrix, m, n), rank, 2.0, Random::new(0, "s", 0)).unwrap();
        let (u, s, v) = decompose(MatRef::from_row_major_slice(&matrix, m, n)).unwrap();
        let entry = |i: usize, j: usize| (0..rank).map(|k| u[(i, k)] * s[k] * v[(j, k)]).sum::<f64>();
        let best: Vec<f64> = (0..m * n).map(|at| entry(at / n, at % n)).collect();
        assert!(distance(&low_rank(&sketched, 2.0), &best) < 1e-9 * s[0]);
    }
}
