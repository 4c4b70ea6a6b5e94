//! Splitting work over cores, with results that do not depend on how many there are.

use rayon::prelude::*;

/// Elements below which a loop is not worth another thread.
pub const GRAIN: usize = 16 << 10;

/// Calls `f(first_row, rows)` for pieces of `out`, each a whole number of rows of `row_len` elements, in parallel.
/// The pieces depend on the sizes only.
pub fn for_rows<T: Send>(out: &mut [T], row_len: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    let rows = (GRAIN / row_len.max(1)).max(1);
    for_row_blocks(out, row_len, rows, f);
}

/// As [`for_rows`], with `rows` rows to a piece.
pub fn for_row_blocks<T: Send>(out: &mut [T], row_len: usize, rows: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    if out.is_empty() || row_len == 0 {
        return;
    }
    let size = rows.max(1) * row_len;
    if out.len() <= size {
        f(0, out);
    } else {
        out.par_chunks_mut(size).enumerate().for_each(|(i, piece)| f(i * rows.max(1), piece));
    }
}

/// Sums `f` over 0..n in pieces of `grain`, combined in order: the same bits for any number of threads.
pub fn sum(n: usize, grain: usize, f: impl Fn(std::ops::Range<usize>) -> f64 + Sync) -> f64 {
    let grain = grain.max(1);
    let pieces = n.div_ceil(grain);
    let partial: Vec<f64> = (0..pieces).into_par_iter().map(|i| f(i * grain..n.min((i + 1) * grain))).collect();
    partial.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_row_is_visited_once(rows in 0_usize..200, row_len in 0_usize..40, block in 0_usize..9) {
            let mut out = vec![0_usize; rows * row_len];
            for_row_blocks(&mut out, row_len, block, |first, piece| {
                for (i, row) in piece.chunks_mut(row_len).enumerate() {
                    for x in row {
                        *x += first + i + 1;
                    }
                }
            });
            prop_assert!(out.iter().enumerate().all(|(i, &x)| x == i / row_len + 1));
        }

        #[test]
        fn sums(n in 0_usize..1000, grain in 0_usize..50) {
            prop_assert_eq!(sum(n, grain, |r| r.map(|i| i as f64).sum()), (0..n).sum::<usize>() as f64);
        }
    }
}
