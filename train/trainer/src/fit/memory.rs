//! An estimate of the memory that training takes, by component.

mod decoder;
mod needed;
mod tiny_gpt;

pub(crate) use needed::{check, check_parameters, own};

use super::model::Model;
use super::transformer::Transformer;
use crate::config::{Keep, TrainConfig};
use hankel_core::{CpuStorage, DType, Tensor};
use hankel_models::Parameter;

/// A component and its bytes.
pub(super) type Component = (&'static str, u64);

/// The program itself, its threads and small buffers.
const PROGRAM: u64 = 16 << 20;
/// Logits that exist at once in the fused loss, and their rows at least where the head is compact (see
/// `hankel_ops::cross_entropy`).
const LOGITS: u64 = 1 << 20;
const COMPACT_ROWS: u64 = 128;
const GPU_LOGITS: u64 = 1 << 24;

/// What a step takes besides parameters, in bytes.
struct Activations {
    /// Saved for the backward pass.
    kept: u64,
    /// Alive only for a moment.
    moment: u64,
}

/// What a step of training `model`, which is in main memory, keeps and needs on sequences of `length` tokens: there, or
/// `on_gpu` if it were moved.
///
/// Counted are the tensors that the operators save for the backward pass, layer by layer from the lowest trained
/// parameter upwards (below it nothing is saved), and the largest ones that live only for a moment.
pub(super) fn estimate(model: &Model, settings: &TrainConfig, length: usize, on_gpu: bool) -> Vec<Component> {
    let parameters = model.parameters();
    let bytes = |chosen: &dyn Fn(&Parameter) -> bool| -> u64 {
        let chosen = parameters.iter().filter(|parameter| chosen(parameter));
        let bytes = |tensor: &Tensor| match tensor.nf4() {
            // Scales are floats there.
            Some(matrix) if on_gpu => matrix.packed().len() + 4 * matrix.elements().div_ceil(matrix.block()),
            _ => tensor.bytes(),
        };
        chosen.map(|parameter| bytes(&parameter.tensor()) as u64).sum()
    };
    let trained = bytes(&Parameter::is_trainable);
    let is_mapped = |parameter: &Parameter| {
        let tensor = parameter.tensor();
        !on_gpu && tensor.cpu_storage("memory").is_ok_and(CpuStorage::is_borrowed)
    };
    let frozen = bytes(&|parameter| !parameter.is_trainable() && !is_mapped(parameter));
    let mapped = bytes(&is_mapped);
    let size = if model.dtype() == DType::F64 { 8 } else { 4 };
    // Parts of a sequence are run one after the other.
    let tokens = (settings.batch_size * settings.chunk.map_or(length, |chunk| chunk.min(length))) as u64;
    let activations = match &model.backbone {
        Transformer::TinyGpt(backbone) => tiny_gpt::activations(model, backbone, size * tokens),
        Transformer::Decoder { model: backbone, recompute, kept } => {
            let layers = decoder::Layers { recompute: *recompute, kept: *kept };
            decoder::activations(&model.adapters, backbone.config(), tokens, size, layers)
        }
    };
    let vocabulary = model.backbone.vocabulary() as u64;
    let is_compact = model.backbone.head().tensor().dtype().is_compact();
    let (logits, least) = match (on_gpu, is_compact) {
        (true, _) => (GPU_LOGITS, 1),
        (false, true) => (LOGITS, COMPACT_ROWS),
        (false, false) => (LOGITS, 1),
    };
    let rows = (logits / vocabulary.max(1)).max(least);
    let mut components = vec![
        ("frozen parameters", frozen),
        ("trained parameters", trained),
        // Partial sums of the tree that wait for their other half, and the gradient of a micro-batch.
        ("gradients", trained * u64::from(settings.accumulation.max(1).next_power_of_two().trailing_zeros() + 1)),
        ("optimizer moments", 2 * trained),
        ("activations kept for the backward pass", activations.kept),
        ("activations of the moment", activations.moment),
        ("logits of a chunk", size * tokens.min(rows) * vocabulary),
    ];
    if !on_gpu && settings.keep == Keep::Best {
        components.push(("parameters of the best evaluation", trained));
    }
    if !on_gpu {
        components.insert(0, ("program", PROGRAM));
        components.push(("batches", 12 * tokens * settings.accumulation as u64));
    }
    if mapped > 0 {
        components.push((MAPPED, mapped));
    }
    components
}

/// The component that is not the process's own: pages of files, which the system drops when memory is short.
pub(super) const MAPPED: &str = "mapped files (pages the system can drop)";

#[cfg(test)]
mod tests {
    use super::*;
    use hankel_models::adapters::{AdapterConfig as Settings, Hrm, HrmConfig, Lora, LoraConfig, Preset};
    use hankel_models::{AdapterSet, TinyGpt, TinyGptConfig};

    fn total(settings: &Settings, training: &TrainConfig, length: usize) -> u64 {
        let backbone = TinyGpt::new(&TinyGptConfig::default(), 0).unwrap();
        let adapters = AdapterSet::new(settings, &backbone.placement(), 0).unwrap();
        let backbone = Transformer::TinyGpt(backbone);
        estimate(&Model { backbone, adapters }, training, length, false).iter().map(|(_, bytes)| bytes).sum()
    }

    #[test]
    fn it_grows_with_what_is_trained_and_with_the_tokens() {
        let training = TrainConfig::default();
        let hrm = Settings::stream::<Hrm>(&HrmConfig::new(Preset::Paper, 32, 128, 512));
        let lora = Settings::linear::<Lora>(&LoraConfig::new(16));
        // LoRA in the first layer keeps that layer's activations, HRM behind it does not.
        assert!(total(&hrm, &training, 512) < total(&lora, &training, 512));
        let twice = TrainConfig { batch_size: 64, ..training.clone() };
        let (one, two) = (total(&hrm, &training, 512), total(&hrm, &twice, 512));
        assert!(two > one * 3 / 2 && two < one * 2, "{one} {two}");
    }
}
