//! `train tokenize`.

use anyhow::{Context, Result, bail, ensure};
use hankel_io::terminal;
use hankel_models::Tokenizer;
use hankel_models::gguf::is_gguf;
use hankel_models::tokenizer::TOKENIZER_FILE;
use serde_json::json;
use std::io::Read;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory with tokenizer.json (a model's), that file, or a GGUF file
    tokenizer: PathBuf,
    /// File to read; standard input when left out
    input: Option<PathBuf>,
    /// Tokenize this text instead of a file
    #[arg(long, conflicts_with = "input")]
    text: Option<String>,
    /// Turn token ids, separated by spaces, commas or line breaks, into text
    #[arg(long)]
    decode: bool,
    /// Add the tokens that begin and end a text, or write them out when decoding
    #[arg(long)]
    special: bool,
    /// Print JSON: ids, tokens and text
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let directory = match args.tokenizer.file_name() {
        Some(name) if name == TOKENIZER_FILE => args.tokenizer.parent().unwrap_or(Path::new(".")).to_owned(),
        _ => args.tokenizer.clone(),
    };
    let directory = if directory.as_os_str().is_empty() { PathBuf::from(".") } else { directory };
    ensure!(
        !directory.is_file() || is_gguf(&directory),
        "{} is a file: name a directory with {TOKENIZER_FILE}, that file, or a GGUF file",
        directory.display()
    );
    let tokenizer = Tokenizer::load(&directory)?;
    let input = match (&args.text, &args.input) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) => without_mark(&hankel_io::input::read_to_string(path)?).to_owned(),
        (None, None) => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            without_mark(&text).to_owned()
        }
    };
    let (ids, text) = if args.decode {
        let ids = parse(&input, tokenizer.vocabulary())?;
        let text = if args.special { tokenizer.decode_with_special(&ids)? } else { tokenizer.decode(&ids)? };
        (ids, text)
    } else {
        let ids = if args.special { tokenizer.encode_with_special(&input)? } else { tokenizer.encode(&input)? };
        (ids, input)
    };
    if args.json {
        let tokens: Vec<Option<String>> = ids.iter().map(|&id| tokenizer.piece(id)).collect();
        terminal::json(&json!({ "ids": ids, "tokens": tokens, "text": text }).to_string())?;
    } else if args.decode {
        terminal::data(format!("{text}\n").as_bytes())?;
    } else {
        let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
        terminal::line(&ids.join(" "))?;
    }
    Ok(())
}

/// A byte order mark is no text, as in `fit`.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// The ids in a text, JSON lists included.
fn parse(text: &str, vocabulary: usize) -> Result<Vec<u32>> {
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, ',' | '[' | ']')).filter(|word| !word.is_empty());
    let id = |word: &str| match word.parse::<u32>() {
        Ok(id) if (id as usize) < vocabulary => Ok(id),
        Ok(id) => bail!("{id} is not a token: there are {vocabulary}"),
        Err(_) => bail!("{word:?} is not a token id; expected whole numbers below {vocabulary}"),
    };
    words.map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_from_lists_and_lines() {
        assert_eq!(parse("[1, 2,\n 3]", 4).unwrap(), [1, 2, 3]);
        assert!(parse("", 4).unwrap().is_empty());
        assert!(parse("4", 4).unwrap_err().to_string().contains("4 is not a token: there are 4"));
        assert!(parse("1 x", 4).unwrap_err().to_string().contains("\"x\" is not a token id"));
    }
}
