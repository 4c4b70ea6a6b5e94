//! The Gram matrix of rows where they lie.

use faer::Mat;
use pulp::{Arch, Simd, WithSimd};

/// Rows and other rows whose products are summed at once, in registers.
const TILE: (usize, usize) = (4, 2);

/// Numbers of a row that are summed before the next row's: with those of a tile they stay in the cache.
const PANEL: usize = 512;

/// `B B^T` of the rows of B. Every product is made once, no row is copied.
pub fn gram_of_rows(rows: &[&[f64]]) -> Mat<f64> {
    let d = rows.len();
    let mut gram = Mat::zeros(d, d);
    if d > 0 {
        Arch::new().dispatch(Gram { rows, gram: &mut gram });
        for j in 0..d {
            (0..j).for_each(|i| gram[(i, j)] = gram[(j, i)]);
        }
    }
    gram
}

/// Fills the lower triangle, and perhaps some of what is above it.
struct Gram<'a> {
    rows: &'a [&'a [f64]],
    gram: &'a mut Mat<f64>,
}

impl WithSimd for Gram<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { rows, gram } = self;
        let (d, m) = (rows.len(), rows[0].len());
        for start in (0..m).step_by(PANEL) {
            let panel = start..m.min(start + PANEL);
            for i in (0..d).step_by(TILE.0) {
                // The last tile repeats its last row.
                let row = |k: usize| S::as_simd_f64s(&rows[(i + k).min(d - 1)][panel.clone()]);
                let (heads, tails): ([&[S::f64s]; TILE.0], [&[f64]; TILE.0]) =
                    (std::array::from_fn(|k| row(k).0), std::array::from_fn(|k| row(k).1));
                for j in (0..d.min(i + TILE.0)).step_by(TILE.1) {
                    let other = |k: usize| S::as_simd_f64s(&rows[(j + k).min(d - 1)][panel.clone()]);
                    let others: [(&[S::f64s], &[f64]); TILE.1] = std::array::from_fn(other);
                    let mut sums = [[simd.splat_f64s(0.0); TILE.1]; TILE.0];
                    let count = heads[0].len();
                    let heads: [&[S::f64s]; TILE.0] = std::array::from_fn(|k| &heads[k][..count]);
                    let others_heads: [&[S::f64s]; TILE.1] = std::array::from_fn(|k| &others[k].0[..count]);
                    for at in 0..count {
                        let y: [S::f64s; TILE.1] = std::array::from_fn(|l| others_heads[l][at]);
                        for k in 0..TILE.0 {
                            let x = heads[k][at];
                            for l in 0..TILE.1 {
                                sums[k][l] = simd.mul_add_e_f64s(x, y[l], sums[k][l]);
                            }
                        }
                    }
                    for k in 0..TILE.0.min(d - i) {
                        for l in 0..TILE.1.min(d - j) {
                            let rest: f64 = tails[k].iter().zip(others[l].1).map(|(x, y)| x * y).sum();
                            gram[(i + k, j + l)] += simd.reduce_sum_f64s(sums[k][l]) + rest;
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_product_with_the_transpose() {
        for (d, m) in [(0, 3), (1, 1), (3, 7), (4, 512), (5, 513), (6, 1600), (32, 1031)] {
            let values: Vec<f64> =
                (0..d * m).map(|i| (i as f64 * 0.618).sin() * 1.5_f64.powi((i / m) as i32)).collect();
            let rows: Vec<&[f64]> = values.chunks(m).collect();
            let gram = gram_of_rows(&rows);
            let b = Mat::from_fn(d, m, |i, j| values[i * m + j]);
            let expected = &b * b.transpose();
            for (i, j) in (0..d).flat_map(|i| (0..d).map(move |j| (i, j))) {
                let size = b.row(i).norm_l2() * b.row(j).norm_l2();
                assert!((gram[(i, j)] - expected[(i, j)]).abs() <= 1e-14 * size, "{d} {m} {i} {j}");
            }
        }
    }
}
