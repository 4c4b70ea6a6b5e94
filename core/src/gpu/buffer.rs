//! Memory of a GPU, and moving bytes there and back.

use super::Gpu;
use super::pool::{Memory, Pool, size_class};
use crate::{Error, Result, autograd};
use std::sync::atomic::Ordering;

/// Bytes on their way to the device at once.
const WRITTEN: usize = 128 << 20;
/// Bytes that are handed to the driver at once: it copies them to memory of its own, and cannot refuse.
const SLICE: usize = 32 << 20;

/// Memory of a GPU. It goes back to the pool when it is dropped.
pub struct GpuBuffer {
    gpu: &'static Gpu,
    /// `None` only while it is being dropped.
    buffer: Option<wgpu::Buffer>,
}

impl GpuBuffer {
    /// The GPU it is of.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    pub(super) fn raw(&self) -> &wgpu::Buffer {
        self.buffer.as_ref().expect("not dropped yet")
    }
}

impl Drop for GpuBuffer {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.gpu.pool().give_back(buffer);
        }
    }
}

impl Gpu {
    /// Memory for `bytes` bytes of unspecified value.
    ///
    /// # Errors
    /// When the size exceeds the largest binding of a kernel, the rest of the budget, or the memory of the GPU.
    pub fn allocate(&'static self, bytes: u64) -> Result<GpuBuffer> {
        let limit = self.facts().max_binding;
        if bytes > limit {
            return Err(self.error(format!(
                "{bytes} bytes for {}, where a kernel sees at most {limit} at once: make the batch or the sequences smaller, \
                 or store a weight in fewer bits",
                autograd::place()
            )));
        }
        let size = size_class(bytes).min(limit & !3);
        let mut pool = self.pool();
        if let Some(buffer) = pool.take(size) {
            return Ok(GpuBuffer { gpu: self, buffer: Some(buffer) });
        }
        let mut buffer = if pool.is_wasteful(size) { None } else { self.create(size, &pool) };
        if buffer.is_none() && pool.memory.held > 0 {
            // Buffers of other sizes that were freed go back to the driver before anything is refused.
            drop(pool);
            self.trim();
            pool = self.pool();
            buffer = self.create(size, &pool);
        }
        let Some(buffer) = buffer else {
            let Memory { used, budget, .. } = pool.memory;
            let budget = budget.filter(|_| !pool.fits(size));
            let (device, place) = (self.facts().name.clone(), autograd::place());
            return Err(Error::GpuMemory { device, place, bytes: size, used, budget });
        };
        pool.count(size);
        Ok(GpuBuffer { gpu: self, buffer: Some(buffer) })
    }

    /// New memory; `None` when the budget or the memory of the GPU is exhausted.
    fn create(&self, size: u64, pool: &Pool) -> Option<wgpu::Buffer> {
        if !pool.fits(size) {
            return None;
        }
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        pollster::block_on(scope.pop()).is_none().then_some(buffer)
    }

    /// Copies `bytes` to the device, padded with zeros to a multiple of 4.
    ///
    /// # Errors
    /// As [`Gpu::allocate`].
    pub fn upload(&'static self, bytes: &[u8]) -> Result<GpuBuffer> {
        let buffer = self.allocate(bytes.len() as u64)?;
        // Written before anything that is recorded but not submitted, which may still use this memory.
        self.flush();
        let (whole, rest) = bytes.split_at(bytes.len() & !3);
        for (index, slice) in whole.chunks(SLICE).enumerate() {
            self.queue.write_buffer(buffer.raw(), (index * SLICE) as u64, slice);
            // What was written waits in main memory until the device has taken it.
            if self.written.fetch_add(slice.len(), Ordering::Relaxed) + slice.len() > WRITTEN {
                self.written.store(0, Ordering::Relaxed);
                self.queue.submit([]);
                self.wait(None)?;
            }
        }
        if !rest.is_empty() {
            let mut last = [0; 4];
            last[..rest.len()].copy_from_slice(rest);
            self.queue.write_buffer(buffer.raw(), whole.len() as u64, &last);
        }
        self.check()?;
        Ok(buffer)
    }

    /// Memory that the tensors on this GPU use.
    pub fn memory(&self) -> Memory {
        self.pool().memory
    }

    /// Sets the peak to the memory in use now.
    pub fn reset_peak(&self) {
        let memory = &mut self.pool().memory;
        memory.peak = memory.used;
    }

    /// Limits the memory of tensors, in bytes. `None` leaves the limit to the driver, or to
    /// `GpuFacts::memory` where the driver refuses nothing.
    pub fn set_budget(&self, bytes: Option<u64>) {
        self.pool().memory.budget = bytes.or(self.facts().memory);
    }

    /// Gives freed memory back to the driver. Waits until the device has done with it.
    pub fn trim(&self) {
        let mut state = self.state();
        state.recorder.submit(&self.queue);
        state.pipelines.forget_bindings();
        drop(state);
        self.pool().trim();
        // Where it fails, the next launch says so.
        let _ = self.wait(None);
    }
}
