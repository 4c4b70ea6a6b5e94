//! Sums in the order of the rows.

use crate::dispatch::for_float;
use hankel_core::{Buffer, Float, Result, Tensor, parallel};

/// Columns that a task sums up.
const COLUMNS: usize = 64;

pub(super) fn column_sums(g: &Tensor, x: Option<&Tensor>) -> Result<Tensor> {
    let width = g.shape().last();
    for_float!(g, "column_sums", T => {
        let (g, x) = (g.data::<T>()?, x.map(Tensor::data::<T>).transpose()?);
        let mut sums = Buffer::<T>::zeros(width);
        parallel::for_row_blocks(&mut sums, 1, COLUMNS, |first, sums| {
            for row in (0..g.len()).step_by(width.max(1)) {
                let range = row + first..row + first + sums.len();
                match x {
                    Some(x) => {
                        let products = g[range.clone()].iter().zip(&x[range]);
                        sums.iter_mut().zip(products).for_each(|(sum, (&g, &x))| *sum += g * x);
                    }
                    None => sums.iter_mut().zip(&g[range]).for_each(|(sum, &g)| *sum += g),
                }
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
