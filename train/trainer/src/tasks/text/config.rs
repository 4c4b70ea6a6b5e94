//! Settings of the tasks on texts, one kind for each of the [formats](super::formats).

use super::Text;
use super::formats::TextFormat;
use super::template::Template;
use super::turns;
use crate::metrics::TextMetric;
use crate::settings::Paths;
use crate::settings::check::Checks;
use crate::tasks::settings::{TaskSettings, TokenKind};
use crate::tasks::{Task, TaskError, tokenizer};
use hankel_models::{Tokenizer, TurnStart};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Tokens of a generated answer, as released.
pub(super) const DEFAULT_NEW_TOKENS: usize = 128;
/// The field of one's own lines that is cut, where nothing says which.
pub(super) const DOCUMENT: &str = "prompt";
/// `beta` of direct preference optimization, as TRL has it.
pub(super) const DEFAULT_BETA: f64 = 0.1;

/// Which part of a document is cut out when the whole does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Truncation {
    /// The middle: beginning and end stay.
    #[default]
    Middle,
    /// The beginning.
    Head,
    /// The end.
    Tail,
}

/// How the messages of a conversation are written, by role: `{content}` is the message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Roles {
    /// Instructions for the whole conversation.
    pub system: String,
    /// What the user says.
    pub user: String,
    /// What is learned.
    pub assistant: String,
}

impl Default for Roles {
    fn default() -> Self {
        Roles {
            system: "{content}\n\n".to_owned(),
            user: "[INST] {content} [/INST]".to_owned(),
            assistant: " {content}".to_owned(),
        }
    }
}

/// Answers to questions about documents. The loss is on the answers alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TextConfig {
    /// The format of the files, `task.kind`.
    #[serde(skip)]
    pub format: &'static TextFormat,
    /// Files of training examples, JSON lines (NarrativeQA's questions: also CSV); gzip is recognised by its content.
    pub path: Paths,
    /// Files of validation examples; a share of the documents of `path` when not given. Their documents are taken out of
    /// the training examples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_path: Option<Paths>,
    /// Files of test examples; their documents are taken out of training and validation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_path: Option<Paths>,
    /// NarrativeQA: divide as published, by the column `set` of `path` (train, valid, test).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub official_split: bool,
    /// NarrativeQA: the texts of the documents (stories or summaries), or directories with a file per document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<Paths>,
    /// Directory with `tokenizer.json`, or that file; beside the backbone's weights when not given.
    pub tokenizer: Option<PathBuf>,
    /// Longest sequence in tokens, question, document and answer together.
    #[serde(default = "TextConfig::default_length")]
    pub length: usize,
    /// Which part of a document is cut out when it does not fit.
    #[serde(default)]
    pub truncation: Truncation,
    /// What the model reads before it answers; `{name}` stands for a field of the example.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// What it learns to write, followed by the token that ends a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// `jsonl`: the field that is cut when an example does not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
    /// `jsonl`: how conversations are written, instead of by the model's chat template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<Roles>,
    /// `jsonl`: variables of the model's chat template, such as `enable_thinking` or `date_string`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub chat_template_kwargs: Option<BTreeMap<String, toml::Value>>,
    /// Text that begins a turn, `<|im_start|>user` say: attention and positions start afresh at each but the first,
    /// and what was said before is known by what stream adapters remember alone. Not given: attention reads the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_start: Option<String>,
    /// `dpo`: beta of the DPO loss; the larger it is, the closer the model stays to the reference. 0.1 when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beta: Option<f64>,
    /// Share of the documents that are held out for validation.
    #[serde(default = "TextConfig::default_share")]
    pub validation_share: f64,
    /// Seed of the division into training and validation; the run's seed if not given.
    #[serde(default)]
    pub data_seed: Option<u64>,
    /// Training examples that are used; all when not given. Those left out are drawn by `data_seed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_sequences: Option<usize>,
    /// Validation examples that are used; all when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_sequences: Option<usize>,
    /// Test examples that are used; all when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_sequences: Option<usize>,
    /// Lay the examples of a batch end to end instead of padding them to equal length. It changes no figure, only the time.
    #[serde(default = "TextConfig::default_pack")]
    pub pack: bool,
    /// Tokens of an answer that is generated, at most; 128 when not given, for LongBench what it says for each data set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_new_tokens: Option<usize>,
    /// Divides the positive and multiplies the negative logits of tokens that were read or written already; 1 for none.
    /// When not given 1.3, as released, for QMSum and NarrativeQA, and 1 for the others.
    #[serde(default)]
    pub repetition_penalty: Option<f64>,
    /// An answer ends before any of these.
    #[serde(default)]
    pub stop: Vec<String>,
    /// Metrics of generated answers; those usual for the kind when not given. `[]`: nothing is generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Vec<String>>,
}

impl TextConfig {
    /// Values of `task.kind`.
    pub(in crate::tasks) const KINDS: &[&str] = &TextFormat::NAMES;

    fn default_length() -> usize {
        4096
    }
    pub(super) fn default_share() -> f64 {
        0.1
    }
    fn default_pack() -> bool {
        true
    }

    /// Whether answers are generated in evaluations.
    pub fn generates(&self) -> bool {
        match &self.metrics {
            Some(names) => !names.is_empty(),
            None => self.format.figure.is_some() || !self.format.metrics.is_empty(),
        }
    }

    /// The metrics of generated answers.
    ///
    /// # Panics
    /// Never after the check of the configuration.
    pub fn text_metrics(&self) -> Vec<TextMetric> {
        match &self.metrics {
            Some(names) => names.iter().filter_map(|name| name.parse().ok()).collect(),
            None => self.format.metrics.to_vec(),
        }
    }
}

impl TaskSettings for TextConfig {
    fn kind(&self) -> &'static str {
        self.format.name
    }

    fn set_kind(&mut self, kind: &'static str) {
        self.format = TextFormat::named(kind).unwrap_or_default();
    }

    fn sequence_length(&self) -> usize {
        self.length
    }

    fn has_pairs(&self) -> bool {
        self.format.has_pairs
    }

    fn token_kind(&self) -> TokenKind {
        TokenKind::TokenizerIds
    }

    fn set_default_tokenizer(&mut self, model: &Path) {
        self.tokenizer.get_or_insert_with(|| model.to_owned());
    }

    fn tokenizer(&self) -> Option<&Path> {
        self.tokenizer.as_deref()
    }

    fn has_turns(&self) -> bool {
        self.turn_start.is_some()
    }

    fn turn_start(&self) -> Result<Option<TurnStart>, TaskError> {
        if self.turn_start.is_none() {
            return Ok(None);
        }
        let tokenizer = Tokenizer::load(&tokenizer::place(self.tokenizer.as_deref())).map_err(TaskError::Tokenizer)?;
        turns::start(self, &tokenizer)
    }

    fn build(&self) -> Result<Box<dyn Task>, TaskError> {
        Ok(Box::new(Text::open(self)?))
    }

    fn build_on(&self, file: &Path) -> Result<Box<dyn Task>, TaskError> {
        Ok(Box::new(Text::open_on(self, file)?))
    }

    /// Size of the tokenizer's vocabulary; 0 when it cannot be read, which `check` reports.
    fn vocabulary(&self) -> usize {
        tokenizer::vocabulary(self.tokenizer.as_deref())
    }

    fn check_model(&self, vocabulary: usize, checks: &mut Checks<'_>) {
        tokenizer::check_model(self.vocabulary(), vocabulary, checks);
    }

    /// Writes out what defaults to something of the run or the kind.
    fn resolve(&mut self, seed: u64) -> Result<Option<String>, (&'static str, String)> {
        self.data_seed.get_or_insert(seed);
        let format = self.format;
        if let Some(prompt) = format.prompt {
            self.prompt.get_or_insert_with(|| prompt.to_owned());
        }
        self.answer.get_or_insert_with(|| format.answer.to_owned());
        self.repetition_penalty.get_or_insert(format.repetition_penalty);
        if !format.names_data_sets() && self.generates() {
            self.max_new_tokens.get_or_insert(DEFAULT_NEW_TOKENS);
        }
        let names = || format.metrics.iter().map(|metric| metric.name().to_owned()).collect();
        // The others have figures of their own, which no list names.
        if !format.metrics.is_empty() {
            self.metrics.get_or_insert_with(names);
        }
        if format.takes("beta") {
            self.beta.get_or_insert(DEFAULT_BETA);
        }
        if format.takes("document") {
            self.document.get_or_insert_with(|| DOCUMENT.to_owned());
        }
        Ok(None)
    }

    fn check(&self, checks: &mut Checks<'_>) {
        let format = self.format;
        checks.require("path", !self.path.0.is_empty(), || "must name a file".to_owned());
        for (key, given) in [
            ("documents", self.documents.is_some()),
            ("official_split", self.official_split),
            ("document", self.document.is_some()),
            ("roles", self.roles.is_some()),
            ("chat_template_kwargs", self.chat_template_kwargs.is_some()),
            ("beta", self.beta.is_some()),
        ] {
            checks.require(key, !given || format.takes(key), || format!("is not for `kind = \"{}\"`", format.name));
        }
        checks.require("chat_template_kwargs", self.chat_template_kwargs.is_none() || self.roles.is_none(), || {
            "and `roles` are both given: [task.roles] stands in place of the chat template".to_owned()
        });
        if let Some(start) = &self.turn_start {
            checks.require("turn_start", !start.is_empty(), || "must not be empty".to_owned());
            checks.require("turn_start", !format.has_pairs, || {
                format!("is not for `kind = \"{}\"`, whose answers are scored whole", format.name)
            });
            checks.require("turn_start", self.pack, || {
                "and `pack = false` are both given: only sequences end to end are divided into turns".to_owned()
            });
        }
        checks.require("documents", self.documents.is_some() || !format.takes("documents"), || {
            "is missing: name the file with the stories or summaries, or the directory with the documents".to_owned()
        });
        for (key, given) in [("validation_path", &self.validation_path), ("test_path", &self.test_path)] {
            checks.require(key, given.is_none() || !self.official_split, || {
                "and `official_split` are both given: keep one".to_owned()
            });
        }
        tokenizer::check(self.tokenizer.as_deref(), checks);
        checks.at_least("length", self.length, 8);
        checks.at_most("length", self.length, 1 << 24);
        let usual = if self.generates() { DEFAULT_NEW_TOKENS } else { 1 };
        let new_tokens = self.max_new_tokens.unwrap_or(usual);
        checks.at_least("max_new_tokens", new_tokens, 1);
        checks.require("max_new_tokens", new_tokens < self.length, || {
            let default = if self.max_new_tokens.is_none() { " (the default)" } else { "" };
            format!(
                "is {new_tokens}{default}, which leaves no room in `length` = {} for a question: lower it, or raise `length`",
                self.length
            )
        });
        checks.positive("beta", self.beta.unwrap_or(DEFAULT_BETA));
        checks.positive("repetition_penalty", self.repetition_penalty.unwrap_or(1.0));
        checks.require("validation_share", self.validation_share > 0.0 && self.validation_share < 1.0, || {
            format!("must be above 0 and below 1, found {}", self.validation_share)
        });
        for (key, value) in
            [("train_sequences", self.train_sequences), ("validation_sequences", self.validation_sequences)]
        {
            checks.at_least(key, value.unwrap_or(1), 1);
        }
        checks.require("stop", self.stop.iter().all(|stop| !stop.is_empty()), || {
            "must not contain an empty text".to_owned()
        });
        for name in self.metrics.iter().flatten() {
            let problem = name.parse::<TextMetric>().err().map(|error| error.to_string());
            checks.require("metrics", problem.is_none(), || format!("cannot be used: {}", problem.unwrap_or_default()));
        }
        for (key, text, fields) in
            [("prompt", &self.prompt, format.prompt_fields), ("answer", &self.answer, format.answer_fields)]
        {
            let problem = text.as_ref().and_then(|text| Template::parse(text, fields).err());
            checks.require(key, problem.is_none(), || problem.map(|e| e.to_string()).unwrap_or_default());
        }
        let answer = self.answer.as_ref().and_then(|text| Template::parse(text, format.answer_fields).ok());
        checks.require("answer", answer.is_none_or(|answer| answer.fields().next().is_some()), || {
            "names no field in braces: the same would be learnt of every example".to_owned()
        });
        // Written out is the default, which conversations and other prompts leave unused.
        if let Some(document) = self.document.as_deref().filter(|name| format.takes("document") && *name != DOCUMENT) {
            let prompt = Template::parse(self.prompt.as_deref().or(format.prompt).unwrap_or_default(), None);
            checks.require("document", prompt.is_ok_and(|prompt| prompt.names(document)), || {
                format!("is {document:?}, which `task.prompt` does not name as {{{document}}}")
            });
        }
        let labels = self.answer.as_ref().and_then(|answer| Template::parse(answer, None).ok());
        checks.require("answer", !format.has_choices || labels.is_none_or(|answer| answer.names("answer")), || {
            "must name {answer}, the label of the right option, by which answers are scored".to_owned()
        });
        if let Some(roles) = &self.roles {
            for (key, text) in
                [("roles.system", &roles.system), ("roles.user", &roles.user), ("roles.assistant", &roles.assistant)]
            {
                let template = Template::parse(text, Some(&["content"]));
                let has_content = template.as_ref().is_ok_and(|template| template.names("content"));
                let problem = template.err();
                checks
                    .require(key, problem.is_none(), || problem.as_ref().map(ToString::to_string).unwrap_or_default());
                // A system message may be meant to go.
                let may_go = key == "roles.system" && text.is_empty();
                checks.require(key, has_content || may_go || problem.is_some(), || {
                    "must have {content} in it, which is what the message says".to_owned()
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::documented::{assert_documented, keys, values};

    #[test]
    fn settings_are_documented() {
        assert_documented(&[keys::<TextConfig>(), keys::<Roles>()], &[values::<Truncation>()]);
    }
}
