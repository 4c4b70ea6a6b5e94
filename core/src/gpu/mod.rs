//! GPUs by way of wgpu: any Vulkan, Metal or Direct3D 12 card.
//!
//! A [`Gpu`] is opened once and lives as long as the program. Operators hand it a [`Kernel`], buffers, parameters and a grid;
//! it records the launch into one open compute pass, which is submitted in batches and whenever something is read back, so
//! a launch never waits for the device. [`Gpu::download`], [`Transfer::wait`], [`Gpu::synchronize`] and [`Gpu::trim`] do;
//! [`Gpu::allocate`] and [`Gpu::upload`] may. One queue runs everything in the order of recording, so freed memory goes to the
//! next buffer of its size at once.

mod buffer;
mod devices;
mod kernel;
mod pool;
mod pulse;
mod read_back;
mod recorder;
mod storage;
#[cfg(test)]
mod tests;

pub use buffer::GpuBuffer;
#[doc(hidden)]
pub use devices::for_tests;
pub use devices::{GpuFacts, devices, finish};
pub use kernel::{Kernel, flag, groups};
pub use pool::Memory;
pub use read_back::Transfer;
pub(crate) use storage::elements;
pub use storage::{GpuNf4, GpuStorage};

use crate::{Error, Result};
use kernel::Pipelines;
use pool::Pool;
use recorder::Recorder;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// What may help where a driver gives work up.
const ADVICE: &str =
    "if it ran out of memory, or of the time that the system allows: make the batch smaller, or set `gpu_memory`";

/// An opened GPU.
pub struct Gpu {
    facts: GpuFacts,
    device: wgpu::Device,
    queue: wgpu::Queue,
    state: Mutex<State>,
    pool: Mutex<Pool>,
    /// Bytes written since the device was last waited for.
    written: AtomicUsize,
    /// The most operations of a launch, as the bits of an `f64`.
    longest: AtomicU64,
    /// The first thing that went wrong behind our back.
    failure: Arc<Mutex<Option<String>>>,
}

struct State {
    recorder: Recorder,
    pipelines: Pipelines,
}

impl Gpu {
    /// The GPU that `name` stands for: `gpu` (the first, a real card before a software driver), `gpu:1` (by number, see
    /// [`devices`]) or part of its name. It is opened at the first call.
    ///
    /// # Errors
    /// When there is no such GPU, it cannot be opened, or it lacks a feature that kernels need.
    pub fn open(name: &str) -> Result<&'static Gpu> {
        devices::open(name)
    }

    fn new(facts: GpuFacts, device: wgpu::Device, queue: wgpu::Queue) -> Self {
        let failure = Arc::new(Mutex::new(None));
        let note = |failure: &Arc<Mutex<Option<String>>>, problem: String| {
            failure.lock().expect("no panic under this lock").get_or_insert(problem);
        };
        let of_errors = failure.clone();
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| note(&of_errors, error.to_string())));
        let of_loss = failure.clone();
        device.set_device_lost_callback(move |reason, message| {
            note(&of_loss, format!("the device was lost ({reason:?}): {message}; {ADVICE}"));
        });
        let state = State { recorder: Recorder::new(&device), pipelines: Pipelines::default() };
        let (state, pool, written) = (Mutex::new(state), Mutex::new(Pool::default()), AtomicUsize::new(0));
        let longest = AtomicU64::new(facts.longest_launch().to_bits());
        let gpu = Gpu { facts, device, queue, state, pool, written, longest, failure };
        gpu.set_budget(None);
        gpu
    }

    /// Its name, driver, limits and features.
    pub fn facts(&self) -> &GpuFacts {
        &self.facts
    }

    /// Runs `kernel` on `buffers`, which its bindings take in order, with `parameters` as its immediates and `constants` for
    /// its overrides, in `grid` workgroups. Returns before it has run.
    ///
    /// # Errors
    /// When the kernel does not compile, or an earlier launch or the device failed.
    pub fn launch<P: bytemuck::NoUninit>(
        &self,
        kernel: &'static Kernel,
        constants: &[(&'static str, f64)],
        buffers: &[&GpuBuffer],
        parameters: &P,
        grid: [u32; 3],
    ) -> Result<()> {
        if grid.contains(&0) {
            return Ok(());
        }
        if let Some(size) = grid.iter().find(|&&size| size > self.facts.max_workgroups) {
            let (name, most) = (kernel.name, self.facts.max_workgroups);
            return Err(self.error(format!("{name}: {size} workgroups in one dimension, of {most} that can be")));
        }
        let mut state = self.state();
        let State { recorder, pipelines } = &mut *state;
        let pipeline = pipelines.get(&self.device, kernel, constants).map_err(|problem| self.error(problem))?;
        let group = pipelines.bind(&self.device, kernel, buffers);
        let bytes = buffers.iter().map(|buffer| buffer.raw().size()).sum();
        recorder.dispatch(&self.device, &self.queue, &pipeline, &group, bytemuck::bytes_of(parameters), grid, bytes);
        drop(state);
        self.check()
    }

    /// Says how many operations the last launch takes, where they are many: a batch of large products must not take seconds.
    pub fn weigh(&self, operations: f64) {
        self.state().recorder.weigh(&self.queue, operations);
    }

    /// Divides `n` equal parts, of `operations` in all, into runs: one launch each, of at most the operations that a launch may have on
    /// this card. A run has at least one part.
    pub fn runs(&self, n: usize, operations: f64) -> impl Iterator<Item = Range<usize>> + use<> {
        let longest = f64::from_bits(self.longest.load(Ordering::Relaxed));
        let most = if operations > longest { (longest / operations * n as f64) as usize } else { n }.max(1);
        (0..n).step_by(most).map(move |first| first..n.min(first + most))
    }

    /// Sets the most operations of a launch, and gives what they were.
    #[doc(hidden)]
    pub fn set_longest_launch(&self, operations: f64) -> f64 {
        f64::from_bits(self.longest.swap(operations.to_bits(), Ordering::Relaxed))
    }

    /// Hands everything recorded to the device without waiting for it.
    pub fn flush(&self) {
        self.state().recorder.submit(&self.queue);
    }

    /// Waits for a submission, or for all.
    fn wait(&self, submission_index: Option<wgpu::SubmissionIndex>) -> Result<()> {
        let poll = wgpu::PollType::Wait { submission_index, timeout: None };
        // wgpu panics when a device is lost while it is waited for.
        let waited = catch_unwind(AssertUnwindSafe(|| self.device.poll(poll)));
        self.check()?;
        match waited {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(e)) => Err(self.error(e.to_string())),
            Err(_) => Err(self.error(format!("the device was lost while it worked; {ADVICE}"))),
        }
    }

    /// Waits until everything recorded has run.
    ///
    /// # Errors
    /// When something that was launched, or the device, failed.
    pub fn synchronize(&self) -> Result<()> {
        self.flush();
        self.wait(None)
    }

    /// Fails with the first error that the device has reported.
    ///
    /// # Errors
    /// As said.
    pub fn check(&self) -> Result<()> {
        match &*self.failure.lock().expect("no panic under this lock") {
            Some(problem) => Err(self.error(problem.clone())),
            None => Ok(()),
        }
    }

    /// Gives the device up, as if it had been pulled out: everything that uses it fails from now on.
    #[doc(hidden)]
    pub fn destroy(&self) {
        self.flush();
        self.device.destroy();
    }

    /// Loses what is recorded, as a driver does that gives work up without a word.
    #[doc(hidden)]
    pub fn lose_recorded(&self) {
        self.state().recorder.lose();
    }

    fn error(&self, problem: impl Into<String>) -> Error {
        Error::Gpu { device: self.facts.name.clone(), problem: problem.into() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a thread panicked while it recorded a launch")
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().expect("a thread panicked while it held the buffer pool")
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gpu").field(&self.facts.name).finish()
    }
}
