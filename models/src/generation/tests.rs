use super::*;
use crate::adapters::{Hrm, HrmConfig, HrmPreset, Placement};
use crate::{AdapterConfig, Parameter, TinyGpt, TinyGptConfig};
use std::sync::atomic::{AtomicUsize, Ordering};

fn model() -> TinyGpt {
    let sizes = TinyGptConfig { layers: 2, d_model: 16, heads: 2, d_ff: 24, ..TinyGptConfig::default() };
    TinyGpt::new(&TinyGptConfig { vocabulary: 11, context: 12, init_std: 0.5, ..sizes }, 3).unwrap()
}

fn generate(sampling: Sampling, steps: usize) -> Vec<u32> {
    let model = model();
    let none = AdapterSet::none(&model.placement());
    let mut generator = Generator::new(&model, &none, &[1, 2, 3], sampling).unwrap();
    (0..steps).map(|_| generator.step().unwrap()).collect()
}

#[test]
fn a_stream_chooses_what_whole_sequences_choose() {
    let model = model();
    let none = AdapterSet::none(&model.placement());
    let mut tokens = vec![1_u32, 2, 3];
    for token in generate(Sampling::default(), 9) {
        let all = Tensor::from_vec(tokens.clone(), [1, tokens.len()]).unwrap();
        let logits = model.logits(&all, &none, &mut Pass::evaluation()).unwrap().to_f64_vec();
        let last = &logits[logits.len() - 11..];
        assert_eq!(token as usize, (0..11).max_by(|&a, &b| last[a].total_cmp(&last[b])).unwrap());
        tokens.push(token);
    }
}

#[test]
fn likelihoods_are_those_of_whole_sequences() {
    let model = model();
    let none = AdapterSet::none(&model.placement());
    let mut generator = Generator::new(&model, &none, &[1, 2, 3], Sampling::default()).unwrap();
    let found = generator.log_likelihood(&[4, 5]).unwrap();
    let all = Tensor::from_vec(vec![1_u32, 2, 3, 4], [1, 4]).unwrap();
    let targets = Tensor::from_vec(vec![0_u32, 0, 4, 5], [1, 4]).unwrap();
    let scores = model.scores(&all, &targets, &[2, 3], &none, &mut Pass::evaluation()).unwrap();
    assert!((found + scores.nll[0] + scores.nll[1]).abs() < 1e-5, "{found} {:?}", scores.nll);
    // It leaves no trace, and an empty continuation is certain.
    assert_eq!(generator.log_likelihood(&[4, 5]).unwrap(), found);
    assert_eq!((generator.log_likelihood(&[]).unwrap(), generator.tokens().len()), (0.0, 3));
    assert!(generator.log_likelihood(&[11]).is_err() && generator.log_likelihood(&[4, 11]).is_err());
    // As token by token, also past the last learned position (12).
    for answer in [&[4_u32, 5, 6, 7][..], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1]] {
        let (mut ahead, mut expected) = (generator.clone(), 0.0);
        for &token in answer {
            expected += log_probability(&ahead.logits().unwrap(), token);
            ahead.push(token).unwrap();
        }
        let found = generator.log_likelihood(answer).unwrap();
        assert!((found - expected).abs() < 1e-5, "{found} for {expected}");
    }
    assert_eq!(generator.step().unwrap(), generate(Sampling::default(), 1)[0]);
}

#[test]
fn the_seed_decides_and_learned_positions_may_end() {
    let hot = |seed| Sampling { temperature: 2.0, seed, ..Sampling::default() };
    assert_eq!(generate(hot(1), 40), generate(hot(1), 40));
    assert_ne!(generate(hot(1), 40), generate(hot(2), 40));
}

#[test]
fn bad_beginnings_are_refused() {
    let model = model();
    let none = AdapterSet::none(&model.placement());
    let say =
        |prompt: &[u32], sampling| Generator::new(&model, &none, prompt, sampling).err().expect("an error").to_string();
    assert!(say(&[], Sampling::default()).contains("the prompt is empty"));
    assert!(say(&[11], Sampling::default()).contains("token 11"));
    let sampling = Sampling { top_p: 0.0, ..Sampling::default() };
    assert!(say(&[1], sampling).contains("top_p"));
    // A prompt longer than the context is read from behind.
    let prompt: Vec<u32> = (0..30).map(|i| i % 11).collect();
    let mut generator = Generator::new(&model, &none, &prompt, Sampling::default()).unwrap();
    generator.step().unwrap();
    assert_eq!(generator.tokens().len(), 31);
}

/// HRM on `model`, its parameters away from where they begin.
fn remembering(model: &TinyGpt) -> AdapterSet {
    let config = AdapterConfig::stream::<Hrm>(&HrmConfig::new(HrmPreset::Paper, 3, 16, 12));
    let adapters = AdapterSet::new(&config, &model.placement(), 5).unwrap();
    for (index, parameter) in adapters.parameters().into_iter().enumerate() {
        let values = Random::new(9, "values", index as u64);
        let (elements, shape) = (parameter.tensor().elements(), parameter.tensor().shape().clone());
        parameter.set(&Tensor::from_vec(values.normal_vec::<f32>(elements, 0.5), shape).unwrap()).unwrap();
    }
    adapters
}

#[test]
fn turns_are_read_as_in_a_batch() {
    let model = model();
    let adapters = remembering(&model);
    let start = TurnStart::of_tokens(vec![vec![7, 2]]).unwrap();
    let prompt = [1_u32, 7, 2, 3, 7, 2, 5, 6, 4, 7, 7, 2];
    // Logits behind `tokens`, all of which are read at once.
    let expected = |tokens: &[u32]| {
        let turns: Vec<usize> = std::iter::once(0).chain(start.later_turns(tokens).map(|turn| turn.start)).collect();
        let all = Tensor::from_vec(tokens.to_vec(), [1, tokens.len()]).unwrap();
        let mut pass = Pass { turns: Some(turns.into()), ..Pass::evaluation() };
        let logits = model.logits(&all, &adapters, &mut pass).unwrap().to_f64_vec();
        logits[logits.len() - 11..].to_vec()
    };
    let agree = |found: Vec<f32>, tokens: &[u32]| {
        let expected = expected(tokens);
        assert_eq!(found.len(), expected.len());
        let apart = found.iter().zip(expected).map(|(a, b)| (f64::from(*a) - b).abs());
        let worst = apart.max_by(f64::total_cmp).unwrap_or(0.0);
        assert!(worst < 1e-5, "{tokens:?}: off by {worst}");
    };
    let generator = |tokens: &[u32]| {
        Generator::new(&model, &adapters, tokens, Sampling::default()).unwrap().by_turns(Some(start.clone()))
    };
    agree(generator(&prompt).logits().unwrap(), &prompt);
    // Token by token, past the context of 12, a turn of the model's own among them: `7 2` is a turn once the 2 is there.
    let mut growing = generator(&prompt[..3]);
    let mut tokens = prompt[..3].to_vec();
    for token in [3, 7, 2, 5, 6, 4, 4, 7, 7, 2, 1, 2, 3, 7, 2, 8, 7, 2] {
        agree(growing.logits().unwrap(), &tokens);
        growing.push(token).unwrap();
        tokens.push(token);
    }
    agree(growing.logits().unwrap(), &tokens);
    assert_eq!(growing.turn_length(), 2);
    // What an answer is worth does not depend on how it is read, with and without a turn in it.
    for answer in [&[4_u32, 5, 6][..], &[4, 7, 2, 5], &[2, 3, 4]] {
        let mut before = generator(&[prompt.as_slice(), &[7]].concat());
        let found = before.log_likelihood(answer).unwrap();
        let mut sum = 0.0;
        for &token in answer {
            sum += log_probability(&before.logits().unwrap(), token);
            before.push(token).unwrap();
        }
        assert!((found - sum).abs() < 1e-5, "{answer:?}: {found} for {sum}");
    }
    let whole = Generator::new(&model, &adapters, &prompt[..9], Sampling::default()).unwrap().logits().unwrap();
    assert_ne!(whole, generator(&prompt[..9]).logits().unwrap());
    // A turn longer than the context has no positions.
    let long = generator(&[1; 13]).logits().unwrap_err().to_string();
    assert!(long.contains("13 tokens are longer than the context of 12"), "{long}");
}

/// A model that fails once, before it looks at the state: in run number `fails`.
struct Failing {
    model: TinyGpt,
    runs: AtomicUsize,
    fails: usize,
}

impl Backbone for Failing {
    fn placement(&self) -> Placement {
        self.model.placement()
    }

    fn vocabulary(&self) -> usize {
        self.model.vocabulary()
    }

    fn context(&self) -> Option<usize> {
        self.model.context()
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.model.parameters()
    }

    fn embeddings(&self) -> Vec<Parameter> {
        self.model.embeddings()
    }

    fn head(&self) -> &Parameter {
        self.model.head()
    }

    fn hidden(&self, tokens: &Tensor, adapters: &AdapterSet, pass: &mut Pass) -> Result<Tensor> {
        if self.runs.fetch_add(1, Ordering::Relaxed) == self.fails {
            return Err(Error::invalid("hidden", "no room"));
        }
        self.model.hidden(tokens, adapters, pass)
    }
}

/// Parts of a prompt that were read before the error are not read a second time.
#[test]
fn an_error_in_a_later_part_leaves_the_earlier_ones_read() {
    let sizes = TinyGptConfig { layers: 1, d_model: 8, heads: 2, d_ff: 8, ..TinyGptConfig::default() };
    let config = TinyGptConfig { vocabulary: 11, context: 4 * PART, init_std: 0.5, ..sizes };
    let model = Failing { model: TinyGpt::new(&config, 3).unwrap(), runs: AtomicUsize::new(0), fails: 1 };
    let none = AdapterSet::none(&model.placement());
    let prompt: Vec<u32> = (0..PART as u32 + 100).map(|i| i * i % 11).collect();
    let mut generator = Generator::new(&model, &none, &prompt, Sampling::default()).unwrap();
    assert!(generator.logits().unwrap_err().to_string().contains("no room"));
    let expected = Generator::new(&model.model, &none, &prompt, Sampling::default()).unwrap().logits().unwrap();
    assert_eq!(generator.logits().unwrap(), expected);
    // One was done, one failed, and one read what was left.
    assert_eq!(model.runs.load(Ordering::Relaxed), 3);
}
