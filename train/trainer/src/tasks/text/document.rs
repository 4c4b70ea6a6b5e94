//! Texts and the examples made of them.

use crate::results::Split;
use hankel_models::chat::Conversation;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A long text that questions are asked about. Examples about the same text share it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// What it is called in its file.
    pub id: String,
    /// The text.
    pub text: String,
}

/// A part of what the model reads or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Read, never cut.
    Text(String),
    /// The document, cut when the whole does not fit.
    Document,
    /// Learned, followed by the token that ends a text.
    Answer(String),
    /// All of a conversation as the model's template writes it, with every token that it has; the answers are learned.
    Conversation(Conversation),
}

/// A question about a document with its answers, as a file has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Question {
    /// What it is called in predictions.
    pub id: String,
    /// File and line it is from.
    pub origin: String,
    /// The document.
    pub document: Arc<Document>,
    /// The values of the placeholders, the document's apart.
    pub fields: BTreeMap<String, String>,
    /// Acceptable answers; the first is learned.
    pub references: Vec<String>,
    /// LongBench: all classes of a classification.
    pub classes: Vec<String>,
    /// What to choose from, if there is a choice: labels and their texts. The answer is a label.
    pub options: Vec<(String, String)>,
    /// LongBench: the dataset, which decides prompt and metric.
    pub dataset: Option<String>,
    /// The part of the published division that it belongs to, if its file says so.
    pub part: Option<Split>,
    /// A conversation, instead of prompt and answer or beside them: objects with `role` and `content`.
    pub messages: Vec<Value>,
    /// Tools that the assistant may call in the conversation, as the template writes them.
    pub tools: Option<Value>,
    /// Of pairs: the conversation with the rejected answer.
    pub rejected: Vec<Value>,
    /// Messages that are read and not learned: of pairs, those that both conversations begin with; of a prompt and its completion, the
    /// prompt's.
    pub shared: usize,
}

/// A question as the model reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Example {
    /// The question.
    pub question: Question,
    /// What is read and learned.
    pub pieces: Vec<Piece>,
    /// Of pairs: the same with the rejected answer; empty otherwise.
    pub rejected: Vec<Piece>,
    /// What of the conversation is not read.
    pub unread: Unread,
    /// Whether today's date is written into a conversation.
    pub is_dated: bool,
    /// Tokens of a generated answer, at most.
    pub new_tokens: usize,
    /// Number of the document, the same for documents that are the same.
    pub group: usize,
    /// Whether everything but the document fits into a sequence, and a token stands before the answer. What does not is left
    /// out, but only after the division, so that the same documents are held out for any length of the sequences and any
    /// tokenizer.
    pub fits: bool,
}

/// What nothing writes of a conversation, though it is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unread {
    /// The tools beside it.
    pub tools: bool,
    /// Words of a message that calls tools.
    pub words: bool,
}

impl Question {
    /// How often the assistant has spoken before what is learned or compared.
    pub fn said(&self) -> usize {
        self.messages[..self.shared].iter().filter(|message| message["role"] == "assistant").count()
    }
}

impl Example {
    /// What is learned; of a conversation, all of it.
    pub fn answer(&self) -> &str {
        self.pieces
            .iter()
            .find_map(|piece| match piece {
                Piece::Answer(text) => Some(text.as_str()),
                Piece::Conversation(conversation) => Some(conversation.text.as_str()),
                Piece::Text(_) | Piece::Document => None,
            })
            .unwrap_or_default()
    }

    /// Of pairs: the example with the rejected answer.
    pub fn other(&self) -> Option<Self> {
        (!self.rejected.is_empty()).then(|| Example {
            pieces: self.rejected.clone(),
            rejected: Vec::new(),
            ..self.clone()
        })
    }
}
