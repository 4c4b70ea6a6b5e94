//! Kernels of convolutions in the frequency domain.

use crate::kernels::Real;
use crate::scan::cpu::recurrence::{Direction, Modes};
use hankel_core::parallel;
use hankel_fft::Transforms;
use num_complex::Complex;

/// Transformed kernels, divided by the length of the transform.
pub struct Spectra<T> {
    pub(super) transforms: Transforms<T>,
    pub(super) tokens: usize,
    pub(super) real: Vec<Vec<Complex<T>>>,
    pub(super) pairs: Vec<Vec<Complex<T>>>,
}

impl<T: Real> Spectra<T> {
    /// Of one real kernel for each channel, `[channels, tokens]`.
    pub fn of_kernels(kernels: &[T], tokens: usize) -> Self {
        let kernels: Vec<&[T]> = kernels.chunks_exact(tokens.max(1)).collect();
        let taps = |kernel: &&[T]| kernel.iter().map(|&x| Complex::new(x, T::zero())).collect();
        Self::new(tokens, &kernels, &[], taps)
    }

    /// Of the impulse responses of a recurrence: the powers of its poles. In the backward direction those of the
    /// transposed state matrix, the conjugate poles.
    ///
    /// The powers are formed in doubles from the poles as the recurrence has them, so both compute the same thing.
    pub fn of_modes(modes: Modes<T>, tokens: usize, direction: Direction) -> Self {
        let sign = if direction == Direction::Forward { 1.0 } else { -1.0 };
        let real: Vec<_> = modes.real.iter().map(|a| Complex::new(a.f64(), 0.0)).collect();
        let pairs: Vec<_> = modes.pairs.iter().map(|[re, im]| Complex::new(re.f64(), sign * im.f64())).collect();
        Self::new(tokens, &real, &pairs, |&pole| powers(pole, tokens))
    }

    fn new<K: Sync>(tokens: usize, real: &[K], pairs: &[K], taps: impl Fn(&K) -> Vec<Complex<T>> + Sync) -> Self {
        let transforms = Transforms::<T>::for_convolution(tokens);
        let transformed = |kernel: &K| {
            let mut taps = taps(kernel);
            taps.resize(transforms.n, Complex::default());
            transforms.forward.process(&mut taps);
            let scale = T::of(1.0 / transforms.n as f64);
            taps.iter_mut().for_each(|x| *x = x.scale(scale));
            taps
        };
        let real_spectra = parallel::collect(real.len(), |i| transformed(&real[i]));
        let pairs = parallel::collect(pairs.len(), |i| transformed(&pairs[i]));
        Spectra { transforms, tokens, real: real_spectra, pairs }
    }

    pub(super) fn channels(&self) -> usize {
        self.real.len() + 2 * self.pairs.len()
    }
}

/// `1, pole, pole^2, ...`, carried in doubles. Below the normal numbers of `T` they are 0: no sum notices, and arithmetic
/// with denormal numbers is slow.
fn powers<T: Real>(pole: Complex<f64>, n: usize) -> Vec<Complex<T>> {
    let smallest = T::min_positive_value().f64();
    let power = std::iter::successors(Some(Complex::new(1.0, 0.0)), |power| Some(power * pole));
    // The powers of NaN are NaN.
    let is_normal = |power: &Complex<f64>| power.l1_norm() >= smallest || power.l1_norm().is_nan();
    let normal = power.take(n).take_while(is_normal);
    let mut powers: Vec<_> = normal.map(|x| Complex::new(T::of(x.re), T::of(x.im))).collect();
    powers.resize(n, Complex::default());
    powers
}
