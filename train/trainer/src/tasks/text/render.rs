//! From questions to what is read and learned.

use super::calls;
use super::config::{DEFAULT_NEW_TOKENS, DOCUMENT, Roles, TextConfig};
use super::document::{Document, Example, Piece, Question, Unread};
use super::formats::{TextFormat, has_calls, has_no_weight, instructions};
use super::lines::among;
use super::prompts::UNKNOWN;
use super::template::{Part, Template, TemplateError};
use crate::tasks::{TaskError, tokenizer};
use hankel_models::Tokenizer;
use hankel_models::chat::{ChatTemplate, Conversation};
use serde_json::{Value, json};
use std::sync::Arc;

/// The templates of a task.
pub(super) struct Renderer {
    format: &'static TextFormat,
    prompt: Option<Template>,
    answer: Template,
    /// System, user, assistant, where the configuration says how they are written.
    roles: Option<[Template; 3]>,
    /// The model's own, or why it cannot be used.
    chat: Result<Option<ChatTemplate>, String>,
    /// Names of the variables that the configuration gives it.
    variables: Vec<String>,
    /// Whether prompt and answer are those that the kind has by itself.
    is_usual: bool,
    /// The field that is the document.
    document: String,
    new_tokens: Option<usize>,
    /// Whether answers are generated in evaluations.
    generates: bool,
}

impl Renderer {
    /// The templates of a configuration, and of the model whose tokenizer it is.
    ///
    /// # Errors
    /// When one of the configuration means nothing.
    pub(super) fn new(config: &TextConfig, tokenizer: &Tokenizer) -> Result<Self, TemplateError> {
        let format = config.format;
        let own = |text: Option<&str>| text.map(|text| Template::parse(text, format.prompt_fields)).transpose();
        let role = |text: &str| Template::parse(text, Some(&["content"]));
        let roles = |roles: &Roles| Ok([role(&roles.system)?, role(&roles.user)?, role(&roles.assistant)?]);
        let roles = config.roles.as_ref().map(roles).transpose()?;
        let is_needed = format.is_own && roles.is_none();
        let chat = if is_needed { chat(config, tokenizer) } else { Ok(None) };
        let usual = |own: &Option<String>, usual: Option<&str>| own.is_none() || own.as_deref() == usual;
        let document = match format.prompt_fields {
            Some(fields) => fields[0].to_owned(),
            None => config.document.clone().unwrap_or_else(|| DOCUMENT.to_owned()),
        };
        Ok(Renderer {
            format,
            prompt: own(config.prompt.as_deref().or(format.prompt))?,
            answer: Template::parse(config.answer.as_deref().unwrap_or(format.answer), format.answer_fields)?,
            roles,
            chat,
            variables: config.chat_template_kwargs.iter().flatten().map(|(name, _)| name.clone()).collect(),
            is_usual: usual(&config.prompt, format.prompt) && usual(&config.answer, Some(format.answer)),
            document,
            new_tokens: config.max_new_tokens,
            generates: config.generates(),
        })
    }

    /// Why instructions are no conversations, where the model has a chat template that cannot be used.
    pub(super) fn problem_of_chat(&self) -> Option<&str> {
        self.chat.as_ref().err().filter(|_| self.is_usual && self.roles.is_none()).map(String::as_str)
    }

    /// Whether the model has a chat template, and nobody has written a prompt in its place.
    pub(super) fn has_chat(&self) -> bool {
        self.is_usual && matches!(self.chat, Ok(Some(_)))
    }

    /// Variables of the configuration that the model's chat template does not read.
    pub(super) fn unread_variables(&self) -> impl Iterator<Item = &str> {
        let chat = self.chat.as_ref().ok().and_then(Option::as_ref);
        let names = self.variables.iter().map(String::as_str);
        names.filter(move |name| chat.is_some_and(|template| !template.names(name)))
    }

    /// Whether a prompt names a field.
    pub(super) fn names(&self, field: &str) -> bool {
        let is_it = |part: &Part| matches!(part, Part::Field(name) if name == field);
        self.prompt.as_ref().is_some_and(|prompt| prompt.parts().iter().any(is_it))
    }

    /// A question in the words of the templates.
    ///
    /// # Errors
    /// When a field that they name is missing.
    pub(super) fn example(&self, question: Question, tokenizer: &Tokenizer) -> Result<Example, String> {
        if !self.format.has_pairs {
            return self.one(question, tokenizer);
        }
        let mut other = Question { messages: question.rejected.clone(), ..question.clone() };
        other.fields.extend(question.fields.get("rejected").map(|text| ("chosen".to_owned(), text.clone())));
        let new_tokens = if self.generates { self.new_tokens.unwrap_or(DEFAULT_NEW_TOKENS) } else { 0 };
        let rejected = self.one(other, tokenizer)?.pieces;
        Ok(Example { rejected, new_tokens, ..self.one(question, tokenizer)? })
    }

    fn one(&self, mut question: Question, tokenizer: &Tokenizer) -> Result<Example, String> {
        // Instructions are a conversation for a model that has learned to hold one.
        let can_chat = self.has_chat() || (self.is_usual && self.roles.is_some());
        if !question.messages.is_empty() && (question.fields.is_empty() || can_chat) {
            return self.conversation(question, tokenizer);
        }
        let given = question.fields.iter().filter(|(_, text)| *text != UNKNOWN);
        let there = among(given.map(|(name, _)| name.as_str()));
        let has = |name: &str| self.is_usual && question.fields.contains_key(name);
        let advice = if has("chosen") {
            ". Pairs are read by `kind = \"dpo\"`"
        } else if has("instruction") {
            ". Instructions as Alpaca has them end with `output`; other keys are named in `task.prompt` and `task.answer`"
        } else {
            ""
        };
        let missing = |key: &'static str| {
            let there = &there;
            move |name: String| format!("has no text or number `{name}`, which `task.{key}` names{there}{advice}")
        };
        let mut is_given = false;
        // A field of its name that the template does not name tells nothing of which examples are the same.
        let is_document = |part: &Part| matches!(part, Part::Field(name) if *name == self.document);
        if self.format.is_own && self.prompt.as_ref().is_some_and(|prompt| prompt.parts().iter().any(is_document)) {
            let text = question.fields.remove(&self.document);
            is_given = text.is_some();
            let text = text.unwrap_or_default();
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
                of_data_set = Template::parse(text, self.format.prompt_fields).map_err(|error| error.to_string())?;
                &of_data_set
            }
            (None, None) => return Err("its data set has no prompt: set `task.prompt`".to_owned()),
        };
        let mut pieces = Vec::new();
        for part in prompt.parts() {
            let text = match part {
                Part::Text(text) => text.as_str(),
                Part::Field(name) if *name == self.document => {
                    // Whether a token stands before the answer is seen below.
                    if is_given && prompt.parts().len() == 1 && question.document.text.is_empty() {
                        continue;
                    }
                    if question.document.text.trim().is_empty() {
                        return Err(format!("its `{name}` is missing or empty{there}"));
                    }
                    self.give_space(&mut pieces, &mut question.document);
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
            // Without a document, examples with the same prompt are the same; without a prompt, those with the same answer.
            let mut text: String =
                pieces.iter().map(|piece| if let Piece::Text(text) = piece { text } else { "" }).collect();
            if text.trim().is_empty() {
                text.clone_from(&answer);
            }
            question.document = Arc::new(Document { id: question.document.id.clone(), text });
        }
        pieces.push(Piece::Answer(answer.clone()));
        if question.references.is_empty() {
            question.references.push(answer.trim().to_owned());
        }
        let new_tokens = self.new_tokens(by_data_set.map(|(_, tokens)| tokens));
        Ok(Example { question, pieces, new_tokens, fits: true, ..Example::default() })
    }

    /// Moves a space between the last piece and a document of one's own into the document: by itself it would be a token that a text
    /// tokenised as a whole does not have.
    fn give_space(&self, pieces: &mut [Piece], document: &mut Arc<Document>) {
        let Some(Piece::Text(before)) = pieces.last_mut().filter(|_| self.format.is_own) else { return };
        if before.ends_with(' ') && !document.text.starts_with(char::is_whitespace) {
            before.pop();
            *document = Arc::new(Document { id: document.id.clone(), text: format!(" {}", document.text) });
        }
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

    fn conversation(&self, mut question: Question, tokenizer: &Tokenizer) -> Result<Example, String> {
        let last = question.messages.last().unwrap_or(&Value::Null);
        let (words, calls) = (last["content"].as_str().unwrap_or_default().trim().to_owned(), has_calls(last));
        if words.is_empty() && !calls {
            return Err("its answer is empty".to_owned());
        }
        let tools = question.tools.take();
        let (mut unread, mut is_dated) = (Unread::default(), false);
        let (pieces, said) = match (&self.roles, &self.chat) {
            (Some(roles), _) => {
                let pieces = by_roles(roles, &question.messages)?;
                // With the words of its role, as it is learned.
                let said = if let Some(Piece::Answer(said)) = pieces.last() { said.trim().to_owned() } else { words };
                unread.tools = tools.is_some();
                (pieces, said)
            }
            (None, Ok(Some(template))) => {
                let of_record = tools.map(|tools| template.with("tools", tools));
                let template = of_record.as_ref().unwrap_or(template);
                let (messages, mut conversation) = calls::written_by(template, &question.messages)?;
                question.messages = messages;
                check_calls(template, &question.messages, &conversation.text)?;
                check_roles(template, &question.messages, &conversation.text)?;
                let is_same = |other: ChatTemplate| {
                    other.render(&question.messages, false).is_ok_and(|other| other == conversation.text)
                };
                let are_words_unread = |(index, message): (usize, &Value)| {
                    has_calls(message) && leaves_out(template, &question.messages, index, &conversation.text)
                };
                unread = Unread {
                    tools: of_record.is_some() && is_same(template.with("tools", Value::Null)),
                    words: question.messages.iter().enumerate().any(are_words_unread),
                };
                is_dated = template.tells_date(&question.messages, &conversation.text);
                // What the assistant has said in a prompt is not among the answers that are learned or compared.
                let before = question.said().min(conversation.answers.len().saturating_sub(1));
                leave_unlearnt(&question.messages, &mut conversation, before)?;
                // The template may write more than the words, or less: calls, thoughts.
                let last = conversation.answers.last().map_or("", |answer| &conversation.text[answer.clone()]);
                let is_as_given = !calls && last.trim_start().starts_with(&words);
                let said = if is_as_given { words } else { written(&conversation, tokenizer)? };
                (vec![Piece::Conversation(conversation)], said)
            }
            (None, Err(problem)) => return Err(problem.clone()),
            (None, Ok(None)) => {
                return Err(
                    "has messages, but the model has no chat template to write them with: write [task.roles] with \
                            `system`, `user` and `assistant`, each a text with {content} in it"
                        .to_owned(),
                );
            }
        };
        if question.references.is_empty() {
            question.references.push(said);
        }
        // Never cut; it tells which conversations are the same, whatever is answered, as prompts do.
        let asked = if question.shared > 0 { question.shared } else { question.messages.len() - 1 };
        let told = |messages: &[Value]| {
            messages.iter().filter_map(|message| message["content"].as_str()).collect::<Vec<_>>().join("\n")
        };
        let (asked, all) = (told(&question.messages[..asked]), told(&question.messages));
        let text = if asked.trim().is_empty() { all } else { asked };
        question.document = Arc::new(Document { id: question.document.id.clone(), text });
        let new_tokens = self.new_tokens(None);
        Ok(Example { question, pieces, unread, is_dated, new_tokens, fits: true, ..Example::default() })
    }

    /// Tokens that an example keeps free for an answer: none, where the configuration does not say how many, and none is generated.
    fn new_tokens(&self, of_data_set: Option<usize>) -> usize {
        let usual = if self.generates { of_data_set.unwrap_or(DEFAULT_NEW_TOKENS) } else { 0 };
        self.new_tokens.unwrap_or(usual)
    }
}

/// The chat template of the model whose tokenizer it is, with the variables that the configuration gives it.
fn chat(config: &TextConfig, tokenizer: &Tokenizer) -> Result<Option<ChatTemplate>, String> {
    let place = tokenizer::place(config.tokenizer.as_deref());
    let mut template = ChatTemplate::load(&place, tokenizer).map_err(|error| error.to_string())?;
    if let Some(template) = &mut template {
        for (name, value) in config.chat_template_kwargs.iter().flatten() {
            template.set(name, serde_json::to_value(value).map_err(|error| error.to_string())?);
        }
    }
    Ok(template)
}

impl TextConfig {
    /// What writes a conversation as this task has it: [task.roles], or the template of the model whose tokenizer it is, with the
    /// variables of `task.chat_template_kwargs`. `None` where there is neither.
    ///
    /// # Errors
    /// When the model's template, or a role, cannot be used.
    pub fn chat_template(&self, tokenizer: &Tokenizer) -> Result<Option<ChatTemplate>, TaskError> {
        let unusable = |problem: String| TaskError::Unusable(format!("the chat template: {problem}"));
        match &self.roles {
            None => chat(self, tokenizer).map_err(unusable),
            Some(roles) => of_roles(roles, tokenizer).map(Some).map_err(unusable),
        }
    }
}

/// `[task.roles]` as a chat template. An assistant message is written as it is, followed by the token that ends a text: the model has
/// learnt to write whatever its role puts around a message, so the message has it already. An answer begins where the user's text ends.
/// The template leaves out what the tokenizer puts before a text.
fn of_roles(roles: &Roles, tokenizer: &Tokenizer) -> Result<ChatTemplate, String> {
    let literal = |text: &str| serde_json::to_string(text).map_err(|error| error.to_string());
    let role = |text: &str| -> Result<String, String> {
        let template = Template::parse(text, Some(&["content"])).map_err(|error| error.to_string())?;
        let part = |part: &Part| match part {
            Part::Text(text) => Ok(format!("{{{{- {} -}}}}", literal(text)?)),
            Part::Field(_) => Ok("{{- message.content -}}".to_owned()),
        };
        template.parts().iter().map(part).collect()
    };
    let source = format!(
        "{{%- for message in messages -%}}{{%- if message.role == 'system' -%}}{}{{%- elif message.role == 'user' -%}}{}\
         {{%- else -%}}{{{{- message.content -}}}}{{{{- eos_token -}}}}{{%- endif -%}}{{%- endfor -%}}",
        role(&roles.system)?,
        role(&roles.user)?
    );
    let token = |id: Option<u32>| id.and_then(|id| tokenizer.piece(id));
    ChatTemplate::new(&source, token(tokenizer.bos()).as_deref(), token(tokenizer.eos()).as_deref())
}

/// Fails where the template leaves out the calls of a message, which would be learned without them: the text is the same when it has none.
fn check_calls(template: &ChatTemplate, messages: &[Value], text: &str) -> Result<(), String> {
    for (index, _) in messages.iter().enumerate().filter(|(_, message)| has_calls(message)) {
        let mut without = messages.to_vec();
        without[index]["tool_calls"] = json!([]);
        if template.render(&without, false).is_ok_and(|other| other == text) {
            let number = index + 1;
            return Err(format!("message {number}: has `tool_calls`, which the model's chat template does not write"));
        }
    }
    Ok(())
}

/// Fails where the template leaves out a message for its role, which would be learned without it.
fn check_roles(template: &ChatTemplate, messages: &[Value], text: &str) -> Result<(), String> {
    for (index, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if !["user", "assistant"].contains(&role) && leaves_out(template, messages, index, text) {
            let number = index + 1;
            return Err(format!(
                "message {number}: `role` is {role:?}, which the model's chat template does not write"
            ));
        }
    }
    Ok(())
}

/// Whether the template leaves out the words of a message: the text is the same when they are said twice.
fn leaves_out(template: &ChatTemplate, messages: &[Value], index: usize, text: &str) -> bool {
    let words = messages[index]["content"].as_str().unwrap_or_default();
    let mut others = messages.to_vec();
    others[index]["content"] = format!("{words} {words}").into();
    !words.trim().is_empty() && template.render(&others, false).is_ok_and(|other| other == text)
}

/// Takes out the first answers, and those that their messages give the weight 0, as OpenAI's files do.
fn leave_unlearnt(messages: &[Value], conversation: &mut Conversation, before: usize) -> Result<(), String> {
    let is_learnt: Vec<bool> = messages
        .iter()
        .filter(|message| message["role"] == "assistant")
        .map(|message| !has_no_weight(message))
        .collect();
    if is_learnt.iter().all(|learnt| *learnt) {
        conversation.answers.drain(..before);
        return Ok(());
    }
    if is_learnt.len() != conversation.answers.len() {
        return Err(
            "has a `weight` of 0, and the model's chat template does not write every message by itself".to_owned()
        );
    }
    let mut learnt = is_learnt.into_iter().enumerate().map(|(index, learnt)| learnt && index >= before);
    conversation.answers.retain(|_| learnt.next() == Some(true));
    Ok(())
}

/// The last answer of a conversation as a model that writes it is read: without the token that ends it, and special ones.
fn written(conversation: &Conversation, tokenizer: &Tokenizer) -> Result<String, String> {
    let Some(answer) = conversation.answers.last() else { return Ok(String::new()) };
    let tokens = tokenizer.encode_with_places(&conversation.text).map_err(|error| error.to_string())?;
    let of_answer = tokens.into_iter().filter(|(_, place)| place.start < answer.end && answer.start < place.end);
    let ids: Vec<u32> = of_answer.map(|(id, _)| id).take_while(|id| !tokenizer.is_end(*id)).collect();
    let text = tokenizer.decode(&ids).map_err(|error| error.to_string())?;
    Ok(text.trim().to_owned())
}

/// Messages as the configuration writes each.
fn by_roles(roles: &[Template; 3], messages: &[Value]) -> Result<Vec<Piece>, String> {
    const ROLES: [&str; 3] = ["system", "user", "assistant"];
    let piece = |(index, message): (usize, &Value)| {
        if has_calls(message) {
            let number = index + 1;
            return Err(format!(
                "message {number}: has `tool_calls`, which [task.roles] cannot write: leave [task.roles] out, for a model whose chat \
                 template writes them"
            ));
        }
        if has_no_weight(message) {
            return Err(format!(
                "message {}: has a `weight` of 0, and by [task.roles] every answer is learnt",
                index + 1
            ));
        }
        let [role, content] = ["role", "content"].map(|key| message[key].as_str().unwrap_or_default());
        let Some(place) = ROLES.iter().position(|name| *name == role) else {
            return Err(format!("message {}: `role` is {role:?}, expected system, user or assistant", index + 1));
        };
        let text = roles[place].fill(|_| Some(content))?;
        Ok(if role == "assistant" { Piece::Answer(text) } else { Piece::Text(text) })
    };
    messages.iter().enumerate().map(piece).collect()
}
