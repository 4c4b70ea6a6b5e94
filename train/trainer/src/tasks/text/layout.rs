//! From examples to tokens.
//!
//! ```text
//! bos?  prompt ... | document, cut to fit | ... prompt  answer eos
//!                                            predicted: ^^^^^^^^^^
//! ```
//!
//! The token that begins a text stands there if the tokenizer puts it there ([`Tokenizer::before`]).
//!
//! Pieces are tokenised by themselves, a document once for all its questions. The first piece gets the tokens that a text begins with,
//! which with SentencePiece begin with a space; the others those that they have in the middle of a text
//! ([`Tokenizer::continuation`]).

use super::config::Truncation;
use super::document::{Document, Example, Piece};
use crate::tasks::Sequence;
use hankel_models::Tokenizer;
use hankel_models::chat::Conversation;
use hankel_models::weights::WeightsError;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Documents by address, an identity that lives as long as the document, which is kept beside it; and whether they begin a text.
type Cache = HashMap<(usize, bool), (Arc<Document>, Arc<OnceLock<Vec<u32>>>)>;

/// What limits the tokens of an example, for messages.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// What says how long a sequence may be.
    pub length: &'static str,
    /// What says how long a generated answer may be.
    pub new_tokens: &'static str,
}

/// The rules by which examples become tokens.
pub struct Layout {
    tokenizer: Tokenizer,
    length: usize,
    truncation: Truncation,
    names: Names,
    documents: Mutex<Cache>,
}

/// Sizes of an example, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// The beginning of the text and everything that is read and never cut.
    pub fixed: usize,
    /// What is learned, ends included.
    pub answers: usize,
    /// What of `fixed` stands before the last answer.
    pub read: usize,
}

impl Layout {
    /// Rules for sequences of at most `length` tokens. A generated answer has room in them, too: what is read does not
    /// depend on whether the answer is learned or generated.
    pub fn new(tokenizer: Tokenizer, length: usize, truncation: Truncation) -> Self {
        let names = Names { length: "`task.length`", new_tokens: "`task.max_new_tokens`" };
        Layout { tokenizer, length, truncation, names, documents: Mutex::default() }
    }

    /// The same rules under other names.
    pub fn called(self, names: Names) -> Self {
        Layout { names, ..self }
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    fn document(&self, index: usize, document: &Arc<Document>) -> Result<Arc<OnceLock<Vec<u32>>>, WeightsError> {
        let slot = {
            let mut cache = self.documents.lock().unwrap_or_else(PoisonError::into_inner);
            let entry = cache.entry((Arc::as_ptr(document) as usize, index == 0));
            Arc::clone(&entry.or_insert_with(|| (Arc::clone(document), Arc::default())).1)
        };
        if slot.get().is_none() {
            let mut ids = self.ids(index, &document.text)?;
            // What lies between can never be read.
            if ids.len() > 2 * self.length {
                ids.drain(self.length..ids.len() - self.length);
                ids.shrink_to_fit();
            }
            let _ = slot.set(ids);
        }
        Ok(slot)
    }

    fn ids(&self, index: usize, text: &str) -> Result<Vec<u32>, WeightsError> {
        if index == 0 { self.tokenizer.encode(text) } else { self.tokenizer.continuation(text) }
    }

    /// The tokens of a conversation, nothing put around them, and which of them are learned.
    fn conversation(&self, conversation: &Conversation) -> Result<Vec<(u32, bool)>, WeightsError> {
        let tokens = self.tokenizer.encode_with_places(&conversation.text)?;
        Ok(tokens.into_iter().map(|(id, place)| (id, conversation.is_answer(&place))).collect())
    }

    /// What of an example is never cut.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn size(&self, example: &Example) -> Result<Size, WeightsError> {
        let mut size = Size { fixed: self.tokenizer.before().len(), answers: 0, read: 0 };
        for (index, piece) in example.pieces.iter().enumerate() {
            match piece {
                Piece::Text(text) => size.fixed += self.ids(index, text)?.len(),
                Piece::Document => {}
                Piece::Conversation(conversation) => {
                    let tokens = self.tokenizer.encode_with_places(&conversation.text)?;
                    // Earlier answers stand in the prompt of the last one.
                    let last = conversation.answers.last().cloned().unwrap_or_default();
                    let is_last = |place: &Range<usize>| place.start < last.end && last.start < place.end;
                    let answers = tokens.iter().filter(|(_, place)| is_last(place)).count();
                    let read = tokens.iter().take_while(|(_, place)| place.end <= last.start).count();
                    size = Size { fixed: tokens.len() - answers, answers, read };
                }
                Piece::Answer(text) => {
                    size.fixed += size.answers;
                    size.read = size.fixed;
                    size.answers = self.ids(index, text)?.len() + usize::from(self.tokenizer.eos().is_some());
                }
            }
        }
        Ok(size)
    }

    /// What is wrong with an example of this size, if anything is: it does not fit however much of its document is cut out, or no token
    /// stands before its answer, so that a model can neither write nor learn the first token of the answer.
    pub fn objection(&self, example: &Example, size: Size) -> Option<String> {
        let Size { fixed, answers, read } = size;
        let reserve = answers.max(example.new_tokens);
        let document = usize::from(example.pieces.contains(&Piece::Document));
        if read + document == 0 {
            let problem =
                "its prompt is empty: no token stands before the answer, and the tokenizer begins no text with one";
            return Some(problem.to_owned());
        }
        if fixed + reserve + document <= self.length {
            return None;
        }
        let (length, new) = (self.length, example.new_tokens);
        let Names { length: most, new_tokens: asked } = self.names;
        Some(if answers + document + 1 > length {
            format!("its answer takes {answers} tokens, more than {most} = {length} leaves")
        } else if fixed + answers + document > length {
            let is_whole = example.question.messages.is_empty() && !example.pieces.contains(&Piece::Document);
            let advice = if is_whole { "; a field that may be cut is named as `task.document`" } else { "" };
            format!("question and answer take {fixed} + {answers} tokens, more than {most} = {length}{advice}")
        } else {
            format!("its question takes {fixed} tokens, which leaves no room for {asked} = {new} of {most} = {length}")
        })
    }

    /// Whether the document of an example is cut, so that the rest fits.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn is_cut(&self, example: &Example) -> Result<bool, WeightsError> {
        let Some(index) = example.pieces.iter().position(|piece| *piece == Piece::Document) else { return Ok(false) };
        let size = self.size(example)?;
        let room = self.length.saturating_sub(size.fixed + size.answers.max(example.new_tokens));
        let slot = self.document(index, &example.question.document)?;
        Ok(slot.get().is_some_and(|ids| ids.len() > room))
    }

    /// The tokens of an example, and which of them are learned. Without `learned`, those that stand before the last
    /// answer.
    fn tokens(&self, example: &Example, learned: bool) -> Result<Vec<(u32, bool)>, WeightsError> {
        let size = self.size(example)?;
        let room = self.length.saturating_sub(size.fixed + size.answers.max(example.new_tokens));
        let last = example.pieces.iter().rposition(|piece| matches!(piece, Piece::Answer(_)));
        let mut said = example.question.said();
        let mut tokens: Vec<(u32, bool)> = self.tokenizer.before().iter().map(|&id| (id, false)).collect();
        for (index, piece) in example.pieces.iter().enumerate() {
            match piece {
                Piece::Text(text) => tokens.extend(self.ids(index, text)?.into_iter().map(|id| (id, false))),
                Piece::Document => {
                    let slot = self.document(index, &example.question.document)?;
                    let (head, tail) = cut(slot.get().map_or(&[][..], Vec::as_slice), room, self.truncation);
                    tokens.extend(head.iter().chain(tail).map(|&id| (id, false)));
                }
                Piece::Conversation(conversation) if learned => return self.conversation(conversation),
                Piece::Conversation(conversation) => {
                    // The tokens that stand before the answer when it is learned: alone, a space at the end would be another.
                    let last = conversation.answers.last().map_or(0, |answer| answer.start);
                    let tokens = self.tokenizer.encode_with_places(&conversation.text)?;
                    let before = tokens.into_iter().take_while(|(_, place)| place.end <= last);
                    return Ok(before.map(|(id, _)| (id, false)).collect());
                }
                Piece::Answer(_) if !learned && Some(index) == last => return Ok(tokens),
                Piece::Answer(text) => {
                    let is_learned = said == 0;
                    said = said.saturating_sub(1);
                    tokens.extend(self.ids(index, text)?.into_iter().map(|id| (id, is_learned)));
                    tokens.extend(self.tokenizer.eos().map(|eos| (eos, is_learned)));
                }
            }
        }
        Ok(tokens)
    }

    /// The sequence to learn from.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn sequence(&self, example: &Example) -> Result<Sequence, WeightsError> {
        let tokens = self.tokens(example, true)?;
        let pairs = tokens.windows(2);
        Ok(Sequence {
            tokens: pairs.clone().map(|pair| pair[0].0).collect(),
            targets: pairs.clone().map(|pair| pair[1].0).collect(),
            weights: pairs.map(|pair| f32::from(u8::from(pair[1].1))).collect(),
        })
    }

    /// The sequences of an example: one, or the chosen and the rejected answer of a pair, behind the same prompt.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn sequences(&self, example: &Example) -> Result<Vec<Sequence>, WeightsError> {
        let Some(other) = example.other() else { return Ok(vec![self.sequence(example)?]) };
        // A prompt that is cut leaves room for the longer answer.
        let reserve = self.size(example)?.answers.max(self.size(&other)?.answers).max(example.new_tokens);
        let sequence = |example: Example| self.sequence(&Example { new_tokens: reserve, ..example });
        Ok(vec![sequence(example.clone())?, sequence(other)?])
    }

    /// What is read before the last answer.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn prompt(&self, example: &Example) -> Result<Vec<u32>, WeightsError> {
        Ok(self.tokens(example, false)?.into_iter().map(|(id, _)| id).collect())
    }

    /// The tokens of a sequence with `|` between them, what is learned between ⟦ and ⟧.
    pub fn marked_tokens(&self, sequence: &Sequence) -> String {
        let (ids, learned) = all(sequence);
        let mut out = String::new();
        for (index, id) in ids.iter().enumerate() {
            let before = index > 0 && learned[index - 1];
            out.push_str(match (before, learned[index]) {
                (false, true) => "\u{27e6}",
                (true, false) => "\u{27e7}",
                _ if index > 0 => "|",
                _ => "",
            });
            let piece = self.tokenizer.piece(*id);
            out.push_str(&piece.map_or_else(|| format!("<{id}>"), |piece| piece.escape_debug().to_string()));
        }
        if learned.last().is_some_and(|learned| *learned) {
            out.push('\u{27e7}');
        }
        out
    }

    /// The text of a sequence, what is learned between ⟦ and ⟧.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn marked(&self, sequence: &Sequence) -> Result<String, WeightsError> {
        let (ids, learned) = all(sequence);
        let (mut text, mut out) = (String::new(), String::new());
        let mut first = 0;
        while first < ids.len() {
            let end = (first..ids.len()).find(|&i| learned[i] != learned[first]).unwrap_or(ids.len());
            // Decoded with all that came before, so that a space at the border is not lost.
            let longer = self.tokenizer.decode_with_special(&ids[..end])?;
            let new = longer.get(text.len()..).unwrap_or_default();
            if learned[first] {
                out.extend(["\u{27e6}", new, "\u{27e7}"]);
            } else {
                out.push_str(new);
            }
            (text, first) = (longer, end);
        }
        Ok(out)
    }
}

/// All tokens of a sequence, and which of them are learned.
fn all(sequence: &Sequence) -> (Vec<u32>, Vec<bool>) {
    let ids = sequence.tokens.first().copied().into_iter().chain(sequence.targets.iter().copied()).collect();
    let learned = std::iter::once(false).chain(sequence.weights.iter().map(|weight| *weight > 0.0)).collect();
    (ids, learned)
}

/// What stays of `ids` when there is room for `room`: a beginning and an end.
fn cut(ids: &[u32], room: usize, truncation: Truncation) -> (&[u32], &[u32]) {
    if ids.len() <= room {
        return (ids, &[]);
    }
    let head = match truncation {
        Truncation::Middle => room.div_ceil(2),
        Truncation::Head => 0,
        Truncation::Tail => room,
    };
    (&ids[..head], &ids[ids.len() - (room - head)..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_out() {
        let ids: Vec<u32> = (0..10).collect();
        let kept = |room, truncation| {
            let (head, tail) = cut(&ids, room, truncation);
            [head, tail].concat()
        };
        assert_eq!(kept(5, Truncation::Middle), [0, 1, 2, 8, 9]);
        assert_eq!(kept(5, Truncation::Head), [5, 6, 7, 8, 9]);
        assert_eq!(kept(5, Truncation::Tail), [0, 1, 2, 3, 4]);
        assert!(kept(0, Truncation::Middle).is_empty());
        assert_eq!(kept(10, Truncation::Head), ids);
        assert_eq!(kept(99, Truncation::Middle), ids);
    }
}
