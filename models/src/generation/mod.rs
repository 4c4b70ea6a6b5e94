//! Generation: a backbone with its adapters continues a sequence, token by token.
//!
//! Keys and values of attention and the states of recurrences are kept, so that a step reads one token. Only the last
//! position meets the head.

mod sampling;
mod stop;
#[cfg(test)]
mod tests;
mod turns;

pub use sampling::Sampling;
pub use stop::StopFilter;
pub use turns::TurnStart;

use crate::adapters::AdapterSet;
use crate::backbone::Backbone;
use crate::pass::{Pass, State};
use hankel_core::{Device, Error, Random, Result, Tensor, no_grad, trace};
use hankel_ops::narrow_time;
use std::ops::Range;

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
    /// Where attention starts afresh.
    turn_start: Option<TurnStart>,
    /// Where the newest turn begins that the state has read of.
    turn: usize,
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
        Ok(Generator {
            backbone,
            adapters,
            sampling,
            random,
            tokens: prompt.to_vec(),
            read: 0,
            drawn: 0,
            state: State::default(),
            turn_start: None,
            turn: 0,
            next: None,
        })
    }

    /// Reads the sequence turn by turn: at every `start` keys, values and positions are forgotten, and what stream adapters
    /// remember is kept. Memory grows with the longest turn, not with the sequence.
    #[must_use]
    pub fn by_turns(self, start: Option<TurnStart>) -> Self {
        Generator { turn_start: start, ..self }
    }

    /// How many tokens the newest turn has, of those that are there: all of them where there are no turns.
    pub fn turn_length(&self) -> usize {
        let newest = self.turn_start.iter().flat_map(|start| start.later_turns(&self.tokens)).last();
        self.tokens.len() - newest.map_or(0, |turn| turn.start)
    }

    /// The prompt and what has been generated.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Logits of the token that follows.
    ///
    /// Past the last learned position, a model that has such positions starts afresh on the second half of its context, unless the
    /// sequence is read by turns: a turn longer than that is an error.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn logits(&mut self) -> Result<Vec<f32>> {
        if let Some(logits) = &self.next {
            return Ok(logits.clone());
        }
        let later = self.turn_start.iter().flat_map(|start| start.later_turns(&self.tokens)).collect::<Vec<_>>();
        self.prepare(&later);
        let _event = trace::phase(if self.tokens.len() - self.read == 1 { "token" } else { "prompt" });
        let starts: Vec<usize> = later.iter().map(|turn| turn.start).filter(|start| *start >= self.read).collect();
        let unread = starts.iter().copied().filter(|start| *start > self.read);
        let ends: Vec<usize> = unread.chain([self.tokens.len()]).collect();
        let logits = no_grad(|| {
            let mut last = None;
            for end in ends {
                if starts.contains(&self.read) {
                    self.state.begin_turn();
                    self.turn = self.read;
                }
                self.state.length = end - self.turn;
                for part in self.tokens[self.read..end].chunks(PART) {
                    let tokens = Tensor::from_vec(part.to_vec(), [1, part.len()])?;
                    let hidden = self.backbone.hidden(&tokens, self.adapters, &mut Pass::streaming(&mut self.state))?;
                    // At once: the state has read them, whatever becomes of the parts that follow.
                    self.read += part.len();
                    last = Some(narrow_time(&hidden, part.len() - 1, 1)?);
                }
            }
            let last = last.ok_or_else(|| Error::invalid("generation", "there is no token to continue"))?;
            self.backbone.logits_of(&last)
        })?;
        let logits: Vec<f32> = logits.to_device(Device::Cpu)?.to_f64_vec().into_iter().map(|x| x as f32).collect();
        self.next = Some(logits.clone());
        Ok(logits)
    }

    /// Forgets what has been read where it has to be read otherwise now; `later` are the beginnings of turns but the first.
    fn prepare(&mut self, later: &[Range<usize>]) {
        let context = self.backbone.context().unwrap_or(usize::MAX);
        if self.turn_start.is_none() && self.state.position + (self.tokens.len() - self.read) > context {
            self.state = State::default();
            let keep = if self.read == 0 { context } else { (context / 2).max(1) };
            self.read = self.tokens.len() - keep.min(self.tokens.len());
        }
        // The start of a turn is recognised by its last token, when the first ones may have been read already.
        let is_late = later.iter().any(|turn| turn.start < self.read && self.read < turn.end);
        let turning = self.backbone.rereads_beyond().unwrap_or(usize::MAX);
        let end = later.iter().map(|turn| turn.start).find(|start| *start > self.turn).unwrap_or(self.tokens.len());
        if is_late || (self.state.position <= turning && end - self.turn > turning) {
            (self.state, self.read, self.turn) = (State::default(), 0, 0);
        }
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
        let turning = self.backbone.rereads_beyond().unwrap_or(usize::MAX);
        let begins_a_turn = self.turn_start.as_ref().is_some_and(|start| {
            let all = [&self.tokens[..], tokens].concat();
            start.later_turns(&all).any(|turn| turn.end > self.tokens.len())
        });
        let is_reread = self.tokens.len() - self.turn <= turning && end - self.turn > turning;
        if ahead.state.position + rest.len() > context || is_reread || begins_a_turn {
            for pair in tokens.windows(2) {
                ahead.push(pair[0])?;
                sum += log_probability(&ahead.logits()?, pair[1]);
            }
            return Ok(sum);
        }
        ahead.state.length = end - self.turn;
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
        // A logit of -inf is a token that is never chosen.
        if let Some(id) = logits.iter().position(|x| x.is_nan() || *x == f32::INFINITY) {
            return Err(Error::invalid("generation", format!("the logit of token {id} is {}", logits[id])));
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
