//! Prompts of lines that need no answer, laid out as the examples of a run are.

use super::config::{DEFAULT_NEW_TOKENS, TextConfig};
use super::document::Example;
use super::formats::{CONVERSATIONS, is_answer, is_blank, is_nothing, joined, jsonl, record, with_chosen};
use super::layout::{Layout, Names};
use super::lines::Problems;
use super::records::each_record;
use super::render::Renderer;
use super::template::Template;
use super::turns;
use crate::results::DataFile;
use crate::settings::Paths;
use crate::tasks::settings::TaskSettings;
use crate::tasks::{TaskConfig, TaskError, tokenizer};
use hankel_models::{Tokenizer, TurnStart};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// What stands for an answer that is not known: it is never read.
pub(super) const UNKNOWN: &str = "-";

/// What says how long answers may be, unless a run does.
const OPTION: &str = "`--max-tokens`";
/// What says how long a sequence of a run may be.
const LENGTH: &str = "`task.length`";

/// Tokens of an answer, at most, where nothing says it: of short sequences most is left to the prompt, as in training.
fn usual_new_tokens(length: usize) -> usize {
    DEFAULT_NEW_TOKENS.min(length / 4).max(1)
}

/// The turn of the assistant's that is to be written.
fn unknown() -> Value {
    json!({ "role": "assistant", "content": UNKNOWN })
}

/// Whether the answers of the first pair in the files of a run are lists of messages. What is not there any more tells nothing.
fn pairs_are_conversations(paths: &Paths) -> bool {
    let first = |path: &PathBuf| {
        let (mut first, mut problems) = (None, Problems::default());
        let _ = each_record("", path, &mut problems, |_, record| {
            first.get_or_insert_with(|| record["chosen"].is_array());
            Ok(())
        });
        first
    };
    let found = paths.0.iter().find_map(first);
    if found.is_none() {
        tell!(
            "note: the pairs that the run was trained on are not there: a `prompt` that is a text is read as it stands"
        );
    }
    found.unwrap_or(false)
}

/// The rules by which a line becomes a prompt.
pub struct Prompts {
    layout: Layout,
    renderer: Renderer,
    turn_start: Option<TurnStart>,
    /// Fields that the answer's template names.
    answer: Vec<String>,
    /// Whether lines may be pairs of answers.
    has_pairs: bool,
    /// Whether those pairs were conversations.
    has_conversations: bool,
    new_tokens: usize,
}

/// The records of a file with their places, and what is wrong with others.
pub struct Records {
    /// Number (from 1) and content.
    pub records: Vec<(usize, Value)>,
    /// Size and checksum.
    pub file: DataFile,
    /// What cannot be used.
    pub problems: Problems,
}

impl Records {
    /// Reads a file: JSON lines, an array of objects, or a table with a header.
    ///
    /// # Errors
    /// When it cannot be read or is empty.
    pub fn read(path: &Path) -> Result<Self, TaskError> {
        let (mut records, mut problems) = (Vec::new(), Problems::default());
        let file = each_record("", path, &mut problems, |place, record| {
            records.push((place, record.clone()));
            Ok(())
        })?;
        Ok(Records { records, file, problems })
    }
}

/// A line as the model reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// What the line calls itself, or its place.
    pub id: String,
    /// What the model reads.
    pub ids: Vec<u32>,
    /// Answers that the line gives.
    pub references: Vec<String>,
    /// Whether its document was cut to fit.
    pub is_cut: bool,
}

impl Prompts {
    /// The prompts of a run on texts of the format `jsonl` or `dpo`. Answers have at most `new_tokens` tokens; when not given, the run's
    /// `task.max_new_tokens`, or else the usual number.
    ///
    /// # Errors
    /// When it is of another kind or format, or its tokenizer cannot be used.
    pub fn of_run(task: &TaskConfig, new_tokens: Option<usize>) -> Result<Self, TaskError> {
        let TaskConfig::Text(task) = task else {
            let problem = format!("the run's task is {:?}, which has no prompts", task.kind());
            return Err(TaskError::Unusable(problem));
        };
        match (new_tokens, task.max_new_tokens) {
            (None, Some(of_run)) => {
                Self::of_task(task, of_run, Names { length: LENGTH, new_tokens: "`task.max_new_tokens`" })
            }
            (given, _) => {
                let new_tokens = given.unwrap_or_else(|| usual_new_tokens(task.length));
                Self::of_task(task, new_tokens, Names { length: LENGTH, new_tokens: OPTION })
            }
        }
    }

    /// Those of a configuration, for answers of at most `new_tokens`.
    fn of_task(config: &TextConfig, new_tokens: usize, names: Names) -> Result<Self, TaskError> {
        if !config.format.is_own {
            let name = config.format.name;
            let problem = format!(
                "files of the format {name:?} hold documents with their questions and answers: `train eval --data FILE` \
                 reads them; prompts are lines of `kind = \"jsonl\"`"
            );
            return Err(TaskError::Unusable(problem));
        }
        // The prompts of pairs are those of one's own lines, without the answers.
        let has_pairs = config.format.has_pairs;
        let has_conversations = has_pairs && pairs_are_conversations(&config.path);
        let config = TextConfig {
            format: &jsonl::FORMAT,
            max_new_tokens: Some(new_tokens),
            answer: config.answer.clone().filter(|_| !has_pairs),
            beta: None,
            ..config.clone()
        };
        let tokenizer =
            Tokenizer::load(&tokenizer::place(config.tokenizer.as_deref())).map_err(TaskError::Tokenizer)?;
        let unusable = |error: &dyn std::fmt::Display| TaskError::Unusable(format!("`task` {error}"));
        let answer = config.answer.as_deref().unwrap_or(jsonl::FORMAT.answer);
        let answer = Template::parse(answer, None).map_err(|error| unusable(&error))?;
        let layout = Layout::new(tokenizer, config.length, config.truncation).called(names);
        let turn_start = turns::start(&config, layout.tokenizer())?;
        Ok(Prompts {
            renderer: Renderer::new(&config, layout.tokenizer()).map_err(|error| unusable(&error))?,
            layout,
            turn_start,
            answer: answer.fields().map(str::to_owned).collect(),
            has_pairs,
            has_conversations,
            new_tokens,
        })
    }

    /// Those of a model that reads at most `length` tokens, an answer of at most `new_tokens`, or as many as usual, included; a
    /// line is put into `template`, such as `{prompt}`, and `turn_start` begins a turn.
    ///
    /// # Errors
    /// When the template means nothing, or the tokenizer cannot be used.
    pub fn of_model(
        model: &Path,
        length: usize,
        new_tokens: Option<usize>,
        (template, turn_start): (&str, Option<&str>),
    ) -> Result<Self, TaskError> {
        let config = json!({
            "path": [PathBuf::new()], "tokenizer": model, "length": length, "prompt": template, "turn_start": turn_start,
        });
        let mut config: TextConfig = serde_json::from_value(config).expect("the keys of a task");
        config.path = Paths(Vec::new());
        config.set_kind(jsonl::FORMAT.name);
        config.resolve(0).map_err(|(key, problem)| TaskError::Unusable(format!("`{key}` {problem}")))?;
        let new_tokens = new_tokens.unwrap_or_else(|| usual_new_tokens(length));
        Self::of_task(&config, new_tokens, Names { length: "the model's length", new_tokens: OPTION })
    }

    /// Tokens of an answer, at most.
    pub fn new_tokens(&self) -> usize {
        self.new_tokens
    }

    /// What begins a turn.
    pub fn turn_start(&self) -> Option<TurnStart> {
        self.turn_start.clone()
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        self.layout.tokenizer()
    }

    /// The prompt in `line`, an object, which is called `place` where it has no `id`.
    ///
    /// # Errors
    /// Says what is missing, or that it does not fit.
    pub fn of_line(&self, line: &Value, place: &str) -> Result<Prompt, String> {
        let is_pair = self.has_pairs && ["chosen", "rejected"].iter().all(|key| line.get(key).is_some());
        let mut line = if is_pair { with_chosen(line)? } else { line.clone() };
        if self.has_conversations
            && let Some(asked) = line["prompt"].as_str()
        {
            line["prompt"] = json!([{ "role": "user", "content": asked }]);
        }
        if line["prompt"].is_array() && is_nothing(&line["completion"]) {
            line["completion"] = json!([]);
        }
        line = joined(&line)?.unwrap_or(line);
        let mut is_known = true;
        let conversation = CONVERSATIONS.into_iter().find(|key| line[*key].is_array());
        if let Some(messages) = conversation.and_then(|key| line[key].as_array_mut()) {
            // A blank turn of the assistant's is as good as none.
            let is_open = messages.last().is_some_and(|last| is_answer(last) && is_blank(last));
            if is_open {
                messages.pop();
            }
            if is_open || !messages.last().is_some_and(is_answer) {
                messages.push(unknown());
                is_known = false;
            }
        } else if let Some(fields) = line.as_object_mut() {
            for name in self.answer_fields(fields) {
                if fields.get(name).is_none_or(is_nothing) {
                    fields.insert(name.to_owned(), UNKNOWN.into());
                    is_known = false;
                }
            }
        }
        let question = record(&line, place)?;
        is_known |= !question.references.is_empty();
        let mut example = self.renderer.example(question, self.tokenizer())?;
        let references = if is_known { example.question.references.clone() } else { Vec::new() };
        if is_known && self.objection(&example)?.is_some() {
            // The model does not read the answer: it need not fit.
            self.forget_answer(&mut line);
            example = self.renderer.example(record(&line, place)?, self.tokenizer())?;
        }
        if let Some(problem) = self.objection(&example)? {
            return Err(problem);
        }
        let ids = self.layout.prompt(&example).map_err(|error| error.to_string())?;
        let is_cut = self.layout.is_cut(&example).map_err(|error| error.to_string())?;
        Ok(Prompt { id: example.question.id, ids, references, is_cut })
    }

    fn objection(&self, example: &Example) -> Result<Option<String>, String> {
        let size = self.layout.size(example).map_err(|error| error.to_string())?;
        Ok(self.layout.objection(example, size))
    }

    /// Puts [`UNKNOWN`] in the place of the answer.
    fn forget_answer(&self, line: &mut Value) {
        let conversation = CONVERSATIONS.into_iter().find(|key| line[*key].is_array());
        if let Some(last) =
            conversation.and_then(|key| line[key].as_array_mut()).and_then(|messages| messages.last_mut())
        {
            *last = unknown();
        } else if let Some(fields) = line.as_object_mut() {
            for name in self.answer_fields(fields) {
                fields.insert(name.to_owned(), UNKNOWN.into());
            }
        }
    }

    /// Names of the fields that are the answer of a line.
    fn answer_fields(&self, line: &Map<String, Value>) -> Vec<&str> {
        // Alpaca's `output` is the completion of what its other fields ask.
        let is_instruction =
            line.contains_key("instruction") && !line.contains_key("prompt") && !line.contains_key("completion");
        let answer = self.answer.iter().map(String::as_str);
        answer.map(|name| if is_instruction && name == "completion" { "output" } else { name }).collect()
    }
}
