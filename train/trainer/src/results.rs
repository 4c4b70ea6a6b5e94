//! What a run leaves behind, as types: the lines of `metrics.jsonl` ([`Event`]) and `result.json` ([`RunResult`]).
//!
//! Everything that is drawn or compared later (progress, reports, tables) is read back through these types, so they
//! only grow: a new field is optional or has a default, a new metric is a new name in [`Scores::metrics`].

mod events;
mod not_finite;

pub use events::{Communication, Event, LayerState};
pub use not_finite::Diverged;
pub(crate) use not_finite::{curve, figure};

use hankel_models::adapters::Exactness;
use not_finite::{figures, list};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the layout of `result.json` and `metrics.jsonl`; raised when a reader of older files would be misled.
pub const SCHEMA: u32 = 1;

/// The stage in which all backbone parameters are trained before they are frozen.
pub const PRETRAIN: &str = "pretrain";

/// Names of metrics in [`Scores::metrics`].
pub mod metric {
    /// Mean cross entropy per target token, in nats, without label smoothing.
    pub const LOSS: &str = "loss";
    /// Share of the target tokens (or answers) predicted exactly.
    pub const ACCURACY: &str = "accuracy";
    /// Mean loss on the task of `[forgetting]` with an adapter less that without, in nats: what the model has forgotten of it.
    pub const FORGETTING: &str = "forgetting";
    /// Share of the tokens of answers that are the most probable ones, each given the right answer before it.
    pub const TOKEN_ACCURACY: &str = "token_accuracy";
    /// True cross entropy per byte in bits: `loss / ln 2` of a byte-level task.
    pub const BITS_PER_CHARACTER: &str = "bits_per_character";
    /// `exp(loss)` of plain text: as if so many tokens were equally probable.
    pub const PERPLEXITY: &str = "perplexity";
    /// Cross entropy of plain text in bits per byte, the tokens that end documents included: comparable between tokenizers.
    pub const BITS_PER_BYTE: &str = "bits_per_byte";
    /// `loss / ln 2` of a task on events, such as those of a piano performance.
    pub const BITS_PER_EVENT: &str = "bits_per_event";
    /// Label-smoothed cross entropy in nats; present when smoothing is on.
    pub const LABEL_SMOOTHED_LOSS: &str = "label_smoothed_loss";
    /// Share of the pairs whose chosen answer has the larger reward.
    pub const REWARD_ACCURACY: &str = "reward_accuracy";
    /// Mean reward of the chosen answers beyond that of the rejected ones.
    pub const REWARD_MARGIN: &str = "reward_margin";
    /// Mean reward of the chosen answers.
    pub const REWARD_CHOSEN: &str = "reward_chosen";
    /// Mean reward of the rejected answers.
    pub const REWARD_REJECTED: &str = "reward_rejected";
    /// `label_smoothed_loss / ln 2`: what the released code prints as bits per character.
    pub const LABEL_SMOOTHED_BITS: &str = "label_smoothed_bits_per_character";
    /// Prefix of accuracies by quarter of the sequence: `accuracy_quarter_1` ... `accuracy_quarter_4`.
    pub const ACCURACY_QUARTER: &str = "accuracy_quarter_";
    /// Prefix of accuracies over the first targets of every sequence: `accuracy_to_64` over 64 of them.
    pub const ACCURACY_TO: &str = "accuracy_to_";

    /// Those of which a smaller value is better; of every metric of texts a larger one is.
    const SMALLER_IS_BETTER: [&str; 8] = [
        LOSS,
        LABEL_SMOOTHED_LOSS,
        FORGETTING,
        PERPLEXITY,
        BITS_PER_CHARACTER,
        BITS_PER_BYTE,
        BITS_PER_EVENT,
        LABEL_SMOOTHED_BITS,
    ];

    /// Whether a larger value of the metric is better (an accuracy, a ROUGE) or a smaller one (a loss, bits).
    pub fn larger_is_better(name: &str) -> bool {
        !SMALLER_IS_BETTER.contains(&name)
    }
}

/// Part of the data that a figure was measured on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// What the parameters are fitted to.
    Train,
    /// Scored during training.
    Validation,
    /// Scored once, at the end.
    Test,
}

impl Split {
    /// The name used in files and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Split::Train => "train",
            Split::Validation => "validation",
            Split::Test => "test",
        }
    }
}

/// Figures of one evaluation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Metric name (see [`metric`]) to value. One that is not finite is `null` in a file, and not a number when it is read back.
    #[serde(deserialize_with = "figures")]
    pub metrics: BTreeMap<String, f64>,
    /// Number of target tokens with a weight above zero.
    pub tokens: u64,
    /// Number of sequences.
    pub sequences: u64,
}

impl Scores {
    /// The value of a metric, if it was measured.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.metrics.get(name).copied()
    }
}

/// `result.json`: the final figures of a run and everything needed to judge them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// Name of the run.
    pub name: String,
    /// Seed of the run.
    pub seed: u64,
    /// Task and what is known about its difficulty without any training.
    pub task: TaskResult,
    /// The backbone and, if it was pretrained here, its figures.
    pub backbone: BackboneResult,
    /// One row per trained adapter, then (behind it) one per truncated version and per probe of it. `none` is a row too.
    pub rows: Vec<AdapterResult>,
    /// Adapters that have no row, since their training came to a value that is not finite.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diverged: Vec<Diverged>,
    /// Software and hardware.
    pub environment: Environment,
    /// Data files with their hashes.
    pub data: Vec<DataFile>,
    /// Files of the model, its tokenizers and adapters, called by what they are, each with the SHA-256 of 64 samples.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub model_files: Vec<DataFile>,
    /// Seconds of wall time, resumed parts included.
    pub wall_time_seconds: f64,
    /// Largest resident set of the process in bytes, where the system reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// Largest part of it that is not pages of mapped files, which the system can drop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_anonymous_bytes: Option<u64>,
    /// Most bytes that tensors took on a GPU at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_device_bytes: Option<u64>,
}

/// The task of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskResult {
    /// `dfa`, `parity`, `bytes` ...
    pub kind: String,
    /// The metric by which rows are compared (see [`metric`]).
    pub primary_metric: String,
    /// Length of a training sequence.
    pub sequence_length: usize,
    /// Vocabulary size.
    pub vocabulary: usize,
    /// One line of description.
    pub description: String,
    /// What predictors that need no training reach in `primary_metric`, by name: `constant`; the best that see the last 0 to 8
    /// symbols, `window_0` ..., exact; those counted on the training part that see up to 3 tokens, `order_0` ... `order_3`, on
    /// validation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub baselines: BTreeMap<String, f64>,
    /// The transition table of a run with one fixed table: `[state][symbol]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transition_table: Option<Vec<Vec<u32>>>,
}

/// The backbone of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BackboneResult {
    /// `tiny_gpt`, `decoder` ...
    pub kind: String,
    /// `random`, `pretrained here`, or the directory it was loaded from.
    pub source: String,
    /// Number of values of the backbone, embeddings and head included.
    pub parameters: u64,
    /// Number of layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Figures after pretraining, when it happened in this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pretrain: Option<TrainingResult>,
}

/// What a stage of training cost and reached.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainingResult {
    /// Optimizer steps.
    pub steps: u64,
    /// Sequence positions processed (batch x length x accumulation x steps).
    pub tokens: u64,
    /// Seconds of training steps, without evaluation.
    pub seconds: f64,
    /// Mean training loss over the last logged steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_loss: Option<f64>,
    /// Which parameters it ended with, where evaluations were compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
    /// The steps that were planned, where it ended early because evaluations became no better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_steps: Option<u64>,
    /// Step and validation loss of the evaluations during training, on the first `eval_sequences` sequences.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "curve")]
    pub curve: Vec<(u64, f64)>,
    /// Of a pretraining that another cell of the sweep did: its name. Steps, tokens and seconds are that cell's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_by: Option<String>,
    /// Validation figures at the end.
    pub validation: Scores,
}

impl TrainingResult {
    /// The step whose parameters it ended with.
    pub fn kept_step(&self) -> u64 {
        self.kept.as_ref().map_or(self.steps, |kept| kept.step)
    }
}

/// The evaluation whose parameters a stage ended with: the best one during training, on the first `eval_sequences` sequences of
/// the validation split.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Its step.
    pub step: u64,
    /// The metric that was compared: the task's primary one, or the loss where that is measured at the end only.
    pub metric: String,
    /// Its value.
    #[serde(deserialize_with = "figure")]
    pub value: f64,
    /// The value after the last step.
    #[serde(deserialize_with = "figure")]
    pub last: f64,
    /// Number of evaluations compared.
    pub evaluations: u64,
}

/// Numbers of values by role. `adapter` is what the comparison at equal parameters counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParameterCounts {
    /// Values of the adapter (trainable or with a frozen gate), without what it starts from.
    pub adapter: u64,
    /// Trained values of the head.
    pub head: u64,
    /// Trained values of embeddings.
    pub embeddings: u64,
    /// Trained values of the rest of the backbone.
    pub backbone: u64,
    /// All trained values.
    pub trainable: u64,
    /// All values that are held fixed.
    pub frozen: u64,
}

/// One row of the comparison.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AdapterResult {
    /// Name of the row: the adapter's name, with a suffix for a truncated version (`hrm-truncated`).
    pub name: String,
    /// `hrm`, `lora`, `none` ...
    pub kind: String,
    /// Directory of the adapter, relative to the run directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// For a truncated version: the name of the full adapter's row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated_from: Option<String>,
    /// For a truncated version: the rule (`epsilon = 0.01`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncation_rule: Option<String>,
    /// For a probe: the name of the row of the adapter as it was trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probed_from: Option<String>,
    /// For a probe: what was held (`gate = 0.1`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<String>,
    /// Numbers of values.
    pub parameters: ParameterCounts,
    /// Cost of training, absent for rows that were not trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<TrainingResult>,
    /// Figures on the validation split.
    pub validation: Scores,
    /// Figures on the test split, if the task has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<Scores>,
    /// How the recurrence is evaluated (`fft`, `sequential`, `chunked`), for recurrent adapters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan: Option<String>,
    /// One entry per adapted site.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerResult>,
    /// Settings of the adapter in a few words (`d = 32, paper`, `r = 16, q_proj v_proj`).
    #[serde(default)]
    pub settings: String,
}

impl AdapterResult {
    /// The row of the trained adapter that this one is a version of: truncated, or probed.
    pub fn derived_from(&self) -> Option<&str> {
        self.truncated_from.as_deref().or(self.probed_from.as_deref())
    }
}

/// What is known of an adapted layer at the end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LayerResult {
    /// Layer number, from 0.
    pub layer: usize,
    /// Site (`mlp`, `attention`, `q_proj` ...).
    pub site: String,
    /// State dimension or rank.
    pub order: usize,
    /// The gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<f64>,
    /// Size of what the adapter adds to the stream beside the stream: `||gate y|| / ||h||`, both root mean squares over the
    /// tokens of the validation split up to the last target of each sequence. For adapters with a gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contribution: Option<f64>,
    /// How exactly the recurrence is evaluated, if `exactness` was configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exactness: Option<Exactness>,
    /// Hankel singular values of `gate * C` (R6), largest first; of the full system also in a truncated row.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "list")]
    pub hankel_singular_values: Vec<f64>,
    /// Largest pole radius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spectral_radius: Option<f64>,
    /// Square of the cosine between the direction of the state that B drives most, its first left singular vector, and the state of the
    /// largest Hankel singular value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_alignment: Option<f64>,
    /// Truncated rows: twice the sum of the discarded Hankel singular values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_bound: Option<f64>,
    /// Truncated rows: measured H-infinity error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hinf_error: Option<f64>,
    /// Truncated rows: H2 error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub h2_error: Option<f64>,
    /// Truncated rows: H-infinity norm of the full system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hinf_norm: Option<f64>,
    /// Truncated rows of adapters that vary in time: relative error of the output measured on held-out data, not a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_error: Option<f64>,
}

/// Software and hardware of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of the software.
    pub hankel: String,
    /// Commit that the program was built from, where that is known; ends in `-dirty` when tracked files differed from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Operating system and architecture, for example `linux x86_64`.
    pub platform: String,
    /// Name of the processor, where the system tells it.
    pub cpu: String,
    /// Instruction sets the kernels may use (`avx2`, `fma`, `neon` ...).
    pub cpu_features: Vec<String>,
    /// Threads used, by one process.
    pub threads: usize,
    /// Processes, where they were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<usize>,
    /// Bytes of main memory, where the system tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Device that computed (`cpu`, `gpu (NAME)`), the last one if there were several.
    pub device: String,
    /// `f32`, `bf16` ...
    pub precision: String,
}

/// A file that figures depend on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFile {
    /// As given in the configuration.
    pub path: String,
    /// Size of the file in bytes, as stored.
    pub bytes: u64,
    /// SHA-256 of the stored file, hexadecimal.
    pub sha256: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_tagged_and_come_back_equal() {
        let scores = Scores { metrics: BTreeMap::from([(metric::LOSS.to_string(), 1.25)]), tokens: 640, sequences: 10 };
        let event = Event::Eval { stage: "hrm".into(), step: 7, split: Split::Validation, scores, seconds: 0.5 };
        let line = serde_json::to_string(&event).unwrap();
        assert!(line.starts_with(r#"{"event":"eval","stage":"hrm","step":7,"split":"validation""#), "{line}");
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
    }

    #[test]
    fn what_is_not_finite_can_be_read_back() {
        let metrics = [(metric::LOSS, f64::INFINITY), (metric::ACCURACY, 0.5)].map(|(name, x)| (name.to_owned(), x));
        let scores = Scores { metrics: metrics.into(), ..Scores::default() };
        let read: Scores = serde_json::from_str(&serde_json::to_string(&scores).unwrap()).unwrap();
        assert!(read.metrics[metric::LOSS].is_nan() && read.metrics[metric::ACCURACY] == 0.5);
        let initial = Event::Initial {
            stage: "hrm".into(),
            sequences: 1,
            loss: f64::NAN,
            backbone_loss: 1.0,
            contribution: Some(f64::NAN),
        };
        let read: Event = serde_json::from_str(&serde_json::to_string(&initial).unwrap()).unwrap();
        assert!(matches!(read, Event::Initial { loss, backbone_loss: 1.0, contribution: None, .. } if loss.is_nan()));
        let state = LayerState { pole_range: Some((f64::NAN, 0.5)), ..LayerState::default() };
        let read: LayerState = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
        assert!(matches!(read.pole_range, Some((low, 0.5)) if low.is_nan()));
        let deviation = hankel_models::adapters::Deviation { absolute: f64::NAN, relative: 0.5 };
        let read: hankel_models::adapters::Deviation =
            serde_json::from_str(&serde_json::to_string(&deviation).unwrap()).unwrap();
        assert!(read.absolute.is_nan() && read.relative == 0.5);
    }

    #[test]
    fn direction_of_metrics() {
        assert!(metric::larger_is_better(metric::ACCURACY));
        assert!(metric::larger_is_better("rouge1"));
        assert!(metric::larger_is_better("glossary_f1"), "a part of a name says nothing");
        assert!(!metric::larger_is_better(metric::LABEL_SMOOTHED_LOSS));
        assert!(!metric::larger_is_better(metric::BITS_PER_CHARACTER));
        assert!(!metric::larger_is_better(metric::FORGETTING));
    }
}
