//! The end of a sub-layer, as every backbone has it: the projection back into the residual stream, and the stream adapter.

use crate::adapters::{HrmInput, LayerAdapters, StreamInputs, StreamSite};
use crate::linear::Linear;
use crate::pass::Pass;
use hankel_core::{Result, Tensor, scope};
use hankel_ops::{add, dropout};

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
}

impl Ending<'_> {
    /// `base + projection(inner)`, then the stream adapter of the site. `norm` is the sub-layer's normalised input.
    pub(crate) fn forward(
        &self,
        base: &Tensor,
        norm: &Tensor,
        inner: &Tensor,
        adapters: &LayerAdapters,
        pass: &mut Pass,
    ) -> Result<Tensor> {
        let Ending { layer, site, projection, name, .. } = *self;
        let linear_adapter = adapters.linear(name);
        let stream_adapter = adapters.stream(site);
        let drops = pass.training.filter(|_| self.dropout > 0.0);
        // The sum is one pass over memory unless something needs the sub-layer's output by itself.
        let (output, sum) = if drops.is_some() || stream_adapter.is_some_and(|a| a.input() == HrmInput::Sublayer) {
            let mut output = projection.forward(inner, linear_adapter, pass)?;
            if let Some(key) = drops {
                output = dropout(&output, self.dropout, key.random(&format!("layers.{layer}.{name}")))?;
            }
            let sum = add(base, &output)?;
            (Some(output), sum)
        } else {
            (None, projection.onto(base, inner, linear_adapter, pass)?)
        };
        let Some(adapter) = stream_adapter else { return Ok(sum) };
        let inputs = StreamInputs { residual: &sum, norm, sublayer: output.as_ref() };
        scope("adapter", || adapter.forward(layer, inputs, pass))
    }
}
