//! Rows are gathered by a lane to an element. Their gradient is scattered by a lane to a column of each row that occurs.

use super::NAME;
use crate::gpu::{Output, floats, stored, words, zeros};
use crate::linear::gpu::blocks;
use hankel_core::gpu::{Gpu, Kernel, flag, groups};
use hankel_core::{DType, Error, Result, Tensor};
use std::collections::BTreeMap;

static GATHER: Kernel = Kernel { name: NAME, source: include_str!("gather.wgsl"), bindings: "rrrw" };
static SCATTER: Kernel = Kernel { name: "embedding gradient", source: include_str!("scatter.wgsl"), bindings: "rrw" };

/// Rows `ids` of `table`, of `width` elements each, added to `base` if there is one: `[ids, width]`.
pub(crate) fn gather(
    gpu: &'static Gpu,
    name: &'static str,
    base: Option<&Tensor>,
    ids: &[u32],
    table: &Tensor,
    width: usize,
) -> Result<Tensor> {
    let storage = stored(name, "table", table, gpu)?;
    let n = ids.len() * width;
    if let DType::Blocks(format) = storage.dtype {
        let y = Output::new(gpu, n)?;
        blocks::gather(gpu, (&words(gpu, ids)?, ids.len()), storage, format, width, y.buffer())?;
        let rows = y.finish([ids.len(), width])?;
        return base.map_or(Ok(rows.clone()), |base| crate::add(&base.detach().reshape(rows.shape())?, &rows));
    }
    let narrow = match storage.dtype {
        DType::F32 => 0.0,
        DType::BF16 => 1.0,
        DType::F16 => 2.0,
        found => return Err(Error::DType { operator: name, expected: "f32, bf16 or f16", found }),
    };
    let y = Output::new(gpu, n)?;
    let constants = [("NARROW", narrow), ("BASE", flag(base.is_some()))];
    let base = base.map_or(Ok(&storage.buffer), |base| floats(name, "base", base, gpu))?;
    let buffers = [&words(gpu, ids)?, &storage.buffer, base, y.buffer()];
    gpu.launch(&GATHER, &constants, &buffers, &[n as u32, width as u32], groups(n, 256))?;
    y.finish([ids.len(), width])
}

/// Zeros `[rows, width]`, but in row `rows[k]` the sum of the rows `places[starts[k] .. starts[k + 1]]` of `g`, in that order.
pub(crate) fn scatter(
    gpu: &'static Gpu,
    name: &'static str,
    (rows, starts, places): (&[u32], &[u32], &[u32]),
    g: &Tensor,
    shape: [usize; 2],
) -> Result<Tensor> {
    let width = shape[1];
    let mut sum = zeros(gpu, &shape)?;
    let target = &sum.gpu_mut(name)?.buffer;
    let g = floats(name, "gradient", g, gpu)?;
    // At once: each upload costs as much as many launches.
    let buffers = [&words(gpu, &[rows, starts, places].concat())?, g, target];
    gpu.launch(&SCATTER, &[], &buffers, &[rows.len() as u32, width as u32], groups(rows.len() * width, 256))?;
    Ok(sum)
}

pub(super) fn forward(gpu: &'static Gpu, base: Option<&Tensor>, ids: &[u32], table: &Tensor) -> Result<Tensor> {
    gather(gpu, NAME, base, ids, table, table.shape().last())
}

/// `[vocabulary, width]`: the sum of the rows of `g` that belong to each token.
pub(super) fn backward(gpu: &'static Gpu, ids: &[u32], g: &Tensor, shape: [usize; 2]) -> Result<Tensor> {
    let mut of_row: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (place, &id) in (0..).zip(ids) {
        of_row.entry(id).or_default().push(place);
    }
    let rows: Vec<u32> = of_row.keys().copied().collect();
    let mut starts = vec![0];
    starts.extend(of_row.values().scan(0, |end, places| {
        *end += places.len() as u32;
        Some(*end)
    }));
    let places: Vec<u32> = of_row.into_values().flatten().collect();
    scatter(gpu, NAME, (&rows, &starts, &places), g, shape)
}
