//! Templates that write a conversation as one text, as the model was trained to read it.
//!
//! A template is a Jinja program that comes with the model: somebody's code. It can read nothing but the conversation. Its
//! source, its nesting, its steps and all that it makes are bounded (`whole`, `python`), and it runs on a thread
//! with a stack of its own and a time limit (`apart`). Results are those of Hugging Face's `apply_chat_template`, byte
//! for byte.

mod answers;
mod apart;
mod json;
pub(crate) mod load;
mod python;
mod whole;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use serde_json::{Map, Value as Json};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// What a render may use: an instruction, or 64 bytes of data, costs 1. A long conversation has one more for each byte.
const FUEL: u64 = 1_000_000;
/// The name under which the environment has the template.
const NAME: &str = "chat template";
/// The function that gives today's date, and a variable, which no template can name, under which it gives another one.
const CLOCK: &str = "strftime_now";
const ANOTHER_DAY: &str = "another day";
/// Result of this module: the message says what is wrong with the template or the conversation.
pub type Result<T> = std::result::Result<T, String>;

/// A conversation as a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// The text.
    pub text: String,
    /// Bytes of the text that the model has to write: each answer of the assistant with the marker that ends it.
    pub answers: Vec<Range<usize>>,
}

impl Conversation {
    /// Whether the model has to write something of these bytes of the text.
    pub fn is_answer(&self, bytes: &Range<usize>) -> bool {
        self.answers.iter().any(|answer| bytes.start < answer.end && answer.start < bytes.end)
    }
}

/// A compiled template.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    program: Program,
    /// What writes conversations with tools, where a model has a template of its own for them, or why it cannot be used.
    for_tools: Option<Result<Program>>,
    variables: Map<String, Json>,
}

/// A template without its variables.
#[derive(Debug, Clone)]
struct Program {
    environment: Arc<Environment<'static>>,
    /// The names in it, whatever they are of.
    names: Arc<HashSet<String>>,
    /// Whether the template itself marks what the assistant writes, by `{% generation %}`.
    is_marked: bool,
    /// Set when a render took too long: the next one would, too.
    is_too_slow: Arc<AtomicBool>,
}

impl Program {
    fn compile(source: &str) -> Result<Self> {
        let is_of_names = |c: char| c.is_alphanumeric() || c == '_';
        let names = source.split(|c| !is_of_names(c)).map(str::to_owned).collect();
        // Jinja reads all line ends as one.
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        let (source, is_marked) = answers::replace_marks(&source);
        let environment = apart::run(move || environment(&source).map_err(|error| explain(&error)));
        let environment = Arc::new(environment.map_err(|failure| failure.to_string())??);
        Ok(Program { environment, names: Arc::new(names), is_marked, is_too_slow: Arc::default() })
    }
}

impl ChatTemplate {
    /// Compiles a template; `bos` and `eos` are the texts of the tokens that begin and end a text.
    ///
    /// # Errors
    /// Says where the template is malformed.
    pub fn new(source: &str, bos: Option<&str>, eos: Option<&str>) -> Result<Self> {
        let mut template = ChatTemplate { program: Program::compile(source)?, for_tools: None, variables: Map::new() };
        // A token that a model does not have is undefined, as in transformers, and prints nothing.
        for (name, token) in [("bos_token", bos), ("eos_token", eos)] {
            if let Some(token) = token {
                template.set(name, Json::from(token));
            }
        }
        Ok(template)
    }

    /// Gives the template a variable: `enable_thinking`, `date_string`, `tools` ...
    pub fn set(&mut self, name: &str, value: Json) {
        self.variables.insert(name.to_owned(), value);
    }

    /// The same template with one more variable, or another value of it.
    #[must_use]
    pub fn with(&self, name: &str, value: Json) -> Self {
        let mut template = self.clone();
        template.set(name, value);
        template
    }

    /// Whether the template, or the one for tools, has a name in it. A variable whose name it does not have is not read.
    pub fn names(&self, name: &str) -> bool {
        let for_tools = self.for_tools.iter().filter_map(|program| program.as_ref().ok());
        for_tools.chain([&self.program]).any(|program| program.names.contains(name))
    }

    /// Whether `text`, that of `messages`, is another on another day.
    pub fn tells_date(&self, messages: &[Json], text: &str) -> bool {
        let is_same =
            || self.with(ANOTHER_DAY, Json::Bool(true)).render(messages, false).is_ok_and(|other| other == text);
        self.names(CLOCK) && !is_same()
    }

    /// The template that writes: the one for tools where there are any, as in transformers.
    fn program(&self) -> Result<&Program> {
        let has_tools = self.variables.get("tools").is_some_and(|tools| !tools.is_null());
        match &self.for_tools {
            Some(program) if has_tools => program.as_ref().map_err(Clone::clone),
            _ => Ok(&self.program),
        }
    }

    /// The text of `messages`, objects with `role` and `content`; at its end, if asked for, what begins an answer.
    ///
    /// # Errors
    /// When the template refuses the conversation, or needs more than its share of steps or memory.
    pub fn render(&self, messages: &[Json], add_generation_prompt: bool) -> Result<String> {
        let text = self.run(messages, add_generation_prompt)?;
        Ok(if self.program()?.is_marked { answers::unmark(&text)?.text } else { text })
    }

    /// The text of `messages` and what of it the model has to write.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`]; when the template writes the conversation so that its answers cannot be told.
    pub fn conversation(&self, messages: &[Json]) -> Result<Conversation> {
        if !self.program()?.is_marked {
            return answers::find(self, messages);
        }
        let conversation = answers::unmark(&self.run(messages, false)?)?;
        Ok(answers::without_headers(self, messages, conversation))
    }

    fn run(&self, messages: &[Json], add_generation_prompt: bool) -> Result<String> {
        if let Some(forged) = messages.iter().position(answers::is_forged) {
            return Err(format!(
                "messages[{forged}] holds one of the characters U+FDD0 and U+FDD1, which are not text"
            ));
        }
        self.run_unchecked(messages, add_generation_prompt)
    }

    fn run_unchecked(&self, messages: &[Json], add_generation_prompt: bool) -> Result<String> {
        let program = self.program()?;
        if program.is_too_slow.load(Ordering::Relaxed) {
            return Err(apart::Failure::Slow.to_string());
        }
        let mut context = self.variables.clone();
        let messages = messages.iter().map(without_nulls).collect();
        context.insert("messages".to_owned(), Json::Array(messages));
        context.insert("add_generation_prompt".to_owned(), Json::Bool(add_generation_prompt));
        // `apply_chat_template` passes these as None: a template may ask whether they are, not whether they are defined.
        for name in ["tools", "documents"] {
            context.entry(name).or_insert(Json::Null);
        }
        let mut environment = Arc::clone(&program.environment);
        let bytes = context["messages"].to_string().len() as u64;
        if bytes > FUEL {
            Arc::make_mut(&mut environment).set_fuel(Some(FUEL + bytes));
        }
        let context = Arc::new(context);
        let render = || {
            let (environment, context) = (Arc::clone(&environment), Arc::clone(&context));
            apart::run(move || {
                let template = environment.get_template(NAME);
                let text =
                    template.and_then(|template| template.render(Value::from(minijinja::value::Serde(&*context))));
                text.map_err(|error| explain(&error))
            })
        };
        // A process that was stopped meanwhile is not a slow template.
        let rendered = match render() {
            Err(apart::Failure::Slow) => render(),
            rendered => rendered,
        };
        program.is_too_slow.fetch_or(matches!(rendered, Err(apart::Failure::Slow)), Ordering::Relaxed);
        rendered.map_err(|failure| failure.to_string())?
    }
}

/// The engine with a template, set up as `transformers` sets up Jinja.
fn environment(source: &str) -> std::result::Result<Environment<'static>, Error> {
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    let source = whole::wrap(source, &syntax)?;
    let mut environment = Environment::new();
    environment.set_syntax(syntax);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_formatter(python::print);
    environment.set_unknown_method_callback(python::method);
    environment.add_test("iterable", python::is_iterable);
    environment.add_test("sequence", python::is_sequence);
    environment.add_filter("trim", python::trim);
    environment.add_filter("tojson", json::to_json);
    environment.add_filter(answers::FILTER, answers::mark);
    environment.add_filter(whole::WHOLE, whole::whole);
    environment.add_filter(whole::WALKED, whole::walked);
    environment.add_filter(whole::READ, whole::read);
    environment.add_function("raise_exception", |message: String| -> std::result::Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function(CLOCK, now);
    environment.remove_global("debug");
    environment.add_template_owned(NAME, source)?;
    Ok(environment)
}

/// A message without the keys that have no value; a call of a tool has a `content` that is None.
fn without_nulls(message: &Json) -> Json {
    match message {
        Json::Object(fields) => {
            let calls = fields.get("tool_calls").is_some_and(|calls| !calls.is_null());
            let stays = |(key, value): &(&String, &Json)| !value.is_null() || (calls && *key == "content");
            fields.iter().filter(stays).map(|(k, v)| (k.clone(), v.clone())).collect()
        }
        other => other.clone(),
    }
}

fn explain(error: &Error) -> String {
    let place = error.line().map_or(String::new(), |line| format!(" (line {line})"));
    let text = match (error.kind(), error.detail()) {
        (ErrorKind::InvalidOperation, Some(detail)) => detail.to_owned(),
        (ErrorKind::OutOfFuel, _) => "it takes too many steps or too much memory".to_owned(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    format!("the chat template{place}: {text}")
}

/// Today's date and time, in the local time zone; every call of a process gets the same.
fn now(state: &minijinja::State<'_, '_>, format: &str) -> std::result::Result<String, Error> {
    static NOW: OnceLock<jiff::Zoned> = OnceLock::new();
    let refuse = |error| Error::new(ErrorKind::InvalidOperation, format!("{CLOCK}: {error}"));
    let mut now = NOW.get_or_init(jiff::Zoned::now).clone();
    if state.lookup(ANOTHER_DAY).is_some() {
        // Another year, month, day of the month and of the week, hour, minute and second.
        let before = jiff::Span::new().days(398).hours(5).minutes(7).seconds(11);
        now = now.checked_sub(before).map_err(refuse)?;
    }
    jiff::fmt::strtime::format(format, &now).map_err(refuse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_and_dates_are_found() {
        let source = "{%- set tone = tone | default('dry') -%}{%- set date = date | default(none) -%}\
                      {%- if not date -%}{%- set date = strftime_now('%Y') -%}{%- endif -%}\
                      {%- for m in messages -%}{{ m.content }}{{ tone }}{{ date if m.role == 'user' }}{%- endfor -%}";
        let template = ChatTemplate::new(source, None, None).unwrap();
        assert!(template.names("tone") && template.names("date") && !template.names("ton") && !template.names("dates"));
        let tells = |template: &ChatTemplate, role: &str| {
            let messages = [json!({ "role": role, "content": "Hello" })];
            template.tells_date(&messages, &template.render(&messages, false).unwrap())
        };
        assert!(tells(&template, "user"));
        // Asked for and not written.
        assert!(!tells(&template, "assistant") && !tells(&template.with("date", json!("2024")), "user"));
    }
}
