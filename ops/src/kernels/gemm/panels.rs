//! Packed right factors, and the loops that multiply by them.

use super::general;
use super::micro::{Strip, Target, strip, tile_shape};
use super::pack::pack_left;
use super::{Accumulate, K_BLOCK, Mat, ROW_BLOCK, RightFactor};
use crate::kernels::scratch::Scratch;
use crate::kernels::simd::{Real, dispatch, prefetch};
use hankel_core::parallel;
use pulp::{Simd, WithSimd};
use std::marker::PhantomData;
use std::ops::Range;

/// Columns of a right factor, packed.
///
/// For each block of `k`, panel after panel, each `k` steps by the panel's width. Panels are as wide as the register
/// tile; what remains goes to panels of one register, the last filled up with zeros.
pub struct Panels<T: Real> {
    data: Scratch<T>,
    /// Whether they are for `matrixmultiply`.
    general: bool,
    k: usize,
    n: usize,
}

impl<T: Real> Panels<T> {
    /// Packs rows `k` of columns `j`.
    pub(super) fn pack(b: &impl RightFactor<T>, k: Range<usize>, j: Range<usize>) -> Self {
        let n = j.len();
        let general = general::suits::<T>();
        let shape = if general { general::SHAPE } else { dispatch(Shape::<T>(PhantomData)) };
        let packed = n.next_multiple_of(shape.lanes);
        let mut panels = Panels { data: Scratch::new(k.len() * packed), general, k: k.len(), n };
        let mut rest = &mut panels.data[..];
        for first in k.clone().step_by(K_BLOCK) {
            let range = first..k.end.min(first + K_BLOCK);
            let (block, after) = rest.split_at_mut(range.len() * packed);
            b.pack(range, j.clone(), shape, block);
            rest = after;
        }
        panels
    }
}

impl<T: Real> Panels<T> {
    /// Packs all of a right factor, in parallel over its columns.
    pub(super) fn pack_whole(b: &impl RightFactor<T>) -> Self {
        let (k, n) = (b.rows(), b.cols());
        if general::suits::<T>() {
            return Self::pack(b, 0..k, 0..n);
        }
        let shape = dispatch(Shape::<T>(PhantomData));
        let packed = n.next_multiple_of(shape.lanes);
        let mut panels = Panels { data: Scratch::new(k * packed), general: false, k, n };
        let mut rest = &mut panels.data[..];
        for first in (0..k).step_by(K_BLOCK) {
            let range = first..k.min(first + K_BLOCK);
            let (block, after) = rest.split_at_mut(range.len() * packed);
            rest = after;
            // Whole panels, so that they lie where one task would put them.
            let columns = (parallel::GRAIN / range.len()).max(1).next_multiple_of(shape.width);
            parallel::for_chunks(block, columns * range.len(), |i, block| {
                let columns = i * columns..n.min((i + 1) * columns);
                b.pack(range.clone(), columns, shape, block);
            });
        }
        panels
    }
}

/// How wide panels are.
#[derive(Clone, Copy)]
pub struct PanelShape {
    /// Columns of a whole panel.
    pub width: usize,
    /// Columns of a narrow one: a register.
    pub lanes: usize,
}

impl PanelShape {
    /// The shape that the register tile has.
    #[inline(always)]
    pub(super) fn of<S: Simd, T: Real>() -> Self {
        PanelShape { width: tile_shape::<S>().1 * T::lanes::<S>(), lanes: T::lanes::<S>() }
    }

    /// First column and width of each panel of `n` columns.
    #[inline(always)]
    pub fn columns(self, n: usize) -> impl Iterator<Item = (usize, usize)> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let column = next;
            let panel = match n - column {
                0 => return None,
                left if left > self.width - self.lanes => self.width,
                _ => self.lanes,
            };
            next = n.min(column + panel);
            Some((column, panel))
        })
    }
}

struct Shape<T>(PhantomData<T>);

impl<T: Real> WithSimd for Shape<T> {
    type Output = PanelShape;
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> PanelShape {
        PanelShape::of::<S, T>()
    }
}

/// `alpha A B` to the rows of the target.
///
/// # Safety
/// The target is writable (and readable, when added to) for the rows of `a`, and nobody else uses it meanwhile.
pub(super) unsafe fn multiply_into<T: Real>(
    alpha: T,
    a: Mat<T>,
    panels: &Panels<T>,
    how: Accumulate<T>,
    target: Target<T>,
) {
    assert!(a.cols == panels.k && target.cols == panels.n);
    if panels.general {
        // SAFETY: the same promise.
        return unsafe { general::multiply(alpha, a, &panels.data, how, target) };
    }
    dispatch(Product { alpha, a, panels, how, target });
}

struct Product<'a, T: Real> {
    alpha: T,
    a: Mat<'a, T>,
    panels: &'a Panels<T>,
    how: Accumulate<'a, T>,
    target: Target<T>,
}

impl<T: Real> WithSimd for Product<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Product { a, target, panels, .. } = self;
        let (mr, _) = tile_shape::<S>();
        let lanes = T::lanes::<S>();
        let packed_len = if a.col_stride == 1 { 0 } else { ROW_BLOCK.next_multiple_of(mr) * K_BLOCK.min(a.cols) };
        let mut packed = Scratch::<T>::new(packed_len);
        for first_row in (0..a.rows).step_by(ROW_BLOCK) {
            let rows = ROW_BLOCK.min(a.rows - first_row);
            let mut panel_data = &panels.data[..];
            let mut k_first = 0;
            // A sum of nothing still writes the output: one pass with empty panels.
            while k_first < a.cols.max(1) {
                let k = K_BLOCK.min(a.cols - k_first);
                let block = a.row_block(first_row, rows);
                if a.col_stride != 1 {
                    let strips = rows.next_multiple_of(mr);
                    pack_left(block, k_first..k_first + k, mr, &mut packed[..strips * k]);
                }
                for (column, width) in PanelShape::of::<S, T>().columns(panels.n) {
                    let (panel, rest) = panel_data.split_at(k * width);
                    panel_data = rest;
                    let cols = width.min(panels.n - column);
                    let how = match self.how {
                        _ if k_first > 0 => Accumulate::Add,
                        Accumulate::Bias(bias) => Accumulate::Bias(&bias[column..column + cols]),
                        how => how,
                    };
                    for i in (0..rows).step_by(mr) {
                        if column == 0 && a.col_stride == 1 {
                            // The next strip, whose rows are as many short streams.
                            for row in first_row + i + mr..first_row + i + 2 * mr {
                                prefetch(a.data, row * a.row_stride + k_first, k);
                            }
                        }
                        let strip_of_a = if a.col_stride == 1 {
                            // A sum of nothing reads nothing.
                            let from = if k == 0 { 0 } else { i * a.row_stride + k_first };
                            let data = block.data[from..].as_ptr();
                            Strip { data, row_stride: a.row_stride, k_stride: 1 }
                        } else {
                            Strip { data: packed[i * k..].as_ptr(), row_stride: 1, k_stride: mr }
                        };
                        // SAFETY: `Mat` holds its rows and columns, the packed strip `mr` rows of `k`; the target holds
                        // the rows of `a`, by the caller's promise.
                        unsafe {
                            let data = target.data.add((first_row + i) * target.row_stride + column);
                            let to = Target { data, row_stride: target.row_stride, cols };
                            strip(simd, mr.min(rows - i), strip_of_a, panel, width / lanes, self.alpha, how, to);
                        }
                    }
                }
                k_first += K_BLOCK;
            }
        }
    }
}
