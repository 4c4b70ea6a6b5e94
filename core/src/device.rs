//! Where a tensor lives.

use crate::Result;
use crate::gpu::Gpu;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Where a tensor's elements are stored and its operators run.
#[derive(Debug, Clone, Copy, Default)]
pub enum Device {
    /// Main memory; kernels run on all cores.
    #[default]
    Cpu,
    /// A graphics card, by way of wgpu.
    Gpu(&'static Gpu),
}

impl Device {
    /// `cpu`, or a GPU as [`Gpu::open`] understands it: `gpu`, `gpu:1`, part of a name.
    ///
    /// # Errors
    /// When there is no such GPU or it cannot be used.
    pub fn open(name: &str) -> Result<Self> {
        if name == "cpu" { Ok(Device::Cpu) } else { Gpu::open(name).map(Device::Gpu) }
    }

    /// The GPU, if it is one.
    pub fn gpu(self) -> Option<&'static Gpu> {
        if let Device::Gpu(gpu) = self { Some(gpu) } else { None }
    }

    /// Fails if the device has failed. Values read from it are then invalid.
    ///
    /// # Errors
    /// When the GPU has failed; never for the CPU.
    pub fn check(self) -> Result<()> {
        self.gpu().map_or(Ok(()), Gpu::check)
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Device::Cpu, Device::Cpu) => true,
            (Device::Gpu(one), Device::Gpu(other)) => std::ptr::eq(*one, *other),
            _ => false,
        }
    }
}

impl Eq for Device {}

impl Hash for Device {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Device::Cpu => state.write_usize(0),
            Device::Gpu(gpu) => state.write_usize(std::ptr::from_ref(*gpu) as usize),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Gpu(gpu) => write!(f, "gpu ({})", gpu.facts().name),
        }
    }
}
