//! The innermost product: a tile of the output held in registers while `k` runs.
//!
//! For each step of `k` a tile reads `NV` registers of the packed right factor and `MR` scalars of the left one, and
//! does `MR * NV` fused multiply-adds. The chain of additions of one output element is in the order of `k` whatever the
//! tile, so that how the output is cut into tiles never changes a bit.

use super::Accumulate;
use crate::kernels::simd::{Real, without_vectors};
use pulp::{Simd, WithSimd};

/// Rows of the widest tile of any instruction set.
pub(super) const MAX_ROWS: usize = 8;

/// Rows and registers per row of the tile that suits the register file.
#[inline(always)]
pub(super) const fn tile_shape<S: Simd>() -> (usize, usize) {
    if size_of::<S::f32s>() >= 64 {
        (8, 2) // AVX-512: the fused multiply-add is the bottleneck from 8 accumulators on
    } else {
        (6, 2) // AVX2: 12 accumulators, 2 operands, 1 broadcast of 16 registers
    }
}

/// A strip of rows of the left factor: scalar (i, p) is `*data.add(i * row_stride + p * k_stride)`.
#[derive(Clone, Copy)]
pub(super) struct Strip<T> {
    pub data: *const T,
    pub row_stride: usize,
    pub k_stride: usize,
}

/// Where a tile is written: row i starts at `data.add(i * row_stride)`, `cols` columns are written.
#[derive(Clone, Copy)]
pub struct Target<T> {
    pub data: *mut T,
    pub row_stride: usize,
    pub cols: usize,
}

/// `rows` rows (at most the tile's) of one packed panel of `nv` registers per step of `k`.
///
/// A call, not inlined: the tiles are compiled once for each instruction set, whoever multiplies.
///
/// # Safety
/// `a` must be readable for `rows` x `k`, `c` readable and writable for `rows` x `cols`; `panel` holds `k * nv`
/// registers and `cols <= nv * lanes`; what is added has `cols` columns, and `rows` rows if it is a matrix.
#[inline(always)]
pub(super) unsafe fn strip<S: Simd, T: Real>(
    simd: S,
    rows: usize,
    a: Strip<T>,
    panel: &[T],
    nv: usize,
    alpha: T,
    how: Accumulate<T>,
    c: Target<T>,
) {
    let product = StripProduct { rows, a, panel, nv, alpha, how, c };
    if const { size_of::<S::f32s>() == size_of::<f32>() } {
        without_vectors(product);
    } else {
        simd.vectorize(product);
    }
}

/// The arguments of [`strip`], which keeps its promise.
struct StripProduct<'a, T> {
    rows: usize,
    a: Strip<T>,
    panel: &'a [T],
    nv: usize,
    alpha: T,
    how: Accumulate<'a, T>,
    c: Target<T>,
}

impl<T: Real> WithSimd for StripProduct<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let StripProduct { rows, a, panel, nv, alpha, how, c } = self;
        let panel = T::split::<S>(panel).0;
        // Conditions known to the compiler: only the tiles of this instruction set are compiled.
        // SAFETY: the promise of the caller of `strip`.
        unsafe {
            if const { tile_shape::<S>().0 == 8 } {
                match nv {
                    1 => rows_of::<S, T, 8, 1>(simd, rows, a, panel, alpha, how, c),
                    _ => rows_of::<S, T, 8, 2>(simd, rows, a, panel, alpha, how, c),
                }
            } else {
                match nv {
                    1 => rows_of::<S, T, 6, 1>(simd, rows, a, panel, alpha, how, c),
                    _ => rows_of::<S, T, 6, 2>(simd, rows, a, panel, alpha, how, c),
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn rows_of<S: Simd, T: Real, const MR: usize, const NV: usize>(
    simd: S,
    rows: usize,
    a: Strip<T>,
    panel: &[T::Vector<S>],
    alpha: T,
    how: Accumulate<T>,
    c: Target<T>,
) {
    // SAFETY: the caller's promise; each call covers rows that are still within it.
    unsafe {
        if rows == MR {
            tile::<S, T, MR, NV>(simd, a, panel, alpha, how, c);
            return;
        }
        let mut i = 0;
        while i < rows {
            let a = Strip { data: a.data.add(i * a.row_stride), ..a };
            let (c, how) = (Target { data: c.data.add(i * c.row_stride), ..c }, how.rows_from(i));
            if rows - i >= 3 {
                tile::<S, T, 3, NV>(simd, a, panel, alpha, how, c);
                i += 3;
            } else {
                tile::<S, T, 1, NV>(simd, a, panel, alpha, how, c);
                i += 1;
            }
        }
    }
}

#[inline(always)]
unsafe fn tile<S: Simd, T: Real, const MR: usize, const NV: usize>(
    simd: S,
    a: Strip<T>,
    panel: &[T::Vector<S>],
    alpha: T,
    how: Accumulate<T>,
    c: Target<T>,
) {
    // SAFETY: the caller's promise.
    let acc = unsafe {
        // A row-major left factor and a packed one get their own loops, with the stride known to the compiler.
        if a.k_stride == 1 {
            // Addresses of rows that the compiler does not know to be multiples of each other: it would compute them anew in each step,
            // on ports that multiply.
            let rows: [*const T; MR] =
                std::array::from_fn(|i| std::hint::black_box(a.data.wrapping_add(i * a.row_stride)));
            product::<S, T, MR, NV>(
                simd,
                panel,
                #[inline(always)]
                |i, p| *rows[i].add(p),
            )
        } else {
            product::<S, T, MR, NV>(
                simd,
                panel,
                #[inline(always)]
                |i, p| *a.data.add(p * a.k_stride + i),
            )
        }
    };
    let lanes = T::lanes::<S>();
    let alpha = T::splat(simd, alpha);
    if c.cols < NV * lanes {
        // Rows of a part are indexed at run time, so that the sums go through memory: in this branch alone.
        // SAFETY: the caller's promise.
        unsafe { write_part::<S, T, MR, NV>(simd, &std::hint::black_box(acc), alpha, how, c) };
        return;
    }
    // What is added is found once for all rows.
    // SAFETY: these are rows of the target, which has as many columns as the tile, and so has what is added.
    unsafe {
        match how {
            Accumulate::Overwrite => write::<S, T, MR, NV, 0>(simd, acc, alpha, (c.data, 0), c.data, c),
            Accumulate::Add => write::<S, T, MR, NV, 1>(simd, acc, alpha, (c.data, c.row_stride), c.data, c),
            Accumulate::Bias(bias) => write::<S, T, MR, NV, 1>(simd, acc, alpha, (bias.as_ptr(), 0), c.data, c),
            Accumulate::Onto(base, None) => {
                write::<S, T, MR, NV, 1>(simd, acc, alpha, (base.at_ptr(0, 0), base.row_stride), c.data, c);
            }
            Accumulate::Onto(base, Some(bias)) => {
                write::<S, T, MR, NV, 2>(simd, acc, alpha, (base.at_ptr(0, 0), base.row_stride), bias.as_ptr(), c);
            }
        }
    }
}

/// Writes a tile plus the first `ADDENDS` addends: the rows of `base`, which are `base.1` apart, and `row`, the same for every row.
///
/// # Safety
/// `c` is writable for `MR` rows of `NV` registers; there are as many of the first `ADDENDS` of `base` and `row` to be read.
#[inline(always)]
unsafe fn write<S: Simd, T: Real, const MR: usize, const NV: usize, const ADDENDS: usize>(
    simd: S,
    acc: [[T::Vector<S>; NV]; MR],
    alpha: T::Vector<S>,
    base: (*const T, usize),
    row: *const T,
    c: Target<T>,
) {
    let write_row = |i: usize, acc: [T::Vector<S>; NV]| {
        for (j, acc) in acc.into_iter().enumerate() {
            let at = j * T::lanes::<S>();
            // SAFETY: the caller's promise; registers hold any bits.
            unsafe {
                let load = |from: *const T| from.add(at).cast::<T::Vector<S>>().read_unaligned();
                let base = match ADDENDS {
                    0 => T::splat(simd, T::zero()),
                    1 => load(base.0.add(i * base.1)),
                    _ => T::vadd(simd, load(base.0.add(i * base.1)), load(row)),
                };
                let out = c.data.add(i * c.row_stride + at).cast::<T::Vector<S>>();
                out.write_unaligned(T::vmul_add(simd, alpha, acc, base));
            }
        }
    };
    // Written out: in a loop the compiler would keep the sums in memory, also while they are added up.
    write_row(0, acc[0]);
    if MR > 1 {
        write_row(1, acc[1]);
    }
    if MR > 2 {
        write_row(2, acc[2]);
    }
    if MR > 3 {
        write_row(3, acc[3]);
    }
    if MR > 4 {
        write_row(4, acc[4]);
    }
    if MR > 5 {
        write_row(5, acc[5]);
    }
    if MR > 6 {
        write_row(6, acc[6]);
    }
    if MR > 7 {
        write_row(7, acc[7]);
    }
}

/// Writes the columns that the target has of a wider tile.
///
/// # Safety
/// `c` is writable, and readable, for `MR` rows of its columns; what is added has as many.
#[inline(always)]
unsafe fn write_part<S: Simd, T: Real, const MR: usize, const NV: usize>(
    simd: S,
    acc: &[[T::Vector<S>; NV]; MR],
    alpha: T::Vector<S>,
    how: Accumulate<T>,
    c: Target<T>,
) {
    let lanes = T::lanes::<S>();
    for (i, acc) in acc.iter().enumerate() {
        // SAFETY: row i of the target has `cols` writable elements.
        let row = unsafe { std::slice::from_raw_parts_mut(c.data.add(i * c.row_stride), c.cols) };
        for (j, &acc) in acc.iter().enumerate() {
            let from = (j * lanes).min(c.cols);
            let to = (from + lanes).min(c.cols);
            let out = &mut row[from..to];
            let mut base = [T::splat(simd, T::zero())];
            let scalars: &mut [T] = bytemuck::cast_slice_mut(&mut base);
            match how {
                Accumulate::Overwrite => {}
                Accumulate::Add => scalars[..out.len()].copy_from_slice(out),
                Accumulate::Bias(bias) => scalars[..out.len()].copy_from_slice(&bias[from..to]),
                Accumulate::Onto(base, bias) => {
                    scalars[..out.len()].copy_from_slice(&base.row(i)[from..to]);
                    if let Some(bias) = bias {
                        scalars.iter_mut().zip(&bias[from..to]).for_each(|(base, &b)| *base += b);
                    }
                }
            }
            let sum = [T::vmul_add(simd, alpha, acc, base[0])];
            out.copy_from_slice(&bytemuck::cast_slice(&sum)[..out.len()]);
        }
    }
}

/// The sums of `left(i, p)` times step `p` of the panel.
#[inline(always)]
fn product<S: Simd, T: Real, const MR: usize, const NV: usize>(
    simd: S,
    panel: &[T::Vector<S>],
    left: impl Fn(usize, usize) -> T,
) -> [[T::Vector<S>; NV]; MR] {
    let mut acc = [[T::splat(simd, T::zero()); NV]; MR];
    for (p, b) in panel.as_chunks::<NV>().0.iter().enumerate() {
        for i in 0..MR {
            let a = T::splat(simd, left(i, p));
            for j in 0..NV {
                acc[i][j] = T::vmul_add(simd, a, b[j], acc[i][j]);
            }
        }
    }
    acc
}
