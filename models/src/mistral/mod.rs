//! Mistral and Llama: pre-norm transformers with rotary positions, grouped-query attention and a gated MLP (Jiang et al.,
//! "Mistral 7B", 2023).
//!
//! ```text
//! x      = embedding[token]
//! a      = x + o_proj(attention(rope(q), rope(k), v))        q, k, v projections of norm_1(x); causal, sliding window
//! x      = a + down_proj(silu(gate_proj(n)) * up_proj(n))    n = norm_2(a)
//! logits = head(norm(x))
//! ```
//!
//! Weights stay as they are on disk, memory-mapped: `f32`, `bf16`, `f16` or 4-bit floats, decoded inside the products
//! (gains of normalisations are widened to `f32`). Activations, adapters and their states are computed in `f32`; the inputs
//! of layers, all that recompute keeps of them, may be kept in `bf16`.
//!
//! A batch may be padded on the right: no token sees what comes after it, so padding needs no mask, only weights of 0 in
//! the loss.

mod block;
mod config;
mod directory;
mod init;
mod load;
mod merge;
mod quantize;

pub use config::{CONFIG_FILE, Family, MistralConfig};
pub use init::{InitType, init_model};
pub use load::LoadOptions;
pub use merge::merge_model;
pub use quantize::{QuantizeReport, quantize_model};

use crate::adapters::{AdapterSet, Placement};
use crate::backbone::Backbone;
use crate::linear::Norm;
use crate::parameter::{Parameter, Role};
use crate::pass::Pass;
use block::{Block, Source};
use hankel_core::{Error, Result, Tensor, scope};
use hankel_ops::embedding;

/// A Mistral or Llama model. Cloning shares the parameters.
#[derive(Clone)]
pub struct Mistral {
    config: MistralConfig,
    tokens: Parameter,
    blocks: Vec<Block>,
    norm: Norm,
    head: Option<Parameter>,
}

impl Mistral {
    /// A model with random weights, in f32, all frozen: normal with standard deviation `init_std`, gains 1.
    ///
    /// # Errors
    /// When the sizes do not fit together.
    pub fn new(config: &MistralConfig, seed: u64) -> Result<Self> {
        config.check().map_err(|problem| Error::invalid("mistral", problem))?;
        Self::assemble(config, &mut init::Random { std: config.init_std, seed })
    }

    fn assemble<S: Source>(config: &MistralConfig, source: &mut S) -> std::result::Result<Self, S::Error> {
        let matrix = |source: &mut S, name: &str| -> std::result::Result<Parameter, S::Error> {
            let weight = source.matrix(name, [config.vocabulary, config.d_model])?;
            Ok(Parameter::new(name, Role::Matrix, &weight))
        };
        let tokens = matrix(source, "model.embed_tokens.weight")?;
        let blocks = (0..config.layers).map(|layer| Block::new(config, layer, source)).collect::<Result<_, _>>()?;
        let gain = source.norm("model.norm.weight", config.d_model)?;
        let head = if config.tied_embeddings { None } else { Some(matrix(source, "lm_head.weight")?) };
        let norm = Norm::rms("model.norm", &gain, config.rms_norm_eps);
        Ok(Mistral { config: config.clone(), tokens, blocks, norm, head })
    }

    /// The sizes.
    pub fn config(&self) -> &MistralConfig {
        &self.config
    }

    /// Rows of the embedding, `[batch, T, d_model]`, of `tokens`, u32 `[batch, T]`.
    ///
    /// # Errors
    /// When a token is outside the vocabulary.
    pub fn embed(&self, tokens: &Tensor) -> Result<Tensor> {
        if tokens.shape().len() != 2 {
            let problem = format!("tokens have shape {}, expected [batch, T]", tokens.shape());
            return Err(Error::shape("mistral", problem));
        }
        scope("embeddings", || embedding(tokens, &self.tokens.tensor()))
    }

    /// Normalised hidden states `[batch, T, d_model]` of embedded tokens `x` of the same shape.
    ///
    /// # Errors
    /// When the shape is another, or the adapters do not fit.
    pub fn hidden_of(&self, x: &Tensor, adapters: &AdapterSet, pass: &mut Pass) -> Result<Tensor> {
        let &[batch, steps, _] = &x.shape()[..] else {
            return Err(Error::shape("mistral", format!("embeddings {}, expected [batch, T, d_model]", x.shape())));
        };
        pass.check_documents("mistral", [batch, steps])?;
        let mut x = x.clone();
        for (layer, block) in self.blocks.iter().enumerate() {
            let (block, adapters) = (block.clone(), adapters.layer(layer).clone());
            x = pass.layer(layer, &x, move |x, pass| block.forward(x, &adapters, pass))?;
        }
        if let Some(state) = &mut pass.state {
            state.position += steps;
        }
        scope("norm", || self.norm.forward(&x))
    }
}

impl Backbone for Mistral {
    fn placement(&self) -> Placement {
        self.config.placement()
    }

    fn vocabulary(&self) -> usize {
        self.config.vocabulary
    }

    fn context(&self) -> Option<usize> {
        None
    }

    fn parameters(&self) -> Vec<Parameter> {
        let mut all = self.embeddings();
        all.extend(self.blocks.iter().flat_map(Block::parameters));
        all.extend(self.norm.parameters());
        all.extend(self.head.clone());
        all
    }

    fn embeddings(&self) -> Vec<Parameter> {
        vec![self.tokens.clone()]
    }

    fn head(&self) -> &Parameter {
        self.head.as_ref().unwrap_or(&self.tokens)
    }

    fn hidden(&self, tokens: &Tensor, adapters: &AdapterSet, pass: &mut Pass) -> Result<Tensor> {
        self.hidden_of(&self.embed(tokens)?, adapters, pass)
    }
}
