//! The tokenizer of a task on texts: its key `task.tokenizer`, and what is checked of it.

use crate::settings::check::Checks;
use hankel_models::Tokenizer;
use hankel_models::tokenizer::TOKENIZER_FILE;
use std::path::{Path, PathBuf};

/// The directory, or GGUF file, of the tokenizer that the key names.
pub(super) fn place(tokenizer: Option<&Path>) -> PathBuf {
    let path = tokenizer.unwrap_or(Path::new(""));
    match path.file_name() {
        Some(name) if name == TOKENIZER_FILE => path.parent().map(Path::to_owned).unwrap_or_default(),
        _ => path.to_owned(),
    }
}

/// Size of its vocabulary; 0 when it cannot be read, which [`check`] reports.
pub(super) fn vocabulary(tokenizer: Option<&Path>) -> usize {
    Tokenizer::load(&place(tokenizer)).map_or(0, |tokenizer| tokenizer.vocabulary())
}

/// Reports a tokenizer that is missing or cannot be used.
pub(super) fn check(tokenizer: Option<&Path>, checks: &mut Checks<'_>) {
    checks.require("tokenizer", tokenizer.is_some(), || {
        format!(
            "is missing: name a directory with {TOKENIZER_FILE}. The backbone has none: it is a TinyGPT that begins untrained, unless \
             `[backbone]` has `kind = \"decoder\"` and `model`, a directory or a GGUF file"
        )
    });
    if let Some(Err(error)) = tokenizer.map(|path| Tokenizer::load(&place(Some(path)))) {
        checks.unusable_files("tokenizer", format!("cannot be used: {error}"));
    }
}

/// Reports a tokenizer with far fewer ids than a model of `vocabulary` ids: a larger one the backbone refuses, a few ids to
/// spare are usual.
pub(super) fn check_model(own: usize, vocabulary: usize, checks: &mut Checks<'_>) {
    checks.require("tokenizer", own == 0 || own * 10 >= vocabulary * 9, || {
        format!("has {own} ids, but the model has {vocabulary}: it is the tokenizer of another model, or the model has more than a tenth of its ids to spare")
    });
}

/// What is put before a text and after `whole`, to be shown before training.
pub(super) fn around(tokenizer: &Tokenizer, whole: &str) -> String {
    let names = |ids: &[u32]| {
        let names: Vec<String> = ids.iter().filter_map(|&id| tokenizer.piece(id)).collect();
        if names.is_empty() { "nothing".to_owned() } else { names.concat() }
    };
    let end: Vec<u32> = tokenizer.eos().into_iter().collect();
    format!("before a text: {}; after {whole}: {}", names(tokenizer.before()), names(&end))
}
