//! Rows of a table: `y[..., :] = table[token[...], :]`.
//!
//! `tokens` u32 `[...]`, `table` `[vocabulary, width]`, output `[..., width]`. The gradient of the table adds up the rows of
//! the output's gradient in the order of the tokens.

#[doc(hidden)]
pub mod cases;
mod gpu;

pub(crate) use gpu::{gather as gather_rows, scatter as scatter_rows};

use crate::dispatch::for_float;
use half::{bf16, f16};
use hankel_core::{Buffer, CpuStorage, Error, Float, Result, Storage, Tensor, parallel};

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
    if let Some(gpu) = table.gpu() {
        return gpu::embedding(gpu, ids, table, shape);
    }
    if let Storage::Cpu(CpuStorage::BF16(data)) = table.storage() {
        return Tensor::from_buffer(gather(ids, data, width, bf16::to_f32), shape);
    }
    if let Storage::Cpu(CpuStorage::F16(data)) = table.storage() {
        return Tensor::from_buffer(gather(ids, data, width, f16::to_f32), shape);
    }
    if let Some(blocks) = table.blocks() {
        let mut out = Buffer::<f32>::unspecified(ids.len() * width);
        parallel::for_rows(&mut out, width, |first, piece| {
            for (row, &id) in piece.chunks_mut(width).zip(&ids[first..]) {
                blocks.decode(id as usize * width, row);
            }
        });
        return Tensor::from_buffer(out, shape);
    }
    for_float!(table, "embedding", T => {
        let out = Tensor::from_buffer(gather::<T, T>(ids, table.data()?, width, |x| x), shape)?;
        let tokens = tokens.clone();
        out.from_operator("embedding", &[Some(table)], move |g, _| {
            let sum = scatter::<T>(tokens.data()?, g.data()?, vocabulary, width);
            Ok(vec![Some(Tensor::from_buffer(sum, [vocabulary, width])?)])
        })
    })
}

fn gather<S: Copy + Sync, T: Float>(ids: &[u32], table: &[S], width: usize, widen: fn(S) -> T) -> Buffer<T> {
    let mut out = Buffer::unspecified(ids.len() * width);
    parallel::for_rows(&mut out, width, |first, piece| {
        for (row, &id) in piece.chunks_mut(width).zip(&ids[first..]) {
            row.iter_mut().zip(&table[id as usize * width..][..width]).for_each(|(y, &x)| *y = widen(x));
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
