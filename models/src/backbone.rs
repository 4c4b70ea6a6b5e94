//! What training, evaluation and generation ask of a backbone.

use crate::adapters::{AdapterSet, Placement};
use crate::parameter::Parameter;
use crate::pass::Pass;
use hankel_core::{DType, Device, Result, Tensor, no_grad, scope};
use hankel_ops::{Head, Targets, TokenScores, cross_entropy, linear, soft_cap, token_scores};

/// A transformer that adapters can be attached to. Implementations share their parameters when cloned.
pub trait Backbone: Send + Sync {
    /// Where adapters can be attached.
    fn placement(&self) -> Placement;

    /// Number of token ids.
    fn vocabulary(&self) -> usize;

    /// Longest sequence; `None` where positions have no end.
    fn context(&self) -> Option<usize>;

    /// Length of the sequences that the model was made for; `None` where that is not known. Positions beyond are ones it has never met.
    fn made_for(&self) -> Option<usize> {
        self.context()
    }

    /// The length beyond which a stream has to be read again from its beginning, since all its positions change.
    fn rereads_beyond(&self) -> Option<usize> {
        None
    }

    /// Every parameter once, in the order of the forward pass.
    fn parameters(&self) -> Vec<Parameter>;

    /// The embedding matrices.
    fn embeddings(&self) -> Vec<Parameter>;

    /// The matrix of the head: the token embedding when they are tied.
    fn head(&self) -> &Parameter;

    /// Logits `z` become `cap tanh(z / cap)`.
    fn logit_cap(&self) -> Option<f64> {
        None
    }

    /// Normalised hidden states `[batch, T, d_model]` of `tokens`, u32 `[batch, T]`. With a state in `pass` the tokens
    /// continue the stream that the state remembers.
    ///
    /// # Errors
    /// When the sequence is too long, a token is outside the vocabulary, or the adapters do not fit.
    fn hidden(&self, tokens: &Tensor, adapters: &AdapterSet, pass: &mut Pass) -> Result<Tensor>;

    /// The loss of `tokens` `[batch, T]` against `targets` (see [`cross_entropy()`]).
    ///
    /// # Errors
    /// As [`Backbone::hidden`] and [`cross_entropy()`].
    fn loss(&self, tokens: &Tensor, targets: Targets, adapters: &AdapterSet, pass: &mut Pass) -> Result<Tensor> {
        let hidden = self.hidden(tokens, adapters, pass)?;
        let weights = targets.weights.to_dtype(hidden.dtype())?;
        scope("head", || {
            let weight = self.head().tensor();
            let head = Head { cap: self.logit_cap(), ..Head::new(&weight) };
            cross_entropy(&hidden, head, Targets { weights: &weights, ..targets })
        })
    }

    /// Scores those of `targets` given `tokens`, both `[batch, T]`, whose row-major positions are `places`.
    ///
    /// # Errors
    /// As [`Backbone::hidden`].
    fn scores(
        &self,
        tokens: &Tensor,
        targets: &Tensor,
        places: &[usize],
        adapters: &AdapterSet,
        pass: &mut Pass,
    ) -> Result<TokenScores> {
        no_grad(|| {
            let hidden = self.hidden(tokens, adapters, pass)?;
            let weight = self.head().tensor();
            token_scores(&hidden, Head { cap: self.logit_cap(), ..Head::new(&weight) }, targets, places)
        })
    }

    /// Logits `[batch, T, vocabulary]`.
    ///
    /// # Errors
    /// As [`Backbone::hidden`].
    fn logits(&self, tokens: &Tensor, adapters: &AdapterSet, pass: &mut Pass) -> Result<Tensor> {
        self.logits_of(&self.hidden(tokens, adapters, pass)?)
    }

    /// Logits `[..., vocabulary]` of normalised hidden states `[..., d_model]`.
    ///
    /// # Errors
    /// When the width is another.
    fn logits_of(&self, hidden: &Tensor) -> Result<Tensor> {
        let logits = linear(hidden, &self.head().tensor(), None)?;
        self.logit_cap().map_or(Ok(logits.clone()), |cap| soft_cap(&logits, cap))
    }

    /// Converts every parameter to `dtype` (`f64` for gradient checks; `f32` so that compact weights can be trained).
    ///
    /// # Errors
    /// When the type is not a float.
    fn to_dtype(&self, dtype: DType) -> Result<()> {
        self.parameters().iter().try_for_each(|parameter| parameter.to_dtype(dtype))
    }

    /// Moves every parameter to `device`.
    ///
    /// # Errors
    /// As [`Parameter::to_device`].
    fn to_device(&self, device: Device) -> Result<()> {
        self.parameters().iter().try_for_each(|parameter| parameter.to_device(device))
    }

    /// Where it computes.
    fn device(&self) -> Device {
        self.head().tensor().device()
    }
}
