//! Reading back without waiting: the copy is a command among the others, and its bytes are fetched later.

use super::{Gpu, GpuBuffer};
use crate::Result;
use std::sync::mpsc::{Receiver, channel};

/// A copy of bytes from a GPU to main memory, of the values at the time of the request; later launches do not change it.
pub struct Transfer {
    gpu: &'static Gpu,
    staging: wgpu::Buffer,
    bytes: usize,
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
        let staging = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("read back"),
            // Nothing of size 0 can be mapped.
            size: size.max(4),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let submission = self.state().recorder.copy_out(&self.device, &self.queue, buffer.raw(), &staging, size);
        let (sender, mapped) = channel();
        staging.map_async(wgpu::MapMode::Read, .., move |result| {
            // Nobody may want it any more.
            let _ = sender.send(result);
        });
        self.check()?;
        Ok(Transfer { gpu: self, staging, bytes, submission, mapped })
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
        let submission_index = Some(self.submission.clone());
        let waited = self.gpu.device.poll(wgpu::PollType::Wait { submission_index, timeout: None });
        self.gpu.check()?;
        if let Err(e) = waited {
            return fail(format!("reading back failed: {e}"));
        }
        match self.mapped.recv() {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return fail(format!("reading back failed: {e}")),
            Err(_) => return fail("reading back was given up: the device is gone".to_owned()),
        }
        match self.staging.get_mapped_range(..) {
            Ok(view) => Ok(view[..self.bytes].to_vec()),
            Err(e) => fail(format!("reading back failed: {e}")),
        }
    }
}
