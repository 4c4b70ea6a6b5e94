//! The kernel on a GPU. Cosines and sines come from the host, which has doubles, and stay on the device.

use super::cpu::Turns;
use super::{NAME, Rotary};
use crate::gpu::{Output, Tables, floats};
use hankel_core::gpu::{Gpu, GpuBuffer, Kernel, flag, groups};
use hankel_core::{Result, Tensor};
use std::sync::Arc;

static ROPE: Kernel = Kernel { name: NAME, source: include_str!("rope.wgsl"), bindings: "rrw" };

/// Positions of a stream that share a table: text as it is generated moves through it.
const BLOCK: usize = 4096;

/// Cosines and sines by the frequencies, the first position and the number of positions.
static TURNS: Tables<(Rotary, usize, usize)> = Tables::new(8);

/// The table in which the tokens lie, and the position of the first of them in it.
fn turns(gpu: &'static Gpu, rotary: &Rotary, offset: usize, steps: usize) -> Result<(Arc<GpuBuffer>, usize)> {
    let first = offset % BLOCK;
    let (base, positions) = (offset - first, (first + steps).next_power_of_two().max(256));
    let make = || {
        let turns = Turns::<f32>::new(rotary, base, positions, 1.0);
        turns.cos.into_iter().zip(turns.sin).flat_map(|(cos, sin)| [cos, sin]).collect()
    };
    Ok((TURNS.get(gpu, (rotary.clone(), base, positions), make)?, first))
}

pub(super) fn forward(gpu: &'static Gpu, x: &Tensor, rotary: &Rotary, offset: usize) -> Result<Tensor> {
    turn(gpu, x, rotary, offset, false)
}

/// By the opposite angles.
pub(super) fn backward(gpu: &'static Gpu, g: &Tensor, rotary: &Rotary, offset: usize) -> Result<Tensor> {
    turn(gpu, g, rotary, offset, true)
}

fn turn(gpu: &'static Gpu, x: &Tensor, rotary: &Rotary, offset: usize, back: bool) -> Result<Tensor> {
    let (steps, width) = (x.shape()[1], x.shape()[2]);
    let (turns, first) = turns(gpu, rotary, offset, steps)?;
    let y = Output::new(gpu, x.elements())?;
    let planes = x.elements() / 2;
    let parameters = [planes, rotary.frequencies.len(), steps, width, first].map(|size| size as u32);
    let buffers = [floats(NAME, "x", x, gpu)?, &turns, y.buffer()];
    gpu.launch(&ROPE, &[("BACK", flag(back))], &buffers, &parameters, groups(planes, 256))?;
    y.finish(x.shape())
}
