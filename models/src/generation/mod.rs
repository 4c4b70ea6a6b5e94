//! Generation: a backbone with its adapters continues a sequence, token by token.
//!
//! Keys and values of attention and the states of recurrences are kept, so that a step reads one token. Only the last
//! position meets the head.

mod sampling;
mod stop;

pub use sampling::Sampling;
pub use stop::StopFilter;

use crate::adapters::AdapterSet;
use crate::backbone::Backbone;
use crate::pass::{Pass, State};
use hankel_core::{Device, Error, Random, Result, Tensor, no_grad, trace};
use hankel_ops::narrow_time;

/// Tokens of a prompt that are read at once: what is kept of the rest is small.
const PART: usize = 1024;

/// A sequence that grows. A clone goes its own way from here.
#[derive(Clone)]
pub struct Generator<'a> {
    backbone: &'a dyn Backbone,
    adapters: &'a AdapterSet,
    sampling: Sampling,
    random: Random,
    tokens: Vec<u32>,
    /// How many of the tokens the state has read.
    read: usize,
    drawn: u64,
    state: State,
    /// Logits of the token that follows, once they are known.
    next: Option<Vec<f32>>,
}

impl<'a> Generator<'a> {
    /// Begins with `prompt`, which the first step reads as a whole.
    ///
    /// # Errors
    /// When the prompt is empty, a token is outside the vocabulary, or a setting is out of range.
    pub fn new(
        backbone: &'a dyn Backbone,
        adapters: &'a AdapterSet,
        prompt: &[u32],
        sampling: Sampling,
    ) -> Result<Self> {
        sampling.check().map_err(|problem| Error::invalid("generation", problem))?;
        if prompt.is_empty() {
            let problem = "the prompt is empty: there must be a token to continue, such as the one that begins a text";
            return Err(Error::invalid("generation", problem));
        }
        let size = backbone.vocabulary();
        if let Some(id) = prompt.iter().find(|id| **id as usize >= size) {
            let problem = format!("token {id} of the prompt is outside a vocabulary of {size}");
            return Err(Error::invalid("generation", problem));
        }
        let random = Random::new(sampling.seed, "generate", 0);
        let (tokens, state) = (prompt.to_vec(), State::default());
        Ok(Generator { backbone, adapters, sampling, random, tokens, read: 0, drawn: 0, state, next: None })
    }

    /// The prompt and what has been generated.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Logits of the token that follows.
    ///
    /// Past the last learned position, a model that has such positions starts afresh on the second half of its context.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn logits(&mut self) -> Result<Vec<f32>> {
        if let Some(logits) = &self.next {
            return Ok(logits.clone());
        }
        let context = self.backbone.context().unwrap_or(usize::MAX);
        if self.state.position + (self.tokens.len() - self.read) > context {
            self.state = State::default();
            let keep = if self.read == 0 { context } else { (context / 2).max(1) };
            self.read = self.tokens.len() - keep.min(self.tokens.len());
        }
        let turns = self.backbone.rereads_beyond().unwrap_or(usize::MAX);
        if self.state.position <= turns && self.tokens.len() > turns {
            (self.state, self.read) = (State::default(), 0);
        }
        self.state.length = self.tokens.len();
        let _event = trace::phase(if self.tokens.len() - self.read == 1 { "token" } else { "prompt" });
        let logits = no_grad(|| {
            let mut last = None;
            for part in self.tokens[self.read..].chunks(PART) {
                let tokens = Tensor::from_vec(part.to_vec(), [1, part.len()])?;
                let hidden = self.backbone.hidden(&tokens, self.adapters, &mut Pass::streaming(&mut self.state))?;
                last = Some(narrow_time(&hidden, part.len() - 1, 1)?);
            }
            let last = last.ok_or_else(|| Error::invalid("generation", "there is no token to continue"))?;
            self.backbone.logits_of(&last)
        })?;
        self.read = self.tokens.len();
        let logits: Vec<f32> = logits.to_device(Device::Cpu)?.to_f64_vec().into_iter().map(|x| x as f32).collect();
        self.next = Some(logits.clone());
        Ok(logits)
    }

    /// Goes on with `token`, whatever its probability.
    ///
    /// # Errors
    /// When it is outside the vocabulary.
    pub fn push(&mut self, token: u32) -> Result<()> {
        let size = self.backbone.vocabulary();
        if token as usize >= size {
            return Err(Error::invalid("generation", format!("token {token} is outside a vocabulary of {size}")));
        }
        self.tokens.push(token);
        self.next = None;
        Ok(())
    }

    /// The log-probability of `tokens` as what follows, in nats. The sequence stays as it is.
    ///
    /// All of them are read in one pass, unless learned positions or other angles of rotation make the model start afresh on
    /// the way.
    ///
    /// # Errors
    /// Those of the operators, and when a token is outside the vocabulary.
    pub fn log_likelihood(&mut self, tokens: &[u32]) -> Result<f64> {
        let Some((&first, rest)) = tokens.split_first() else { return Ok(0.0) };
        let size = self.backbone.vocabulary();
        if let Some(token) = tokens.iter().find(|token| **token as usize >= size) {
            return Err(Error::invalid("generation", format!("token {token} is outside a vocabulary of {size}")));
        }
        let mut sum = log_probability(&self.logits()?, first);
        let mut ahead = self.clone();
        let end = self.tokens.len() + rest.len();
        let context = self.backbone.context().unwrap_or(usize::MAX);
        let turns = self.backbone.rereads_beyond().unwrap_or(usize::MAX);
        if ahead.state.position + rest.len() > context || (self.tokens.len() <= turns && end > turns) {
            for pair in tokens.windows(2) {
                ahead.push(pair[0])?;
                sum += log_probability(&ahead.logits()?, pair[1]);
            }
            return Ok(sum);
        }
        ahead.state.length = end;
        for (part, targets) in tokens[..rest.len()].chunks(PART).zip(rest.chunks(PART)) {
            let [part, targets] = [part, targets].map(|ids| Tensor::from_vec(ids.to_vec(), [1, ids.len()]));
            let (part, targets) = (part?, targets?);
            let places: Vec<usize> = (0..targets.elements()).collect();
            let pass = &mut Pass::streaming(&mut ahead.state);
            let scores = self.backbone.scores(&part, &targets, &places, self.adapters, pass)?;
            sum -= scores.nll.iter().sum::<f64>();
        }
        Ok(sum)
    }

    /// The next token.
    ///
    /// # Errors
    /// Those of the operators, and when the logits are not finite.
    pub fn step(&mut self) -> Result<u32> {
        let logits = self.logits()?;
        if let Some(id) = logits.iter().position(|x| x.is_nan()) {
            return Err(Error::invalid("generation", format!("the logit of token {id} is not a number")));
        }
        let token = self.sampling.choose(&logits, &self.tokens, self.random.uniform(self.drawn));
        self.drawn += 1;
        self.push(token)?;
        Ok(token)
    }
}

/// The logarithm of the softmax of `logits` at `token`.
fn log_probability(logits: &[f32], token: u32) -> f64 {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|&logit| f64::from(logit - top).exp()).sum();
    f64::from(logits[token as usize] - top) - total.ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TinyGpt, TinyGptConfig};

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
        let say = |prompt: &[u32], sampling| {
            Generator::new(&model, &none, prompt, sampling).err().expect("an error").to_string()
        };
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
}
