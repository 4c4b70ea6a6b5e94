//! What this machine reaches: a large product in `f32` and a large copy.

use crate::protocol::{Program, Report, Tensors, named};
use anyhow::Result;
use hankel_core::{Random, Tensor, parallel};
use hankel_ops::linear;
use serde::Deserialize;

/// What is run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Rows and columns of the factors.
    size: usize,
    /// Megabytes copied.
    megabytes: usize,
}

/// Two matrices and two pieces of memory.
pub struct Peaks {
    a: Tensor,
    b: Tensor,
    source: Vec<u8>,
    target: Vec<u8>,
}

impl Peaks {
    /// Everything is drawn from fixed seeds.
    pub fn new(settings: &Settings) -> Result<Self> {
        let n = settings.size;
        let matrix = |name| Tensor::from_vec(Random::new(0, name, 0).normal_vec::<f32>(n * n, 1.0), [n, n]);
        let bytes = settings.megabytes * 1_000_000;
        Ok(Peaks { a: matrix("a")?, b: matrix("b")?, source: vec![1; bytes], target: vec![0; bytes] })
    }
}

impl Program for Peaks {
    fn inputs(&self) -> Result<Tensors> {
        Ok(named([("a", &self.a), ("b", &self.b)]))
    }

    fn outputs(&mut self) -> Result<Tensors> {
        Ok(named([("product", &linear(&self.a, &self.b, None)?)]))
    }

    fn run(&mut self, report: &mut Report) -> Result<()> {
        report.time("product", || linear(&self.a, &self.b, None))?;
        let source = &self.source;
        report.time("copy", || {
            parallel::for_row_blocks(&mut self.target, 1, 1 << 20, |first, piece| {
                piece.copy_from_slice(&source[first..first + piece.len()]);
            });
        });
        Ok(())
    }
}
