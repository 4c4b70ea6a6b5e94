//! Reading a model directory.

use super::directory::{finish, open, take};
use super::layout::{TensorKind, TensorSpec};
use super::{Decoder, DecoderConfig};
use crate::weights::{ModelFiles, Result, WeightsError};
use hankel_core::{DType, Device, Tensor, scope};
use hankel_ops::linear::nf4;
use std::path::Path;

/// How a model is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Quantise the projections of every layer to 4 bits with double quantisation while reading; those that are stored in 4
    /// bits already stay as they are. Embeddings, head and normalisations are not quantised.
    pub quantize: bool,
    /// Where the weights go, tensor by tensor as they are read: on a GPU, main memory never holds more than a few of them.
    pub device: Device,
}

/// Where the tensors of a model come from. The tensor is in the shape of memory, whatever the shape in a file.
pub(super) trait Source {
    type Error;
    fn take(&mut self, spec: &TensorSpec) -> std::result::Result<Tensor, Self::Error>;
}

struct FileSource<'a> {
    directory: &'a Path,
    tensors: ModelFiles,
    options: LoadOptions,
}

impl Source for FileSource<'_> {
    type Error = WeightsError;

    fn take(&mut self, spec: &TensorSpec) -> Result<Tensor> {
        let fail = |e: hankel_core::Error| WeightsError::content(self.directory, format!("tensor {}: {e}", spec.name));
        let mut tensor = take(&mut self.tensors, spec)?;
        if matches!(spec.kind, TensorKind::Gain | TensorKind::GainBelowOne | TensorKind::Bias) {
            tensor = tensor.to_dtype(DType::F32).map_err(fail)?;
        } else if self.options.quantize && spec.is_quantized() && tensor.nf4().is_none() {
            tensor = nf4::quantize(&tensor, true).map_err(fail)?;
        }
        scope("the weights", || tensor.to_device(self.options.device)).map_err(fail)
    }
}

/// The tensor `name` of the model in `directory` as it is stored there, in the shape of memory: a weight before
/// [`LoadOptions::quantize`].
///
/// # Errors
/// As [`Decoder::load`], and when there is no such tensor.
pub fn stored_weight(directory: &Path, name: &str) -> Result<Tensor> {
    let config = DecoderConfig::load(directory)?;
    let spec = config.tensors().into_iter().find(|spec| spec.name == name);
    let spec = spec.ok_or_else(|| WeightsError::content(directory, format!("there is no tensor {name}")))?;
    take(&mut open(directory, &config)?, &spec)
}

impl Decoder {
    /// Reads `config.json` and the weights of `directory`. On the CPU the weights stay in the files, which are memory-mapped,
    /// but for those that are stored transposed; all parameters are frozen.
    ///
    /// # Errors
    /// When a file is missing, cut off or malformed, or a tensor is missing, superfluous, of another shape or type,
    /// present twice, or not finite; when the device has no room for it.
    pub fn load(directory: &Path, options: LoadOptions) -> Result<Self> {
        let config = DecoderConfig::load(directory)?;
        let mut source = FileSource { directory, tensors: open(directory, &config)?, options };
        let model = Self::assemble(&config, &mut source)?;
        finish(directory, &config, source.tensors)?;
        Ok(model)
    }
}
