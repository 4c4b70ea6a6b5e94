//! Row by row.

use crate::dispatch::for_float;
use half::{bf16, f16};
use hankel_core::{Buffer, CpuStorage, Float, Result, Tensor, parallel};

/// Rows `ids` of `table`: `[ids, width]`.
pub(super) fn forward(ids: &[u32], table: &Tensor) -> Result<Tensor> {
    let width = table.shape().last();
    match table.cpu_storage(super::NAME)? {
        CpuStorage::BF16(data) => gather(ids, data, width, bf16::to_f32),
        CpuStorage::F16(data) => gather(ids, data, width, f16::to_f32),
        CpuStorage::Blocks(blocks) => {
            let mut out = Buffer::<f32>::unspecified(ids.len() * width);
            parallel::for_rows(&mut out, width, |first, piece| {
                for (row, &id) in piece.chunks_mut(width).zip(&ids[first..]) {
                    blocks.decode(id as usize * width, row);
                }
            });
            Tensor::from_buffer(out, [ids.len(), width])
        }
        _ => for_float!(table, super::NAME, T => gather::<T, T>(ids, table.data()?, width, |x| x)),
    }
}

/// `[vocabulary, width]`: the sum of the rows of `g` that belong to each token.
pub(super) fn backward(ids: &[u32], g: &Tensor, shape: [usize; 2]) -> Result<Tensor> {
    let [vocabulary, width] = shape;
    for_float!(g, super::NAME, T => {
        let mut sum = Buffer::<T>::zeros(vocabulary * width);
        for (row, &id) in g.data::<T>()?.chunks(width.max(1)).zip(ids) {
            sum[id as usize * width..][..width].iter_mut().zip(row).for_each(|(s, &g)| *s += g);
        }
        Tensor::from_buffer(sum, shape)
    })
}

fn gather<S: Copy + Sync, T: Float>(ids: &[u32], table: &[S], width: usize, widen: fn(S) -> T) -> Result<Tensor> {
    let mut out = Buffer::unspecified(ids.len() * width);
    parallel::for_rows(&mut out, width, |first, piece| {
        for (row, &id) in piece.chunks_mut(width).zip(&ids[first..]) {
            row.iter_mut().zip(&table[id as usize * width..][..width]).for_each(|(y, &x)| *y = widen(x));
        }
    });
    Tensor::from_buffer(out, [ids.len(), width])
}
