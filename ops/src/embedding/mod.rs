//! Rows of a table: `y[..., :] = table[token[...], :]`.
//!
//! `tokens` u32 `[...]`, `table` `[vocabulary, width]`, output `[..., width]`. The gradient of the table adds up the rows of
//! the output's gradient in the order of the tokens.

#[doc(hidden)]
pub mod cases;

use crate::check::for_float;
use hankel_core::{Buffer, Error, Float, Result, Tensor, parallel};

/// Looks up every token.
///
/// # Errors
/// When the table is not a matrix, or a token is not below its number of rows.
pub fn embedding(tokens: &Tensor, table: &Tensor) -> Result<Tensor> {
    let &[vocabulary, width] = &table.shape()[..] else {
        return Err(Error::shape(
            "embedding",
            format!("table has shape {}, expected [vocabulary, width]", table.shape()),
        ));
    };
    let ids = tokens.data::<u32>()?;
    if let Some((position, id)) = ids.iter().enumerate().find(|&(_, &id)| id as usize >= vocabulary) {
        let problem = format!("token {id} at position {position} is outside a vocabulary of {vocabulary}");
        return Err(Error::invalid("embedding", problem));
    }
    let mut shape = tokens.shape().to_vec();
    shape.push(width);
    for_float!(table, "embedding", T => {
        let out = Tensor::from_buffer(gather::<T>(ids, table.data()?, width), shape)?;
        let tokens = tokens.clone();
        out.from_operator("embedding", &[table], move |g, _| {
            let sum = scatter::<T>(tokens.data()?, g.data()?, vocabulary, width);
            Ok(vec![Some(Tensor::from_buffer(sum, [vocabulary, width])?)])
        })
    })
}

fn gather<T: Float>(ids: &[u32], table: &[T], width: usize) -> Buffer<T> {
    let mut out = Buffer::unspecified(ids.len() * width);
    parallel::for_rows(&mut out, width, |first, piece| {
        for (row, &id) in piece.chunks_mut(width).zip(&ids[first..]) {
            row.copy_from_slice(&table[id as usize * width..][..width]);
        }
    });
    out
}

fn scatter<T: Float>(ids: &[u32], gradient: &[T], vocabulary: usize, width: usize) -> Buffer<T> {
    let mut sum = Buffer::zeros(vocabulary * width);
    if width > 0 {
        for (row, &id) in gradient.chunks(width).zip(ids) {
            sum[id as usize * width..][..width].iter_mut().zip(row).for_each(|(s, &g)| *s += g);
        }
    }
    sum
}
