//! Where a model keeps its template.

use super::{ChatTemplate, Program};
use crate::Tokenizer;
use crate::gguf::{self, Gguf};
use crate::weights::{Result, WeightsError};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};

/// The template alone.
const TEMPLATE_FILE: &str = "chat_template.jinja";
/// The template for conversations with tools, of models that have two.
pub(crate) const TOOLS_FILE: &str = "additional_chat_templates/tool_use.jinja";
/// Holds the templates of older models.
const CONFIG_FILE: &str = "tokenizer_config.json";
/// The key of a GGUF file.
const KEY: &str = "tokenizer.chat_template";
/// The key of the one for conversations with tools.
pub(crate) const TOOLS_KEY: &str = "tokenizer.chat_template.tool_use";

/// A template and the file that it is from.
type Source = (PathBuf, String);

impl ChatTemplate {
    /// The template of a model or tokenizer: that of a GGUF file, or of a directory (`chat_template.jinja`, or the key
    /// `chat_template` of `tokenizer_config.json`); `None` if it has none. One named `tool_use` beside it writes conversations
    /// that have the variable `tools`. `tokenizer` is the model's.
    ///
    /// # Errors
    /// When a file cannot be read, or the template is malformed. One for tools that is malformed is told when it is needed.
    pub fn load(model: &Path, tokenizer: &Tokenizer) -> Result<Option<Self>> {
        let Some(((path, source), for_tools)) = sources(model)? else { return Ok(None) };
        let template = Self::new(&source, None, None);
        let mut template = template.map_err(|problem| WeightsError::content(path, problem))?;
        for (name, token) in tokenizer.special_tokens() {
            template.set(name, token.into());
        }
        template.for_tools = for_tools.map(|(path, source)| {
            Program::compile(&source).map_err(|problem| format!("{}: tool_use: {problem}", path.display()))
        });
        Ok(Some(template))
    }
}

/// The template of a model, and the one for conversations with tools: files of their own, or in `tokenizer_config.json`, of several the
/// ones named `default` and `tool_use`.
pub(crate) fn sources(model: &Path) -> Result<Option<(Source, Option<Source>)>> {
    if gguf::is_gguf(model) {
        let file = Gguf::open(model)?;
        let at = |key: &str| -> Result<Option<Source>> {
            Ok(file.string(key)?.map(|source| (model.to_path_buf(), source.to_owned())))
        };
        let Some(source) = at(KEY)? else { return Ok(None) };
        return Ok(Some((source, at(TOOLS_KEY)?)));
    }
    let read = |name: &str| -> Result<Option<Source>> {
        let path = model.join(name);
        let source = path.is_file().then(|| hankel_io::input::read_to_string(&path)).transpose()?;
        Ok(source.map(|source| (path, source)))
    };
    let for_tools = read(TOOLS_FILE)?;
    if let Some(source) = read(TEMPLATE_FILE)? {
        return Ok(Some((source, for_tools)));
    }
    let path = model.join(CONFIG_FILE);
    if !path.is_file() {
        return Ok(None);
    }
    let bytes = hankel_io::input::read(&path)?;
    let config: Json = serde_json::from_slice(&bytes).map_err(|e| WeightsError::content(&path, e.to_string()))?;
    let at = |source: String| (path.clone(), source);
    let (source, of_config) = match &config["chat_template"] {
        Json::Null => return Ok(None),
        Json::String(source) => (Some(source.clone()), None),
        Json::Array(several) => (named(several, "default"), named(several, "tool_use")),
        _ => (None, None),
    };
    match source {
        Some(source) => Ok(Some((at(source), for_tools.or(of_config.map(at))))),
        None => {
            Err(WeightsError::content(&path, "chat_template is neither a string nor a list with one named default"))
        }
    }
}

/// The template of that name among `several`, each an object with `name` and `template`.
fn named(several: &[Json], name: &str) -> Option<String> {
    let entry = several.iter().find(|entry| entry["name"] == name)?;
    entry["template"].as_str().map(str::to_owned)
}
