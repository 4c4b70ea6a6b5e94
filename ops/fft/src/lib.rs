//! Plans of Fourier transforms, made once for each length.
//!
//! rustfft is generic, so its code is compiled in the crate that makes a plan. Here it is compiled once; who runs a plan
//! calls through `dyn Fft`.

pub use rustfft::{Fft, FftNum};

use rustfft::FftPlanner;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Element types with plans.
pub trait Planned: FftNum {
    /// The forward and the inverse transform of `n` elements.
    fn plan(n: usize) -> [Arc<dyn Fft<Self>>; 2];
}

macro_rules! planned {
    ($float:ty) => {
        impl Planned for $float {
            fn plan(n: usize) -> [Arc<dyn Fft<Self>>; 2] {
                static PLANNER: LazyLock<Mutex<FftPlanner<$float>>> = LazyLock::new(|| Mutex::new(FftPlanner::new()));
                // Plans are only ever added, so a planner left by a panicking thread is as good as before.
                let mut planner = PLANNER.lock().unwrap_or_else(PoisonError::into_inner);
                [planner.plan_fft_forward(n), planner.plan_fft_inverse(n)]
            }
        }
    };
}
planned!(f32);
planned!(f64);

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
        let [forward, inverse] = T::plan(n);
        Transforms { n, forward, inverse }
    }

    /// Elements of scratch that either transform needs.
    pub fn scratch_len(&self) -> usize {
        self.forward.get_inplace_scratch_len().max(self.inverse.get_inplace_scratch_len())
    }
}
