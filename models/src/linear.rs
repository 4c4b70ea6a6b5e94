//! A linear layer and the normalisations, as a backbone holds them.

use crate::adapters::LinearAdapter;
use crate::parameter::{Parameter, Role};
use crate::pass::Pass;
use hankel_core::{Random, Result, Tensor};
use hankel_ops::{Gate, add, add_linear, layer_norm, linear, rms_norm};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `y = x W^T + b`, weight `[out, in]`.
#[derive(Clone)]
pub struct Linear {
    pub(crate) weight: Parameter,
    pub(crate) bias: Option<Parameter>,
}

impl Linear {
    /// Normal weights of standard deviation `std`, zero bias.
    pub(crate) fn new(name: &str, [inputs, outputs]: [usize; 2], bias: bool, std: f64, seed: u64) -> Result<Self> {
        let weight = normal(&format!("{name}.weight"), &[outputs, inputs], std, seed)?;
        let bias = bias.then(|| Parameter::new(format!("{name}.bias"), Role::Vector, &Tensor::zeros::<f32>([outputs])));
        Ok(Linear { weight, bias })
    }

    /// A layer of a weight that exists, of any type that [`linear`] takes, and its bias.
    pub(crate) fn of(name: &str, weight: &Tensor, bias: Option<&Tensor>) -> Self {
        Linear {
            weight: Parameter::new(format!("{name}.weight"), Role::Matrix, weight),
            bias: bias.map(|bias| Parameter::new(format!("{name}.bias"), Role::Vector, bias)),
        }
    }

    /// The layer with another weight of the same shape.
    pub(crate) fn with_weight(&self, weight: &Tensor) -> Self {
        Linear { weight: Parameter::new(self.weight.name(), Role::Matrix, weight), bias: self.bias.clone() }
    }

    /// The bias.
    pub fn bias(&self) -> Option<Tensor> {
        self.bias.as_ref().map(Parameter::tensor)
    }

    /// The layer with its adapter, if one is attached.
    pub(crate) fn forward(&self, x: &Tensor, adapter: Option<&dyn LinearAdapter>, pass: &Pass) -> Result<Tensor> {
        adapter.map_or_else(|| self.plain(None, x), |adapter| adapter.apply(self, None, x, pass))
    }

    /// The layer's output added onto `base`, with its adapter.
    pub(crate) fn onto(
        &self,
        base: &Tensor,
        x: &Tensor,
        adapter: Option<&dyn LinearAdapter>,
        pass: &Pass,
    ) -> Result<Tensor> {
        adapter.map_or_else(|| self.plain(Some(base), x), |adapter| adapter.apply(self, Some(base), x, pass))
    }

    /// `base + W x + b`, in one pass.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn plain(&self, base: Option<&Tensor>, x: &Tensor) -> Result<Tensor> {
        let (weight, bias) = (self.weight.tensor(), self.bias());
        match base {
            Some(base) => add_linear(base, x, &weight, bias.as_ref(), Gate::Fixed(1.0)),
            None => linear(x, &weight, bias.as_ref()),
        }
    }

    /// `W x`.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn product(&self, x: &Tensor) -> Result<Tensor> {
        linear(x, &self.weight.tensor(), None)
    }

    pub(crate) fn parameters(&self) -> impl Iterator<Item = Parameter> + '_ {
        std::iter::once(&self.weight).chain(&self.bias).cloned()
    }
}

/// Which normalisation a block uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// Mean and variance.
    #[default]
    LayerNorm,
    /// Root mean square.
    RmsNorm,
}

/// A normalisation with learned gain and, for layer normalisation with biases, shift.
#[derive(Clone)]
pub struct Norm {
    kind: NormKind,
    weight: Parameter,
    bias: Option<Parameter>,
    eps: f64,
    /// Multiplies by `1 + weight`.
    plus_one: bool,
}

impl Norm {
    const EPS: f64 = 1e-5;

    /// A normalisation of a gain, and for layer normalisation of a shift, that exist.
    pub(crate) fn of(name: &str, kind: NormKind, weight: &Tensor, bias: Option<&Tensor>, eps: f64) -> Self {
        let weight = Parameter::new(format!("{name}.weight"), Role::Vector, weight);
        let bias = bias.map(|bias| Parameter::new(format!("{name}.bias"), Role::Vector, bias));
        Norm { kind, weight, bias, eps, plus_one: false }
    }

    /// The same with a gain of `1 + weight`, if so.
    pub(crate) fn plus_one(self, plus_one: bool) -> Self {
        Norm { plus_one, ..self }
    }

    /// Length of the rows that it normalises.
    pub(crate) fn width(&self) -> usize {
        self.weight.elements()
    }

    pub(crate) fn new(name: &str, kind: NormKind, width: usize, bias: bool) -> Self {
        let weight = Parameter::new(format!("{name}.weight"), Role::Vector, &Tensor::full([width], 1.0_f32));
        let bias = (bias && kind == NormKind::LayerNorm)
            .then(|| Parameter::new(format!("{name}.bias"), Role::Vector, &Tensor::zeros::<f32>([width])));
        Norm { kind, weight, bias, eps: Self::EPS, plus_one: false }
    }

    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut weight = self.weight.tensor();
        if self.plus_one {
            weight = add(&weight, &weight.full_like(weight.shape(), 1.0)?)?;
        }
        match self.kind {
            NormKind::LayerNorm => layer_norm(x, &weight, self.bias.as_ref().map(Parameter::tensor).as_ref(), self.eps),
            NormKind::RmsNorm => rms_norm(x, &weight, self.eps),
        }
    }

    pub(crate) fn parameters(&self) -> impl Iterator<Item = Parameter> + '_ {
        std::iter::once(&self.weight).chain(&self.bias).cloned()
    }
}

/// A matrix of normal values, drawn under its own name.
pub(crate) fn normal(name: &str, shape: &[usize], std: f64, seed: u64) -> Result<Parameter> {
    let values = Random::new(seed, name, 0).normal_vec::<f32>(shape.iter().product(), std);
    Ok(Parameter::new(name, Role::Matrix, &Tensor::from_vec(values, shape)?))
}
