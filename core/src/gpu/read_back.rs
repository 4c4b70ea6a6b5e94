//! Reading back without waiting: the copy is a command among the others, and its bytes are fetched later.

use super::{ADVICE, Gpu, GpuBuffer};
use crate::{Error, Result, autograd};
use std::sync::mpsc::{Receiver, channel};

/// A copy of bytes from a GPU to main memory, of the values at the time of the request; later launches do not change it.
pub struct Transfer {
    gpu: &'static Gpu,
    staging: wgpu::Buffer,
    bytes: usize,
    /// The count of batches that is to stand in the last four bytes.
    batches: u32,
    submission: wgpu::SubmissionIndex,
    mapped: Receiver<Result<(), wgpu::BufferAsyncError>>,
}

impl Gpu {
    /// Asks for the first `bytes` bytes of `buffer`, and hands everything recorded to the device.
    ///
    /// # Errors
    /// When something that was launched, or the device, failed.
    pub fn read_back(&'static self, buffer: &GpuBuffer, bytes: usize) -> Result<Transfer> {
        let size = bytes.next_multiple_of(4) as u64;
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let staging = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("read back"),
            size: size + 4,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        if pollster::block_on(scope.pop()).is_some() {
            let (device, used) = (self.facts().name.clone(), self.memory().used);
            return Err(Error::GpuMemory { device, place: autograd::place(), bytes: size, used, budget: None });
        }
        let (submission, batches) =
            self.state().recorder.copy_out(&self.device, &self.queue, buffer.raw(), &staging, size);
        let (sender, mapped) = channel();
        staging.map_async(wgpu::MapMode::Read, .., move |result| {
            // Nobody may want it any more.
            let _ = sender.send(result);
        });
        self.check()?;
        Ok(Transfer { gpu: self, staging, bytes, batches, submission, mapped })
    }

    /// The first `bytes` bytes of `buffer`. Waits for everything recorded.
    ///
    /// # Errors
    /// When something that was launched, or the device, failed.
    pub fn download(&'static self, buffer: &GpuBuffer, bytes: usize) -> Result<Vec<u8>> {
        self.read_back(buffer, bytes)?.wait()
    }
}

impl Transfer {
    /// The bytes. Waits until everything that was recorded before they were asked for has run.
    ///
    /// # Errors
    /// When something that was launched, or the device, failed.
    pub fn wait(self) -> Result<Vec<u8>> {
        let fail = |problem: String| Err(self.gpu.error(problem));
        self.gpu.wait(Some(self.submission.clone()))?;
        match self.mapped.recv() {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return fail(format!("reading back failed: {e}")),
            Err(_) => return fail("reading back was given up: the device is gone".to_owned()),
        }
        let view = match self.staging.get_mapped_range(..) {
            Ok(view) => view,
            Err(e) => return fail(format!("reading back failed: {e}")),
        };
        let (rest, count) = view.split_last_chunk::<4>().expect("a count behind the bytes");
        if u32::from_le_bytes(*count) == self.batches {
            return Ok(rest[..self.bytes].to_vec());
        }
        // What runs from here on would work on what was not written.
        let problem = format!("it has not run all that it was given, and its driver has not said why; {ADVICE}");
        self.gpu.failure.lock().expect("no panic under this lock").get_or_insert(problem);
        self.gpu.check().map(|()| Vec::new())
    }
}
