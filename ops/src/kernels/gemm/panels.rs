//! Packed right factors, and the loops that multiply by them.

use super::general;
use super::micro::{Strip, Target, strip, tile_shape};
use super::pack::pack_left;
use super::{Accumulate, COLUMNS, Mat, ROW_BLOCK, RightFactor, k_blocks};
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
    /// Steps of each block of `k` but the last.
    block: usize,
    n: usize,
}

impl<T: Real> Panels<T> {
    fn new(k: usize, block: usize, n: usize) -> (Self, PanelShape) {
        let general = general::suits::<T>();
        let shape = if general { general::SHAPE } else { dispatch(Shape::<T>(PhantomData)) };
        (Panels { data: Scratch::new(k * n.next_multiple_of(shape.lanes)), general, k, block, n }, shape)
    }

    /// Packs rows `k` of columns `j`.
    pub(super) fn pack(b: &impl RightFactor<T>, k: Range<usize>, block: usize, j: Range<usize>) -> Self {
        let (mut panels, shape) = Self::new(k.len(), block, j.len());
        let packed = j.len().next_multiple_of(shape.lanes);
        let mut rest = &mut panels.data[..];
        for range in k_blocks(k, block) {
            let (block, after) = rest.split_at_mut(range.len() * packed);
            b.pack(range, j.clone(), shape, block);
            rest = after;
        }
        panels
    }

    /// Packs rows `k` of all columns, in parallel.
    pub(super) fn pack_whole(b: &impl RightFactor<T>, k: Range<usize>, block: usize) -> Self {
        let n = b.cols();
        let (mut panels, shape) = Self::new(k.len(), block, n);
        let steps: Vec<Range<usize>> = k_blocks(k, block).collect();
        let (packed, together) = (n.next_multiple_of(shape.lanes), b.together().next_multiple_of(shape.width));
        pack_in_parallel(&mut panels.data, packed, together, &steps, Range::len, |i, j, out| {
            b.pack(steps[i].clone(), j.start..n.min(j.end), shape, out);
        });
        panels
    }
}

/// Packs the `n` columns of every block of `k`, in parallel: calls `pack(i, j, out)` for block `i` and a piece `j` of the columns,
/// whose first panel begins at `out`. All pieces but the last have a multiple of `together` columns, which are whole panels.
pub(super) fn pack_in_parallel<E: Send>(
    mut data: &mut [E],
    n: usize,
    together: usize,
    blocks: &[Range<usize>],
    steps: impl Fn(&Range<usize>) -> usize,
    pack: impl Fn(usize, Range<usize>, &mut [E]) + Sync,
) {
    // Whole panels, so that they lie where one task would put them.
    let cols = blocks.first().map_or(1, |block| parallel::GRAIN / steps(block).max(1)).max(1);
    let cols = cols.next_multiple_of(together);
    let mut pieces = Vec::new();
    for (i, block) in blocks.iter().enumerate() {
        for first in (0..n).step_by(cols) {
            let columns = first..n.min(first + cols);
            let (piece, rest) = data.split_at_mut(columns.len() * steps(block));
            data = rest;
            pieces.push((i, columns, piece));
        }
    }
    parallel::for_chunks(&mut pieces, 1, |_, piece| {
        for (i, columns, out) in piece {
            pack(*i, columns.clone(), out);
        }
    });
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

/// As [`super::Factor::multiply`].
///
/// # Safety
/// The target is writable (and readable, when added to) for the rows of `a`, and nobody else uses it meanwhile.
pub(super) unsafe fn multiply_into<T: Real>(
    alpha: T,
    a: Mat<T>,
    panels: &Panels<T>,
    j: Range<usize>,
    how: Accumulate<T>,
    target: Target<T>,
) {
    assert!(a.cols == panels.k && target.cols == j.len() && j.end <= panels.n);
    assert!(j.start.is_multiple_of(COLUMNS) && (j.end.is_multiple_of(COLUMNS) || j.end == panels.n));
    if panels.general {
        // SAFETY: the same promise.
        return unsafe { general::multiply(alpha, a, panels, j, how, target) };
    }
    dispatch(Product { alpha, a, panels, j, how, target });
}

struct Product<'a, T: Real> {
    alpha: T,
    a: Mat<'a, T>,
    panels: &'a Panels<T>,
    j: Range<usize>,
    how: Accumulate<'a, T>,
    target: Target<T>,
}

impl<T: Real> Panels<T> {
    /// Steps of each block of `k`, and its panels from column `j` on. A sum of nothing has one, of no steps.
    #[inline(always)]
    pub(super) fn blocks(&self, lanes: usize, j: usize) -> impl Iterator<Item = (Range<usize>, &[T])> {
        let packed = self.n.next_multiple_of(lanes);
        (0..self.k.max(1)).step_by(self.block).map(move |first| {
            let steps = first..self.k.min(first + self.block);
            (steps.clone(), &self.data[first * packed + j * steps.len()..])
        })
    }
}

impl<T: Real> WithSimd for Product<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Product { a, target, panels, j, .. } = self;
        let (mr, _) = tile_shape::<S>();
        let lanes = T::lanes::<S>();
        let packed_len = if a.col_stride == 1 { 0 } else { ROW_BLOCK.next_multiple_of(mr) * panels.block.min(a.cols) };
        let mut packed = Scratch::<T>::new(packed_len);
        for first_row in (0..a.rows).step_by(ROW_BLOCK) {
            let rows = ROW_BLOCK.min(a.rows - first_row);
            let block = a.row_block(first_row, rows);
            for (steps, mut panel_data) in panels.blocks(lanes, j.start) {
                let k = steps.len();
                if a.col_stride != 1 {
                    let strips = rows.next_multiple_of(mr);
                    pack_left(block, steps.clone(), mr, &mut packed[..strips * k]);
                }
                for (column, width) in PanelShape::of::<S, T>().columns(j.len()) {
                    let (panel, rest) = panel_data.split_at(k * width);
                    panel_data = rest;
                    let cols = width.min(j.len() - column);
                    let how = self.how.part(steps.start, first_row, column..column + cols);
                    for i in (0..rows).step_by(mr) {
                        if column == 0 && a.col_stride == 1 {
                            // The next strip, whose rows are as many short streams.
                            for row in first_row + i + mr..first_row + i + 2 * mr {
                                prefetch(a.data, row * a.row_stride + steps.start, k);
                            }
                        }
                        let strip_of_a = if a.col_stride == 1 {
                            // A sum of nothing reads nothing.
                            let from = if k == 0 { 0 } else { i * a.row_stride + steps.start };
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
                            strip(
                                simd,
                                mr.min(rows - i),
                                strip_of_a,
                                panel,
                                width / lanes,
                                self.alpha,
                                how.rows_from(i),
                                to,
                            );
                        }
                    }
                }
            }
        }
    }
}
