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
    /// Weight of each, of the type of the hidden states; 0 leaves a token out, whatever its target.
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
    if let Some(cap) = head.cap.filter(|cap| !check::is_cap(*cap)) {
        return Err(Error::invalid(NAME, format!("a cap of {cap}: it has to be a positive number")));
    }
    check::shape(NAME, "targets", tokens, &hidden.shape()[..hidden.shape().len() - 1])
}

/// The weighted mean loss.
///
/// # Errors
/// When shapes, element types or devices do not fit, a target is not a class, or a setting is out of range.
pub fn cross_entropy(hidden: &Tensor, head: Head, targets: Targets) -> Result<Tensor> {
    check_sizes(hidden, head, targets.tokens)?;
    check::shape(NAME, "weights", targets.weights, targets.tokens.shape())?;
    check::dtype(NAME, "weights", targets.weights, hidden.dtype())?;
    if autograd::needs_gradient(targets.weights) {
        return Err(Error::NoGradient("cross_entropy by its weights"));
    }
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
    let counted = weights.to_f64_vec();
    check::tokens_where(NAME, "target", targets.tokens, head.weight.shape()[0], |i| counted[i] != 0.0)?;
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
    let mut scored = vec![false; rows];
    places.iter().for_each(|&place| scored[place] = true);
    check::tokens_where(NAME, "target", targets, head.weight.shape()[0], |i| scored[i])?;
    let precision = precision::of_product(hidden, head.weight)?;
    on_device!(hidden, token_scores(hidden, head, targets.data()?, places, precision))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hankel_core::gpu::for_tests;

    /// Exponentials of logits that are so far apart are 0 or beyond every float.
    #[test]
    fn large_logits() {
        let devices = [Some(Device::Cpu), for_tests().map(Device::Gpu)];
        for (device, size) in devices.into_iter().flatten().flat_map(|device| [(device, 200.0), (device, 1e4)]) {
            let on = |values: [f32; 3], shape: &[usize]| {
                Tensor::from_vec(values.to_vec(), shape.to_vec()).unwrap().to_device(device).unwrap()
            };
            // Logits of each row: size, 0, -size.
            let hidden = on([size as f32; 3], &[3, 1]).parameter().unwrap();
            let weight = on([1.0, 0.0, -1.0], &[3, 1]);
            let head = Head { weight: &weight, bias: None, cap: None };
            let (tokens, weights) = (Tensor::from_vec(vec![0_u32, 1, 2], [3]).unwrap(), on([1.0; 3], &[3]));
            let targets = Targets { tokens: &tokens, weights: &weights, smoothing: 0.0, normalizer: 1.0 };
            let loss = cross_entropy(&hidden, head, targets).unwrap();
            assert_eq!(loss.to_f64_vec(), [3.0 * size], "{device}");
            assert_eq!(loss.backward().unwrap().take(&hidden).unwrap().to_f64_vec(), [0.0, 1.0, 2.0], "{device}");
            let scores = token_scores(&hidden.detach(), head, &tokens, &[0, 1, 2]).unwrap();
            assert_eq!(scores.nll, [0.0, size, 2.0 * size], "{device}");
            assert!(scores.mean_nll.iter().all(|mean| (mean / size - 1.0).abs() < 1e-6), "{device}");
            assert_eq!(scores.predicted, [0; 3], "{device}");
        }
    }

    /// -1 of other software, say, where a token is left out.
    #[test]
    fn targets_that_are_left_out_may_be_anything() {
        let matrix =
            |rows: usize| Tensor::from_vec((0..4 * rows).map(|i| (i * 7 % 5) as f32 - 2.0).collect(), [rows, 4]);
        let devices = [Some(Device::Cpu), for_tests().map(Device::Gpu)];
        for device in devices.into_iter().flatten() {
            let [hidden, head] = [3, 6].map(|rows| matrix(rows).unwrap().to_device(device).unwrap());
            let head = Head { weight: &head, bias: None, cap: None };
            let loss = |ids: [u32; 3], weights: [f32; 3]| {
                let (tokens, weights) = (Tensor::from_vec(ids.to_vec(), [3]), Tensor::from_vec(weights.to_vec(), [3]));
                let (tokens, weights) = (tokens.unwrap(), weights.unwrap().to_device(device).unwrap());
                let targets = Targets { tokens: &tokens, weights: &weights, smoothing: 0.1, normalizer: 1.0 };
                cross_entropy(&hidden, head, targets).map(|loss| loss.to_f64_vec()[0])
            };
            let left_out = loss([2, u32::MAX, 5], [1.0, 0.0, 0.5]).unwrap();
            assert_eq!(left_out, loss([2, 0, 5], [1.0, 0.0, 0.5]).unwrap());
            assert_eq!(loss([u32::MAX; 3], [0.0; 3]).unwrap(), 0.0);
            let refused = loss([2, 6, 5], [1.0; 3]).unwrap_err().to_string();
            assert!(refused.contains("target 6 at position 1"), "{refused}");
            let ids = Tensor::from_vec(vec![2_u32, 9, 5], [3]).unwrap();
            assert_eq!(token_scores(&hidden, head, &ids, &[0, 2]).unwrap().nll.len(), 2);
            assert!(token_scores(&hidden, head, &ids, &[0, 1]).is_err());
        }
    }
}
