//! `TinyGPT`: the small pre-norm transformer of the synthetic and byte-level experiments.
//!
//! ```text
//! x     = token_embedding[token] + position_embedding[t]
//! a     = x + o_proj(attention(norm_1(x)))          causal, learned positions
//! x     = a + down_proj(gelu(up_proj(norm_2(a))))   exact GELU
//! logits = head(norm(x))
//! ```
//!
//! With biases everywhere but in the head, width 128, 4 layers, 4 heads, 256 tokens and 512 positions it has 924,416
//! parameters (1,121,024 with 2,048 positions). The released variant is `norm = "layer_norm"`, tied embeddings, no biases
//! and dropout 0.1 on the embeddings, the attention's and the MLP's output.

mod block;
mod config;
pub(crate) mod files;

pub use config::{Init, TinyGptConfig};

use crate::adapters::{AdapterSet, Placement};
use crate::backbone::Backbone;
use crate::linear::{Norm, normal};
use crate::parameter::Parameter;
use crate::pass::Pass;
use block::Block;
use hankel_core::{Error, Result, Tensor, scope};
use hankel_ops::{add_embedding, dropout, embedding};

/// A `TinyGPT`. Cloning shares the parameters.
#[derive(Clone)]
pub struct TinyGpt {
    config: TinyGptConfig,
    tokens: Parameter,
    positions: Parameter,
    blocks: Vec<Block>,
    norm: Norm,
    head: Option<Parameter>,
}

impl TinyGpt {
    /// A model with random weights, in f32, all frozen.
    ///
    /// # Errors
    /// When the sizes do not fit together.
    pub fn new(config: &TinyGptConfig, seed: u64) -> Result<Self> {
        config.check().map_err(|problem| Error::invalid("tiny_gpt", problem))?;
        let TinyGptConfig { vocabulary, context, d_model, .. } = *config;
        let std = config.init_std;
        let head = (!config.tied_embeddings).then(|| normal("lm_head.weight", &[vocabulary, d_model], std, seed));
        Ok(TinyGpt {
            tokens: normal("model.embed_tokens.weight", &[vocabulary, d_model], std, seed)?,
            positions: normal("model.embed_positions.weight", &[context, d_model], std, seed)?,
            blocks: (0..config.layers).map(|layer| Block::new(config, layer, seed)).collect::<Result<_>>()?,
            norm: Norm::new("model.norm", config.norm, d_model, config.biases),
            head: head.transpose()?,
            config: config.clone(),
        })
    }

    /// The sizes.
    pub fn config(&self) -> &TinyGptConfig {
        &self.config
    }

    fn drop(&self, x: &Tensor, name: &str, pass: &Pass) -> Result<Tensor> {
        match pass.training {
            Some(key) if self.config.dropout > 0.0 => dropout(x, self.config.dropout, key.random(name)),
            _ => Ok(x.clone()),
        }
    }
}

impl Backbone for TinyGpt {
    fn placement(&self) -> Placement {
        self.config.placement()
    }

    fn vocabulary(&self) -> usize {
        self.config.vocabulary
    }

    fn context(&self) -> Option<usize> {
        Some(self.config.context)
    }

    fn parameters(&self) -> Vec<Parameter> {
        let mut all = self.embeddings();
        all.extend(self.blocks.iter().flat_map(Block::parameters));
        all.extend(self.norm.parameters());
        all.extend(self.head.clone());
        all
    }

    fn embeddings(&self) -> Vec<Parameter> {
        vec![self.tokens.clone(), self.positions.clone()]
    }

    fn head(&self) -> &Parameter {
        self.head.as_ref().unwrap_or(&self.tokens)
    }

    fn hidden(&self, tokens: &Tensor, adapters: &AdapterSet, pass: &mut Pass) -> Result<Tensor> {
        let &[batch, steps] = &tokens.shape()[..] else {
            return Err(Error::shape("tiny_gpt", format!("tokens have shape {}, expected [batch, T]", tokens.shape())));
        };
        adapters.check_layers(self.blocks.len())?;
        pass.check_documents("tiny_gpt", [batch, steps])?;
        let positions = pass.positions(steps);
        if let Some(last) = positions.iter().max().filter(|last| **last as usize >= self.config.context) {
            let problem = format!("{} tokens are longer than the context of {}", last + 1, self.config.context);
            return Err(Error::invalid("tiny_gpt", problem));
        }
        let positions = Tensor::from_vec(positions.repeat(batch), [batch, steps])?;
        let mut x = scope("embeddings", || {
            let x = embedding(tokens, &self.tokens.tensor())?;
            let x = add_embedding(&x, &positions, &self.positions.tensor())?;
            self.drop(&x, "embeddings", pass)
        })?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_is_that_of_a_document() {
        let sizes = TinyGptConfig { layers: 1, d_model: 8, heads: 2, d_ff: 8, ..TinyGptConfig::default() };
        let model = TinyGpt::new(&TinyGptConfig { vocabulary: 5, context: 12, ..sizes }, 3).unwrap();
        let none = AdapterSet::none(&model.placement());
        let tokens = Tensor::from_vec(vec![1_u32; 20], [1, 20]).unwrap();
        let hidden = |documents: &[usize]| {
            let mut pass = Pass { documents: Some(documents.into()), ..Pass::evaluation() };
            model.hidden(&tokens, &none, &mut pass)
        };
        assert!(hidden(&[0, 9]).is_ok(), "20 tokens end to end, at most 11 of them in a document");
        let long = hidden(&[0, 5]).unwrap_err().to_string();
        assert!(long.contains("15 tokens are longer than the context of 12"), "{long}");
    }
}
