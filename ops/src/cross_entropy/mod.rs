//! Cross entropy fused with the head, in chunks of tokens.
//!
//! With `z = W h + b`, or `cap tanh((W h + b) / cap)` where the head has a cap, over `V` classes and `log p = z - logsumexp(z)`,
//!
//! ```text
//! loss = 1/normalizer * sum_i weight_i ( (1 - e) (-log p_i[target_i]) + e/V sum_v (-log p_i[v]) )
//! ```
//!
//! `hidden` `[..., D]`, head `weight` `[V, D]` and `bias` `[V]`, `targets` u32 `[...]`, `weights` `[...]`, `e` the label
//! smoothing; the loss has one element and no dimensions. Logits exist for one chunk of tokens at a time, so the memory does
//! not grow with `tokens x V`. Rows of weight 0, such as a prompt, are skipped.
//!
//! The forward pass computes the wanted gradients from each chunk of logits and keeps them, in the size of `hidden` and of
//! the head; the backward pass only multiplies them by the gradient of the loss.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
mod cpu;
mod gpu;

use crate::check;
use crate::dispatch::on_device;
use crate::linear::precision;
use hankel_core::{Device, Error, Result, Tensor, autograd};

const NAME: &str = "cross_entropy";

/// The last linear map of a model.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    /// `[V, D]`.
    pub weight: &'a Tensor,
    /// `[V]`.
    pub bias: Option<&'a Tensor>,
    /// Logits `z` become `cap tanh(z / cap)`.
    pub cap: Option<f64>,
}

impl<'a> Head<'a> {
    /// A head `[V, D]` without bias and cap.
    pub fn new(weight: &'a Tensor) -> Self {
        Head { weight, bias: None, cap: None }
    }
}

/// The classes to predict, and the weight of each row in the loss.
#[derive(Clone, Copy)]
pub struct Targets<'a> {
    /// Class of each row of the hidden states, u32.
    pub tokens: &'a Tensor,
    /// Weight of each, of the type of the hidden states; 0 leaves a token out.
    pub weights: &'a Tensor,
    /// Share of the target distribution spread evenly over all classes, `0 <= e < 1`.
    pub smoothing: f64,
    /// Divides the sum; usually the sum of all weights of a step, over its micro-batches.
    pub normalizer: f64,
}

fn check_sizes(hidden: &Tensor, head: Head, tokens: &Tensor) -> Result<()> {
    check::float(NAME, hidden)?;
    let &[classes, width] = &head.weight.shape()[..] else {
        return Err(Error::shape(NAME, format!("head has shape {}, expected [V, D]", head.weight.shape())));
    };
    if hidden.shape().is_empty() || hidden.shape().last() != width {
        let problem = format!("hidden states {} do not fit a head {}", hidden.shape(), head.weight.shape());
        return Err(Error::shape(NAME, problem));
    }
    check::weight_dtype(NAME, "head", head.weight, hidden.dtype())?;
    check::device(NAME, "head", head.weight, hidden)?;
    if let Some(bias) = head.bias {
        check::input(NAME, "bias", bias, &[classes], hidden)?;
    }
    if let Some(cap) = head.cap.filter(|cap| !(*cap > 0.0 && cap.is_finite())) {
        return Err(Error::invalid(NAME, format!("a cap of {cap}: it has to be a positive number")));
    }
    check::shape(NAME, "targets", tokens, &hidden.shape()[..hidden.shape().len() - 1])?;
    check::tokens(NAME, "target", tokens, classes).map(|_| ())
}

/// The weighted mean loss.
///
/// # Errors
/// When shapes, element types or devices do not fit, a target is not a class, or a setting is out of range.
pub fn cross_entropy(hidden: &Tensor, head: Head, targets: Targets) -> Result<Tensor> {
    check_sizes(hidden, head, targets.tokens)?;
    check::shape(NAME, "weights", targets.weights, targets.tokens.shape())?;
    check::dtype(NAME, "weights", targets.weights, hidden.dtype())?;
    let Targets { smoothing, normalizer, .. } = targets;
    if !(0.0..1.0).contains(&smoothing) {
        return Err(Error::invalid(NAME, format!("label smoothing {smoothing} is not in 0 <= e < 1")));
    }
    if !(normalizer > 0.0 && normalizer.is_finite()) {
        let problem = format!("normalizer = {normalizer} is not a positive number: no token has a weight");
        return Err(Error::invalid(NAME, problem));
    }
    // Read in main memory, where batches are made.
    let weights = targets.weights.to_device(Device::Cpu)?;
    let targets = Targets { weights: &weights, ..targets };
    let precision = precision::of_product(hidden, head.weight)?;
    let inputs = [Some(hidden), Some(head.weight), head.bias];
    let wanted = inputs.map(|input| input.is_some_and(autograd::needs_gradient));
    let (loss, gradients) = on_device!(hidden, forward(hidden, head, targets, precision, wanted))?;
    loss.from_operator(NAME, &inputs, move |g, _| {
        let scaled = |gradient: Option<Tensor>| gradient.map(|x| on_device!(g, times(x, &g))).transpose();
        gradients.into_iter().map(scaled).collect()
    })
}

/// Scores of tokens, for evaluation.
pub struct TokenScores {
    /// `-log p[target]`, in nats.
    pub nll: Vec<f64>,
    /// `-log p` averaged over all classes, in nats: the second term of a smoothed loss.
    pub mean_nll: Vec<f64>,
    /// The most probable class (the lowest of equals).
    pub predicted: Vec<u32>,
}

/// Scores the tokens in the rows `places` without recording a gradient.
///
/// # Errors
/// When shapes, element types or devices do not fit, a target is not a class, or there is no such row.
pub fn token_scores(hidden: &Tensor, head: Head, targets: &Tensor, places: &[usize]) -> Result<TokenScores> {
    check_sizes(hidden, head, targets)?;
    let rows = targets.elements();
    if let Some(place) = places.iter().find(|place| **place >= rows) {
        return Err(Error::shape("token_scores", format!("row {place} of {rows}")));
    }
    let precision = precision::of_product(hidden, head.weight)?;
    on_device!(hidden, token_scores(hidden, head, targets.data()?, places, precision))
}
