//! One layer: attention and MLP around a residual stream, normalised before, after, or both.

use super::attention::Attention;
use super::config::DecoderConfig;
use super::layout::{Module, Slot};
use super::load::Source;
use super::mlp::Mlp;
use crate::adapters::{LayerAdapters, StreamSite};
use crate::linear::{Linear, Norm};
use crate::parameter::Parameter;
use crate::pass::Pass;
use crate::sublayer::Ending;
use hankel_core::{Result, Tensor, scope};
use std::collections::BTreeMap;

/// A projection and its name as a linear site.
#[derive(Clone)]
pub(super) struct Projection {
    pub name: &'static str,
    pub linear: Linear,
}

impl Projection {
    pub(super) fn forward(&self, x: &Tensor, adapters: &LayerAdapters, pass: &Pass) -> Result<Tensor> {
        self.linear.forward(x, adapters.linear(self.name), pass)
    }
}

/// The modules of a layer as they are read, until their places are made.
pub(super) struct Parts {
    projections: BTreeMap<Slot, Projection>,
    norms: BTreeMap<Slot, Norm>,
    /// In the order of the forward pass.
    parameters: Vec<Parameter>,
}

impl Parts {
    fn read<S: Source>(config: &DecoderConfig, layer: usize, source: &mut S) -> std::result::Result<Self, S::Error> {
        let mut parts = Parts { projections: BTreeMap::new(), norms: BTreeMap::new(), parameters: Vec::new() };
        for module in config.modules() {
            let specs = config.tensors_of(layer, &module);
            let tensors: Vec<Tensor> =
                specs.iter().map(|spec| source.take(spec)).collect::<std::result::Result<_, _>>()?;
            let (weight, bias) = (&tensors[0], tensors.get(1));
            let path = config.path(layer, &module);
            let Module { slot, name, .. } = module;
            if module.sizes.len() == 2 {
                let linear = Linear::of(&path, weight, bias);
                parts.parameters.extend(linear.parameters());
                parts.projections.insert(slot, Projection { name, linear });
            } else {
                let norm = norm(config, &path, weight, bias);
                parts.parameters.extend(norm.parameters());
                parts.norms.insert(slot, norm);
            }
        }
        Ok(parts)
    }

    /// The projections in `slots`, as many as there are.
    pub(super) fn projections(&mut self, slots: impl Fn(usize) -> Slot) -> Vec<Projection> {
        (0..3).map_while(|index| self.projection(slots(index))).collect()
    }

    fn projection(&mut self, slot: Slot) -> Option<Projection> {
        self.projections.remove(&slot)
    }

    pub(super) fn norm(&mut self, slot: Slot) -> Option<Norm> {
        self.norms.remove(&slot)
    }
}

/// A normalisation of the model's kind.
pub(super) fn norm(config: &DecoderConfig, path: &str, weight: &Tensor, bias: Option<&Tensor>) -> Norm {
    Norm::of(path, config.norm, weight, bias, config.norm_eps).plus_one(config.norm_plus_one)
}

#[derive(Clone)]
pub(super) struct Block {
    layer: usize,
    attention: Attention,
    output: Projection,
    mlp: Mlp,
    down: Projection,
    norms: [Option<Norm>; 4],
    residual_multiplier: f64,
    norm_eps: f64,
    parameters: Vec<Parameter>,
}

impl Block {
    pub(super) fn new<S: Source>(
        config: &DecoderConfig,
        layer: usize,
        source: &mut S,
    ) -> std::result::Result<Self, S::Error> {
        let mut parts = Parts::read(config, layer, source)?;
        let [output, down] =
            [Slot::Output, Slot::Down].map(|slot| parts.projection(slot).expect("every layer has these two"));
        Ok(Block {
            layer,
            attention: Attention::new(config, layer, &mut parts),
            output,
            mlp: Mlp::new(config, &mut parts),
            down,
            norms: [0, 1, 2, 3].map(|index| parts.norm(Slot::Norm(index))),
            residual_multiplier: config.residual_multiplier,
            norm_eps: config.norm_eps,
            parameters: parts.parameters,
        })
    }

    pub(super) fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    pub(super) fn forward(&self, x: &Tensor, adapters: &LayerAdapters, pass: &mut Pass) -> Result<Tensor> {
        let a = scope("self_attn", || {
            let input = self.input(0, x)?;
            let mixed = self.attention.forward(&input, adapters, pass)?;
            let ending = self.ending(StreamSite::Attention, &self.output, 0);
            ending.forward(x, &input, &mixed, adapters, pass)
        })?;
        scope("mlp", || {
            let input = self.input(2, &a)?;
            let inner = self.mlp.forward(&input, adapters, pass)?;
            let ending = self.ending(StreamSite::Mlp, &self.down, 2);
            ending.forward(&a, &input, &inner, adapters, pass)
        })
    }

    /// What a sub-layer reads of the stream: normalised, where there is a norm before it.
    fn input(&self, norm: usize, x: &Tensor) -> Result<Tensor> {
        self.norms[norm].as_ref().map_or_else(|| Ok(x.clone()), |norm| norm.forward(x))
    }

    /// The end of a sub-layer whose norms, before and after it, are those at `norm` and behind it.
    fn ending<'a>(&'a self, site: StreamSite, projection: &'a Projection, norm: usize) -> Ending<'a> {
        Ending {
            layer: self.layer,
            site,
            projection: &projection.linear,
            name: projection.name,
            dropout: 0.0,
            norm: self.norms[norm + 1].as_ref(),
            multiplier: self.residual_multiplier,
            bare: self.norms[norm].is_none().then_some(self.norm_eps),
        }
    }
}
