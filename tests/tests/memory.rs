//! What a training step allocates: nothing for frozen weights, nothing that grows with the square of the length.
//!
//! A counting allocator is global to a program, so these measurements have one to themselves and run one after another.

use hankel_core::{DType, Random, Tensor, pool};
use hankel_models::adapters::{Hrm, HrmConfig, HrmPreset, Lora, LoraConfig};
use hankel_models::decoder::{InitType, LoadOptions, init_model};
use hankel_models::gguf::{ExportType, export_model};
use hankel_models::{
    AdapterConfig, AdapterSet, Backbone, Decoder, DecoderConfig, Pass, StepKey, TinyGpt, TinyGptConfig,
};
use hankel_ops::Targets;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged; only sizes are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes above what was there before the step, at the worst moment of forward and backward.
fn peak_of_step(config: &TinyGptConfig, adapter: &AdapterConfig, batch: usize, steps: usize, recompute: bool) -> usize {
    let model = TinyGpt::new(config, 0).unwrap();
    let adapters = AdapterSet::new(adapter, &model.placement(), 0).unwrap();
    let random = Random::new(0, "tokens", 0);
    let ids = (0..(batch * steps) as u64).map(|i| random.below(i, config.vocabulary) as u32).collect();
    let tokens = Tensor::from_vec(ids, [batch, steps]).unwrap();
    let weights = Tensor::full([batch, steps], 1.0_f32);
    let normalizer = (batch * steps) as f64;
    let targets = Targets { tokens: &tokens, weights: &weights, smoothing: 0.0, normalizer };
    let step = || {
        let mut pass = Pass { recompute, ..Pass::training(StepKey { seed: 0, step: 0 }) };
        let loss = model.loss(&tokens, targets, &adapters, &mut pass).unwrap();
        drop(loss.backward().unwrap());
    };
    // The first step starts the thread pool and its scratch memory.
    step();
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    step();
    PEAK.load(Ordering::Relaxed) - before
}

const MIB: usize = 1 << 20;

/// Bytes of the worst moment of a step of LoRA on a model whose frozen weights are stored compactly.
fn peak_of_compact_step(directory: &Path, quantize: bool) -> usize {
    let model = Decoder::load(directory, LoadOptions { quantize, ..LoadOptions::default() }).unwrap();
    let adapters = AdapterSet::new(&AdapterConfig::linear::<Lora>(&LoraConfig::new(2)), &model.placement(), 0).unwrap();
    let tokens = Tensor::from_vec(vec![1_u32, 2, 3, 4], [1, 4]).unwrap();
    let weights = Tensor::full([1, 4], 1.0_f32);
    let targets = Targets { tokens: &tokens, weights: &weights, smoothing: 0.0, normalizer: 4.0 };
    let step = || {
        let mut pass = Pass { recompute: true, ..Pass::training(StepKey { seed: 0, step: 0 }) };
        drop(model.loss(&tokens, targets, &adapters, &mut pass).unwrap().backward().unwrap());
    };
    step();
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    step();
    PEAK.load(Ordering::Relaxed) - before
}

/// Each of the three matrices of the MLP is 16 MiB in f32, as is the head.
fn compact_weights_are_never_widened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    let config = DecoderConfig {
        vocabulary: 16_384,
        d_model: 256,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        d_ff: 16_384,
        ..DecoderConfig::mistral_7b()
    };
    init_model(&config, 0, InitType::Bf16, &path).unwrap();
    for quantize in [false, true] {
        let peak = peak_of_compact_step(&path, quantize);
        assert!(peak < 6 * MIB, "quantised {quantize}: {peak} bytes");
    }
    for dtype in ["q8_0", "q4_0", "q4_k"].map(|name| ExportType::named(name).unwrap()) {
        let file = folder.path().join(format!("{dtype}.gguf"));
        export_model(&path, &file, dtype).unwrap();
        let peak = peak_of_compact_step(&file, false);
        assert!(peak < 6 * MIB, "{dtype}: {peak} bytes");
    }
}

/// Stores the embedding of a directory in bf16 again as the head, in the type `dtype`.
fn store_head(directory: &Path, dtype: Dtype) {
    let path = directory.join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let embedding = file.tensor("model.embed_tokens.weight").unwrap();
    let widen = |bytes: &[u8; 2]| half::bf16::from_le_bytes(*bytes).to_f32().to_le_bytes();
    let head: Vec<u8> = if dtype == Dtype::F32 {
        embedding.data().as_chunks::<2>().0.iter().flat_map(widen).collect()
    } else {
        embedding.data().to_vec()
    };
    let mut all = file.tensors();
    all.push(("lm_head.weight".to_owned(), TensorView::new(dtype, embedding.shape().to_vec(), &head).unwrap()));
    let written = safetensors::serialize(all, None).unwrap();
    std::fs::write(&path, written).unwrap();
}

/// The embedding is 8 MiB in bf16. A head that is stored though it is the embedding is compared with it.
fn a_stored_head_is_compared_without_copies() {
    let folder = tempfile::tempdir().unwrap();
    let config = DecoderConfig {
        vocabulary: 16_384,
        d_model: 256,
        layers: 1,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        d_ff: 64,
        tied_embeddings: true,
        ..DecoderConfig::mistral_7b()
    };
    for (name, dtype) in [("bf16", Dtype::BF16), ("f32", Dtype::F32)] {
        let path = folder.path().join(name);
        init_model(&config, 0, InitType::Bf16, &path).unwrap();
        store_head(&path, dtype);
        let load = || drop(Decoder::load(&path, LoadOptions::default()).unwrap());
        // The first time starts threads.
        load();
        let before = LIVE.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        load();
        let peak = PEAK.load(Ordering::Relaxed) - before;
        assert!(peak < 6 * MIB, "head in {name}: {peak} bytes");
    }
}

/// Fifty steps of training leave no more behind than a few do.
fn memory_is_flat_over_many_steps() {
    let config = DecoderConfig {
        vocabulary: 64,
        d_model: 64,
        layers: 3,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        d_ff: 128,
        ..DecoderConfig::mistral_7b()
    };
    let model = Decoder::new(&config, 0).unwrap();
    let hrm = AdapterConfig::stream::<Hrm>(&HrmConfig::new(HrmPreset::Paper, 8, 64, 64));
    for (name, adapter) in [("hrm", hrm), ("lora", AdapterConfig::linear::<Lora>(&LoraConfig::new(4)))] {
        let adapters = AdapterSet::new(&adapter, &model.placement(), 0).unwrap();
        let step = |step: u64| {
            let random = Random::new(0, "tokens", step);
            let ids = (0..2 * 64).map(|i| random.below(i, 64) as u32).collect();
            let tokens = Tensor::from_vec(ids, [2, 64]).unwrap();
            let weights = Tensor::full([2, 64], 1.0_f32);
            let targets = Targets { tokens: &tokens, weights: &weights, smoothing: 0.0, normalizer: 128.0 };
            let kept = Some(DType::BF16);
            let mut pass = Pass { recompute: true, kept, ..Pass::training(StepKey { seed: 0, step }) };
            let gradients = model.loss(&tokens, targets, &adapters, &mut pass).unwrap().backward().unwrap();
            for parameter in adapters.parameters() {
                let gradient = gradients.get(&parameter.tensor()).unwrap();
                let moved = parameter
                    .tensor()
                    .to_f64_vec()
                    .iter()
                    .zip(gradient.to_f64_vec())
                    .map(|(x, g)| x - 0.01 * g)
                    .collect();
                parameter.set(&Tensor::from_vec(moved, parameter.tensor().shape()).unwrap()).unwrap();
            }
        };
        (0..3).for_each(step);
        let before = LIVE.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        (3..6).for_each(step);
        let few = PEAK.load(Ordering::Relaxed);
        (6..53).for_each(step);
        let (peak, left) = (PEAK.load(Ordering::Relaxed), LIVE.load(Ordering::Relaxed));
        assert!(left < before + 64 * 1024, "{name}: {before} bytes before fifty steps, {left} after them");
        assert!(peak < few + 64 * 1024, "{name}: at most {few} bytes in three steps, {peak} in fifty");
    }
}

#[test]
fn a_step_allocates_for_activations_and_adapters_only() {
    pool::set_limit(0);
    a_stored_head_is_compared_without_copies();
    compact_weights_are_never_widened();
    memory_is_flat_over_many_steps();
    let small = TinyGptConfig { layers: 3, d_model: 64, heads: 2, d_ff: 256, ..TinyGptConfig::default() };
    let length = 1024;
    let hrm = AdapterConfig::stream::<Hrm>(&HrmConfig::new(HrmPreset::Paper, 16, 64, length));
    let lora = AdapterConfig::linear::<Lora>(&LoraConfig::new(8));
    for (name, adapter) in [("hrm", &hrm), ("lora", &lora)] {
        // 16 MiB more of frozen positions and 2 x 16 MiB more of frozen embeddings and head. The logits of one chunk of
        // tokens grow from all 512 x 256 to the chunk's limit of 2^20, 4 MiB in f32.
        let few = peak_of_step(&small, adapter, 1, 512, false);
        let wide = TinyGptConfig { context: 65_536, vocabulary: 65_536, ..small.clone() };
        let many = peak_of_step(&wide, adapter, 1, 512, false);
        assert!(many < few + 5 * MIB, "{name}: {few} bytes with a small, {many} with a large frozen vocabulary");

        // The same number of tokens as 16 short and as 1 long sequence: a T x T matrix per head would be 16 times larger. What
        // a thread of attention has of its head, copies of queries, keys and values, grows with T.
        let config = TinyGptConfig { context: 4096, ..small.clone() };
        let [short, long] = [(16, 256), (1, 4096)].map(|(b, t)| peak_of_step(&config, adapter, b, t, false));
        assert!(
            long < short + short / 10 + 2 * MIB,
            "{name}: {short} bytes for short sequences, {long} for a long one"
        );

        // Recompute keeps one block's activations at a time, so deeper models cost their block inputs only.
        let deep = TinyGptConfig { layers: 9, ..config };
        let [plain, again] = [false, true].map(|recompute| peak_of_step(&deep, adapter, 4, 512, recompute));
        assert!(2 * again < plain, "{name}: {plain} bytes, with recompute {again}");
    }
}
