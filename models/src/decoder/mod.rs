//! Decoders of published families, driven by their `config.json`: Llama, Mistral, Qwen and others (see [`families`]).
//!
//! ```text
//! x      = embedding[token]
//! a      = x + o_proj(attention(rope(q), rope(k), v))        q, k, v projections of norm_1(x); causal
//! x      = a + down_proj(silu(gate_proj(n)) * up_proj(n))    n = norm_2(a)
//! logits = head(norm(x))
//! ```
//!
//! That is Llama. The features in which others differ are data: fields of [`DecoderConfig`], which a family's file fills in
//! from the keys of `config.json`.
//!
//! Weights stay as they are on disk, memory-mapped: `f32`, `bf16`, `f16` or 4-bit floats, decoded inside the products
//! (gains and biases are widened to `f32`). Activations, adapters and their states are computed in `f32`; the inputs
//! of layers, all that recompute keeps of them, may be kept in `bf16`.
//!
//! A batch may be padded on the right: no token sees what comes after it, so padding needs no mask, only weights of 0 in
//! the loss.

mod attention;
mod block;
mod config;
pub(crate) mod directory;
pub mod families;
mod init;
mod keys;
pub(crate) mod layout;
mod load;
mod merge;
mod mlp;
mod quantize;
mod rope;

pub use config::{Activation, Biases, CONFIG_FILE, DecoderConfig, LayerSet, Positions, QkNorm};
pub use directory::tokenizer_left_out;
pub use families::Family;
pub use init::{InitType, init_model, init_model_of};
pub use keys::Keys;
pub use layout::{Names, TensorKind, TensorSpec, Up};
pub use load::{LoadOptions, stored_weight};
pub use merge::merge_model;
pub use quantize::{QuantizeReport, quantize_model};
pub use rope::{Rope, RopeScaling};
pub(crate) use rope::{YARN_BETAS, yarn_magnitude};

use crate::adapters::{AdapterSet, Placement};
use crate::backbone::Backbone;
use crate::linear::Norm;
use crate::parameter::{Parameter, Role};
use crate::pass::Pass;
use block::Block;
use hankel_core::{Error, Result, Tensor, scope};
use hankel_ops::{add_embedding, embedding, scale};
use load::Source;
use std::sync::Arc;

/// A decoder. Cloning shares the parameters.
#[derive(Clone)]
pub struct Decoder {
    config: Arc<DecoderConfig>,
    tokens: Parameter,
    positions: Option<Parameter>,
    blocks: Vec<Block>,
    norm: Norm,
    head: Option<Parameter>,
}

impl Decoder {
    /// A model with random weights, in f32, all frozen: normal with standard deviation `init_std`, gains 1, biases 0.
    ///
    /// # Errors
    /// When the sizes do not fit together.
    pub fn new(config: &DecoderConfig, seed: u64) -> Result<Self> {
        config.check().map_err(|problem| Error::invalid("decoder", problem))?;
        Self::assemble(config, &mut init::Random { std: config.init_std, seed })
    }

    fn assemble<S: Source>(config: &DecoderConfig, source: &mut S) -> std::result::Result<Self, S::Error> {
        let mut take = |specs: Vec<TensorSpec>| -> std::result::Result<Vec<(String, Tensor)>, S::Error> {
            specs.into_iter().map(|spec| Ok((spec.name.clone(), source.take(&spec)?))).collect()
        };
        let matrix = |(name, tensor): &(String, Tensor)| Parameter::new(name.as_str(), Role::Matrix, tensor);
        let tables = take(config.tables())?;
        let last = take(config.last_norm())?;
        let head = if config.tied_embeddings { None } else { take(vec![config.head_tensor()])?.first().map(matrix) };
        let blocks = (0..config.layers).map(|layer| Block::new(config, layer, source)).collect::<Result<_, _>>()?;
        let bias = last.get(1).map(|(_, bias)| bias);
        let norm = block::norm(config, config.family.names.norm, &last[0].1, bias);
        Ok(Decoder {
            config: Arc::new(config.clone()),
            tokens: matrix(&tables[0]),
            positions: tables.get(1).map(matrix),
            blocks,
            norm,
            head,
        })
    }

    /// The sizes and features.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// The stream that enters the first layer, `[batch, T, d_model]`, of `tokens`, u32 `[batch, T]`: rows of the
    /// embedding, and of the positions from 0 on where these are learned.
    ///
    /// # Errors
    /// When a token is outside the vocabulary.
    pub fn embed(&self, tokens: &Tensor) -> Result<Tensor> {
        self.embed_in(tokens, &Pass::evaluation())
    }

    /// The same where the tokens are those of `pass`, which says their positions.
    fn embed_in(&self, tokens: &Tensor, pass: &Pass) -> Result<Tensor> {
        let &[batch, steps] = &tokens.shape()[..] else {
            let problem = format!("tokens have shape {}, expected [batch, T]", tokens.shape());
            return Err(Error::shape("decoder", problem));
        };
        pass.check_documents("decoder", [batch, steps])?;
        scope("embeddings", || {
            let x = times(&embedding(tokens, &self.tokens.tensor())?, self.config.embedding_multiplier)?;
            let Some(table) = &self.positions else { return Ok(x) };
            let positions = pass.positions(steps);
            if let Some(last) = positions.iter().max().filter(|last| **last as usize >= self.config.context) {
                let (length, context) = (last + 1, self.config.context);
                let problem = format!("{length} tokens are longer than the context of {context}");
                return Err(Error::invalid("decoder", problem));
            }
            let positions = Tensor::from_vec(positions.repeat(batch), [batch, steps])?;
            add_embedding(&x, &positions, &table.tensor())
        })
    }

    /// Normalised hidden states `[batch, T, d_model]` of embedded tokens `x` of the same shape.
    ///
    /// # Errors
    /// When the shape is another, or the adapters do not fit.
    pub fn hidden_of(&self, x: &Tensor, adapters: &AdapterSet, pass: &mut Pass) -> Result<Tensor> {
        let &[batch, steps, _] = &x.shape()[..] else {
            return Err(Error::shape("decoder", format!("embeddings {}, expected [batch, T, d_model]", x.shape())));
        };
        adapters.check_layers(self.blocks.len())?;
        pass.check_documents("decoder", [batch, steps])?;
        let mut x = x.clone();
        for (layer, block) in self.blocks.iter().enumerate() {
            let (block, adapters) = (block.clone(), adapters.layer(layer).clone());
            x = pass.layer(layer, &x, move |x, pass| block.forward(x, &adapters, pass))?;
        }
        if let Some(state) = &mut pass.state {
            state.position += steps;
        }
        scope("norm", || times(&self.norm.forward(&x)?, 1.0 / self.config.logits_divisor))
    }
}

/// `x` times a constant, which is 1 in most families.
fn times(x: &Tensor, factor: f64) -> Result<Tensor> {
    if factor == 1.0 { Ok(x.clone()) } else { scale(x, factor) }
}

impl Backbone for Decoder {
    fn placement(&self) -> Placement {
        self.config.placement()
    }

    fn vocabulary(&self) -> usize {
        self.config.vocabulary
    }

    fn context(&self) -> Option<usize> {
        self.positions.as_ref().map(|_| self.config.context)
    }

    fn made_for(&self) -> Option<usize> {
        Some(self.config.made_for())
    }

    fn logit_cap(&self) -> Option<f64> {
        self.config.logit_cap
    }

    fn rereads_beyond(&self) -> Option<usize> {
        self.config.turning_length()
    }

    fn parameters(&self) -> Vec<Parameter> {
        let mut all = self.embeddings();
        all.extend(self.blocks.iter().flat_map(Block::parameters));
        all.extend(self.norm.parameters());
        all.extend(self.head.clone());
        all
    }

    fn embeddings(&self) -> Vec<Parameter> {
        std::iter::once(&self.tokens).chain(&self.positions).cloned().collect()
    }

    fn head(&self) -> &Parameter {
        self.head.as_ref().unwrap_or(&self.tokens)
    }

    fn hidden(&self, tokens: &Tensor, adapters: &AdapterSet, pass: &mut Pass) -> Result<Tensor> {
        self.hidden_of(&self.embed_in(tokens, pass)?, adapters, pass)
    }
}
