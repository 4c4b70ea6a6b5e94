//! `--device` and `--gpu-memory` of the commands that compute.

use anyhow::{Result, ensure};
use hankel_core::Device;
use hankel_ops::linear::check_precision;
use hankel_trainer::config::{Config, Precision};
use hankel_trainer::fit::open_device;
use hankel_trainer::parallel::of_this_process;
use hankel_trainer::tell;

/// Falls back to f32, with a note, where the device lacks the precision.
pub fn fall_back_to_f32(config: &mut Config) {
    let lacks = |device| check_precision(device, config.precision.of_products()).err();
    if let Some(lack) = Device::open(&of_this_process(&config.device)).ok().and_then(lacks) {
        tell!("computing products in f32 ({lack})");
        config.precision = Precision::F32;
    }
}

#[derive(Debug, clap::Args)]
pub struct DeviceArgs {
    /// Where to compute: cpu, gpu (the first), gpu:1 or part of a GPU's name (see `train devices`); when left out, the run's device, or
    /// the CPU for a model
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// GiB that tensors may take on a GPU; when left out, the run's `gpu_memory`, else all memory of the GPU (on Metal, the size of its
    /// largest buffer)
    #[arg(long, value_name = "GIB")]
    gpu_memory: Option<f64>,
    /// Precision of products with frozen weights and inside attention: f32, bf16 (CPU) or f16 (GPUs with cooperative matrices); f64
    /// (CPU) applies to everything. When left out, the run's (f32 where --device lacks its f16 or bf16), or f32 for a model
    #[arg(long, value_enum)]
    precision: Option<Precision>,
}

impl DeviceArgs {
    /// The options that decide last digits, where they were given.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, String)> {
        let precision = self.precision.map(|precision| ("precision", format!("{precision:?}").to_lowercase()));
        precision.into_iter().chain(self.device.clone().map(|device| ("device", device)))
    }

    /// Puts what was given in the place of what a run says.
    pub fn apply(&self, config: &mut Config) -> Result<()> {
        self.check()?;
        if let Some(device) = &self.device {
            config.device.clone_from(device);
        }
        config.gpu_memory = self.gpu_memory.or(config.gpu_memory);
        match (self.precision, &self.device) {
            (Some(precision), _) => config.precision = precision,
            (None, Some(_)) => fall_back_to_f32(config),
            (None, None) => {}
        }
        Ok(())
    }

    /// The device that is named, the CPU if none is, and the precision, f32 if none is named.
    pub fn open(&self) -> Result<(Device, Precision)> {
        self.check()?;
        let precision = self.precision.unwrap_or_default();
        Ok((open_device(self.device.as_deref().unwrap_or("cpu"), self.gpu_memory, precision)?, precision))
    }

    fn check(&self) -> Result<()> {
        let memory = self.gpu_memory.unwrap_or(1.0);
        ensure!(memory.is_finite() && memory > 0.0, "--gpu-memory must be above 0, found {memory}");
        Ok(())
    }
}
