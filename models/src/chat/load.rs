//! Where a model keeps its template.

use super::ChatTemplate;
use crate::Tokenizer;
use crate::gguf::{self, Gguf};
use crate::weights::{Result, WeightsError};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};

/// The template alone.
const TEMPLATE_FILE: &str = "chat_template.jinja";
/// Holds the template of older models.
const CONFIG_FILE: &str = "tokenizer_config.json";
/// The key of a GGUF file.
const KEY: &str = "tokenizer.chat_template";

impl ChatTemplate {
    /// The template of a model or tokenizer: that of a GGUF file, or of a directory (`chat_template.jinja`, or the key
    /// `chat_template` of `tokenizer_config.json`); `None` if it has none. `tokenizer` is the model's.
    ///
    /// # Errors
    /// When a file cannot be read, or the template is malformed.
    pub fn load(model: &Path, tokenizer: &Tokenizer) -> Result<Option<Self>> {
        let Some((path, source)) = source(model)? else { return Ok(None) };
        let token = |id: Option<u32>| id.and_then(|id| tokenizer.piece(id));
        let (bos, eos) = (token(tokenizer.bos()), token(tokenizer.eos()));
        let template = Self::new(&source, bos.as_deref(), eos.as_deref());
        template.map(Some).map_err(|problem| WeightsError::content(path, problem))
    }
}

fn source(model: &Path) -> Result<Option<(PathBuf, String)>> {
    if gguf::is_gguf(model) {
        let file = Gguf::open(model)?;
        return Ok(file.string(KEY)?.map(|source| (model.to_path_buf(), source.to_owned())));
    }
    let path = model.join(TEMPLATE_FILE);
    if path.is_file() {
        let source = hankel_io::input::read_to_string(&path)?;
        return Ok(Some((path, source)));
    }
    let path = model.join(CONFIG_FILE);
    if !path.is_file() {
        return Ok(None);
    }
    let bytes = hankel_io::input::read(&path)?;
    let config: Json = serde_json::from_slice(&bytes).map_err(|e| WeightsError::content(&path, e.to_string()))?;
    let source = match &config["chat_template"] {
        Json::Null => return Ok(None),
        Json::String(source) => Some(source.clone()),
        // Several, by name.
        Json::Array(named) => named
            .iter()
            .find(|entry| entry["name"] == "default")
            .and_then(|entry| entry["template"].as_str())
            .map(str::to_owned),
        _ => None,
    };
    match source {
        Some(source) => Ok(Some((path, source))),
        None => {
            Err(WeightsError::content(&path, "chat_template is neither a string nor a list with one named default"))
        }
    }
}
