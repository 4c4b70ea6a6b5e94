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
        return by_prefixes(template, messages, index, text).or_else(|| by_calls(template, messages, index, text));
    };
    // What ends the turn, from a conversation that ends there.
    let alone = template.run_unchecked(&marked[..=index], false).ok()?;
    let marker = alone[alone.find(CLOSE)? + CLOSE.len_utf8()..].trim_end();
    let end = end + ended_by(template, marker, &text[end..])?.len();
    let before =
        template.run(&messages[..index], true).ok().filter(|before| index > 0 && text.starts_with(&before[..]));
    if let Some(before) = before {
        return (before.len() <= end).then_some(before.len()..end);
    }
    let first = if content.trim().is_empty() { 0 } else { content.len() - content.trim_start().len() };
    // A template may leave out what the assistant thought (DeepSeek R1, Qwen 3 in earlier turns).
    let thought = content.rfind(THOUGHT).map(|at| at + THOUGHT.len());
    let said = thought.map(|after| content.len() - content[after..].trim_start().len());
    let start = [Some(first), said].into_iter().flatten().find_map(|at| {
        let opened = with_mark(messages, index, at, OPEN);
        mark_in(&template.run_unchecked(&opened, false).ok()?, OPEN, text)
    })?;
    let start = begins(template, messages, index, text, start).unwrap_or(start);
    (start <= end).then_some(start..end)
}

/// What ends the thoughts in an answer.
const THOUGHT: &str = "</think>";

/// Where message `index` begins, of which something stands at `at`: behind what begins an answer, or, where nothing does, behind what
/// ends the message before it. The template may write something of its own there (Qwen 3 a block of thoughts where an answer has
/// none), and write the messages before it otherwise when they stand alone.
fn begins(template: &ChatTemplate, messages: &[Json], index: usize, text: &str, at: usize) -> Option<usize> {
    let previous = (index > 0).then(|| closed(template, messages, index - 1, text)).flatten();
    let from = previous.as_ref().map_or(0, |(_, end)| *end);
    if let Some(header) = header(template, messages, index) {
        return Some(text.get(from..at)?.rfind(&header)? + from + header.len());
    }
    let (marked, end) = previous?;
    let before = template.run_unchecked(&marked[..index], true).ok()?;
    let tail = &before[before.find(CLOSE)? + CLOSE.len_utf8()..];
    (text.get(end..at)?.starts_with(tail)).then_some(end + tail.len())
}

/// The bytes of message `index`, which calls tools, by marks in the names of the functions. For templates that write such a message in
/// another way when it has content.
fn by_calls(template: &ChatTemplate, messages: &[Json], index: usize, text: &str) -> Option<Range<usize>> {
    let last = messages[index].get("tool_calls")?.as_array()?.len().checked_sub(1)?;
    let with_mark = |call: usize, mark: char| {
        let mut messages = messages.to_vec();
        let call = &mut messages[index]["tool_calls"][call];
        let call = if call["function"].is_object() { &mut call["function"] } else { call };
        let name = call["name"].as_str()?;
        call["name"] = if mark == OPEN { format!("{OPEN}{name}") } else { format!("{name}{CLOSE}") }.into();
        Some(messages)
    };
    let place = |messages: &[Json], mark| mark_in(&template.run_unchecked(messages, false).ok()?, mark, text);
    let first = place(&with_mark(0, OPEN)?, OPEN)?;
    let closed = with_mark(last, CLOSE)?;
    let named = place(&closed, CLOSE)?;
    let alone = template.run_unchecked(&closed[..=index], false).ok()?;
    let marker = alone[alone.find(CLOSE)? + CLOSE.len_utf8()..].trim_end();
    let end = named + ended_by(template, marker, &text[named..])?.len();
    let start = begins(template, messages, index, text, first)?;
    (start <= end).then_some(start..end)
}

/// What of `marker`, which ends a conversation, ends the turn where `rest` comes after it: a template may write the token that ends a
/// text behind the last turn alone, on the same line (Phi-4) or on one of its own (Phi-3).
fn ended_by<'a>(template: &ChatTemplate, marker: &'a str, rest: &str) -> Option<&'a str> {
    if rest.starts_with(marker) {
        return Some(marker);
    }
    let eos = template.variables.get("eos_token").and_then(Json::as_str).filter(|eos| !eos.is_empty());
    let without = eos.and_then(|eos| Some(marker.strip_suffix(eos)?.trim_end()));
    if let Some(marker) = without.filter(|marker| !marker.is_empty() && rest.starts_with(marker)) {
        return Some(marker);
    }
    let same = marker.char_indices().zip(rest.chars()).find(|((_, c), other)| c != other).map(|((at, _), _)| at)?;
    let line = marker[..same].rfind('\n')?;
    Some(marker[..line].trim_end()).filter(|marker| !marker.is_empty())
}

/// The bytes of message `index`, by comparing the text of the messages up to it with that of the messages before it. For messages in
/// which a mark in the content does not show, or changes the text around it, as in calls of tools, which have no content.
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
    // Before the trailing white space, a mark does not disturb a template that trims both ends. If the content is only white space and the
    // template trims the beginning alone, the mark has to be at the end.
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

    /// That of Phi-4: on the same line.
    #[test]
    fn a_template_may_end_the_text_on_the_line_of_the_last_turn() {
        let source = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}\
                      {% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}";
        let turns = said(&[("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")]);
        assert_eq!(answers(source, &turns), ["b<|end|>", "d<|end|><|endoftext|>"]);
    }

    /// That of Qwen 3: an empty block of thoughts before the last message alone, and a line break between content and calls.
    #[test]
    fn calls_are_found_by_the_names_of_their_functions() {
        let source = "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<|im_start|>assistant\n' }}\
                      {% if loop.last %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{{ m.content or '' }}\
                      {% for call in m.tool_calls or [] %}{% if not loop.first or m.content %}{{ '\n' }}{% endif %}\
                      {{ '<tool_call>\n{\"name\": \"' + call.function.name + '\", \"arguments\": ' }}{{ call.function.arguments|tojson }}\
                      {{ '}\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}\
                      {% else %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}\
                      {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
        let call = |name: &str| json!({"type": "function", "function": {"name": name, "arguments": {"x": 1e-7}}});
        let messages = [
            json!({"role": "user", "content": "a"}),
            json!({"role": "assistant", "content": "", "tool_calls": [call("f"), call("g")]}),
            json!({"role": "tool", "content": "b"}),
            json!({"role": "assistant", "content": "c"}),
        ];
        let one = |name: &str| {
            format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {{\"x\": 1e-07}}}}\n</tool_call>")
        };
        let calls = format!("{}\n{}<|im_end|>", one("f"), one("g"));
        assert_eq!(answers(source, &messages), [calls, "<think>\n\n</think>\n\nc<|im_end|>".to_owned()]);
    }

    /// That of Mistral: nothing begins an answer, and the tools stand before the last question.
    #[test]
    fn calls_without_anything_that_begins_an_answer() {
        let source = "{% set last = messages|selectattr('role', 'equalto', 'user')|list|last %}{% for m in messages %}\
                      {% if m.role == 'user' %}{% if m == last %}{{ '[TOOLS]' }}{% endif %}{{ '[INST] ' + m.content + '[/INST]' }}\
                      {% elif m.role == 'tool' %}{{ '[RESULT]' + m.content + '[/RESULT]' }}\
                      {% elif m.tool_calls %}{{ '[CALL] ' + m.tool_calls[0].function.name + eos_token }}\
                      {% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}";
        let messages = [
            json!({"role": "user", "content": "a"}),
            json!({"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}),
            json!({"role": "tool", "content": "b"}),
            json!({"role": "assistant", "content": "c"}),
            json!({"role": "user", "content": "d"}),
            json!({"role": "assistant", "content": "e"}),
        ];
        let found = answers(source, &messages);
        assert_eq!((&found[0][..], found.len()), ("[CALL] f<|endoftext|>", 3), "{found:?}");
    }

    /// That of DeepSeek R1: thoughts are left out.
    #[test]
    fn answers_whose_thoughts_are_left_out() {
        let source = "{% for m in messages %}{% if m.role == 'assistant' %}\
                      {{ '<A>' + m.content.split('</think>')[-1]|trim + eos_token }}{% else %}{{ '<U>' + m.content }}{% endif %}{% endfor %}\
                      {% if add_generation_prompt %}{{ '<A><think>\n' }}{% endif %}";
        let turns = said(&[("user", "a"), ("assistant", "<think>\nx\n</think>\n\nb")]);
        assert_eq!(answers(source, &turns), ["b<|endoftext|>"]);
    }

    #[test]
    fn line_ends_are_read_as_one() {
        let turns = said(&[("user", "a"), ("assistant", "b")]);
        let template =
            ChatTemplate::new("{% for m in messages %}\r\n{{ m.role }}\r\n{{ m.content }};\r{% endfor %}", None, None)
                .unwrap();
        assert_eq!(template.conversation(&turns).unwrap().text, "user\na;\nassistant\nb;\n");
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
