//! Which part of a conversation's text the assistant wrote.
//!
//! A template may mark it: `{% generation %} ... {% endgeneration %}`. Most do not. Then the beginning of an answer is where
//! the text of the messages before it, with what begins an answer, ends; and its end is found by writing the conversation
//! once more with a character after the answer's content that occurs nowhere else.

use super::{ChatTemplate, Conversation, Result};
use regex::Regex;
use serde_json::Value as Json;
use std::ops::Range;
use std::sync::LazyLock;

/// Characters that Unicode keeps for such a use inside a program; they occur in no text.
const OPEN: char = '\u{fdd0}';
const CLOSE: char = '\u{fdd1}';

/// The filter that stands for the block `generation`.
pub(super) const FILTER: &str = "mark_answer";

/// The template with blocks of the filter in place of those of `generation`, and whether there is one.
pub(super) fn replace_marks(source: &str) -> (String, bool) {
    static TAG: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}").expect("a valid pattern"));
    let replaced = TAG.replace_all(source, |found: &regex::Captures| {
        let tag = if found.get(2).is_some() { "endfilter".to_owned() } else { format!("filter {FILTER}") };
        format!("{{%{} {tag} {}%}}", &found[1], &found[3])
    });
    let is_marked = matches!(replaced, std::borrow::Cow::Owned(_));
    (replaced.into_owned(), is_marked)
}

/// The filter.
pub(super) fn mark(text: &str) -> String {
    format!("{OPEN}{text}{CLOSE}")
}

/// Whether a message holds the characters that mark answers.
pub(super) fn is_forged(message: &Json) -> bool {
    match message {
        Json::String(text) => text.contains([OPEN, CLOSE]),
        Json::Array(items) => items.iter().any(is_forged),
        Json::Object(fields) => fields.iter().any(|(key, value)| key.contains([OPEN, CLOSE]) || is_forged(value)),
        _ => false,
    }
}

/// Takes the marks out of a text.
pub(super) fn unmark(marked: &str) -> Result<Conversation> {
    let (mut text, mut answers, mut begun) = (String::with_capacity(marked.len()), Vec::new(), None);
    for c in marked.chars() {
        match c {
            OPEN if begun.is_none() => begun = Some(text.len()),
            CLOSE if begun.is_some() => answers.extend(begun.take().map(|first| first..text.len())),
            OPEN | CLOSE => return Err("the chat template nests blocks of `generation`".to_owned()),
            c => text.push(c),
        }
    }
    if begun.is_some() {
        return Err("the chat template cuts off a block of `generation`".to_owned());
    }
    Ok(Conversation { text, answers })
}

/// Answers without what begins them, which the template may mark as well (SmolLM3): it stands in the prompt.
pub(super) fn without_headers(
    template: &ChatTemplate,
    messages: &[Json],
    mut conversation: Conversation,
) -> Conversation {
    let said: Vec<usize> = (0..messages.len()).filter(|index| messages[*index]["role"] == "assistant").collect();
    if said.len() == conversation.answers.len() {
        for (answer, index) in conversation.answers.iter_mut().zip(said) {
            let before = template.render(&messages[..index], true).ok();
            let before = before.filter(|before| index > 0 && conversation.text.starts_with(&before[..]));
            if let Some(before) = before.filter(|before| answer.contains(&before.len())) {
                answer.start = before.len();
            }
        }
    }
    conversation
}

/// The text of `messages` by a template without marks, and its answers.
pub(super) fn find(template: &ChatTemplate, messages: &[Json]) -> Result<Conversation> {
    let text = template.run(messages, false)?;
    let mut answers: Vec<Range<usize>> = Vec::new();
    for (index, _) in messages.iter().enumerate().filter(|(_, message)| message["role"] == "assistant") {
        let answer = span(template, messages, index, &text).ok_or_else(|| {
            format!("the chat template changes messages[{index}] so that its text cannot be found; {{% generation %}} in the template would mark it")
        })?;
        answers.push(answer);
    }
    Ok(Conversation { text, answers })
}

/// The bytes of `text` that message `index` is.
fn span(template: &ChatTemplate, messages: &[Json], index: usize, text: &str) -> Option<Range<usize>> {
    // What is not there is written as nothing.
    let content = messages[index].get("content").filter(|content| !content.is_null()).map_or(Some(""), Json::as_str)?;
    let Some((marked, end)) = closed(template, messages, index, text) else {
        return by_prefixes(template, messages, index, text);
    };
    // What ends the turn, from a conversation that ends there.
    let alone = template.run_unchecked(&marked[..=index], false).ok()?;
    let marker = alone[alone.find(CLOSE)? + CLOSE.len_utf8()..].trim_end();
    let end = end + ended_by(marker, &text[end..])?.len();
    let before =
        template.run(&messages[..index], true).ok().filter(|before| index > 0 && text.starts_with(&before[..]));
    if let Some(before) = before {
        return (before.len() <= end).then_some(before.len()..end);
    }
    let first = if content.trim().is_empty() { 0 } else { content.len() - content.trim_start().len() };
    let opened = with_mark(messages, index, first, OPEN);
    let start = mark_in(&template.run_unchecked(&opened, false).ok()?, OPEN, text)?;
    // The template may write something of its own between what begins an answer and the content (Qwen 3 a block of thoughts
    // where an answer has none), and write the messages before it otherwise when they stand alone.
    let header = header(template, messages, index);
    let previous = (index > 0).then(|| closed(template, messages, index - 1, text)).flatten().map_or(0, |(_, end)| end);
    let header = header.and_then(|header| Some(text.get(previous..start)?.rfind(&header)? + previous + header.len()));
    let start = header.unwrap_or(start);
    (start <= end).then_some(start..end)
}

/// What of `marker`, which ends a conversation, ends the turn where `rest` comes after it: a template may write the token that ends a
/// text behind the last turn alone (Phi-3).
fn ended_by<'a>(marker: &'a str, rest: &str) -> Option<&'a str> {
    if rest.starts_with(marker) {
        return Some(marker);
    }
    let same = marker.char_indices().zip(rest.chars()).find(|((_, c), other)| c != other).map(|((at, _), _)| at)?;
    let line = marker[..same].rfind('\n')?;
    Some(marker[..line].trim_end()).filter(|marker| !marker.is_empty())
}

/// Message `index` where a mark in its content does not show, or changes what is written around it, as in calls of tools, which have
/// no content: what the text of the messages up to it has more than that of those before it.
fn by_prefixes(template: &ChatTemplate, messages: &[Json], index: usize, text: &str) -> Option<Range<usize>> {
    let before = template.run(&messages[..index], true).ok().filter(|_| index > 0)?;
    let with = template.run(&messages[..=index], false).ok()?;
    let end = with.trim_end().len();
    let is_between = with.starts_with(&before) && text.starts_with(&with[..end]) && before.len() < end;
    is_between.then_some(before.len()..end)
}

/// What begins an answer: what the template adds to the messages before it when it is asked to.
fn header(template: &ChatTemplate, messages: &[Json], index: usize) -> Option<String> {
    let prompted = template.run(&messages[..index], true).ok()?;
    let bare = template.run(&messages[..index], false).ok()?;
    prompted.strip_prefix(&bare[..]).filter(|header| !header.trim().is_empty()).map(str::to_owned)
}

/// The messages with a mark behind the content of message `index`, and where in `text` that is.
fn closed(template: &ChatTemplate, messages: &[Json], index: usize, text: &str) -> Option<(Vec<Json>, usize)> {
    let content = messages[index].get("content").and_then(Json::as_str).unwrap_or_default();
    // A mark inside the white space around the content is not in the way of a template that trims; of one that trims the
    // beginning alone, a mark behind nothing but white space is.
    [content.trim_end().len(), content.len()].into_iter().find_map(|after| {
        let marked = with_mark(messages, index, after, CLOSE);
        let end = mark_in(&template.run_unchecked(&marked, false).ok()?, CLOSE, text)?;
        Some((marked, end))
    })
}

/// The messages, one of them with a mark in its content.
fn with_mark(messages: &[Json], index: usize, at: usize, mark: char) -> Vec<Json> {
    let mut messages = messages.to_vec();
    let mut content = messages[index]["content"].as_str().unwrap_or_default().to_owned();
    content.insert(at, mark);
    messages[index]["content"] = content.into();
    messages
}

/// Where in `text` the mark is, if the mark is all that was added to it.
fn mark_in(marked: &str, mark: char, text: &str) -> Option<usize> {
    let at = marked.find(mark)?;
    let rest = &marked[at + mark.len_utf8()..];
    (text.get(..at) == Some(&marked[..at]) && text.get(at..) == Some(rest)).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(turns: &[(&str, &str)]) -> Vec<Json> {
        turns.iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
    }

    fn answers(source: &str, messages: &[Json]) -> Vec<String> {
        let template = ChatTemplate::new(source, None, Some("<|endoftext|>")).unwrap();
        let conversation = template.conversation(messages).unwrap();
        conversation.answers.into_iter().map(|answer| conversation.text[answer].to_owned()).collect()
    }

    /// That of Phi-3: the token that ends a text stands behind the last turn alone.
    #[test]
    fn a_template_may_end_the_text_behind_the_last_turn() {
        let source = "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}\
                      {% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}";
        let turns = said(&[("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")]);
        assert_eq!(answers(source, &turns), ["b<|end|>", "d<|end|>\n<|endoftext|>"]);
    }

    /// That of SmolLM3: what begins an answer is marked with it.
    #[test]
    fn what_begins_an_answer_is_none_of_it() {
        let source = "{% for m in messages %}{% if m.role == 'assistant' %}\
                      {% generation %}{{ '<|im_start|>assistant\n' + m.content + '<|im_end|>\n' }}{% endgeneration %}\
                      {% else %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}\
                      {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
        let turns = said(&[("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")]);
        assert_eq!(answers(source, &turns), ["b<|im_end|>\n", "d<|im_end|>\n"]);
    }

    #[test]
    fn a_mark_that_moves_what_stands_before_it_is_no_place() {
        assert_eq!(mark_in("10:\u{fdd1}。", CLOSE, "9:。"), None);
    }
}
