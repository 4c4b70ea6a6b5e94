//! `[train]`, `[pretrain]` and `[adapter.train]`: how long and with which optimizer.

use crate::format::counted;
use crate::settings::check::Checks;
use crate::tasks::TaskConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Course of the learning rate after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Half a cosine, down to 0.
    #[default]
    Cosine,
    /// A straight line, down to 0.
    Linear,
    /// No change.
    Constant,
}

/// Which parameters a training ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// Those of the evaluation that was best on the validation split; the last ones where nothing was evaluated.
    #[default]
    Best,
    /// Those of the last step.
    Last,
}

/// Settings of a training loop with AdamW.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// Optimizer steps; with 0 nothing is trained, and every row is evaluated as it is.
    pub steps: Option<u64>,
    /// Passes over the training sequences, instead of `steps`; written out as steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<f64>,
    /// Sequences in a batch.
    pub batch_size: usize,
    /// Batches whose gradients make one step, weighted by their tokens.
    pub accumulation: usize,
    /// Sequences of a batch that go forwards and backwards at once; their gradients are added up. Fewer need less memory for
    /// activations. As many as memory is well spent on when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_batch_size: Option<usize>,
    /// Tokens over which gradients flow back: longer sequences are run in parts of this length, the state (of recurrences,
    /// and what attention sees) carried from part to part. Whole sequences when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk: Option<usize>,
    /// Peak learning rate.
    pub lr: f64,
    /// Peak learning rate of decay rates (`log_a`, `log_dt`); `lr` when not given.
    pub rate_lr: Option<f64>,
    /// Peak learning rate of gates; `lr` when not given.
    pub gate_lr: Option<f64>,
    /// Decoupled weight decay of matrices; vectors, norms, gates and rates have none.
    pub weight_decay: f64,
    /// Decay of the first and second moment.
    pub betas: [f64; 2],
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Largest global gradient norm; 0 turns clipping off.
    pub clip: f64,
    /// Course of the learning rate after the warm-up.
    pub schedule: Schedule,
    /// Steps in which the learning rate rises from 0.
    pub warmup_steps: Option<u64>,
    /// The same as a share of the steps, instead of `warmup_steps`; written out as steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup_ratio: Option<f64>,
    /// Probability mass spread over the vocabulary in the training loss.
    pub label_smoothing: f64,
    /// Steps whose losses and gradient norms stay on a GPU and are read together, which is when their log lines are written and
    /// one that is not finite is found. On the CPU every step is read at once.
    pub read_every: u64,
    /// Steps between log lines.
    pub log_every: Option<u64>,
    /// Steps between evaluations.
    pub eval_every: Option<u64>,
    /// Validation sequences scored during training (the final evaluation takes all).
    pub eval_sequences: usize,
    /// Sequences in a batch of an evaluation; `batch_size` when not given.
    pub eval_batch_size: Option<usize>,
    /// Steps between checkpoints.
    pub checkpoint_every: Option<u64>,
    /// Newest checkpoints of the run that are kept.
    pub keep_checkpoints: usize,
    /// Which parameters the training ends with: `best` on the validation split, or `last`.
    pub keep: Keep,
    /// Evaluations in a row without a better one after which the training ends early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<u64>,
}

impl Default for TrainConfig {
    fn default() -> Self {
        TrainConfig {
            steps: None,
            epochs: None,
            batch_size: 32,
            accumulation: 1,
            micro_batch_size: None,
            chunk: None,
            lr: 3e-3,
            rate_lr: None,
            gate_lr: None,
            weight_decay: 0.01,
            betas: [0.9, 0.999],
            eps: 1e-8,
            clip: 1.0,
            schedule: Schedule::Cosine,
            warmup_steps: None,
            warmup_ratio: None,
            label_smoothing: 0.0,
            read_every: 10,
            log_every: None,
            eval_every: None,
            eval_sequences: 256,
            eval_batch_size: None,
            checkpoint_every: None,
            keep_checkpoints: 2,
            keep: Keep::Best,
            patience: None,
        }
    }
}

/// `[pretrain]`: every parameter of the backbone is trained, then frozen. Keys left out are those of `[train]`, except
/// the length, which has to be given.
#[derive(Debug, Clone, PartialEq)]
pub struct PretrainConfig {
    /// Another task to pretrain on (`[pretrain.task]`), with the same vocabulary and no longer sequences than the
    /// backbone's context.
    pub task: Option<TaskConfig>,
    /// The training loop.
    pub train: TrainConfig,
}

impl TrainConfig {
    /// Optimizer steps: `steps`, or `epochs` passes over `sequences`, or one pass.
    pub fn steps(&self, sequences: usize) -> u64 {
        let per_step = self.batch_size.saturating_mul(self.accumulation).max(1) as f64;
        let passes = |epochs: f64| ((epochs * sequences as f64 / per_step).round() as u64).max(1);
        self.steps.unwrap_or_else(|| passes(self.epochs.unwrap_or(1.0)))
    }

    /// How many of `sequences` a training of so many passes leaves out where its steps are rounded down, in words, if that is much.
    pub(crate) fn unread(&self, sequences: usize) -> Option<String> {
        /// Share of what is asked for that is enough.
        const ENOUGH: f64 = 0.9;
        let (steps, epochs, at_once) =
            (self.steps(sequences), self.epochs.unwrap_or(1.0), self.batch_size * self.accumulation);
        let (read, asked) = (steps as f64 * at_once as f64, epochs * sequences as f64);
        (self.steps.is_none() && read < ENOUGH * asked).then(|| {
            format!(
                "epochs = {epochs} is rounded to {} of {at_once} sequences, which leaves out {:.0} of {asked:.0}: lower \
                 `train.batch_size`, or set `train.steps`",
                counted(steps as usize, "step"),
                asked - read
            )
        })
    }

    /// That `patience` ends nothing in a training on `sequences`, in words, if it does not.
    pub(crate) fn idle_patience(&self, sequences: usize) -> Option<String> {
        let steps = self.steps(sequences);
        let every = self.eval_every.unwrap_or_else(|| usual_interval(steps));
        (self.patience.is_some() && steps > 0 && every >= steps).then(|| {
            format!(
                "`patience` has no effect: it counts evaluations, of which there is none before the end (`eval_every` is {every}, `steps` \
                 {steps})"
            )
        })
    }

    /// What cannot work in a training on `sequences`, if something cannot: a key, and what is to be said behind it.
    pub fn problem_on(&self, sequences: usize) -> Option<(&'static str, String)> {
        let steps = self.steps(sequences);
        // Whole numbers of TOML are of 64 bits with a sign.
        if i64::try_from(steps).is_err() {
            return Some(("epochs", "makes more steps than can be counted".to_owned()));
        }
        let warmup = self.warmup_steps.filter(|&warmup| warmup > steps)?;
        Some(("warmup_steps", format!("is {warmup}, more than the {steps} steps of the whole training")))
    }

    /// Warm-up steps: as given, a ratio rounded up, as transformers does, but for the last step, or 10 % of the steps and at most 500, as
    /// released.
    pub fn warmup(&self, steps: u64) -> u64 {
        let of_ratio = |ratio: f64| ((ratio * steps as f64).ceil() as u64).min(steps.saturating_sub(1));
        let usual = || ((0.1 * steps as f64).round() as u64).min(500);
        self.warmup_steps.unwrap_or_else(|| self.warmup_ratio.map_or_else(usual, of_ratio))
    }

    /// Writes out every default. What depends on the number of training sequences stays open while that is not known.
    pub fn resolve(&mut self, sequences: Option<usize>) {
        self.rate_lr.get_or_insert(self.lr);
        self.gate_lr.get_or_insert(self.lr);
        self.eval_batch_size.get_or_insert(self.batch_size);
        let Some(steps) = self.steps.or_else(|| sequences.map(|sequences| self.steps(sequences))) else { return };
        let warmup = self.warmup(steps);
        (self.steps, self.epochs) = (Some(steps), None);
        (self.warmup_steps, self.warmup_ratio) = (Some(warmup), None);
        self.log_every.get_or_insert((steps / 100).max(1));
        self.eval_every.get_or_insert(usual_interval(steps));
        self.checkpoint_every.get_or_insert(steps.div_ceil(5).max(1));
    }

    /// Takes the intervals and the warm-up of `other` where its own are those that follow from its steps: a run that goes on for more steps
    /// keeps those that it was begun with.
    pub(super) fn take_intervals(&mut self, other: &Self) {
        let mut usual = Self {
            log_every: None,
            eval_every: None,
            checkpoint_every: None,
            warmup_steps: None,
            warmup_ratio: None,
            ..self.clone()
        };
        usual.resolve(None);
        for (own, usual, other) in [
            (&mut self.log_every, usual.log_every, other.log_every),
            (&mut self.eval_every, usual.eval_every, other.eval_every),
            (&mut self.checkpoint_every, usual.checkpoint_every, other.checkpoint_every),
            (&mut self.warmup_steps, usual.warmup_steps, other.warmup_steps),
        ] {
            if *own == usual {
                *own = other;
            }
        }
    }

    /// Checks the settings of a training on `sequences`, if their number is known.
    pub(super) fn check(&self, sequences: Option<usize>, checks: &mut Checks<'_>) {
        checks.require("epochs", self.steps.is_none() || self.epochs.is_none(), || {
            "and `steps` are both given: keep one".to_owned()
        });
        checks.require("warmup_ratio", self.warmup_steps.is_none() || self.warmup_ratio.is_none(), || {
            "and `warmup_steps` are both given: keep one".to_owned()
        });
        let rates = [("lr", Some(self.lr)), ("rate_lr", self.rate_lr), ("gate_lr", self.gate_lr)];
        for (key, value) in rates {
            checks.not_negative(key, value.unwrap_or(0.0));
        }
        let intervals = [
            ("read_every", Some(self.read_every)),
            ("log_every", self.log_every),
            ("eval_every", self.eval_every),
            ("checkpoint_every", self.checkpoint_every),
        ];
        for (key, value) in intervals {
            checks.at_least(key, value.unwrap_or(1), 1);
        }
        checks.positive("epochs", self.epochs.unwrap_or(1.0));
        let ratio = self.warmup_ratio.unwrap_or(0.0);
        checks.require("warmup_ratio", (0.0..=1.0).contains(&ratio), || format!("must be 0 to 1, found {ratio}"));
        // Steps that are given need no number of sequences.
        let known = sequences.or(self.steps.map(|_| 0));
        if let Some((key, problem)) = known.and_then(|sequences| self.problem_on(sequences)) {
            checks.require(key, false, || problem);
        }
        checks.at_least("batch_size", self.batch_size, 1);
        checks.at_most("batch_size", self.batch_size, 1 << 20);
        checks.at_least("accumulation", self.accumulation, 1);
        checks.at_most("accumulation", self.accumulation, 1 << 20);
        checks.at_least("micro_batch_size", self.micro_batch_size.unwrap_or(1), 1);
        checks.at_least("chunk", self.chunk.unwrap_or(1), 1);
        checks.at_least("eval_batch_size", self.eval_batch_size.unwrap_or(1), 1);
        checks.at_least("eval_sequences", self.eval_sequences, 1);
        checks.at_least("keep_checkpoints", self.keep_checkpoints, 1);
        checks.at_least("patience", self.patience.unwrap_or(1), 1);
        checks.not_negative("weight_decay", self.weight_decay);
        checks.not_negative("clip", self.clip);
        checks.positive("eps", self.eps);
        // The division is in single precision, in which devices may take smaller numbers for 0.
        checks.require("eps", self.eps <= 0.0 || self.eps as f32 >= f32::MIN_POSITIVE, || {
            format!("must be at least 1.2e-38, the smallest number of single precision, found {:e}", self.eps)
        });
        checks.fraction("betas", self.betas[0]);
        checks.fraction("betas", self.betas[1]);
        checks.fraction("label_smoothing", self.label_smoothing);
    }
}

/// Steps from one evaluation to the next where nothing says it.
fn usual_interval(steps: u64) -> u64 {
    steps.div_ceil(10).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_without_an_evaluation_is_told() {
        let config = |eval_every, steps| TrainConfig { patience: Some(2), eval_every, steps, ..TrainConfig::default() };
        for (idle, config) in [
            (true, config(Some(100), Some(100))),
            (true, config(Some(1000), None)),
            (true, config(None, Some(1))),
            (false, config(Some(99), Some(100))),
            (false, config(None, Some(2))),
            (false, config(None, Some(0))),
            (false, TrainConfig { patience: None, ..config(Some(100), Some(100)) }),
        ] {
            assert_eq!(config.idle_patience(640).is_some(), idle, "{config:?}");
        }
    }

    #[test]
    fn what_rounding_leaves_out_is_told_if_it_is_much() {
        let passes = |epochs: f64| TrainConfig { epochs: Some(epochs), batch_size: 32, ..TrainConfig::default() };
        let told = passes(1.0).unread(47).unwrap();
        assert!(
            told.starts_with("epochs = 1 is rounded to 1 step of 32 sequences, which leaves out 15 of 47: "),
            "{told}"
        );
        for (config, sequences) in [(passes(1.0), 64), (passes(1.0), 49), (passes(10.0), 47)] {
            assert_eq!(config.unread(sequences), None, "{sequences}");
        }
        assert_eq!(TrainConfig { steps: Some(1), ..passes(1.0) }.unread(47), None);
    }

    #[test]
    fn trainings_that_cannot_be() {
        let config = TrainConfig { warmup_steps: Some(100), batch_size: 32, ..TrainConfig::default() };
        let (key, problem) = config.problem_on(1000).unwrap();
        assert_eq!((key, &problem[..]), ("warmup_steps", "is 100, more than the 31 steps of the whole training"));
        assert_eq!(config.problem_on(10_000), None);
        let endless = TrainConfig { epochs: Some(1e17), ..TrainConfig::default() };
        assert_eq!(endless.problem_on(10_000).unwrap().0, "epochs");
    }

    #[test]
    fn epochs_and_warmup_in_steps() {
        let mut config = TrainConfig { epochs: Some(25.0), batch_size: 32, ..TrainConfig::default() };
        assert_eq!(config.steps(10_000), 7813);
        assert_eq!(config.warmup(7813), 500);
        assert_eq!(config.warmup(1000), 100);
        config.warmup_ratio = Some(0.03);
        assert_eq!([1, 10, 100, 150].map(|steps| config.warmup(steps)), [0, 1, 3, 5]);
        config.accumulation = 2;
        config.resolve(Some(10_000));
        assert_eq!((config.steps, config.epochs, config.warmup_steps), (Some(3906), None, Some(118)));
    }
}
