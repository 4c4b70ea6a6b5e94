//! Recurrences on a GPU, in chunks or by Fourier transform. The path `sequential` runs in chunks, too: one step at a
//! time would leave most of the GPU idle, and all evaluations agree within rounding. Dense state matrices run step by step.

use super::{NAME, Poles, ScanPath};
use crate::causal_conv::fft::{Lines, Load, Plan};
use crate::gpu::{Output, Tables, column_sums, floats, stored, zeros};
use crate::linear::gpu::{Epilogue, Left, Right, gemm};
use crate::sequence::gpu::{concat, narrow};
use hankel_core::gpu::{Gpu, GpuBuffer, Kernel, flag, groups};
use hankel_core::{Error, Result, Tensor};

static IMPULSE: Kernel = Kernel { name: "impulse", source: include_str!("impulse.wgsl"), bindings: "w" };
static SCAN: Kernel = Kernel { name: NAME, source: include_str!("scan.wgsl"), bindings: "rrrww" };
static POLES: Kernel = Kernel { name: "poles", source: include_str!("poles.wgsl"), bindings: "rrrwww" };
static POLE_SUMS: Kernel = Kernel { name: "pole_sums", source: include_str!("pole_sums.wgsl"), bindings: "rrrw" };
static DENSE: Kernel = Kernel { name: "dense_scan", source: include_str!("dense.wgsl"), bindings: "rrrw" };

/// Signs of the poles of as many layers as a large model has.
static SIGNS: Tables<Vec<u32>> = Tables::new(256);

/// Steps in a chunk.
const CHUNK: usize = 64;
/// The most states of a dense matrix that the memory of a workgroup holds.
const DENSE_STATES: usize = 1024;
/// Workgroups that take as long as one.
const ALONE: usize = 100;

/// The shape of a recurrence: `dim` states, of which the first `real` are modes of their own and the others pairs.
#[derive(Clone, Copy)]
pub(crate) struct Modes {
    pub(crate) batch: usize,
    pub(crate) steps: usize,
    pub(crate) dim: usize,
    pub(crate) real: usize,
}

impl Modes {
    fn count(&self) -> usize {
        self.real + (self.dim - self.real) / 2
    }
}

/// The directions of time.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Time {
    Forward,
    Backward,
}

/// All states driven by `u`: poles of the modes as complex numbers, or `varying` ones, a real number for each element of `u`.
pub(crate) fn run(
    gpu: &'static Gpu,
    modes: Modes,
    time: Time,
    (poles, varying): (&GpuBuffer, bool),
    u: &GpuBuffer,
    start: Option<&GpuBuffer>,
) -> Result<Tensor> {
    let Modes { batch, steps, dim, real } = modes;
    let states = Output::new(gpu, batch * steps * dim)?;
    let (chunks, count) = (steps.div_ceil(CHUNK), modes.count());
    let ends = Output::new(gpu, 4 * batch * chunks * count)?;
    let parameters = [batch, steps, dim, real, count, CHUNK, chunks].map(|size| size as u32);
    let buffers = [poles, u, start.unwrap_or(u), ends.buffer(), states.buffer()];
    // A single chunk that starts from zero needs the first pass only.
    let passes = if chunks == 1 && start.is_none() { 1 } else { 3 };
    for pass in 0..if chunks * count * batch == 0 { 0 } else { passes } {
        let lanes = if pass == 1 { batch * count } else { batch * chunks * count };
        let constants = [
            ("PASS", f64::from(pass)),
            ("REVERSED", flag(time == Time::Backward)),
            ("VARYING", flag(varying)),
            ("START", flag(start.is_some())),
        ];
        gpu.launch(&SCAN, &constants, &buffers, &parameters, groups(lanes, 64))?;
    }
    states.finish([batch, steps, dim])
}

/// As [`run`] with constant poles, as a convolution with their powers, which are what the recurrence itself makes of an impulse.
fn convolved(
    gpu: &'static Gpu,
    modes: Modes,
    time: Time,
    poles: &GpuBuffer,
    u: &GpuBuffer,
    start: Option<&GpuBuffer>,
) -> Result<Tensor> {
    let Modes { batch, steps, dim, real } = modes;
    let out = Output::new(gpu, batch * steps * dim)?;
    if batch * steps * dim == 0 {
        return out.finish([batch, steps, dim]);
    }
    let impulse = Output::new(gpu, steps * dim)?;
    let sizes = [steps * dim, dim, real].map(|size| size as u32);
    gpu.launch(&IMPULSE, &[], &[impulse.buffer()], &sizes, groups(steps * dim, 256))?;
    let powers = run(gpu, Modes { batch: 1, ..modes }, Time::Forward, (poles, false), impulse.buffer(), None)?;
    let powers = floats(NAME, "powers", &powers, gpu)?;
    // What the initial state adds to the first step: one step with zero input.
    let first = match start {
        Some(start) => {
            let input = zeros(gpu, &[batch, 1, dim])?;
            let input = floats(NAME, "zeros", &input, gpu)?;
            Some(run(gpu, Modes { steps: 1, ..modes }, time, (poles, false), input, Some(start))?)
        }
        None => None,
    };
    let first = first.as_ref().map(|first| floats(NAME, "the first step", first, gpu)).transpose()?;
    let plan = Plan::new(gpu, NAME, steps)?;
    for (column, count, pairs) in [(0, real, false), (real, (dim - real) / 2, true)] {
        if count > 0 {
            let lines = Lines { batch, steps, width: dim, column, count, pairs };
            let spectrum = plan.spectrum(Lines { batch: 1, ..lines }, Load::Signal(powers))?;
            plan.convolve(lines, u, first, (spectrum.buffer(), time == Time::Backward), out.buffer())?;
        }
    }
    out.finish([batch, steps, dim])
}

/// Complex poles from the learned tensors, or the gradients of those from that of the poles.
fn convert(gpu: &'static Gpu, poles: &Poles, complex: &GpuBuffer, gradient: bool) -> Result<Vec<Option<Tensor>>> {
    let (radius, angle, sign) = match poles {
        Poles::Diagonal(a) => (a, None, None),
        Poles::Modal { radius, angle, sign } => (radius, Some(angle), Some(sign)),
        Poles::Dense(_) => unreachable!("a dense matrix has no modes here"),
    };
    let pairs = angle.map_or(0, Tensor::elements);
    let real = radius.elements() - pairs;
    let r = floats(NAME, "the poles", radius, gpu)?;
    // Signs are constants, which may have stayed in main memory: they are copied once.
    let copy = match sign {
        Some(sign) if sign.gpu().is_none() => {
            let signs = sign.data::<f32>()?;
            Some(SIGNS.get(gpu, signs.iter().map(|sign| sign.to_bits()).collect(), || signs.to_vec())?)
        }
        _ => None,
    };
    let of_sign = match (&copy, sign) {
        (Some(copy), _) => copy,
        (None, Some(sign)) => floats(NAME, "the signs", sign, gpu)?,
        (None, None) => r,
    };
    let of_angle = angle.map_or(Ok(r), |angle| floats(NAME, "the angles", angle, gpu))?;
    let d_radius = Output::new(gpu, radius.elements())?;
    let d_angle = Output::new(gpu, pairs)?;
    let buffers = [r, of_angle, of_sign, complex, d_radius.buffer(), d_angle.buffer()];
    let constants = [("GRADIENT", flag(gradient)), ("DIAGONAL", flag(sign.is_none()))];
    gpu.launch(&POLES, &constants, &buffers, &[real as u32, pairs as u32], groups(real + pairs, 64))?;
    let mut gradients = vec![Some(d_radius.finish(radius.shape())?)];
    if let Some(angle) = angle {
        gradients.push(Some(d_angle.finish(angle.shape())?));
    }
    Ok(gradients)
}

/// The shape of a recurrence with the modes of `poles`.
fn modes(u: &Tensor, poles: &Poles) -> Modes {
    let [batch, steps, dim] = [u.shape()[0], u.shape()[1], u.shape()[2]];
    let real = if let Poles::Modal { sign, .. } = poles { sign.elements() } else { dim };
    Modes { batch, steps, dim, real }
}

/// The poles of the modes as complex numbers.
fn complex(gpu: &'static Gpu, modes: Modes, poles: &Poles) -> Result<Output> {
    let complex = Output::new(gpu, 2 * modes.count())?;
    convert(gpu, poles, complex.buffer(), false)?;
    Ok(complex)
}

pub(super) fn forward(
    gpu: &'static Gpu,
    u: &Tensor,
    poles: &Poles,
    initial: Option<&Tensor>,
    path: ScanPath,
) -> Result<Tensor> {
    all(gpu, Time::Forward, u, poles, initial, path)
}

/// The adjoint states `lam_t`.
pub(super) fn adjoint(gpu: &'static Gpu, g: &Tensor, poles: &Poles, path: ScanPath) -> Result<Tensor> {
    all(gpu, Time::Backward, g, poles, None, path)
}

fn all(
    gpu: &'static Gpu,
    time: Time,
    u: &Tensor,
    poles: &Poles,
    initial: Option<&Tensor>,
    path: ScanPath,
) -> Result<Tensor> {
    if let Poles::Dense(a) = poles {
        return dense(gpu, time, u, a, initial);
    }
    let modes = modes(u, poles);
    let complex = complex(gpu, modes, poles)?;
    let start = initial.map(|initial| floats(NAME, "the initial state", initial, gpu)).transpose()?;
    let u = floats(NAME, "u", u, gpu)?;
    match path {
        ScanPath::Fft => convolved(gpu, modes, time, complex.buffer(), u, start),
        ScanPath::Sequential | ScanPath::Chunked => run(gpu, modes, time, (complex.buffer(), false), u, start),
    }
}

/// The first step of every sequence, `[batch, dim]`.
pub(crate) fn first_step(gpu: &'static Gpu, states: &Tensor) -> Result<Tensor> {
    let [batch, dim] = [states.shape()[0], states.shape()[2]];
    narrow(gpu, states, 0, 1)?.reshape([batch, dim])
}

/// The state before each step.
pub(crate) fn before(gpu: &'static Gpu, states: &Tensor, start: Option<&Tensor>) -> Result<Tensor> {
    let [batch, steps, dim] = [states.shape()[0], states.shape()[1], states.shape()[2]];
    if steps == 0 {
        return Ok(states.clone());
    }
    let first = match start {
        Some(start) => start.reshape([batch, 1, dim])?,
        None => zeros(gpu, &[batch, 1, dim])?,
    };
    concat(gpu, &[&first, &narrow(gpu, states, 0, steps - 1)?], steps)
}

/// `A^T lam_0` of each sequence: the gradient of the initial state.
pub(super) fn initial_gradient(gpu: &'static Gpu, adjoint: &Tensor, poles: &Poles) -> Result<Tensor> {
    let [batch, steps, dim] = [adjoint.shape()[0], adjoint.shape()[1], adjoint.shape()[2]];
    if steps == 0 {
        return zeros(gpu, &[batch, dim]);
    }
    let lam = first_step(gpu, adjoint)?;
    let lam = floats(NAME, "adjoint", &lam, gpu)?;
    if let Poles::Dense(a) = poles {
        let out = Output::new(gpu, batch * dim)?;
        let left = Left { data: lam, first: 0, rows: batch, cols: dim, transposed: false, tensor: None };
        let storage = stored(NAME, "the matrix", a, gpu)?;
        let right = Right { storage, first: 0, rows: dim, cols: dim, transposed: false };
        gemm(gpu, left, right, Epilogue::default(), out.buffer())?;
        return out.finish([batch, dim]);
    }
    // One more step backwards from the first adjoint state, with zero input.
    let one = Modes { steps: 1, ..modes(adjoint, poles) };
    let input = zeros(gpu, &[batch, 1, dim])?;
    let complex = complex(gpu, one, poles)?;
    let input = floats(NAME, "zeros", &input, gpu)?;
    run(gpu, one, Time::Backward, (complex.buffer(), false), input, Some(lam))?.reshape([batch, dim])
}

/// The gradients of the tensors of `poles`, from states and adjoint states.
pub(super) fn pole_gradient(
    gpu: &'static Gpu,
    poles: &Poles,
    states: &Tensor,
    initial: Option<&Tensor>,
    adjoint: &Tensor,
) -> Result<Vec<Option<Tensor>>> {
    if !matches!(poles, Poles::Dense(_)) {
        let sums = pole_sums(gpu, modes(states, poles), adjoint, states, initial)?;
        return convert(gpu, poles, floats(NAME, "sums", &sums, gpu)?, true);
    }
    let [batch, steps, dim] = [states.shape()[0], states.shape()[1], states.shape()[2]];
    let (rows, before) = (batch * steps, before(gpu, states, initial)?);
    let out = Output::new(gpu, dim * dim)?;
    let data = floats(NAME, "adjoint", adjoint, gpu)?;
    let left = Left { data, first: 0, rows, cols: dim, transposed: true, tensor: None };
    let storage = stored(NAME, "states", &before, gpu)?;
    let right = Right { storage, first: 0, rows, cols: dim, transposed: false };
    gemm(gpu, left, right, Epilogue::default(), out.buffer())?;
    Ok(vec![Some(out.finish([dim, dim])?)])
}

/// Derivatives by the real and imaginary parts of the poles, `[2 modes]`.
fn pole_sums(
    gpu: &'static Gpu,
    modes: Modes,
    adjoint: &Tensor,
    states: &Tensor,
    start: Option<&Tensor>,
) -> Result<Tensor> {
    const PIECE: usize = 128;
    let Modes { batch, steps, dim, real } = modes;
    let (count, pieces) = (modes.count(), (batch * steps).div_ceil(PIECE));
    let sums = Output::new(gpu, 2 * count * pieces)?;
    let states = floats(NAME, "states", states, gpu)?;
    let first = start.map_or(Ok(states), |start| floats(NAME, "the initial state", start, gpu))?;
    let buffers = [floats(NAME, "adjoint", adjoint, gpu)?, states, first, sums.buffer()];
    let blocks = count.div_ceil(64);
    let parameters = [batch, steps, dim, real, count, PIECE, blocks].map(|size| size as u32);
    let grid = groups(pieces * blocks, 1);
    gpu.launch(&POLE_SUMS, &[("START", flag(start.is_some()))], &buffers, &parameters, grid)?;
    column_sums(gpu, sums.buffer(), None, pieces, 2 * count)
}

/// The recurrence with a full state matrix: a workgroup to a sequence.
fn dense(gpu: &'static Gpu, time: Time, u: &Tensor, a: &Tensor, initial: Option<&Tensor>) -> Result<Tensor> {
    let [batch, steps, dim] = [u.shape()[0], u.shape()[1], u.shape()[2]];
    if dim > DENSE_STATES {
        let problem = format!("a dense matrix of {dim} states, expected at most {DENSE_STATES} on a GPU");
        return Err(Error::Placement { operator: NAME, problem });
    }
    let states = Output::new(gpu, batch * steps * dim)?;
    let u = floats(NAME, "u", u, gpu)?;
    let first = initial.map_or(Ok(u), |initial| floats(NAME, "the initial state", initial, gpu))?;
    let constants = [("REVERSED", flag(time == Time::Backward)), ("START", flag(initial.is_some()))];
    let buffers = [floats(NAME, "the matrix", a, gpu)?, u, first, states.buffer()];
    if batch * dim > 0 {
        // A workgroup alone leaves most of a card idle.
        let operations = (steps * dim * dim) as f64 * batch.max(ALONE) as f64;
        for run in gpu.runs(steps, operations) {
            let parameters = [batch, steps, dim, run.start, run.end].map(|size| size as u32);
            gpu.launch(&DENSE, &constants, &buffers, &parameters, groups(batch, 1))?;
            gpu.weigh(operations * run.len() as f64 / steps as f64);
        }
    }
    states.finish([batch, steps, dim])
}
