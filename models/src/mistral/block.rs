//! One layer: attention and gated MLP, each behind a normalisation and around a residual stream.

use super::MistralConfig;
use crate::adapters::{LayerAdapters, StreamSite};
use crate::linear::{Linear, Norm};
use crate::parameter::Parameter;
use crate::pass::Pass;
use crate::sublayer::Ending;
use hankel_core::{Result, Tensor, scope};
use hankel_ops::{Heads, Rotation, attention, concat_time, narrow_time, rope, swiglu};

/// What a layer is made of, by the name of its file's tensor: norms are `f32`.
pub(super) trait Source {
    type Error;
    fn norm(&mut self, name: &str, width: usize) -> std::result::Result<Tensor, Self::Error>;
    fn matrix(&mut self, name: &str, shape: [usize; 2]) -> std::result::Result<Tensor, Self::Error>;
}

#[derive(Clone)]
pub(super) struct Block {
    layer: usize,
    heads: Heads,
    head_dim: usize,
    rope_theta: f64,
    window: Option<usize>,
    norm_1: Norm,
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    norm_2: Norm,
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
}

impl Block {
    pub(super) fn new<S: Source>(
        config: &MistralConfig,
        layer: usize,
        source: &mut S,
    ) -> std::result::Result<Self, S::Error> {
        let sites = config.sites();
        let mut linear = |index: usize| {
            let site = &sites[index];
            let name = format!("model.layers.{layer}.{}.{}", site.module, site.name);
            let weight = source.matrix(&format!("{name}.weight"), [site.outputs, site.inputs])?;
            Ok(Linear::of_weight(&name, &weight))
        };
        let [q_proj, k_proj, v_proj, o_proj] = [linear(0)?, linear(1)?, linear(2)?, linear(3)?];
        let [gate_proj, up_proj, down_proj] = [linear(4)?, linear(5)?, linear(6)?];
        let mut norm = |name: &str| {
            let name = format!("model.layers.{layer}.{name}");
            let weight = source.norm(&format!("{name}.weight"), config.d_model)?;
            Ok(Norm::rms(&name, &weight, config.rms_norm_eps))
        };
        Ok(Block {
            layer,
            heads: Heads { query: config.heads, key_value: config.kv_heads },
            head_dim: config.head_dim,
            rope_theta: config.rope_theta,
            window: config.sliding_window,
            norm_1: norm("input_layernorm")?,
            norm_2: norm("post_attention_layernorm")?,
            q_proj,
            k_proj,
            v_proj,
            o_proj,
            gate_proj,
            up_proj,
            down_proj,
        })
    }

    pub(super) fn parameters(&self) -> Vec<Parameter> {
        let Block { norm_1, q_proj, k_proj, v_proj, o_proj, norm_2, gate_proj, up_proj, down_proj, .. } = self;
        let attention =
            norm_1.parameters().chain([q_proj, k_proj, v_proj, o_proj].into_iter().flat_map(Linear::parameters));
        let mlp = norm_2.parameters().chain([gate_proj, up_proj, down_proj].into_iter().flat_map(Linear::parameters));
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
            let gate = self.gate_proj.forward(&norm, adapters.linear("gate_proj"), pass)?;
            let inner = swiglu(&gate, &self.up_proj.forward(&norm, adapters.linear("up_proj"), pass)?)?;
            self.ending(StreamSite::Mlp, &self.down_proj, "down_proj").forward(&a, &norm, &inner, adapters, pass)
        })
    }

    fn ending<'a>(&self, site: StreamSite, projection: &'a Linear, name: &'a str) -> Ending<'a> {
        Ending { layer: self.layer, site, projection, name, dropout: 0.0 }
    }

    fn attend(&self, x: &Tensor, adapters: &LayerAdapters, pass: &mut Pass) -> Result<Tensor> {
        let q = self.q_proj.forward(x, adapters.linear("q_proj"), pass)?;
        let k = self.k_proj.forward(x, adapters.linear("k_proj"), pass)?;
        let mut v = self.v_proj.forward(x, adapters.linear("v_proj"), pass)?;
        let offset = pass.state.as_ref().map_or(0, |state| state.position);
        let rotation = Rotation { head_dim: self.head_dim, offset, theta: self.rope_theta };
        let q = pass.by_document(&[&q], |x| rope(x[0], rotation))?;
        // Keys are kept turned: a position never changes.
        let mut k = pass.by_document(&[&k], |x| rope(x[0], rotation))?;
        if let Some(state) = &mut pass.state {
            let memory = state.layer(self.layer);
            if let Some((keys, values)) = &memory.keys_values {
                (k, v) = (concat_time(&[keys, &k])?, concat_time(&[values, &v])?);
            }
            memory.keys_values = Some((self.recent(&k)?, self.recent(&v)?));
        }
        pass.by_document(&[&q, &k, &v], |x| attention(x[0], x[1], x[2], self.heads, self.window))
    }

    /// What the next token can still see: one less than the window, which holds that token too.
    fn recent(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.detach();
        let steps = x.shape()[1];
        match self.window {
            Some(window) if steps > window - 1 => narrow_time(&x, steps - (window - 1), window - 1),
            _ => Ok(x),
        }
    }
}
