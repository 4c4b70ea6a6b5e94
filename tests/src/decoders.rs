//! What tests of decoders against a library's values have in common: losses from embedded tokens, greedy continuations.

use hankel_core::gpu::for_tests;
use hankel_core::{DType, Device, Tensor, no_grad};
use hankel_models::{AdapterSet, Backbone, Decoder, Pass, State};
use hankel_ops::Targets;
use std::sync::LazyLock;

/// The CPU, and a GPU if there is one.
pub fn devices() -> Vec<Device> {
    [Some(Device::Cpu), for_tests().map(Device::Gpu)].into_iter().flatten().collect()
}

/// Element types with where they are computed in: a GPU has no doubles.
pub fn everywhere() -> Vec<(DType, Device)> {
    [(DType::F64, Device::Cpu)].into_iter().chain(devices().into_iter().map(|device| (DType::F32, device))).collect()
}

/// The folders of golden/families, one for each feature of a family.
pub static FAMILIES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/families");
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    let mut names: Vec<String> = folders.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
});

/// No adapter.
pub fn none(model: &Decoder) -> AdapterSet {
    AdapterSet::none(&model.placement())
}

/// Next-token targets: those of the last position, and those that are -100, count nothing.
fn shifted(labels: &[f64], steps: usize) -> (Vec<u32>, Vec<f32>) {
    let next = |i: usize| if (i + 1).is_multiple_of(steps) { -100.0 } else { labels[i + 1] };
    (0..labels.len()).map(next).map(|label| if label < 0.0 { (0, 0.0) } else { (label as u32, 1.0) }).unzip()
}

/// The mean loss over all targets, from embedded tokens.
///
/// # Panics
/// When the model refuses them.
pub fn loss_of(model: &Decoder, adapters: &AdapterSet, x: &Tensor, labels: &[f64], pass: &mut Pass) -> Tensor {
    let hidden = model.hidden_of(x, adapters, pass).unwrap();
    let shape = [x.shape()[0], x.shape()[1]];
    let (targets, weights) = shifted(labels, shape[1]);
    let normalizer = weights.iter().map(|&w| f64::from(w)).sum();
    let targets = Tensor::from_vec(targets, shape).unwrap();
    let weights = Tensor::from_vec(weights, shape).unwrap().to_dtype(hidden.dtype()).unwrap();
    let weight = model.head().tensor();
    let head = hankel_ops::Head { cap: model.logit_cap(), ..hankel_ops::Head::new(&weight) };
    let targets = Targets { tokens: &targets, weights: &weights, smoothing: 0.0, normalizer };
    hankel_ops::cross_entropy(&hidden, head, targets).unwrap()
}

/// The elements.
pub fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.to_f64_vec()
}

/// Greedy continuation of one sequence by a stream: the ids, and the logits that chose each.
///
/// # Panics
/// When the model refuses it, or layer 0 keeps more keys than its window shows.
pub fn greedy(model: &Decoder, adapters: &AdapterSet, prompt: &[f64], steps: usize) -> (Vec<f64>, Vec<f64>) {
    let (mut ids, mut all) = (prompt.to_vec(), Vec::new());
    let mut state = State::default();
    let mut part = prompt.to_vec();
    for _ in 0..steps {
        let tokens = Tensor::from_vec(part.iter().map(|&id| id as u32).collect(), [1, part.len()]).unwrap();
        let logits = no_grad(|| model.logits(&tokens, adapters, &mut Pass::streaming(&mut state))).unwrap();
        let logits = values(&logits);
        let last = &logits[logits.len() - model.vocabulary()..];
        let best = (0..last.len()).fold(0, |best, i| if last[i] > last[best] { i } else { best });
        all.extend(last);
        ids.push(best as f64);
        part = vec![best as f64];
    }
    let config = model.config();
    if let Some(window) = config.sliding_window.filter(|_| config.sliding_layers.contains(0)) {
        let kept = state.layer(0).keys_values.steps();
        assert!(kept < window, "the cache holds {kept} keys");
    }
    (ids, all)
}
