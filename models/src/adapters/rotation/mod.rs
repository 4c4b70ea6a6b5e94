//! `rotation`: planes that a token turns, each by an angle of its own.
//!
//! ```text
//! theta_t = W x_t + v                                                  W [p, D], v [p], in radians
//! z_t     = m a exp(i theta_t) * z_{t-1} + (B x_t + i B' x_t)          B, B' [p, D], z_{-1} learned
//! y_t     = C Re z_t + C' Im z_t                                       C, C' [D, p]
//! ```
//!
//! `*` is the elementwise product over the `p` planes, whose two states are the real and the imaginary part of `z`. The modulus of
//! plane `i` is `m a_i` with `a_i = exp(-exp(l_i))` below 1 and `m` (`max_modulus`) at most 1: no input makes a state grow without
//! bound. A rotation by `2 pi / n` counts modulo `n`, which no recurrence with constant poles or real ones does for `n` above 2 (W.
//! Merrill, J. Petty and A. Sabharwal, The Illusion of State in State-Space Models, 2024); the maps of different tokens commute, so
//! that the order of what happened is not held. HRM with `mode = "complex"` has the angles of all tokens alike.
//!
//! The state learns where it begins: a rotation of zero is zero. With `phi_t` the running sum of the angles, `w_t = exp(-i phi_t) z_t`
//! is a diagonal recurrence with constant poles, `w_t = m a * w_{t-1} + exp(-i phi_t) (B x_t + i B' x_t)`, and runs as one.
//!
//! `phi_t` grows with `t`, and in f32 the digits of its place in the turn would be lost to the whole turns before it. These are left out,
//! and the sum is formed in two parts, of which the larger is exact: the state's direction is off by no more than the angles make it.

use crate::adapters::stream::initial::repeated;
use crate::adapters::stream::{Memory, SiteContext, StreamAdapter, StreamKind, checks, last_states};
use crate::parameter::{Parameter, Role};
use crate::settings::{Key, SettingsError, settings};
use hankel_core::{DType, Result, Tensor};
use hankel_ops::{
    Poles, ScanPath, add, concat_time, cos, exp, linear, multiply, narrow_time, scale, scale_columns, scan, sin,
};
use std::f64::consts::TAU;

/// Steps over which sums of angles are formed; a longer sequence is read in pieces of so many.
const PIECE: usize = 4096;
/// The larger part of an angle is a multiple of this, in radians: [`PIECE`] such parts of at most half a turn have a sum of 24 bits.
const GRID: f64 = 1.0 / 1024.0;
/// `2 pi` to 12 bits: its product with the turns in [`PIECE`] steps has 24 bits.
const TURN: f64 = 3217.0 / 512.0;

settings! {
    /// Settings of [`Rotation`].
    pub struct Settings {
        /// Number of planes p of every layer, of two states each.
        pub planes: usize = "8",
        /// Largest modulus m that a plane can have, at most 1.
        pub max_modulus: f64 = "1",
        /// Fastest initial modulus, over m.
        pub a_min: Option<f64> = "`a_max`",
        /// Slowest initial modulus, over m.
        pub a_max: Option<f64> = "`1 - 1/T`",
        /// Standard deviation of the initial W.
        pub angle_std: f64 = "0.1",
        /// Standard deviation of the states that it begins with.
        pub start_std: f64 = "1",
        /// Standard deviation of the initial B.
        pub b_std: f64 = "0.02",
        /// Standard deviation of the initial C.
        pub c_std: f64 = "0.02; 0 on a pretrained backbone",
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            planes: 8,
            max_modulus: 1.0,
            a_min: None,
            a_max: None,
            angle_std: 0.1,
            start_std: 1.0,
            b_std: 0.02,
            c_std: 0.02,
        }
    }
}

/// The adapter of one layer.
pub struct Rotation {
    log_a: Parameter,
    angle: Parameter,
    angle_bias: Parameter,
    /// The real and the imaginary part of B, of C and of the first state.
    b: [Parameter; 2],
    c: [Parameter; 2],
    start: [Parameter; 2],
    max_modulus: f64,
}

impl StreamKind for Rotation {
    const KIND: &'static str = "rotation";
    const ABOUT: &'static str = "Planes (pairs of states) that every token rotates, each by its own angle.";
    const SIZE: Option<&'static str> = Some("planes");
    const OUTPUT_STD: Option<&'static str> = Some("c_std");
    type Settings = Settings;

    fn keys() -> Vec<Key> {
        Settings::keys()
    }

    fn check(settings: &Settings) -> std::result::Result<(), SettingsError> {
        let Settings { planes, max_modulus: m, a_min, a_max, angle_std, start_std, b_std, c_std } = *settings;
        checks::sizes(&[("planes", planes, checks::MOST)])?;
        checks::poles(a_min, a_max)?;
        checks::deviations(&[("angle_std", angle_std), ("start_std", start_std), ("b_std", b_std), ("c_std", c_std)])?;
        SettingsError::unless(m > 0.0 && m <= 1.0, "max_modulus", || {
            format!("must be above 0 and at most 1, found {m}")
        })
    }

    fn new(settings: &Settings, context: &SiteContext<'_>) -> Result<Self> {
        let (p, width) = (settings.planes, context.d_model);
        let a_max = settings.a_max.unwrap_or(1.0 - 1.0 / context.length.max(2) as f64);
        let log_a = context.log_rates("log_a", p, settings.a_min.unwrap_or(a_max), Some(a_max))?;
        let start = |name: &str| {
            let values = context.random(name).normal_vec::<f32>(p, settings.start_std);
            context.parameter(name, Role::Vector, &Tensor::from_vec(values, [p])?)
        };
        Ok(Rotation {
            log_a,
            angle: context.normal("angle", [p, width], settings.angle_std)?,
            angle_bias: context.parameter("angle_bias", Role::Vector, &Tensor::zeros::<f32>([p]))?,
            b: [
                context.normal("b_real", [p, width], settings.b_std)?,
                context.normal("b_imaginary", [p, width], settings.b_std)?,
            ],
            c: [
                context.normal("c_real", [width, p], settings.c_std)?,
                context.normal("c_imaginary", [width, p], settings.c_std)?,
            ],
            start: [start("start_real")?, start("start_imaginary")?],
            max_modulus: settings.max_modulus,
        })
    }
}

impl StreamAdapter for Rotation {
    fn parameters(&self) -> Vec<Parameter> {
        let Rotation { log_a, angle, angle_bias, b, c, start, .. } = self;
        [log_a, angle, angle_bias].into_iter().chain(b).chain(c).chain(start).cloned().collect()
    }

    fn forward(&self, x: &Tensor, memory: Option<&Memory>) -> Result<(Tensor, Memory)> {
        let (batch, steps) = (x.shape()[0], x.shape()[1]);
        let mut state = match memory.map(Vec::as_slice) {
            Some([real, imaginary]) => [real.clone(), imaginary.clone()],
            _ => [repeated(&self.start[0].tensor(), batch)?, repeated(&self.start[1].tensor(), batch)?],
        };
        if steps <= PIECE {
            let (y, state) = self.piece(x, &state)?;
            return Ok((y, state.into()));
        }
        let mut outputs = Vec::new();
        for first in (0..steps).step_by(PIECE) {
            let (y, after) = self.piece(&narrow_time(x, first, PIECE.min(steps - first))?, &state)?;
            outputs.push(y);
            state = after;
        }
        Ok((concat_time(&outputs.iter().collect::<Vec<_>>())?, state.into()))
    }

    fn state_dim(&self) -> usize {
        2 * self.log_a.elements()
    }
}

impl Rotation {
    /// The output for at most [`PIECE`] steps from the state `before` them, and the state after them.
    fn piece(&self, x: &Tensor, before: &[Tensor; 2]) -> Result<(Tensor, [Tensor; 2])> {
        let steps = x.shape()[1];
        let path = ScanPath::Chunked;
        let angles = linear(x, &self.angle.tensor(), Some(&self.angle_bias.tensor()))?;
        let phase = if steps == 1 { angles } else { phase(&angles)? };
        let (cosine, sine) = (cos(&phase)?, sin(&phase)?);
        let [u, v] = [linear(x, &self.b[0].tensor(), None)?, linear(x, &self.b[1].tensor(), None)?];
        let turned = times([&cosine, &scale(&sine, -1.0)?], [&u, &v])?;
        let poles = Poles::Diagonal(scale(&exp(&scale(&exp(&self.log_a.tensor())?, -1.0)?)?, self.max_modulus)?);
        let [u, v] =
            [scan(&turned[0], &poles, Some(&before[0]), path)?, scan(&turned[1], &poles, Some(&before[1]), path)?];
        let [real, imaginary] = times([&cosine, &sine], [&u, &v])?;
        let y = add(&linear(&real, &self.c[0].tensor(), None)?, &linear(&imaginary, &self.c[1].tensor(), None)?)?;
        Ok((y, [last_states(&real, Some(&before[0]))?, last_states(&imaginary, Some(&before[1]))?]))
    }
}

/// The running sum of `angles` `[batch, T, p]`, `T` at most [`PIECE`], but for whole turns.
fn phase(angles: &Tensor) -> Result<Tensor> {
    let poles = Poles::Diagonal(angles.full_like([angles.shape().last()], 1.0)?);
    let sum = |x: &Tensor| scan(x, &poles, None, ScanPath::Chunked);
    // Turns and coarse parts are constants, and the gradient is that of the fine parts.
    let (rest, small) = less_turns(angles)?;
    let coarse = rounded(&rest.detach(), GRID)?;
    let fine = add(&add(&rest, &scale(&coarse, -1.0)?)?, &small)?;
    let (coarse, small) = less_turns(&sum(&coarse)?)?;
    add(&coarse, &add(&sum(&fine)?, &small)?)
}

/// `x` less the whole turns in it: a larger part, which is exact, and a small one.
fn less_turns(x: &Tensor) -> Result<(Tensor, Tensor)> {
    let turns = rounded(&scale(&x.detach(), 1.0 / TAU)?, 1.0)?;
    Ok((add(x, &scale(&turns, -TURN)?)?, scale(&turns, TURN - TAU)?))
}

/// `x` rounded to multiples of `grid`, a power of 2: a number so large that its floating-point neighbours are `grid` away is added and
/// subtracted again.
fn rounded(x: &Tensor, grid: f64) -> Result<Tensor> {
    let digits = if x.dtype() == DType::F64 { 52 } else { 23 };
    let columns = [x.shape().last()];
    let (ones, large) = (x.full_like(columns, 1.0)?, x.full_like(columns, 1.5 * grid * 2.0_f64.powi(digits))?);
    scale_columns(&scale_columns(x, &ones, Some(&large))?, &ones, Some(&scale(&large, -1.0)?))
}

/// The product of two complex numbers, each a real and an imaginary part.
fn times([a, b]: [&Tensor; 2], [c, d]: [&Tensor; 2]) -> Result<[Tensor; 2]> {
    let real = add(&multiply(a, c)?, &scale(&multiply(b, d)?, -1.0)?)?;
    Ok([real, add(&multiply(a, d)?, &multiply(b, c)?)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::StreamSite;
    use crate::adapters::shared::SharedParameters;
    use hankel_core::Random;

    fn fixed(settings: &Settings, width: usize) -> Rotation {
        let shared = SharedParameters::default();
        let adapter =
            Rotation::new(settings, &SiteContext::new("rotation", [0, width, 8], StreamSite::Mlp, 1, &shared)).unwrap();
        let set = |parameter: &Parameter, values: Vec<f64>| {
            let values = values.into_iter().map(|v| v as f32).collect();
            parameter.set(&Tensor::from_vec(values, parameter.tensor().shape()).unwrap()).unwrap();
        };
        // A token is a number of fifths of a turn; nothing is taken in, and the output is the state.
        set(&adapter.angle, vec![TAU / 5.0, 0.0]);
        set(&adapter.log_a, vec![-60.0]);
        adapter.b.iter().for_each(|b| set(b, vec![0.0; 2]));
        set(&adapter.start[0], vec![1.0]);
        set(&adapter.start[1], vec![0.0]);
        set(&adapter.c[0], vec![1.0, 0.0]);
        set(&adapter.c[1], vec![0.0, 1.0]);
        adapter
    }

    /// One plane counts modulo five, far beyond any length that it could have been trained at, and no larger modulus than the
    /// largest is reached.
    #[test]
    fn a_plane_counts_modulo_five() {
        const LENGTH: usize = 2000;
        let random = Random::new(7, "tokens", 0);
        let tokens: Vec<usize> = (0..LENGTH as u64).map(|i| random.below(i, 5)).collect();
        let x: Vec<f32> = tokens.iter().flat_map(|&token| [token as f32, 1.0]).collect();
        let x = Tensor::from_vec(x, [1, LENGTH, 2]).unwrap();
        let (y, _) = fixed(&Settings { planes: 1, ..Settings::default() }, 2).forward(&x, None).unwrap();
        let mut count = 0;
        for (token, y) in tokens.iter().zip(y.to_f64_vec().chunks(2)) {
            count += token;
            let angle = TAU * (count % 5) as f64 / 5.0;
            assert!((y[0] - angle.cos()).hypot(y[1] - angle.sin()) < 0.01, "{y:?} after {count}");
        }
        let settings = Settings { planes: 1, max_modulus: 0.5, ..Settings::default() };
        let (y, _) = fixed(&settings, 2).forward(&x, None).unwrap();
        let y = y.to_f64_vec();
        let norms: Vec<f64> = y.chunks(2).map(|y| y[0].hypot(y[1])).collect();
        norms[..12].windows(2).for_each(|pair| assert!((pair[1] / pair[0] - 0.5).abs() < 1e-4, "{norms:?}"));
        let error = Rotation::check(&Settings { max_modulus: 1.5, ..settings }).unwrap_err().to_string();
        assert!(error.contains("max_modulus"), "{error}");
    }

    /// Single precision keeps the direction of the state over a sequence of several pieces, read at once and in chunks.
    #[test]
    fn long_sequences_keep_the_direction() {
        const LENGTH: usize = PIECE + 904;
        const CHUNK: usize = 700;
        let shared = SharedParameters::default();
        let context = SiteContext::new("rotation", [0, 3, LENGTH], StreamSite::Mlp, 1, &shared);
        let adapter = Rotation::new(&Settings { planes: 4, ..Settings::default() }, &context).unwrap();
        adapter.angle_bias.set(&Tensor::full([4], (TAU / 3.0) as f32)).unwrap();
        let x = Random::new(7, "x", 0).normal_vec::<f32>(LENGTH * 3, 1.0);
        let x = Tensor::from_vec(x, [1, LENGTH, 3]).unwrap();
        let whole = adapter.forward(&x, None).unwrap().0.to_f64_vec();
        let (mut memory, mut chunks): (Option<Memory>, Vec<f64>) = (None, Vec::new());
        for first in (0..LENGTH).step_by(CHUNK) {
            let chunk = narrow_time(&x, first, CHUNK.min(LENGTH - first)).unwrap();
            let (y, after) = adapter.forward(&chunk, memory.as_ref()).unwrap();
            chunks.extend(y.to_f64_vec());
            memory = Some(after);
        }
        adapter.parameters().iter().for_each(|parameter| parameter.to_dtype(DType::F64).unwrap());
        let exact = adapter.forward(&x.to_dtype(DType::F64).unwrap(), None).unwrap().0.to_f64_vec();
        let size = exact.iter().fold(0.0, |m: f64, y| m.max(y.abs()));
        for (name, found) in [("at once", &whole), ("in chunks", &chunks)] {
            assert_eq!(found.len(), exact.len());
            let worst = found.iter().zip(&exact).map(|(a, b)| (a - b).abs()).max_by(f64::total_cmp).unwrap_or(0.0);
            assert!(worst < 1e-4 * size, "{name}: off by {worst:e} of {size:e}");
        }
    }
}
