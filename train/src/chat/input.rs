//! Lines that are said: typed in a terminal, where they can be edited and recalled, or read from the standard input.

use anyhow::{Context, Result};
use hankel_trainer::tell;
use rustyline::error::ReadlineError;
use rustyline::{Config, DefaultEditor};
use std::io::{IsTerminal, stdin, stdout};

/// Where lines come from.
pub enum Input {
    /// Somebody types them. What is pasted is one line, with its line breaks.
    Typed(Box<DefaultEditor>),
    /// A file or another program.
    Piped,
}

impl Input {
    /// # Errors
    /// When the terminal cannot be used.
    pub fn open() -> Result<Self> {
        if !(stdin().is_terminal() && stdout().is_terminal()) {
            return Ok(Input::Piped);
        }
        let config = Config::builder().auto_add_history(true).build();
        Ok(Input::Typed(Box::new(DefaultEditor::with_config(config).context("the terminal cannot be used")?)))
    }

    /// The next line; `None` at the end.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn line(&mut self) -> Result<Option<String>> {
        let Input::Typed(editor) = self else {
            let mut line = String::new();
            let bytes = stdin().read_line(&mut line).context("cannot read the standard input")?;
            return Ok((bytes > 0).then_some(line));
        };
        loop {
            match editor.readline("> ") {
                Ok(line) => return Ok(Some(line)),
                Err(ReadlineError::Eof) => return Ok(None),
                Err(ReadlineError::Interrupted) => tell!("Ctrl-D or /quit ends the conversation"),
                Err(error) => return Err(error).context("cannot read from the terminal"),
            }
        }
    }
}
