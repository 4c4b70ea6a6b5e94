//! One layer: attention and MLP, each behind a normalisation and around a residual stream.

use super::TinyGptConfig;
use crate::adapters::{LayerAdapters, StreamSite};
use crate::linear::{Linear, Norm};
use crate::parameter::Parameter;
use crate::pass::Pass;
use crate::sublayer::Ending;
use hankel_core::{Result, Tensor, scope};
use hankel_ops::{Heads, attention, gelu};

#[derive(Clone)]
pub(super) struct Block {
    layer: usize,
    heads: usize,
    dropout: f64,
    norm_1: Norm,
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    norm_2: Norm,
    up_proj: Linear,
    down_proj: Linear,
}

impl Block {
    pub(super) fn new(config: &TinyGptConfig, layer: usize, seed: u64) -> Result<Self> {
        let (d, f) = (config.d_model, config.d_ff);
        let linear = |name: &str, sizes, std| {
            Linear::new(&format!("model.layers.{layer}.{name}"), sizes, config.biases, std, seed)
        };
        let norm = |name: &str| Norm::new(&format!("model.layers.{layer}.{name}"), config.norm, d, config.biases);
        let (std, residual_std) = (config.init_std, config.residual_std());
        Ok(Block {
            layer,
            heads: config.heads,
            dropout: config.dropout,
            norm_1: norm("input_layernorm"),
            q_proj: linear("self_attn.q_proj", [d, d], std)?,
            k_proj: linear("self_attn.k_proj", [d, d], std)?,
            v_proj: linear("self_attn.v_proj", [d, d], std)?,
            o_proj: linear("self_attn.o_proj", [d, d], residual_std)?,
            norm_2: norm("post_attention_layernorm"),
            up_proj: linear("mlp.up_proj", [d, f], std)?,
            down_proj: linear("mlp.down_proj", [f, d], residual_std)?,
        })
    }

    pub(super) fn parameters(&self) -> Vec<Parameter> {
        let Block { norm_1, q_proj, k_proj, v_proj, o_proj, norm_2, up_proj, down_proj, .. } = self;
        let attention =
            norm_1.parameters().chain([q_proj, k_proj, v_proj, o_proj].into_iter().flat_map(Linear::parameters));
        let mlp = norm_2.parameters().chain([up_proj, down_proj].into_iter().flat_map(Linear::parameters));
        attention.chain(mlp).collect()
    }

    pub(super) fn forward(&self, x: &Tensor, adapters: &LayerAdapters, pass: &mut Pass) -> Result<Tensor> {
        let a = scope("self_attn", || {
            let norm = self.norm_1.forward(x)?;
            let mixed = self.attend(&norm, adapters, pass)?;
            self.ending(StreamSite::Attention, &self.o_proj, "o_proj").forward(x, &norm, &mixed, adapters, pass)
        })?;
        scope("mlp", || {
            let norm = self.norm_2.forward(&a)?;
            let inner = gelu(&self.up_proj.forward(&norm, adapters.linear("up_proj"), pass)?)?;
            self.ending(StreamSite::Mlp, &self.down_proj, "down_proj").forward(&a, &norm, &inner, adapters, pass)
        })
    }

    fn ending<'a>(&self, site: StreamSite, projection: &'a Linear, name: &'a str) -> Ending<'a> {
        Ending {
            layer: self.layer,
            site,
            projection,
            name,
            dropout: self.dropout,
            norm: None,
            multiplier: 1.0,
            bare: None,
        }
    }

    fn attend(&self, x: &Tensor, adapters: &LayerAdapters, pass: &mut Pass) -> Result<Tensor> {
        let x = &x.keep_conversion();
        let q = self.q_proj.forward(x, adapters.linear("q_proj"), pass)?;
        let k = self.k_proj.forward(x, adapters.linear("k_proj"), pass)?;
        let v = self.v_proj.forward(x, adapters.linear("v_proj"), pass)?;
        let heads = Heads { query: self.heads, key_value: self.heads };
        if let Some(state) = &mut pass.state {
            return state.layer(self.layer).keys_values.attention(&q, &k, &v, heads, None);
        }
        pass.by_turn(None, &[&q, &k, &v], |x| attention(x[0], x[1], x[2], heads, None))
    }
}
