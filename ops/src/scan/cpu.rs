//! Every evaluation of every state matrix.

mod dense;
#[doc(hidden)]
pub mod recurrence;

use super::{NAME, Poles, ScanPath};
use crate::causal_conv::cpu::convolution::{Spectra, convolve};
use crate::dispatch::for_float;
use crate::kernels::Real;
use hankel_core::{Buffer, Error, Result, Tensor};
use recurrence::{Direction, Evaluation, Modes};

/// Steps of a chunk.
const CHUNK: usize = 64;

pub(super) fn forward(u: &Tensor, poles: &Poles, initial: Option<&Tensor>, path: ScanPath) -> Result<Tensor> {
    for_float!(u, NAME, T => run::<T>(Direction::Forward, u, poles, initial, path))
}

/// The adjoint states `lam_t`.
pub(super) fn adjoint(g: &Tensor, poles: &Poles, path: ScanPath) -> Result<Tensor> {
    for_float!(g, NAME, T => run::<T>(Direction::Backward, g, poles, None, path))
}

fn run<T: Real>(
    direction: Direction,
    u: &Tensor,
    poles: &Poles,
    initial: Option<&Tensor>,
    path: ScanPath,
) -> Result<Tensor> {
    let start = initial.map(Tensor::data::<T>).transpose()?;
    let mut states = Buffer::<T>::unspecified(u.elements());
    Matrix::new(poles)?.run(u.data()?, start, u.shape()[1], direction, path, &mut states);
    Tensor::from_buffer(states, u.shape())
}

/// `A^T lam_0` of each sequence: the gradient of the initial state.
pub(super) fn initial_gradient(adjoint: &Tensor, poles: &Poles) -> Result<Tensor> {
    let [batch, steps, d] = [adjoint.shape()[0], adjoint.shape()[1], adjoint.shape()[2]];
    for_float!(adjoint, NAME, T => {
        let mut first = Buffer::<T>::zeros(batch * d);
        Matrix::new(poles)?.initial_gradient(adjoint.data()?, steps, &mut first);
        Tensor::from_buffer(first, [batch, d])
    })
}

/// The gradients of the tensors of `poles`, from states and adjoint states.
pub(super) fn pole_gradient(
    poles: &Poles,
    states: &Tensor,
    initial: Option<&Tensor>,
    adjoint: &Tensor,
) -> Result<Vec<Option<Tensor>>> {
    for_float!(states, NAME, T => {
        let start = initial.map(Tensor::data::<T>).transpose()?;
        Matrix::new(poles)?.gradient(poles, states.data()?, start, adjoint.data()?, states.shape()[1])
    })
}

/// Numbers of a state matrix.
enum Matrix<T> {
    Modal { real: Vec<T>, pairs: Vec<[T; 2]> },
    Dense(Vec<T>),
}

impl<T: Real> Matrix<T> {
    fn new(poles: &Poles) -> Result<Self> {
        Ok(match poles {
            Poles::Diagonal(a) => Matrix::Modal { real: a.data::<T>()?.to_vec(), pairs: Vec::new() },
            Poles::Modal { radius, angle, sign } => {
                let (radius, sign) = (radius.data::<T>()?, sign.data::<T>()?);
                let real = sign.iter().zip(radius).map(|(&s, &r)| s * r).collect();
                let pairs = radius[sign.len()..].iter().zip(angle.data::<T>()?);
                Matrix::Modal { real, pairs: pairs.map(|(&r, &t)| [r * t.cos(), r * t.sin()]).collect() }
            }
            Poles::Dense(a) => Matrix::Dense(a.data::<T>()?.to_vec()),
        })
    }

    /// All states of the recurrence over `u`.
    fn run(
        &self,
        u: &[T],
        initial: Option<&[T]>,
        steps: usize,
        direction: Direction,
        path: ScanPath,
        states: &mut [T],
    ) {
        match self {
            Matrix::Modal { real, pairs } => {
                let modes = Modes { real, pairs };
                let evaluation = match path {
                    ScanPath::Sequential => Evaluation::Sequential,
                    ScanPath::Chunked => Evaluation::Chunked(CHUNK),
                    ScanPath::Fft => {
                        let spectra = Spectra::of_modes(modes, steps, direction);
                        let first = initial.map(|initial| recurrence::advanced(direction, modes, initial));
                        return convolve(direction, &spectra, u, first.as_deref(), states);
                    }
                };
                recurrence::scan(evaluation, direction, modes, steps, u, initial, states);
            }
            Matrix::Dense(a) => dense::scan(direction, a, steps, u, initial, states),
        }
    }

    /// `A^T lam_0` of each sequence: the gradient of the initial state.
    fn initial_gradient(&self, adjoint: &[T], steps: usize, out: &mut [T]) {
        match self {
            Matrix::Modal { real, pairs } => {
                let modes = Modes { real, pairs };
                let dim = modes.state_dim();
                if steps * dim > 0 {
                    let first: Vec<T> = adjoint.chunks(steps * dim).flat_map(|lam| &lam[..dim]).copied().collect();
                    out.copy_from_slice(&recurrence::advanced(Direction::Backward, modes, &first));
                }
            }
            Matrix::Dense(a) => dense::initial_gradient(a, steps, adjoint, out),
        }
    }

    /// Gradients of the tensors of `poles` from states and adjoint states.
    fn gradient(
        &self,
        poles: &Poles,
        states: &[T],
        initial: Option<&[T]>,
        adjoint: &[T],
        steps: usize,
    ) -> Result<Vec<Option<Tensor>>> {
        match (self, poles) {
            (Matrix::Dense(matrix), Poles::Dense(a)) => {
                let sum = dense::gradient(matrix, steps, adjoint, states, initial);
                Ok(vec![Some(Tensor::from_vec(sum, a.shape())?)])
            }
            (Matrix::Modal { real, pairs }, Poles::Diagonal(a)) => {
                let sum = recurrence::pole_gradient(Modes { real, pairs }, steps, adjoint, states, initial);
                Ok(vec![Some(Tensor::from_vec(sum, a.shape())?)])
            }
            (Matrix::Modal { real, pairs }, Poles::Modal { radius, angle, sign }) => {
                let sum = recurrence::pole_gradient(Modes { real, pairs }, steps, adjoint, states, initial);
                let (sign, angles) = (sign.data::<T>()?, angle.data::<T>()?);
                let mut d_radius: Vec<T> = sum.iter().zip(sign).map(|(&g, &s)| g * s).collect();
                let mut d_angle = Vec::with_capacity(angles.len());
                let moduli = &radius.data::<T>()?[real.len()..];
                // The sums are the derivatives by `radius cos` and `radius sin`.
                for ((g, &t), &r) in sum[real.len()..].chunks(2).zip(angles).zip(moduli) {
                    d_radius.push(g[0] * t.cos() + g[1] * t.sin());
                    d_angle.push(r * (g[1] * t.cos() - g[0] * t.sin()));
                }
                let d_radius = Tensor::from_vec(d_radius, radius.shape())?;
                Ok(vec![Some(d_radius), Some(Tensor::from_vec(d_angle, angle.shape())?)])
            }
            _ => Err(Error::invalid("scan", "the matrix was made from other poles")),
        }
    }
}
