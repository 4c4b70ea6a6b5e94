//! Borrowed matrices with strides.

/// A borrowed matrix: element (i, j) is `data[i * row_stride + j * col_stride]`. Transposing swaps the strides.
#[derive(Clone, Copy)]
pub struct Mat<'a, T> {
    pub(super) data: &'a [T],
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) row_stride: usize,
    pub(super) col_stride: usize,
}

/// Elements from the first to the last one of a row-major matrix; the largest number there is where they cannot be counted, so that no
/// slice is found long enough.
pub(super) fn extent(rows: usize, cols: usize, row_stride: usize) -> usize {
    if rows == 0 || cols == 0 { 0 } else { (rows - 1).saturating_mul(row_stride).saturating_add(cols) }
}

impl<'a, T: Copy> Mat<'a, T> {
    /// A row-major matrix without gaps.
    ///
    /// # Panics
    /// When `data` is shorter than `rows * cols`.
    pub fn new(data: &'a [T], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// A row-major matrix whose rows start `row_stride` elements apart.
    ///
    /// # Panics
    /// When `data` ends before the last element.
    pub fn strided(data: &'a [T], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(extent(rows, cols, row_stride) <= data.len(), "a {rows} x {cols} matrix needs more elements");
        Mat { data, rows, cols, row_stride, col_stride: 1 }
    }

    /// The transposed matrix, of the same elements.
    pub fn t(self) -> Self {
        Mat { rows: self.cols, cols: self.rows, row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }

    /// The same shape over other data of the same length.
    pub(crate) fn with_data<U>(self, data: &'a [U]) -> Mat<'a, U> {
        assert_eq!(data.len(), self.data.len());
        Mat { data, rows: self.rows, cols: self.cols, row_stride: self.row_stride, col_stride: self.col_stride }
    }

    /// The elements, gaps among them.
    pub(crate) fn data(&self) -> &'a [T] {
        self.data
    }

    /// Whether the elements of a row, and not only those of a column, are neighbours.
    pub(crate) fn is_row_major(&self) -> bool {
        self.col_stride == 1
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Element (i, j).
    ///
    /// # Panics
    /// When out of range.
    #[inline]
    pub fn at(&self, i: usize, j: usize) -> T {
        assert!(i < self.rows && j < self.cols);
        self.data[i * self.row_stride + j * self.col_stride]
    }

    /// Where element (i, j) of a row-major matrix is, which the caller has to know to exist.
    #[inline(always)]
    pub(super) fn at_ptr(&self, i: usize, j: usize) -> *const T {
        self.data.as_ptr().wrapping_add(i * self.row_stride + j)
    }

    /// Row `i` of a row-major matrix.
    ///
    /// # Panics
    /// When it is out of range, or the matrix is transposed.
    #[inline]
    pub fn row(&self, i: usize) -> &'a [T] {
        assert!(i < self.rows && self.col_stride == 1);
        if self.cols == 0 { &[] } else { &self.data[i * self.row_stride..][..self.cols] }
    }

    /// Rows `first..first + rows`.
    pub(super) fn row_block(self, first: usize, rows: usize) -> Self {
        debug_assert!(first + rows <= self.rows);
        // Of a matrix without columns there are no elements to begin at.
        let data = if rows == 0 || self.cols == 0 { &[] } else { &self.data[first * self.row_stride..] };
        Mat { data, rows, ..self }
    }

    /// Columns `first..first + cols`.
    pub(super) fn col_block(self, first: usize, cols: usize) -> Self {
        self.t().row_block(first, cols).t()
    }
}
