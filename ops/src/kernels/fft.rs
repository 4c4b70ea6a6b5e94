//! Plans of Fourier transforms, made once for each length.

use rustfft::{Fft, FftNum, FftPlanner};
use std::sync::{Arc, LazyLock, Mutex};

/// Element types with a planner of their own.
pub trait Planned: FftNum {
    /// Keeps the plans made so far.
    #[doc(hidden)]
    fn planner() -> &'static Mutex<FftPlanner<Self>>;
}

impl Planned for f32 {
    fn planner() -> &'static Mutex<FftPlanner<Self>> {
        static PLANNER: LazyLock<Mutex<FftPlanner<f32>>> = LazyLock::new(|| Mutex::new(FftPlanner::new()));
        &PLANNER
    }
}

impl Planned for f64 {
    fn planner() -> &'static Mutex<FftPlanner<Self>> {
        static PLANNER: LazyLock<Mutex<FftPlanner<f64>>> = LazyLock::new(|| Mutex::new(FftPlanner::new()));
        &PLANNER
    }
}

/// The forward and the inverse transform (without its factor 1/n) of one length.
pub struct Transforms<T> {
    /// Length.
    pub n: usize,
    /// Time to frequency.
    pub forward: Arc<dyn Fft<T>>,
    /// Frequency to time, times n.
    pub inverse: Arc<dyn Fft<T>>,
}

impl<T: Planned> Transforms<T> {
    /// Transforms long enough for a convolution of `tokens` steps without wrapping round: at least `2 tokens`.
    pub fn for_convolution(tokens: usize) -> Self {
        // Lengths 2^i and 3 * 2^i transform fastest.
        let double = (2 * tokens).max(1);
        let power = double.next_power_of_two();
        let n = if power >= 8 && power / 4 * 3 >= double { power / 4 * 3 } else { power };
        // Plans are only ever added, so a planner left by a panicking thread is as good as before.
        let mut planner = T::planner().lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Transforms { n, forward: planner.plan_fft_forward(n), inverse: planner.plan_fft_inverse(n) }
    }

    /// Elements of scratch that either transform needs.
    pub fn scratch_len(&self) -> usize {
        self.forward.get_inplace_scratch_len().max(self.inverse.get_inplace_scratch_len())
    }
}
