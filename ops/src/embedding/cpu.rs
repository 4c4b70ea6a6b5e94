//! Row by row.

use crate::dispatch::for_float;
use crate::kernels::Real;
use half::{bf16, f16};
use hankel_core::{Buffer, CpuStorage, Result, Tensor, parallel};

/// Rows `ids` of `table`, added to `base` if there is one: `[ids, width]`.
pub(super) fn forward(base: Option<&Tensor>, ids: &[u32], table: &Tensor) -> Result<Tensor> {
    let width = table.shape().last();
    match table.cpu_storage(super::NAME)? {
        CpuStorage::BF16(data) => gather(base, ids, width, |first, row| widen(&data[first..], row, bf16::to_f32)),
        CpuStorage::F16(data) => gather(base, ids, width, |first, row| widen(&data[first..], row, f16::to_f32)),
        CpuStorage::Blocks(blocks) => gather::<f32>(base, ids, width, |first, row| blocks.decode(first, row)),
        _ => for_float!(table, super::NAME, T => {
            let data = table.data::<T>()?;
            gather::<T>(base, ids, width, |first, row| row.copy_from_slice(&data[first..][..row.len()]))
        }),
    }
}

fn widen<S: Copy>(from: &[S], row: &mut [f32], widen: impl Fn(S) -> f32) {
    row.iter_mut().zip(from).for_each(|(y, &x)| *y = widen(x));
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

/// `read` writes a row of the table from its first element on.
fn gather<T: Real>(
    base: Option<&Tensor>,
    ids: &[u32],
    width: usize,
    read: impl Fn(usize, &mut [T]) + Sync,
) -> Result<Tensor> {
    let base = base.map(Tensor::data::<T>).transpose()?;
    let mut out = Buffer::<T>::unspecified(ids.len() * width);
    parallel::for_rows(&mut out, width, |first, piece| {
        for (i, (row, &id)) in piece.chunks_mut(width).zip(&ids[first..]).enumerate() {
            read(id as usize * width, row);
            if let Some(base) = base {
                row.iter_mut().zip(&base[(first + i) * width..]).for_each(|(y, &x)| *y += x);
            }
        }
    });
    Tensor::from_buffer(out, [ids.len(), width])
}
