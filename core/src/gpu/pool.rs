//! Buffers by size class, and a budget.

use std::collections::BTreeMap;

/// The smallest buffer: nothing of size 0 can be bound.
const SMALLEST: u64 = 256;
/// Freed buffers of sizes that do not come again may take this, and as much again as was ever in use at once.
const SPARE: u64 = 64 << 20;

/// Device memory of the tensors, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// In use.
    pub used: u64,
    /// Freed, and kept for the next buffer of its size.
    pub held: u64,
    /// The most in use, counted from the last `Gpu::reset_peak`.
    pub peak: u64,
    /// Limit for the sum of used and held bytes; `None` for the memory of the GPU.
    pub budget: Option<u64>,
}

#[derive(Default)]
pub(super) struct Pool {
    free: BTreeMap<u64, Vec<wgpu::Buffer>>,
    pub(super) memory: Memory,
    /// The most that was ever in use.
    most: u64,
}

/// The size of the buffer for `bytes`: four sizes to each power of two, so at most a quarter is wasted.
pub(super) fn size_class(bytes: u64) -> u64 {
    let bytes = bytes.max(SMALLEST);
    let step = (1 << (bytes - 1).ilog2()).max(SMALLEST) / 4;
    bytes.div_ceil(step) * step
}

impl Pool {
    /// A freed buffer of this size class.
    pub(super) fn take(&mut self, size: u64) -> Option<wgpu::Buffer> {
        let buffer = self.free.get_mut(&size)?.pop()?;
        self.memory.held -= size;
        self.count(size);
        Some(buffer)
    }

    /// Counts a buffer as used.
    pub(super) fn count(&mut self, size: u64) {
        self.memory.used += size;
        self.memory.peak = self.memory.peak.max(self.memory.used);
        self.most = self.most.max(self.memory.used);
    }

    pub(super) fn give_back(&mut self, buffer: wgpu::Buffer) {
        let size = buffer.size();
        self.memory.used -= size;
        self.memory.held += size;
        self.free.entry(size).or_default().push(buffer);
    }

    /// Whether `size` more bytes are within the budget.
    pub(super) fn fits(&self, size: u64) -> bool {
        self.memory.budget.is_none_or(|budget| self.memory.used + self.memory.held + size <= budget)
    }

    /// Whether to let go of what was freed before `size` new bytes: sequences of other lengths leave buffers that nothing takes again.
    pub(super) fn is_wasteful(&self, size: u64) -> bool {
        let Memory { used, held, .. } = self.memory;
        held > 0 && used + held + size > SPARE + 2 * self.most.max(used + size)
    }

    /// Lets go of everything freed.
    pub(super) fn trim(&mut self) {
        self.free.clear();
        self.memory.held = 0;
    }
}
