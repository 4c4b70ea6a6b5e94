//! Loading a model directory.

use crate::protocol::{Program, Report, Tensors};
use anyhow::Result;
use hankel_core::{CpuStorage, Tensor};
use hankel_models::decoder::{InitType, LoadOptions, init_model};
use hankel_models::weights::ModelFiles;
use hankel_models::{Backbone, Decoder, DecoderConfig};
use serde::Deserialize;
use std::path::PathBuf;

/// What is run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Where the model is; random weights in `bf16` are written there first if nothing is.
    directory: PathBuf,
    layers: usize,
    d_model: usize,
    d_ff: usize,
    vocabulary: usize,
}

/// A model directory.
pub struct Load {
    directory: PathBuf,
    d_model: usize,
}

impl Load {
    /// Writes the model if it is not there.
    pub fn new(settings: Settings) -> Result<Self> {
        let Settings { directory, layers, d_model, d_ff, vocabulary } = settings;
        if !directory.exists() {
            let config = DecoderConfig { layers, d_model, d_ff, vocabulary, ..DecoderConfig::mistral_7b() };
            init_model(&config, 0, InitType::Bf16, &directory)?;
        }
        Ok(Load { directory, d_model })
    }
}

/// One byte of every page, added up.
fn touch(tensor: &Tensor) -> Result<u64> {
    const PAGE: usize = 4096;
    Ok(match tensor.cpu_storage("touch")? {
        CpuStorage::BF16(data) => data.iter().step_by(PAGE / 2).map(|x| u64::from(x.to_bits() & 0xff)).sum(),
        CpuStorage::F32(data) => data.iter().step_by(PAGE / 4).map(|x| u64::from(x.to_bits() & 0xff)).sum(),
        _ => 0,
    })
}

impl Program for Load {
    fn inputs(&self) -> Result<Tensors> {
        Ok(Tensors::new())
    }

    fn outputs(&mut self) -> Result<Tensors> {
        let tensor = ModelFiles::open(&self.directory)?.take("model.norm.weight", &[self.d_model])?;
        Ok([("model.norm.weight".to_owned(), tensor)].into())
    }

    fn run(&mut self, report: &mut Report) -> Result<()> {
        report.time("open, one tensor", || {
            let tensor = ModelFiles::open(&self.directory)?.take("model.norm.weight", &[self.d_model])?;
            touch(&tensor)
        })?;
        let sum = report.time("whole model, every page", || {
            let model = Decoder::load(&self.directory, LoadOptions::default())?;
            model.parameters().iter().map(|parameter| touch(&parameter.tensor())).sum::<Result<u64>>()
        })?;
        report.value("sum", sum as f64);
        Ok(())
    }
}
