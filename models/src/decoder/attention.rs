//! Attention: queries, keys and values, their normalisation, rotation and cache.

use super::block::{Parts, Projection};
use super::config::{DecoderConfig, Positions};
use super::layout::Slot;
use super::rope::Rotation;
use crate::adapters::LayerAdapters;
use crate::linear::Norm;
use crate::pass::Pass;
use hankel_core::{Result, Tensor};
use hankel_ops::{Heads, ScoreSettings, attention, narrow_time, rope, scale};

#[derive(Clone)]
pub(super) struct Attention {
    layer: usize,
    heads: Heads,
    head_dim: usize,
    /// Queries, keys and values apart, or in one.
    qkv: Vec<Projection>,
    q_norm: Option<Norm>,
    k_norm: Option<Norm>,
    rotation: Option<Rotation>,
    scores: ScoreSettings,
    /// What queries are multiplied by for another scale of the scores than `1 / sqrt(head_dim)`.
    query_factor: Option<f64>,
}

impl Attention {
    pub(super) fn new(config: &DecoderConfig, layer: usize, parts: &mut Parts) -> Self {
        let slides = config.sliding_window.is_some() && config.sliding_layers.contains(layer);
        let local = config.local_rope.as_ref().filter(|_| slides);
        let rope = match &config.positions {
            Positions::Rotary(rope) => Some(local.unwrap_or(rope)),
            Positions::Learned => None,
        };
        let rope = rope.filter(|_| config.rope_layers.contains(layer));
        let factor = config.attention_multiplier.map(|factor| factor * (config.head_dim as f64).sqrt());
        Attention {
            layer,
            heads: Heads { query: config.heads, key_value: config.kv_heads },
            head_dim: config.head_dim,
            qkv: parts.projections(Slot::Qkv),
            q_norm: parts.norm(Slot::QkNorm(0)),
            k_norm: parts.norm(Slot::QkNorm(1)),
            rotation: rope.map(|rope| rope.rotation(config.head_dim)),
            scores: ScoreSettings { window: config.sliding_window.filter(|_| slides), cap: config.score_cap },
            query_factor: factor.filter(|factor| *factor != 1.0),
        }
    }

    /// The heads' outputs side by side, `[batch, T, heads * head_dim]`, of the normalised stream `x`.
    pub(super) fn forward(&self, x: &Tensor, adapters: &LayerAdapters, pass: &mut Pass) -> Result<Tensor> {
        let [q, k, v] = self.projected(x, adapters, pass)?;
        let (q, k) = (normalised(self.q_norm.as_ref(), &q)?, normalised(self.k_norm.as_ref(), &k)?);
        let q = self.query_factor.map_or_else(|| Ok(q.clone()), |factor| scale(&q, factor))?;
        let offset = pass.state.as_ref().map_or(0, |state| state.position);
        let length = pass.state.as_ref().map_or(0, |state| state.length);
        let turn = |x: &Tensor| match &self.rotation {
            Some(rotation) => rope(x, rotation.of(length.max(offset + x.shape()[1])), offset),
            None => Ok(x.clone()),
        };
        if let Some(state) = &mut pass.state {
            // Keys are kept turned: a position never changes.
            let (q, k) = (turn(&q)?, turn(&k)?);
            return state.layer(self.layer).keys_values.attention(&q, &k, &v, self.heads, self.scores);
        }
        let border = self.rotation.as_ref().and_then(Rotation::border);
        pass.by_turn(border, &[&q, &k, &v], |x| attention(&turn(x[0])?, &turn(x[1])?, x[2], self.heads, self.scores))
    }

    fn projected(&self, x: &Tensor, adapters: &LayerAdapters, pass: &Pass) -> Result<[Tensor; 3]> {
        if let [q, k, v] = &self.qkv[..] {
            let x = &x.keep_conversion();
            return Ok([q.forward(x, adapters, pass)?, k.forward(x, adapters, pass)?, v.forward(x, adapters, pass)?]);
        }
        let all = self.qkv[0].forward(x, adapters, pass)?;
        let Heads { query, key_value } = self.heads;
        let part = |first, heads| columns(&all, self.head_dim, first, heads);
        Ok([part(0, query)?, part(query, key_value)?, part(query + key_value, key_value)?])
    }
}

/// Groups `first .. first + groups` of the columns of `x` `[batch, T, ...]`, each of `width` columns.
pub(super) fn columns(x: &Tensor, width: usize, first: usize, groups: usize) -> Result<Tensor> {
    let (rows, all) = (x.shape().rows(), x.shape().last());
    let part = narrow_time(&x.reshape([rows, all / width, width])?, first, groups)?;
    part.reshape(x.shape().with_last(groups * width))
}

/// Rows of the norm's width normalised: all heads of a token, or each.
fn normalised(norm: Option<&Norm>, x: &Tensor) -> Result<Tensor> {
    let Some(norm) = norm else { return Ok(x.clone()) };
    let width = norm.width();
    norm.forward(&x.reshape([x.elements() / width, width])?)?.reshape(x.shape())
}
