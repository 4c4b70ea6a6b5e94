//! Sums in the order of the rows, short ones first: the rounding errors of a long one in `f32` would add up.

use crate::dispatch::for_float;
use hankel_core::{Buffer, Float, Result, Tensor, parallel};

/// Columns that a task sums up.
const COLUMNS: usize = 64;
/// Rows of a short sum.
const ROWS: usize = 64;

pub(super) fn column_sums(g: &Tensor, x: Option<&Tensor>) -> Result<Tensor> {
    let width = g.shape().last();
    for_float!(g, "column_sums", T => {
        let (g, x) = (g.data::<T>()?, x.map(Tensor::data::<T>).transpose()?);
        let mut sums = Buffer::<T>::zeros(width);
        parallel::for_row_blocks(&mut sums, 1, COLUMNS, |first, sums| {
            let width = width.max(1);
            for rows in (0..g.len()).step_by(ROWS * width) {
                let mut short = [T::of(0.0); COLUMNS];
                for row in (rows..g.len().min(rows + ROWS * width)).step_by(width) {
                    let range = row + first..row + first + sums.len();
                    match x {
                        Some(x) => {
                            let products = g[range.clone()].iter().zip(&x[range]);
                            short.iter_mut().zip(products).for_each(|(sum, (&g, &x))| *sum += g * x);
                        }
                        None => short.iter_mut().zip(&g[range]).for_each(|(sum, &g)| *sum += g),
                    }
                }
                sums.iter_mut().zip(short).for_each(|(sum, short)| *sum += short);
            }
        });
        Tensor::from_buffer(sums, [width])
    })
}

pub(super) fn dot(g: &Tensor, x: &Tensor) -> Result<Tensor> {
    for_float!(g, "dot", T => {
        let products = g.data::<T>()?.iter().zip(x.data::<T>()?).map(|(&g, &x)| (g * x).f64());
        Ok(Tensor::scalar(T::of(products.sum())))
    })
}
