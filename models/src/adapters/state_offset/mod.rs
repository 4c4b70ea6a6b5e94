//! `state-offset`: a learned constant in every layer, the least that an adapter can do (after W. Kang et al., State-offset
//! Tuning, 2025, whose offset `h'` of a state moves the output by the constant `C h'`).
//!
//! ```text
//! y_t = o            o [D], zero at the start
//! ```
//!
//! It reads nothing and remembers nothing: what it reaches is what any adapter on the stream reaches without its input.

use crate::adapters::stream::{Memory, SiteContext, StreamAdapter, StreamKind};
use crate::parameter::{Parameter, Role};
use hankel_core::{Result, Tensor};
use hankel_ops::scale_columns;
use serde::{Deserialize, Serialize};

/// There is nothing to set.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {}

/// The offset of one layer.
pub struct StateOffset {
    offset: Parameter,
}

impl StreamKind for StateOffset {
    const KIND: &'static str = "state-offset";
    const ABOUT: &'static str = "A learned constant in every layer.";
    type Settings = Settings;

    fn new(_: &Settings, context: &SiteContext<'_>) -> Result<Self> {
        let zero = Tensor::zeros::<f32>([context.d_model]);
        Ok(StateOffset { offset: context.parameter("offset", Role::Vector, &zero)? })
    }
}

impl StreamAdapter for StateOffset {
    fn parameters(&self) -> Vec<Parameter> {
        vec![self.offset.clone()]
    }

    fn forward(&self, x: &Tensor, _: Option<&Memory>) -> Result<(Tensor, Memory)> {
        let offset = self.offset.tensor();
        let (zeros, factors) = (x.full_like(x.shape(), 0.0)?, x.full_like(offset.shape(), 0.0)?);
        Ok((scale_columns(&zeros, &factors, Some(&offset))?, Memory::new()))
    }
}
