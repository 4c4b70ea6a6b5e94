//! Reading a model directory.

use super::block::Source;
use super::{Mistral, MistralConfig};
use crate::weights::{ModelFiles, Result, WeightsError};
use hankel_core::{Device, Tensor, scope};
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

struct FileSource<'a> {
    directory: &'a Path,
    tensors: ModelFiles,
    options: LoadOptions,
}

impl Source for FileSource<'_> {
    type Error = WeightsError;

    fn norm(&mut self, name: &str, width: usize) -> Result<Tensor> {
        let gain = self.tensors.take_f32(name, &[width])?;
        self.place(name, &gain)
    }

    fn matrix(&mut self, name: &str, shape: [usize; 2]) -> Result<Tensor> {
        let weight = self.tensors.take(name, &shape)?;
        if !self.options.quantize || !is_quantized(name) || weight.nf4().is_some() {
            return self.place(name, &weight);
        }
        let weight = nf4::quantize(&weight, true);
        self.place(name, &weight.map_err(|e| self.fail(name, &e))?)
    }
}

impl FileSource<'_> {
    fn place(&self, name: &str, tensor: &Tensor) -> Result<Tensor> {
        scope("the weights", || tensor.to_device(self.options.device)).map_err(|e| self.fail(name, &e))
    }

    fn fail(&self, name: &str, error: &hankel_core::Error) -> WeightsError {
        WeightsError::content(self.directory, format!("tensor {name}: {error}"))
    }
}

/// Whether quantisation applies to a tensor: the projections, all of them inside layers.
pub(super) fn is_quantized(name: &str) -> bool {
    name.ends_with("_proj.weight")
}

impl Mistral {
    /// Reads `config.json` and the weights of `directory`. On the CPU the weights stay in the files, which are memory-mapped;
    /// all parameters are frozen.
    ///
    /// # Errors
    /// When a file is missing, cut off or malformed, or a tensor is missing, superfluous, of another shape or type,
    /// present twice, or not finite; when the device has no room for it.
    pub fn load(directory: &Path, options: LoadOptions) -> Result<Self> {
        let config = MistralConfig::load(directory)?;
        let mut files = ModelFiles::open(directory)?;
        // Old Llama checkpoints store the rotary frequencies, which follow from the configuration.
        files.ignore(".self_attn.rotary_emb.inv_freq");
        let mut source = FileSource { directory, tensors: files, options };
        let model = Self::assemble(&config, &mut source)?;
        let mut files = source.tensors;
        if config.tied_embeddings && files.contains("lm_head.weight") {
            let head = files.take("lm_head.weight", &[config.vocabulary, config.d_model])?;
            if head.to_f64_vec() != model.tokens.tensor().to_f64_vec() {
                let reason = "lm_head.weight differs from model.embed_tokens.weight, yet tie_word_embeddings is true";
                return Err(WeightsError::content(directory, reason));
            }
        }
        files.finish()?;
        Ok(model)
    }
}
