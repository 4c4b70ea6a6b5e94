//! From questions to what is read and learned.

use super::config::{DEFAULT_NEW_TOKENS, TextConfig};
use super::document::{Document, Example, Piece, Question};
use super::format::TextFormat;
use super::formats::instructions;
use super::lines::among;
use super::template::{Part, Template, TemplateError};
use std::sync::Arc;

/// The templates of a task.
pub(super) struct Renderer {
    format: TextFormat,
    prompt: Option<Template>,
    answer: Template,
    /// System, user, assistant.
    roles: [Template; 3],
    /// The field that is the document.
    document: String,
    new_tokens: Option<usize>,
}

impl Renderer {
    /// The templates of a configuration.
    ///
    /// # Errors
    /// When one of them means nothing.
    pub(super) fn new(config: &TextConfig) -> Result<Self, TemplateError> {
        let format = config.format;
        let own = |text: Option<&str>| text.map(|text| Template::parse(text, format.prompt_fields())).transpose();
        let roles = config.roles.clone().unwrap_or_default();
        let role = |text: &str| Template::parse(text, Some(&["content"]));
        let document = match format.prompt_fields() {
            Some(fields) => fields[0].to_owned(),
            None => config.document.clone().unwrap_or_else(|| "prompt".to_owned()),
        };
        Ok(Renderer {
            format,
            prompt: own(config.prompt.as_deref().or(format.prompt()))?,
            answer: Template::parse(config.answer.as_deref().unwrap_or(format.answer()), format.answer_fields())?,
            roles: [role(&roles.system)?, role(&roles.user)?, role(&roles.assistant)?],
            document,
            new_tokens: config.max_new_tokens,
        })
    }

    /// A question in the words of the templates.
    ///
    /// # Errors
    /// When a field that they name is missing.
    pub(super) fn example(&self, mut question: Question) -> Result<Example, String> {
        if question.fields.is_empty() && !question.messages.is_empty() {
            return self.conversation(question);
        }
        let there = among(question.fields.keys().map(String::as_str));
        let missing = |key: &'static str| {
            let there = &there;
            move |name: String| format!("has no `{name}`, which `task.{key}` names{there}")
        };
        if self.format == TextFormat::Jsonl {
            let text = question.fields.remove(&self.document).unwrap_or_default();
            question.document = Arc::new(Document { id: question.document.id.clone(), text });
        }
        let field = |name: &str| question.fields.get(name).map(String::as_str);
        let answer = self.answer.fill(field).map_err(missing("answer"))?;
        if answer.trim().is_empty() {
            return Err("its answer is empty".to_owned());
        }
        let by_data_set = question.dataset.as_deref().and_then(instructions);
        let of_data_set;
        let prompt = match (&self.prompt, by_data_set) {
            (Some(prompt), _) => prompt,
            (None, Some((text, _))) => {
                of_data_set = Template::parse(text, self.format.prompt_fields()).map_err(|error| error.to_string())?;
                &of_data_set
            }
            (None, None) => return Err("its data set has no prompt: set `task.prompt`".to_owned()),
        };
        let mut pieces = Vec::new();
        for part in prompt.parts() {
            let text = match part {
                Part::Text(text) => text.as_str(),
                Part::Field(name) if *name == self.document => {
                    if question.document.text.trim().is_empty() {
                        return Err(format!("its `{name}` is missing or empty{there}"));
                    }
                    pieces.push(Piece::Document);
                    continue;
                }
                Part::Field(name) => field(name).ok_or_else(|| missing("prompt")(name.clone()))?,
            };
            match pieces.last_mut() {
                Some(Piece::Text(last)) => last.push_str(text),
                _ => pieces.push(Piece::Text(text.to_owned())),
            }
        }
        if pieces.iter().filter(|piece| **piece == Piece::Document).count() > 1 {
            return Err(format!(
                "`task.prompt` names {{{}}} twice, but what is cut to fit can stand there once",
                self.document
            ));
        }
        pieces.retain(|piece| *piece != Piece::Text(String::new()));
        if question.document.text.trim().is_empty() {
            // A prompt without a document: what tells which examples are the same is all of it.
            let text = pieces.iter().map(|piece| if let Piece::Text(text) = piece { text } else { "" }).collect();
            question.document = Arc::new(Document { id: question.document.id.clone(), text });
        }
        pieces.push(Piece::Answer(answer.clone()));
        if question.references.is_empty() {
            question.references.push(answer.trim().to_owned());
        }
        let new_tokens = self.new_tokens.or(by_data_set.map(|(_, tokens)| tokens)).unwrap_or(DEFAULT_NEW_TOKENS);
        Ok(Example { question, pieces, new_tokens, group: 0, fits: true })
    }

    /// What the model writes when it chooses each option.
    ///
    /// # Errors
    /// When the answer's template names something else.
    pub(super) fn options(&self, question: &Question) -> Result<Vec<String>, String> {
        let option = |(label, text): &(String, String)| {
            self.answer.fill(|name| match name {
                "answer" => Some(label.as_str()),
                "answer_text" => Some(text),
                _ => None,
            })
        };
        question.options.iter().map(option).collect()
    }

    fn conversation(&self, mut question: Question) -> Result<Example, String> {
        const ROLES: [&str; 3] = ["system", "user", "assistant"];
        let mut pieces = Vec::new();
        for (index, message) in question.messages.iter().enumerate() {
            let [role, content] = ["role", "content"].map(|key| message[key].as_str().unwrap_or_default());
            let Some(place) = ROLES.iter().position(|name| *name == role) else {
                return Err(format!("message {}: `role` is {role:?}, expected system, user or assistant", index + 1));
            };
            let text = self.roles[place].fill(|_| Some(content))?;
            pieces.push(if role == "assistant" { Piece::Answer(text) } else { Piece::Text(text) });
        }
        // Never cut; it tells which conversations are the same.
        let said: Vec<&str> = question.messages.iter().filter_map(|message| message["content"].as_str()).collect();
        question.document = Arc::new(Document { id: question.document.id.clone(), text: said.join("\n") });
        let new_tokens = self.new_tokens.unwrap_or(DEFAULT_NEW_TOKENS);
        Ok(Example { question, pieces, new_tokens, group: 0, fits: true })
    }
}
