//! Splitting work over cores, with results that do not depend on how many there are.
//!
//! Where the pool has one thread, loops run on the thread that calls them: the way to another thread and back buys nothing.

use crate::trace;
use rayon::prelude::*;

/// Elements below which a loop is not worth another thread.
pub const GRAIN: usize = 16 << 10;

fn one_thread() -> bool {
    rayon::current_num_threads() == 1
}

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
        for_chunks(out, size, |i, piece| f(i * rows.max(1), piece));
    }
}

/// Calls `f(i, chunk)` for the chunks of `size` elements of `out`, the last of which may be shorter, in parallel.
///
/// Loops go through `dyn` calls here: rayon is then compiled once for each element type, not for each loop.
///
/// # Panics
/// When `size` is 0.
pub fn for_chunks<T: Send>(out: &mut [T], size: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    fn erased<T: Send>(out: &mut [T], size: usize, f: &(dyn Fn(usize, &mut [T]) + Sync)) {
        trace::parallel_loop(out.len().div_ceil(size), |tasks| {
            if one_thread() {
                out.chunks_mut(size).enumerate().for_each(|(i, chunk)| tasks.run(i, || f(i, chunk)));
            } else {
                out.par_chunks_mut(size).enumerate().for_each(|(i, chunk)| tasks.run(i, || f(i, chunk)));
            }
        });
    }
    // One piece is not worth the way to another thread and back.
    if size > 0 && !out.is_empty() && out.len() <= size {
        return f(0, out);
    }
    erased(out, size, &f);
}

/// As [`for_chunks`] for the chunks of two slices side by side, of which there are equally many.
///
/// # Panics
/// When a size is 0.
pub fn for_paired_chunks<A: Send, B: Send>(
    (a, a_size): (&mut [A], usize),
    (b, b_size): (&mut [B], usize),
    f: impl Fn(usize, &mut [A], &mut [B]) + Sync,
) {
    fn erased<A: Send, B: Send>(
        (a, a_size): (&mut [A], usize),
        (b, b_size): (&mut [B], usize),
        f: &(dyn Fn(usize, &mut [A], &mut [B]) + Sync),
    ) {
        trace::parallel_loop(a.len().div_ceil(a_size), |tasks| {
            if one_thread() {
                let chunks = a.chunks_mut(a_size).zip(b.chunks_mut(b_size)).enumerate();
                chunks.for_each(|(i, (a, b))| tasks.run(i, || f(i, a, b)));
            } else {
                let chunks = a.par_chunks_mut(a_size).zip(b.par_chunks_mut(b_size)).enumerate();
                chunks.for_each(|(i, (a, b))| tasks.run(i, || f(i, a, b)));
            }
        });
    }
    erased((a, a_size), (b, b_size), &f);
}

/// Calls `f` with the numbers below `n`, in parallel.
pub fn for_each(n: usize, f: impl Fn(usize) + Sync) {
    fn erased(n: usize, f: &(dyn Fn(usize) + Sync)) {
        trace::parallel_loop(n, |tasks| {
            if one_thread() {
                (0..n).for_each(|i| tasks.run(i, || f(i)));
            } else {
                (0..n).into_par_iter().for_each(|i| tasks.run(i, || f(i)));
            }
        });
    }
    erased(n, &f);
}

/// `f` of the numbers below `n`, in their order, computed in parallel.
pub fn collect<R: Send>(n: usize, f: impl Fn(usize) -> R + Sync) -> Vec<R> {
    fn erased<R: Send>(n: usize, f: &(dyn Fn(usize) -> R + Sync)) -> Vec<R> {
        trace::parallel_loop(n, |tasks| {
            if one_thread() {
                (0..n).map(|i| tasks.run(i, || f(i))).collect()
            } else {
                (0..n).into_par_iter().map(|i| tasks.run(i, || f(i))).collect()
            }
        })
    }
    erased(n, &f)
}

/// Sums `f` over 0..n in pieces of `grain`, combined in order: the same bits for any number of threads.
pub fn sum(n: usize, grain: usize, f: impl Fn(std::ops::Range<usize>) -> f64 + Sync) -> f64 {
    let grain = grain.max(1);
    let pieces = n.div_ceil(grain);
    collect(pieces, |i| f(i * grain..n.min((i + 1) * grain))).iter().sum()
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
        fn one_thread_or_three(n in 0_usize..200, size in 1_usize..20) {
            let run = |threads| {
                rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
                    let mut chunks = vec![0_usize; n];
                    for_chunks(&mut chunks, size, |i, chunk| chunk.iter_mut().for_each(|x| *x += i + 1));
                    let (mut a, mut b) = (vec![0_usize; n * size], vec![0_usize; n]);
                    for_paired_chunks((&mut a, size), (&mut b, 1), |i, a, b| {
                        a.iter_mut().chain(b).for_each(|x| *x += i + 1);
                    });
                    let count = std::sync::atomic::AtomicUsize::new(0);
                    for_each(n, |i| { count.fetch_add(i, std::sync::atomic::Ordering::Relaxed); });
                    (chunks, a, b, collect(n, |i| i * i), count.into_inner())
                })
            };
            prop_assert_eq!(run(1), run(3));
        }

        #[test]
        fn sums(n in 0_usize..1000, grain in 0_usize..50) {
            prop_assert_eq!(sum(n, grain, |r| r.map(|i| i as f64).sum()), (0..n).sum::<usize>() as f64);
        }
    }
}
