//! Attention on a GPU, forward and backward in tiles: no matrix of the size of `T x T` exists.

mod choice;
mod cooperative;
#[cfg(test)]
mod tests;

use super::NAME;
use super::cpu::tiles::Shape;
use crate::gpu::{Output, floats};
use cooperative::Plan;
use hankel_core::gpu::{Gpu, GpuBuffer, Kernel, flag, groups};
use hankel_core::{Error, Result, Tensor};

macro_rules! kernel {
    ($name:literal, $bindings:literal, $inputs:literal, $main:literal) => {
        Kernel {
            name: $name,
            source: concat!(
                include_str!("../soft_cap.wgsl"),
                include_str!("gpu/problem.wgsl"),
                include_str!("gpu/tile.wgsl"),
                include_str!($inputs),
                include_str!($main)
            ),
            bindings: $bindings,
        }
    };
}

/// Element by element, and in vectors of four.
static FORWARD: [Kernel; 2] = [
    kernel!("attention", "rrrrww", "gpu/scalars.wgsl", "gpu/forward.wgsl"),
    kernel!("attention in vectors", "rrrrww", "gpu/vectors.wgsl", "gpu/forward.wgsl"),
];
static BACKWARD: [Kernel; 2] = [
    kernel!("attention gradient", "rrrrrrww", "gpu/scalars.wgsl", "gpu/backward.wgsl"),
    kernel!("attention gradient in vectors", "rrrrrrww", "gpu/vectors.wgsl", "gpu/backward.wgsl"),
];
static ROW_SUMS: Kernel =
    Kernel { name: "attention row sums", source: include_str!("gpu/row_sums.wgsl"), bindings: "rrw" };

/// Rows of queries, or keys, of a workgroup.
const TILE: usize = 64;
/// The widest head of which a lane holds the gradients of keys and values at once.
const BOTH: usize = 128;
/// The widest head that the registers of a lane hold.
const WIDEST: usize = 256;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Parameters {
    sizes: [u32; 6],
    offset: u32,
    window: u32,
    scale: f32,
    cap: f32,
    first_tile: u32,
    tiles: u32,
}

impl Parameters {
    fn new(shape: &Shape) -> Self {
        let Shape { batch, heads, kv_heads, head_dim, queries, keys, offset, window, cap } = *shape;
        Parameters {
            sizes: [batch, heads, kv_heads, head_dim, queries, keys].map(|size| size as u32),
            offset: offset as u32,
            window: window.unwrap_or(0) as u32,
            scale: (1.0 / (head_dim as f64).sqrt()) as f32,
            cap: cap.unwrap_or(0.0) as f32,
            first_tile: 0,
            tiles: 0,
        }
    }
}

/// Calls `launch` with the parameters and the grid of every run of tiles of a work of so many operations.
fn in_runs(
    gpu: &Gpu,
    shape: &Shape,
    [tiles, heads, batch]: [u32; 3],
    operations: f64,
    launch: impl Fn(&Parameters, [u32; 3]) -> Result<()>,
) -> Result<()> {
    for run in gpu.runs(tiles as usize, operations) {
        let parameters = Parameters { first_tile: run.start as u32, tiles, ..Parameters::new(shape) };
        launch(&parameters, [run.len() as u32, heads, batch])?;
        gpu.weigh(operations * run.len() as f64 / f64::from(tiles));
    }
    Ok(())
}

/// The kernel for heads of this width, and the room that its lanes have for them: few kernels are compiled for all widths.
fn for_width(kernels: &'static [Kernel; 2], head_dim: usize) -> (&'static Kernel, (&'static str, f64)) {
    let room = head_dim.next_power_of_two().max(64);
    (&kernels[usize::from(head_dim.is_multiple_of(4))], ("WIDTH", room as f64))
}

/// Workgroups for tiles of the queries, the heads that share keys being rows of one matrix.
fn query_tiles(shape: &Shape) -> [u32; 3] {
    let rows = shape.queries * (shape.heads / shape.kv_heads);
    [rows.div_ceil(TILE) as u32, shape.kv_heads as u32, shape.batch as u32]
}

/// Operations of one product with all keys.
fn product(shape: &Shape) -> f64 {
    [2, shape.batch, shape.heads, shape.queries, shape.keys, shape.head_dim].map(|size| size as f64).iter().product()
}

/// The output, and the logarithm of each row's sum, `[batch * heads * T_q]`.
pub(super) fn forward(
    gpu: &'static Gpu,
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    shape: &Shape,
) -> Result<(Tensor, Tensor)> {
    forward_by(choice::plan(gpu, shape)?, gpu, [q, k, v], shape)
}

/// As [`forward`], by cooperative matrices if a plan is given, and otherwise in `f32`.
fn forward_by(
    plan: Option<Plan>,
    gpu: &'static Gpu,
    [q, k, v]: [&Tensor; 3],
    shape: &Shape,
) -> Result<(Tensor, Tensor)> {
    if shape.head_dim > WIDEST {
        let problem = format!("head_dim = {}, expected at most {WIDEST} on a GPU", shape.head_dim);
        return Err(Error::Placement { operator: NAME, problem });
    }
    let rows = shape.batch * shape.heads * shape.queries;
    let (out, lse) = (Output::new(gpu, q.elements())?, Output::new(gpu, rows)?);
    let [q_in, k_in, v_in] = [("queries", q), ("keys", k), ("values", v)].map(|(name, x)| floats(NAME, name, x, gpu));
    if q.elements() > 0 {
        let (q_in, k_in, v_in) = (q_in?, k_in?, v_in?);
        if let Some(plan) = plan {
            plan.forward(gpu, [q_in, k_in, v_in], shape, [out.buffer(), lse.buffer()])?;
        } else {
            // In place of the gradient, which is not read.
            let buffers = [q_in, k_in, v_in, q_in, out.buffer(), lse.buffer()];
            let (kernel, width) = for_width(&FORWARD, shape.head_dim);
            in_runs(gpu, shape, query_tiles(shape), 2.0 * product(shape), |parameters, grid| {
                gpu.launch(kernel, &[width], &buffers, parameters, grid)
            })?;
        }
    }
    Ok((out.finish(q.shape())?, lse.finish([rows])?))
}

/// The wanted gradients of `q`, `k` and `v`.
pub(super) fn backward(
    gpu: &'static Gpu,
    [q, k, v]: [&Tensor; 3],
    shape: &Shape,
    out: &Tensor,
    lse: &Tensor,
    g: &Tensor,
    wanted: [bool; 3],
) -> Result<[Option<Tensor>; 3]> {
    backward_by(choice::plan(gpu, shape)?, gpu, [q, k, v], shape, [out, lse, g], wanted)
}

/// As [`backward`], by cooperative matrices if a plan is given, and otherwise in `f32`.
fn backward_by(
    plan: Option<Plan>,
    gpu: &'static Gpu,
    [q, k, v]: [&Tensor; 3],
    shape: &Shape,
    [out, lse, g]: [&Tensor; 3],
    wanted: [bool; 3],
) -> Result<[Option<Tensor>; 3]> {
    let Shape { batch, heads, kv_heads, head_dim, queries, keys, .. } = *shape;
    let (kernel, width) = for_width(&BACKWARD, head_dim);
    let buffer = |tensor| floats(NAME, "saved", tensor, gpu);
    let g = floats(NAME, "gradient", g, gpu)?;
    let rows = batch * heads * queries;
    let sums = Output::new(gpu, rows)?;
    if rows * head_dim > 0 {
        let sizes = [batch, heads, queries, head_dim].map(|size| size as u32);
        gpu.launch(&ROW_SUMS, &[], &[buffer(out)?, g, sums.buffer()], &sizes, groups(rows, 16))?;
    }
    let [d_q, d_k, d_v] = [q, k, v].map(|x| Output::new(gpu, x.elements()));
    let (d_q, d_k, d_v) = (d_q?, d_k?, d_v?);
    let [q_in, k_in, v_in, lse] = [buffer(q)?, buffer(k)?, buffer(v)?, buffer(lse)?];
    let launch = |[d_keys, d_values]: [bool; 2], outputs: [&GpuBuffer; 2], grid| {
        let constants = [width, ("D_K", flag(d_keys)), ("D_V", flag(d_values))];
        let buffers = [q_in, k_in, v_in, g, lse, sums.buffer(), outputs[0], outputs[1]];
        in_runs(gpu, shape, grid, 4.0 * product(shape), |parameters, grid| {
            gpu.launch(kernel, &constants, &buffers, parameters, grid)
        })
    };
    let finish = |wanted: bool, d: Output, like: &Tensor| wanted.then(|| d.finish(like.shape())).transpose();
    if let Some(plan) = plan.filter(|_| q.elements() > 0) {
        let outputs = [d_q.buffer(), d_k.buffer(), d_v.buffer()];
        plan.backward(gpu, [q_in, k_in, v_in, g], shape, [lse, sums.buffer()], outputs, wanted)?;
        return Ok([finish(wanted[0], d_q, q)?, finish(wanted[1], d_k, k)?, finish(wanted[2], d_v, v)?]);
    }
    if wanted[0] && q.elements() > 0 {
        // The second output is not written then.
        launch([false, false], [d_q.buffer(), d_k.buffer()], query_tiles(shape))?;
    }
    if k.elements() > 0 {
        let grid = [keys.div_ceil(TILE) as u32, kv_heads as u32, batch as u32];
        let outputs = [d_k.buffer(), d_v.buffer()];
        match [wanted[1], wanted[2]] {
            [false, false] => {}
            [true, true] if head_dim > BOTH => {
                launch([true, false], outputs, grid)?;
                launch([false, true], outputs, grid)?;
            }
            wanted => launch(wanted, outputs, grid)?,
        }
    }
    Ok([finish(wanted[0], d_q, q)?, finish(wanted[1], d_k, k)?, finish(wanted[2], d_v, v)?])
}
