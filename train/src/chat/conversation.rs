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

    /// Adds what the user says. A model's chat template writes the whole conversation as one text, with its own beginning, and the text is
    /// encoded as one, as in training. With `by_parts` each part is encoded by itself, as with `[task.roles]` in training, and the
    /// tokenizer adds the tokens that begin a text.
    ///
    /// # Errors
    /// Those of the template and the tokenizer.
    pub fn say(
        &mut self,
        line: &str,
        tokenizer: &Tokenizer,
        template: Option<&ChatTemplate>,
        by_parts: bool,
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
        let begin = if by_parts { tokenizer.before() } else { &[] };
        let said = match rest {
            Some(rest) if by_parts => Said { ids: tokenizer.continuation(rest)?, is_whole: false },
            Some(rest) => Said { ids: tokenizer.behind(&self.tokens, rest)?, is_whole: false },
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    /// The tokenizer of Mistral-7B, which puts a space behind each special token, with that of Phi-3 which takes the line break
    /// behind it.
    fn tokenizer() -> Tokenizer {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/tokenizer/tokenizer.json");
        let mut file: Value = serde_json::from_slice(&fs::read(golden).unwrap()).unwrap();
        file["added_tokens"].as_array_mut().unwrap().push(json!({
            "id": 32_000, "content": "<|end|>", "single_word": false, "lstrip": false, "rstrip": true, "normalized": false,
            "special": true
        }));
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("tokenizer.json"), file.to_string()).unwrap();
        Tokenizer::load(place.path()).unwrap()
    }

    /// What is read of the template's text up to the second answer, in two parts and at once.
    fn read(source: &str, end: &str, by_parts: bool) -> [Vec<u32>; 2] {
        let tokenizer = tokenizer();
        let template = ChatTemplate::new(source, Some("<s>"), Some("</s>")).unwrap();
        let mut conversation = Conversation::new(None);
        let said = conversation.say("One", &tokenizer, Some(&template), by_parts).unwrap();
        assert!(said.is_whole);
        let messages = [("user", "One"), ("assistant", "Yes."), ("user", "Two")];
        let messages = messages.map(|(role, content)| json!({ "role": role, "content": content }));
        let prompt = template.render(&messages[..1], true).unwrap();
        let read = tokenizer.encode(&format!("{prompt}Yes.{end}")).unwrap();
        conversation.answered("Yes.", Some(end.to_owned()), &read);
        let next = conversation.say("Two", &tokenizer, Some(&template), by_parts).unwrap();
        assert!(!next.is_whole);
        let whole = tokenizer.encode(&template.render(&messages, true).unwrap()).unwrap();
        [[read, next.ids].concat(), whole]
    }

    const MISTRAL: &str = "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]\
        {% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}";

    #[test]
    fn later_turns_are_read_as_in_training() {
        let phi = "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}\
                   {% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}";
        for (source, end) in [(MISTRAL, "</s>"), (phi, "<|end|>")] {
            let [parts, whole] = read(source, end, false);
            assert_eq!(parts, whole, "{source}");
        }
    }

    #[test]
    fn roles_are_read_part_by_part() {
        let [parts, whole] = read(MISTRAL, "</s>", true);
        let rest = tokenizer().continuation("[INST] Two [/INST]").unwrap();
        assert!(parts.ends_with(&[&[2][..], &rest].concat()) && parts != whole, "{parts:?}");
    }
}
