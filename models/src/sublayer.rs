//! The end of a sub-layer, as every backbone has it: the projection back into the residual stream, and the stream adapter.

use crate::adapters::{LayerAdapters, StreamInput, StreamInputs, StreamSite};
use crate::linear::{Linear, Norm};
use crate::pass::Pass;
use hankel_core::{Result, Tensor, scope};
use hankel_ops::{add, dropout, rms_norm, scale};

/// Where a sub-layer ends.
#[derive(Clone, Copy)]
pub(crate) struct Ending<'a> {
    /// Index of the layer.
    pub layer: usize,
    /// The stream site after it.
    pub site: StreamSite,
    /// The last projection.
    pub projection: &'a Linear,
    /// Its name as a linear site.
    pub name: &'a str,
    /// Probability of dropout on its output, while training.
    pub dropout: f64,
    /// Normalisation of what the sub-layer adds to the stream.
    pub norm: Option<&'a Norm>,
    /// What that is multiplied by.
    pub multiplier: f64,
    /// Of a sub-layer that reads the stream as it is: what is added to the mean square where an adapter reads it normalised.
    pub bare: Option<f64>,
}

impl Ending<'_> {
    /// `base + multiplier norm(projection(inner))`, then the stream adapter of the site. `input` is what the sub-layer read:
    /// the stream, normalised where there is a norm before it. Where there is none, an adapter that reads it normalised gets it divided by
    /// its root mean square.
    pub(crate) fn forward(
        &self,
        base: &Tensor,
        input: &Tensor,
        inner: &Tensor,
        adapters: &LayerAdapters,
        pass: &mut Pass,
    ) -> Result<Tensor> {
        let Ending { layer, site, projection, name, .. } = *self;
        let linear_adapter = adapters.linear(name);
        let stream_adapter = adapters.stream(site);
        let drops = pass.training.filter(|_| self.dropout > 0.0);
        let changes = drops.is_some() || self.norm.is_some() || self.multiplier != 1.0;
        // The sum is one pass over memory unless something needs the sub-layer's output by itself.
        let (output, sum) = if changes || stream_adapter.is_some_and(|a| a.input() == StreamInput::Sublayer) {
            let mut output = projection.forward(inner, linear_adapter, pass)?;
            if let Some(key) = drops {
                output = dropout(&output, self.dropout, key.random(&format!("layers.{layer}.{name}")))?;
            }
            if let Some(norm) = self.norm {
                output = norm.forward(&output)?;
            }
            if self.multiplier != 1.0 {
                output = scale(&output, self.multiplier)?;
            }
            let sum = add(base, &output)?;
            (Some(output), sum)
        } else {
            (None, projection.onto(base, inner, linear_adapter, pass)?)
        };
        let Some(adapter) = stream_adapter else { return Ok(sum) };
        let own = self.bare.filter(|_| adapter.input() == StreamInput::Norm);
        let ones = || input.full_like([input.shape().last()], 1.0);
        let normalised = own.map(|eps| rms_norm(input, &ones()?, eps)).transpose()?;
        let norm = normalised.as_ref().unwrap_or(input);
        let inputs = StreamInputs { residual: &sum, norm, sublayer: output.as_ref() };
        scope("adapter", || adapter.forward(layer, inputs, pass))
    }
}
