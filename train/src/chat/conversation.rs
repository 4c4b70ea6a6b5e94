//! What was said, as messages, as the text of the template, and as the tokens that the model has read.

use anyhow::Result;
use hankel_models::Tokenizer;
use hankel_models::chat::ChatTemplate;
use serde_json::{Value, json};

/// A conversation.
#[derive(Clone, Default)]
pub struct Conversation {
    messages: Vec<Value>,
    /// What the tokens spell.
    text: String,
    tokens: Vec<u32>,
    /// All that before the last line, and that line.
    before: Option<(Box<Conversation>, String)>,
}

/// What the model reads next.
pub struct Said {
    pub ids: Vec<u32>,
    /// Whether it is all of the conversation: the template writes what was said before in another way now.
    pub is_whole: bool,
}

impl Conversation {
    /// Nothing said, with an instruction for the whole of it.
    pub fn new(system: Option<&str>) -> Self {
        let messages = system.map(|text| json!({ "role": "system", "content": text })).into_iter().collect();
        Conversation { messages, ..Conversation::default() }
    }

    /// What the model has read and written.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Adds what the user says. `begin` stands before a text that the template does not begin itself.
    ///
    /// # Errors
    /// Those of the template and the tokenizer.
    pub fn say(
        &mut self,
        line: &str,
        tokenizer: &Tokenizer,
        template: Option<&ChatTemplate>,
        begin: &[u32],
    ) -> Result<Said> {
        let before = Conversation { before: None, ..self.clone() };
        let mut messages = self.messages.clone();
        messages.push(json!({ "role": "user", "content": line }));
        let text = match template {
            Some(template) => template.render(&messages, true).map_err(anyhow::Error::msg)?,
            None if self.text.is_empty() => line.to_owned(),
            None => format!("{} {line}", self.text),
        };
        let rest = text.strip_prefix(&self.text).filter(|_| !self.tokens.is_empty());
        let said = match rest {
            Some(rest) => Said { ids: tokenizer.continuation(rest)?, is_whole: false },
            None => Said { ids: [begin, &tokenizer.encode(&text)?].concat(), is_whole: true },
        };
        *self = Conversation {
            messages,
            text,
            tokens: before.tokens.clone(),
            before: Some((Box::new(before), line.to_owned())),
        };
        Ok(said)
    }

    /// Adds the answer; `end` is the token that ended it, and `tokens` all that the model has read and written.
    pub fn answered(&mut self, answer: &str, end: Option<String>, tokens: &[u32]) {
        self.messages.push(json!({ "role": "assistant", "content": answer }));
        self.text.push_str(answer);
        self.text.extend(end);
        self.tokens = tokens.to_vec();
    }

    /// Takes the last line and its answer back, and gives the line.
    pub fn take_back(&mut self) -> Option<String> {
        let (before, line) = self.before.take()?;
        *self = *before;
        Some(line)
    }
}
