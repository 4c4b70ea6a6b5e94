//! `--device` and `--gpu-memory` of the commands that compute.

use crate::config::{Config, Precision};
use crate::fit::open_device;
use anyhow::{Result, ensure};
use hankel_core::Device;

#[derive(Debug, clap::Args)]
pub struct DeviceArgs {
    /// Where to compute: cpu, gpu (the first), gpu:1 or part of a GPU's name (see `train devices`); what a run says, or the
    /// CPU, when left out
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// GiB that tensors may take on a GPU; whatever it has when left out
    #[arg(long, value_name = "GIB")]
    gpu_memory: Option<f64>,
}

impl DeviceArgs {
    /// Puts what was given in the place of what a run says.
    pub fn apply(&self, config: &mut Config) -> Result<()> {
        self.check()?;
        if let Some(device) = &self.device {
            config.device.clone_from(device);
        }
        config.gpu_memory = self.gpu_memory.or(config.gpu_memory);
        Ok(())
    }

    /// The device that is named, the CPU if none is.
    pub fn open(&self, precision: Precision) -> Result<Device> {
        self.check()?;
        open_device(self.device.as_deref().unwrap_or("cpu"), self.gpu_memory, precision)
    }

    fn check(&self) -> Result<()> {
        let memory = self.gpu_memory.unwrap_or(1.0);
        ensure!(memory.is_finite() && memory > 0.0, "--gpu-memory must be above 0, found {memory}");
        Ok(())
    }
}
