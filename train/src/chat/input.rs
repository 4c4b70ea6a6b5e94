//! Lines that are said: typed in a terminal, where they can be edited and recalled, or read from the standard input.

use anyhow::{Context, Result};
use hankel_trainer::tell;
use rustyline::error::ReadlineError;
use rustyline::{Config, DefaultEditor};
use std::io::{BufRead, ErrorKind, IsTerminal, stdin, stdout};

/// Where lines come from.
pub enum Input {
    /// Somebody types them. What is pasted is one line, with its line breaks.
    Typed(Box<DefaultEditor>),
    /// A file or another program.
    Piped,
}

/// A line that is not UTF-8.
#[derive(Debug)]
pub struct NotText;

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

    /// The next line, or what is wrong with it alone; `None` at the end.
    ///
    /// # Errors
    /// When nothing can be read any more.
    pub fn line(&mut self) -> Result<Option<Result<String, NotText>>> {
        let Input::Typed(editor) = self else {
            let mut line = Vec::new();
            let bytes = stdin().lock().read_until(b'\n', &mut line).context("cannot read the standard input")?;
            return Ok((bytes > 0).then(|| String::from_utf8(line).map_err(|_| NotText)));
        };
        loop {
            match editor.readline("> ") {
                Ok(line) => return Ok(Some(Ok(line))),
                Err(ReadlineError::Io(error)) if error.kind() == ErrorKind::InvalidData => {
                    return Ok(Some(Err(NotText)));
                }
                Err(ReadlineError::Eof) => return Ok(None),
                Err(ReadlineError::Interrupted) => tell!("Ctrl-D or /quit ends the conversation"),
                Err(error) => return Err(error).context("cannot read from the terminal"),
            }
        }
    }
}
