//! A real pretrained model of the Llama architecture, end to end: its files, its tokenizer, its text.

use hankel_core::gpu::for_tests;
use hankel_core::{Device, Tensor, no_grad};
use hankel_models::decoder::LoadOptions;
use hankel_models::{AdapterSet, Backbone, Decoder, Pass, State, Tokenizer};
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/stories260k"))
}

#[test]
fn greedy_text_is_the_published_text() {
    writes_the_published_text(Device::Cpu);
    if let Some(gpu) = for_tests() {
        writes_the_published_text(Device::Gpu(gpu));
    }
}

fn writes_the_published_text(device: Device) {
    let model = Decoder::load(&folder(), LoadOptions { device, ..LoadOptions::default() }).unwrap();
    let tokenizer = Tokenizer::load(&folder()).unwrap();
    tokenizer.check(model.vocabulary()).unwrap();
    assert_eq!(model.config().parameters(), 260_032);
    let expected = std::fs::read_to_string(folder().join("expected_greedy_200.txt")).unwrap();
    let adapters = AdapterSet::none(&model.placement());
    let mut state = State::default();
    let mut ids = vec![tokenizer.bos().unwrap()];
    for _ in 0..200 {
        let tokens = Tensor::from_vec(vec![*ids.last().unwrap()], [1, 1]).unwrap();
        let logits = no_grad(|| model.logits(&tokens, &adapters, &mut Pass::streaming(&mut state))).unwrap();
        let logits = logits.to_f64_vec();
        let best = (0..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best });
        ids.push(best as u32);
    }
    assert_eq!(tokenizer.decode(&ids).unwrap(), expected);
    // The same text encodes to the same ids: the merges were converted rightly.
    assert_eq!(tokenizer.encode(&expected).unwrap(), ids[1..]);
}
