//! A lane to a row of a state, which no other row touches, step by step; then a lane to a head of a token for the sums over rows.

use super::{NAME, Saved, Sizes};
use crate::gpu::{Output, floats, zeros};
use hankel_core::gpu::{Gpu, GpuBuffer, Kernel, flag, groups};
use hankel_core::{Result, Tensor};

static ROWS: Kernel = Kernel { name: NAME, source: include_str!("rows.wgsl"), bindings: "rrrrw" };
static SUMS: Kernel = Kernel { name: "delta_sums", source: include_str!("sums.wgsl"), bindings: "rrrrrrw" };

/// Rows that take as long as one: each waits for what it has just written.
const ALONE: usize = 400_000;

/// What `rows.wgsl` computes.
#[derive(Clone, Copy)]
enum Pass {
    Forward,
    Adjoint,
    Initial,
}

fn parameters(sizes: Sizes) -> [u32; 5] {
    [sizes.batch, sizes.steps, sizes.heads, sizes.keys, sizes.values].map(|size| size as u32)
}

/// Runs over the rows; `driving` is the values, the gradient or the adjoint states.
fn rows(
    gpu: &'static Gpu,
    (pass, sizes): (Pass, Sizes),
    [k, beta, driving]: [&Tensor; 3],
    start: Option<&Tensor>,
) -> Result<Tensor> {
    let Sizes { batch, steps, .. } = sizes;
    let steps = if matches!(pass, Pass::Initial) { 1 } else { steps };
    let out = Output::new(gpu, batch * steps * sizes.state())?;
    let driving = floats(NAME, "v", driving, gpu)?;
    let of_start = start.map_or(Ok(driving), |start| floats(NAME, "the initial state", start, gpu))?;
    let buffers: [&GpuBuffer; 5] =
        [floats(NAME, "k", k, gpu)?, floats(NAME, "beta", beta, gpu)?, driving, of_start, out.buffer()];
    let constants = [("PASS", f64::from(pass as u8)), ("START", flag(start.is_some()))];
    if batch > 0 {
        let operations = (steps * sizes.keys * (batch * sizes.rows()).max(ALONE)) as f64;
        for run in gpu.runs(steps, operations) {
            let mut all = [0; 7];
            all[..5].copy_from_slice(&parameters(sizes));
            all[5..].copy_from_slice(&[run.start as u32, run.end as u32]);
            gpu.launch(&ROWS, &constants, &buffers, &all, groups(batch * sizes.rows(), 64))?;
            gpu.weigh(operations * run.len() as f64 / steps as f64);
        }
    }
    match pass {
        Pass::Initial => out.finish([batch, sizes.state()]),
        Pass::Forward | Pass::Adjoint => out.finish([batch, steps, sizes.state()]),
    }
}

pub(super) fn forward(
    gpu: &'static Gpu,
    sizes: Sizes,
    [k, v, beta]: [&Tensor; 3],
    initial: Option<&Tensor>,
) -> Result<Tensor> {
    rows(gpu, (Pass::Forward, sizes), [k, beta, v], initial)
}

/// The adjoint states `G_t`.
pub(super) fn adjoint(gpu: &'static Gpu, saved: &Saved, g: &Tensor) -> Result<Tensor> {
    rows(gpu, (Pass::Adjoint, saved.sizes), [&saved.k, &saved.beta, g], None)
}

/// `G_0 (I - beta_0 k_0 k_0^T)` of each sequence.
pub(super) fn initial_gradient(gpu: &'static Gpu, saved: &Saved, adjoint: &Tensor) -> Result<Tensor> {
    if saved.sizes.steps == 0 {
        return zeros(gpu, &[saved.sizes.batch, saved.sizes.state()]);
    }
    rows(gpu, (Pass::Initial, saved.sizes), [&saved.k, &saved.beta, adjoint], None)
}

/// Those of keys, values and shares.
pub(super) fn gradients(gpu: &'static Gpu, saved: &Saved, adjoint: &Tensor) -> Result<[Tensor; 3]> {
    let Sizes { batch, steps, heads, keys, values } = saved.sizes;
    let tokens = batch * steps * heads;
    let start = saved.initial.as_ref();
    let states = floats(NAME, "the states", &saved.states, gpu)?;
    let buffers = [
        floats(NAME, "k", &saved.k, gpu)?,
        floats(NAME, "v", &saved.v, gpu)?,
        floats(NAME, "beta", &saved.beta, gpu)?,
        states,
        start.map_or(Ok(states), |start| floats(NAME, "the initial state", start, gpu))?,
        floats(NAME, "the adjoint states", adjoint, gpu)?,
    ];
    let sum = |which: u8, size: usize| {
        let out = Output::new(gpu, tokens * size)?;
        let mut buffers = buffers.to_vec();
        buffers.push(out.buffer());
        let constants = [("WHICH", f64::from(which)), ("START", flag(start.is_some()))];
        if tokens > 0 {
            gpu.launch(&SUMS, &constants, &buffers, &parameters(saved.sizes), groups(tokens, 64))?;
        }
        out.finish([batch, steps, heads * size])
    };
    Ok([sum(0, keys)?, sum(1, values)?, sum(2, 1)?])
}
