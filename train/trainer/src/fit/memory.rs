//! An estimate of the memory that training takes, by component.

mod decoder;
mod needed;
mod tiny_gpt;

pub(crate) use needed::{check, check_parameters, own};

use super::model::Model;
use super::transformer::Transformer;
use crate::config::{Keep, TrainConfig};
use crate::format;
use hankel_core::{CpuStorage, DType, Device, Tensor};
use hankel_io::memory::available;
use hankel_models::Parameter;

/// A component and its bytes.
pub(super) type Component = (&'static str, u64);

/// The program itself, its threads and small buffers.
const PROGRAM: u64 = 16 << 20;
/// Logits that exist at once in the fused loss, and their rows at least where the head is compact (see
/// `hankel_ops::cross_entropy`).
const LOGITS: u64 = 1 << 20;
const COMPACT_LOGITS: u64 = 1 << 24;
const COMPACT_ROWS: u64 = 128;
const GPU_LOGITS: u64 = 1 << 24;
const GPU_TILE: u64 = 128;

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
    let held: usize = model.adapters.linears().map(|(_, adapter)| adapter.held_bytes()).sum();
    let frozen = bytes(&|parameter| !parameter.is_trainable() && !is_mapped(parameter)) + held as u64;
    let mapped = bytes(&is_mapped);
    let size = element_size(model);
    let at_once = at_once_on(model, settings, length, on_gpu);
    let tokens = at_once as u64 * part(settings, length);
    let activations = activations(model, tokens, model.backbone.recomputes(on_gpu));
    // Sums of a tree that wait for their other half: over the batches of a step, and over the slices of one.
    let waiting = |leaves: usize| u64::from(leaves.max(1).next_power_of_two().trailing_zeros());
    let waiting = waiting(settings.accumulation) + waiting(settings.batch_size.div_ceil(at_once));
    let vocabulary = model.backbone.vocabulary() as u64;
    let is_compact = model.backbone.head().tensor().dtype().is_compact();
    let (logits, least) = match (on_gpu, is_compact) {
        // Whole tiles, and what is left of another one.
        (true, _) => (GPU_LOGITS + GPU_TILE * vocabulary, 2 * GPU_TILE),
        (false, true) => (COMPACT_LOGITS, COMPACT_ROWS),
        (false, false) => (LOGITS, 1),
    };
    let rows = (logits / vocabulary.max(1)).max(least);
    let mut components = vec![
        ("frozen parameters", frozen),
        ("trained parameters", trained),
        ("gradients", trained * (waiting + 1)),
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
        let positions = settings.batch_size as u64 * part(settings, length) * settings.accumulation as u64;
        components.push(("batches", 12 * positions));
    }
    if mapped > 0 {
        components.push((MAPPED, mapped));
    }
    components
}

/// Bytes of kept activations from which on a batch is cut into slices on the CPU.
const LARGE: u64 = 256 << 20;
/// Bytes of kept activations of such a slice.
const SLICE: u64 = 128 << 20;
/// Tokens of such a slice at least: each decodes weights in blocks anew.
const SLICE_TOKENS: u64 = 512;

/// Sequences of a batch that go forwards and backwards at once: `train.micro_batch_size` if given, else all. On the CPU, where all would
/// keep [`LARGE`] bytes of activations, as many as keep [`SLICE`] bytes or have [`SLICE_TOKENS`] tokens, whichever is more. The memory of
/// the machine does not count, so that results are the same everywhere: activations that are recomputed only for lack of memory count
/// as kept.
pub(super) fn at_once(model: &Model, settings: &TrainConfig, length: usize) -> usize {
    at_once_on(model, settings, length, model.backbone.device() != Device::Cpu)
}

fn at_once_on(model: &Model, settings: &TrainConfig, length: usize, on_gpu: bool) -> usize {
    let batch = settings.batch_size.max(1);
    let recompute = matches!(model.backbone, Transformer::Decoder { recompute: Some(true), .. });
    let tokens = part(settings, length);
    let kept = |sequences: u64| activations(model, sequences * tokens, recompute).kept;
    let fitting = || {
        let fits = (SLICE / kept(1).max(1)).max(SLICE_TOKENS / tokens.max(1)).max(1) as usize;
        // Slices of equal size, or nearly so.
        batch.div_ceil(batch.div_ceil(fits))
    };
    match settings.micro_batch_size {
        Some(size) => size.clamp(1, batch),
        None if on_gpu || kept(batch as u64) < LARGE => batch,
        None => fitting(),
    }
}

/// Tokens of a sequence that are run at once: parts of it come one after the other.
fn part(settings: &TrainConfig, length: usize) -> u64 {
    settings.chunk.map_or(length, |chunk| chunk.min(length)) as u64
}

/// Decides whether a training of `model` that does not say so computes its layers again, with `processes` of it on this machine, and
/// says what was decided: on the CPU it keeps what they compute where the step then takes at most half of the memory that there is.
/// Results are the same.
pub(super) fn decide(model: &mut Model, settings: &TrainConfig, length: usize, processes: usize) -> Option<String> {
    let Transformer::Decoder { recompute: None, fits, .. } = &mut model.backbone else { return None };
    *fits = true;
    if model.backbone.device() != Device::Cpu {
        return None;
    }
    let bytes = own(&estimate(model, settings, length, false));
    let available = available();
    let share = available.as_ref().map_or(u64::MAX, |found| found.bytes / 2 / processes.max(1) as u64);
    let Transformer::Decoder { fits, .. } = &mut model.backbone else { return None };
    *fits = bytes <= share;
    let bytes = format::bytes(bytes);
    Some(match available.filter(|_| !*fits) {
        None => format!("activation checkpointing is off (`recompute`): a step without it takes about {bytes}"),
        Some(found) => format!(
            "activation checkpointing is on (`recompute`): a step without it takes about {bytes}, more than half of the {} that are \
             available ({})",
            format::bytes(found.bytes),
            found.limit
        ),
    })
}

fn activations(model: &Model, tokens: u64, recompute: bool) -> Activations {
    let size = element_size(model);
    match &model.backbone {
        Transformer::TinyGpt(backbone) => tiny_gpt::activations(model, backbone, size * tokens),
        Transformer::Decoder { model: backbone, kept, .. } => {
            let layers = decoder::Layers { recompute, kept: *kept };
            decoder::activations(&model.adapters, backbone.config(), tokens, size, layers)
        }
    }
}

fn element_size(model: &Model) -> u64 {
    if model.dtype() == DType::F64 { 8 } else { 4 }
}

/// The component that is not the process's own: pages of files, which the system drops when memory is short.
pub(super) const MAPPED: &str = "mapped files (pages the system can drop)";

#[cfg(test)]
mod tests {
    use super::*;
    use hankel_models::adapters::{AdapterConfig as Settings, Hrm, HrmConfig, HrmPreset, Lora, LoraConfig};
    use hankel_models::{AdapterSet, Backbone as _, TinyGpt, TinyGptConfig};

    fn total(settings: &Settings, training: &TrainConfig, length: usize) -> u64 {
        let backbone = TinyGpt::new(&TinyGptConfig::default(), 0).unwrap();
        let adapters = AdapterSet::new(settings, &backbone.placement(), 0).unwrap();
        let backbone = Transformer::TinyGpt(backbone);
        estimate(&Model { backbone, adapters }, training, length, false).iter().map(|(_, bytes)| bytes).sum()
    }

    #[test]
    fn it_grows_with_what_is_trained_and_with_the_tokens() {
        let training = TrainConfig { micro_batch_size: Some(32), ..TrainConfig::default() };
        let hrm = Settings::stream::<Hrm>(&HrmConfig::new(HrmPreset::Paper, 32, 128, 512));
        let lora = Settings::linear::<Lora>(&LoraConfig::new(16));
        // LoRA in the first layer keeps that layer's activations, HRM behind it does not.
        assert!(total(&hrm, &training, 512) < total(&lora, &training, 512));
        let twice = TrainConfig { batch_size: 64, micro_batch_size: Some(64), ..training.clone() };
        let (one, two) = (total(&hrm, &training, 512), total(&hrm, &twice, 512));
        assert!(two > one * 3 / 2 && two < one * 2, "{one} {two}");
    }

    #[test]
    fn large_batches_are_cut_into_equal_slices() {
        let backbone = TinyGpt::new(&TinyGptConfig::default(), 0).unwrap();
        let lora = Settings::linear::<Lora>(&LoraConfig::new(16));
        let adapters = AdapterSet::new(&lora, &backbone.placement(), 0).unwrap();
        let model = Model { backbone: Transformer::TinyGpt(backbone), adapters };
        let training = |batch_size| TrainConfig { batch_size, ..TrainConfig::default() };
        assert_eq!(at_once(&model, &training(8), 512), 8);
        let size = at_once(&model, &training(32), 1024);
        assert!(size < 32 && activations(&model, size as u64 * 1024, false).kept <= SLICE, "{size}");
        assert!(activations(&model, (size as u64 + 1) * 1024, false).kept > SLICE || 32 % size == 0, "{size}");
        // Fewer are run, and fewer are counted.
        let whole = TrainConfig { micro_batch_size: Some(32), ..training(32) };
        assert_eq!(at_once(&model, &whole, 1024), 32);
        assert!(3 * total(&lora, &training(32), 1024) < total(&lora, &whole, 1024));
        // On a GPU, only what is asked for.
        assert_eq!(at_once_on(&model, &training(32), 1024, true), 32);
        assert_eq!(at_once_on(&model, &TrainConfig { micro_batch_size: Some(5), ..training(32) }, 1024, true), 5);
    }

    /// A decoder whose step takes a known share of the memory that there is.
    #[test]
    fn layers_are_computed_again_where_memory_asks_for_it() {
        let config = hankel_models::DecoderConfig {
            vocabulary: 40,
            layers: 2,
            d_model: 16,
            d_ff: 32,
            heads: 2,
            kv_heads: 1,
            head_dim: 8,
            ..hankel_models::DecoderConfig::mistral_7b()
        };
        let lora = Settings::linear::<Lora>(&LoraConfig::new(2));
        let model = |recompute| {
            let model = hankel_models::Decoder::new(&config, 0).unwrap();
            let adapters = AdapterSet::new(&lora, &model.placement(), 0).unwrap();
            Model { backbone: Transformer::Decoder { model, recompute, fits: false, kept: None }, adapters }
        };
        let short = TrainConfig { batch_size: 1, ..TrainConfig::default() };
        // Little memory is asked for, and more than any machine has.
        for (length, again) in [(8, false), (1 << 42, true)] {
            let mut undecided = model(None);
            let said = decide(&mut undecided, &short, length, 2).unwrap();
            assert_eq!(undecided.backbone.recomputes(false), again, "{said}");
            assert_eq!(said.contains("checkpointing is on"), again, "{said}");
            assert!(undecided.backbone.recomputes(true), "on a GPU always");
            // Results do not depend on the decision: neither do slices.
            let batch = TrainConfig { batch_size: 4096, ..TrainConfig::default() };
            assert_eq!(at_once(&undecided, &batch, 512), at_once(&model(Some(false)), &batch, 512));
            for asked in [true, false] {
                let mut decided = model(Some(asked));
                assert!(decide(&mut decided, &short, length, 2).is_none());
                assert_eq!(decided.backbone.recomputes(false), asked);
            }
        }
    }
}
