//! Real excerpts and the real tokenizer of Mistral-7B.

mod answers;
mod examples;
mod turns;

use super::document::Piece;
use super::formats::{jsonl, longbench, narrativeqa, qmsum, quality};
use super::lines::Problems;
use super::*;
use crate::config::Config;
use crate::settings::Paths;
use crate::tasks::TaskConfig;
use std::path::PathBuf;
use std::sync::LazyLock;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A task on a file, `more` on top.
fn config(kind: &str, path: &str, more: &[&str]) -> Result<TextConfig, String> {
    let tokenizer = root().join("../../tests/golden/tokenizer");
    let text = format!(
        "[task]\nkind = {kind:?}\npath = {path:?}\ntokenizer = {tokenizer:?}\nlength = 512\nmax_new_tokens = 16\n[train]\n\
         steps = 1\n[[adapter]]\nkind = \"none\"\n"
    );
    let overrides: Vec<String> = more.iter().map(|&more| more.to_owned()).collect();
    let (config, _) = Config::load(&text, "t.toml", &overrides).map_err(|error| error.to_string())?;
    let again = Config::load(&config.to_toml(), "t.toml", &[]).map_err(|error| error.to_string())?.0;
    assert_eq!(config, again, "the resolved configuration is a configuration");
    match config.task {
        TaskConfig::Text(config) => Ok(config),
        _ => panic!("{kind}"),
    }
}

fn fixture(name: &str) -> String {
    root().join("../tests/fixtures/text").join(name).display().to_string()
}

fn open(kind: &str, name: &str, more: &[&str]) -> Text {
    Text::open(&config(kind, &fixture(name), more).unwrap()).unwrap()
}

fn narrativeqa(more: &[&str]) -> Text {
    let documents = format!("task.documents={}", fixture("narrativeqa_stories.jsonl"));
    open("narrativeqa", "narrativeqa_qaps.jsonl", &[&[&documents[..]], more].concat())
}

/// What is read and what is learned, as texts.
fn halves(text: &Text, example: &Example) -> (String, String) {
    let sequence = text.layout().sequence(example).unwrap();
    let marked = text.layout().marked(&sequence).unwrap();
    let (read, learned) = marked.split_once('\u{27e6}').unwrap();
    (read.to_owned(), learned.strip_suffix('\u{27e7}').unwrap().to_owned())
}

/// Every example of a part of a file, `more` on top.
fn all(text: &Text) -> impl Iterator<Item = &Example> {
    text.examples(Split::Train).iter().chain(text.examples(Split::Validation))
}

#[test]
fn the_prompts_are_the_published_ones() {
    let quality = open("quality", "quality.jsonl", &[]);
    let example = all(&quality).find(|example| example.question.id == "debate_03/1").unwrap();
    let (read, learned) = halves(&quality, example);
    assert!(read.starts_with("<s> Article:\nPied Piper of Mars By FREDERIC"), "{read}");
    assert!(
        read.ends_with(
            "Time-bound ritual,\n\nQuestion: What would be the main reason Mr. Ranson wants to find the creator of the \
             hypnotic music?\nA: The music could wipe out the terrestrials on Mars, so the source must be stopped.\nB: He \
             wants to figure out how to overturn a powerful revolt by the reddies.\nAnswer:"
        ),
        "{read}"
    );
    assert_eq!(learned, " A</s>");
    assert_eq!(example.question.references, ["A"]);

    let qmsum = open("qmsum", "qmsum.jsonl", &["task.length=2048"]);
    let (read, learned) = halves(&qmsum, &qmsum.examples(Split::Train)[0]);
    let example = &qmsum.examples(Split::Train)[0].question;
    let query = &example.fields["query"];
    assert!(read.starts_with(&format!("<s> Meeting transcript:\n{query}\n\n")), "{read}");
    assert!(read.ends_with("\n\nSummary:"), "{read}");
    assert_eq!(learned, format!(" {}</s>", example.references[0]));

    let narrativeqa = narrativeqa(&[]);
    let example = all(&narrativeqa).find(|example| example.question.references.len() == 2).unwrap();
    let (read, learned) = halves(&narrativeqa, example);
    let question = &example.question.fields["question"];
    assert!(
        read.starts_with("<s> Document:\n") && read.ends_with(&format!("\n\nQuestion: {question}\nAnswer:")),
        "{read}"
    );
    assert_eq!(learned, format!(" {}</s>", example.question.references[0]));

    let longbench = open("longbench", "longbench.jsonl", &["task.length=2048"]);
    let example = all(&longbench).find(|example| example.question.dataset.as_deref() == Some("trec")).unwrap();
    let (read, _) = halves(&longbench, example);
    assert!(read.starts_with("<s> Please determine the type of the question below. Here are some examples"), "{read}");
    assert_eq!(example.new_tokens, 16, "as configured");
    assert!(example.question.classes.len() > 10);
}

#[test]
fn tokens_are_those_of_the_whole_text() {
    // Pieces are encoded by themselves; together they are what the tokenizer makes of the text in one go.
    for text in [open("quality", "quality.jsonl", &["task.length=4096"]), narrativeqa(&["task.length=4096"])] {
        for example in all(&text) {
            let whole: String = example
                .pieces
                .iter()
                .map(|piece| match piece {
                    Piece::Text(text) | Piece::Answer(text) => text.clone(),
                    Piece::Conversation(conversation) => conversation.text.clone(),
                    Piece::Document => example.question.document.text.clone(),
                })
                .collect();
            let mut expected = text.layout().tokenizer().encode_with_special(&whole).unwrap();
            expected.extend(text.layout().tokenizer().eos());
            let sequence = text.layout().sequence(example).unwrap();
            assert_eq!(sequence.tokens, expected[..expected.len() - 1], "{}", example.question.id);
            assert_eq!(sequence.targets, expected[1..]);
            // And the prompt of a generation is what the learned answer follows.
            let prompt = text.layout().prompt(example).unwrap();
            assert_eq!(prompt, expected[..prompt.len()]);
            let answers = sequence.weights.iter().filter(|weight| **weight > 0.0).count();
            assert_eq!(prompt.len() + answers, expected.len());
        }
    }
}

#[test]
fn documents_are_cut_and_nothing_else() {
    for (truncation, head, tail) in [("middle", true, true), ("head", false, true), ("tail", true, false)] {
        for length in [300, 200] {
            let more = [format!("task.truncation={truncation}"), format!("task.length={length}")];
            let text = open("quality", "quality.jsonl", &[&more[0], &more[1]]);
            for example in all(&text) {
                let (read, learned) = halves(&text, example);
                let article = &example.question.document.text;
                let (first, last) = (&article[..20], &article[article.len() - 20..]);
                assert_eq!((read.contains(first), read.contains(last)), (head, tail), "{truncation} {read}");
                assert!(read.contains(&format!("Question: {}\nA: ", example.question.fields["question"])));
                assert_eq!(learned, format!(" {}</s>", example.question.references[0]));
                // The longer of answer and generation has room: 16 tokens.
                assert_eq!(text.layout().prompt(example).unwrap().len(), length - 16);
                assert!(text.layout().sequence(example).unwrap().tokens.len() < length);
            }
        }
    }
}

#[test]
fn no_article_is_in_both_parts() {
    // One article is there twice, under two names and with different notes.
    let copies = |examples: &[Example]| {
        examples.iter().filter(|example| example.question.document.text.contains("Kal-Jmar")).count()
    };
    for seed in 0..12 {
        let text = open("quality", "quality.jsonl", &[&format!("task.data_seed={seed}"), "task.validation_share=0.34"]);
        let (train, validation) = (text.examples(Split::Train), text.examples(Split::Validation));
        assert_eq!(train.len() + validation.len(), 7);
        assert!(matches!((copies(train), copies(validation)), (2, 0) | (0, 2)), "seed {seed}");
    }
    let held_out = format!("task.validation_path={}", fixture("quality.jsonl"));
    let more = config("quality", &fixture("quality.jsonl"), &[&held_out]).unwrap();
    let message = Text::open(&more).err().unwrap().to_string();
    assert!(message.contains("nothing is left for training"), "{message}");
}

#[test]
fn the_division_is_the_same_for_ever() {
    // Neither another release nor another length of the sequences may move a document between the parts.
    let ids = |text: &Text| text.examples(Split::Validation).iter().map(|e| e.question.id.clone()).collect::<Vec<_>>();
    for length in [4096, 200] {
        let more = [format!("task.length={length}"), "task.validation_share=0.34".into(), "task.data_seed=1".into()];
        let text = open("quality", "quality.jsonl", &more.each_ref().map(String::as_str));
        assert_eq!(ids(&text), ["debate_03/1", "debate_21/1"], "length {length}");
    }
    // Of one article no question fits: the others stay where they were.
    let lines: Vec<String> = (0..8)
        .map(|i| {
            format!("{{\"prompt\": \"{i}\", \"completion\": \"{}\"}}\n", "word ".repeat(if i == 3 { 300 } else { 1 }))
        })
        .collect();
    let mut moved = 0;
    for seed in 0..6 {
        let seed = format!("task.data_seed={seed}");
        let part = |length: &str| ids(&own(&lines.concat(), &[length, &seed, "task.validation_share=0.5"]).unwrap());
        let mut long = part("task.length=512");
        moved += usize::from(long.contains(&"own/4".to_owned()));
        long.retain(|id| id != "own/4");
        assert_eq!(part("task.length=100"), long, "{seed}");
    }
    assert!((1..6).contains(&moved));
}

#[test]
fn the_published_division() {
    let place = tempfile::tempdir().unwrap();
    let questions = std::fs::read_to_string(fixture("narrativeqa_qaps.jsonl")).unwrap();
    let write = |sets: &[&str]| {
        let sets = sets.iter().copied().chain(std::iter::repeat("train"));
        let set = |(line, set): (&str, &str)| line.replace("\"set\": \"valid\"", &format!("\"set\": {set:?}")) + "\n";
        std::fs::write(place.path().join("qaps.jsonl"), questions.lines().zip(sets).map(set).collect::<String>())
            .unwrap();
    };
    let path = place.path().join("qaps.jsonl").display().to_string();
    let documents = format!("task.documents={}", fixture("narrativeqa_stories.jsonl"));
    let more = [&documents[..], "task.official_split=true"];
    let parts = || Text::open(&config("narrativeqa", &path, &more).unwrap()).map_err(|error| error.to_string());
    write(&["valid", "valid", "test", "test"]);
    let text = parts().unwrap();
    let sizes = [Split::Train, Split::Validation, Split::Test].map(|part| text.examples(part).len());
    assert_eq!(sizes, [6, 2, 2], "the last is on a story that is not there");
    assert!(text.examples(Split::Test).iter().all(|e| e.question.document.id.starts_with("11c498b4")));
    write(&["test"]);
    assert!(
        parts().err().unwrap().contains("`task.official_split`: no question that can be used has the set \"valid\"")
    );
    let both = config("narrativeqa", &path, &[&more[..], &["task.test_path=x"]].concat()).unwrap_err();
    assert!(both.contains("`task.test_path` and `official_split` are both given"), "{both}");
    let other = config("quality", &fixture("quality.jsonl"), &["task.official_split=true"]).unwrap_err();
    assert!(other.contains("`task.official_split` is not for `kind = \"quality\"`"), "{other}");
    let other = config("quality", &fixture("quality.jsonl"), &["task.answer=\" {answer_text}\""]).unwrap_err();
    assert!(other.contains("`task.answer` must name {answer}, the label"), "{other}");
}

#[test]
fn batches_are_packed_or_padded() {
    let [packed, padded] =
        ["true", "false"].map(|pack| open("quality", "quality.jsonl", &[&format!("task.pack={pack}")]));
    let indices = [2, 0, 3];
    let (a, b) = (packed.batch(Split::Train, &indices).unwrap(), padded.batch(Split::Train, &indices).unwrap());
    assert_eq!((a.sequences, a.documents.len(), b.sequences, b.documents.len()), (1, 3, 3, 0));
    assert_eq!((a.weight(), a.document_count()), (b.weight(), b.document_count()));
    for (row, document) in a.apart().into_iter().enumerate() {
        let from = row * b.length;
        assert_eq!(document.tokens, b.tokens[from..from + document.length]);
        assert!(b.weights[from + document.length..from + b.length].iter().all(|weight| *weight == 0.0));
    }
    let facts = packed.describe();
    assert!(facts.description.contains("validation: 1 example on 1 distinct document"), "{}", facts.description);
    assert_eq!(facts.primary_metric, "accuracy");
    let shown = packed.show(&packed.batch(Split::Train, &[0]).unwrap()).unwrap();
    assert!(shown.contains("\nAnswer:\u{27e6} "), "{shown}");
}

#[test]
fn options_follow_the_prompt() {
    let text = open("quality", "quality.jsonl", &[]);
    let question = &text.examples(Split::Train)[0].question;
    let options = text.options(question).unwrap();
    let [a, b] = ["A", "B"].map(|label| text.layout().tokenizer().encode(label).unwrap());
    assert_eq!(options[..2], [a, b], "one token each: the letter behind a space");
    assert_eq!(options.len(), question.options.len());
}

/// Writes lines to a file of their own and opens it as a task.
fn own(lines: &str, more: &[&str]) -> Result<Text, String> {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("own.jsonl");
    std::fs::write(&path, lines).unwrap();
    let config = config("jsonl", &path.display().to_string(), more)?;
    Text::open(&config).map_err(|error| error.to_string())
}

#[test]
fn ones_own_lines() {
    let lines = "{\"prompt\": \"2+2=\", \"completion\": \" 4\"}\n{\"prompt\": \"3+3=\", \"completion\": \" 6\"}\n";
    let text = own(lines, &[]).unwrap();
    let (read, learned) = halves(&text, &text.examples(Split::Train)[0]);
    assert!(["<s> 2+2=", "<s> 3+3="].contains(&&read[..]), "{read}");
    assert!([" 4</s>", " 6</s>"].contains(&&learned[..]), "{learned}");

    let lines = "{\"note\": \"The sky is blue.\", \"q\": \"Colour?\", \"a\": \"blue\", \"n\": 1}\n\
        {\"note\": \"Grass is green.\", \"q\": \"Colour?\", \"a\": \"green\", \"n\": 2}\n";
    let set = ["task.prompt=Note {n}: {note}\\nQ: {q}\\nA:", "task.answer= {a}", "task.document=note"];
    let set = set.map(|set| set.replacen('=', "=\"", 1) + "\"");
    let text = own(lines, &set.each_ref().map(String::as_str)).unwrap();
    let example = all(&text).find(|example| example.question.fields["n"] == "1").unwrap();
    assert_eq!(halves(&text, example), ("<s> Note 1: The sky is blue.\nQ: Colour?\nA:".into(), " blue</s>".into()));
    assert_eq!(example.question.references, ["blue"]);

    // Without a document the prompt tells which examples are the same.
    let lines = "{\"q\": \"2+2\", \"a\": \"4\"}\n{\"q\": \"3+3\", \"a\": \"6\"}\n{\"q\": \"2+2\", \"a\": \"four\"}\n";
    let text = own(lines, &["task.prompt=\"Q: {q}\\nA:\"", "task.answer=\" {a}\""]).unwrap();
    let [train, validation] = [Split::Train, Split::Validation].map(|split| text.examples(split));
    let questions = |part: &[Example]| part.iter().map(|e| e.question.fields["q"].clone()).collect::<HashSet<_>>();
    assert!(questions(train).is_disjoint(&questions(validation)) && train.len() + validation.len() == 3);
}

#[test]
fn conversations() {
    let line = |word: &str| {
        format!(
            "{{\"messages\": [{{\"role\": \"system\", \"content\": \"Be brief.\"}}, {{\"role\": \"user\", \"content\": \
             \"{word}?\"}}, {{\"role\": \"assistant\", \"content\": \"Yes.\"}}, {{\"role\": \"user\", \"content\": \
             \"Sure?\"}}, {{\"role\": \"assistant\", \"content\": \"No.\"}}]}}\n"
        )
    };
    let text = own(&(line("Rain") + &line("Sun")), &["task.roles={}"]).unwrap();
    let example = &text.examples(Split::Train)[0];
    let marked = text.layout().marked(&text.layout().sequence(example).unwrap()).unwrap();
    assert!(marked.starts_with("<s> Be brief.\n\n[INST] "), "{marked}");
    assert!(
        marked.ends_with("? [/INST]\u{27e6} Yes.</s>\u{27e7}[INST] Sure? [/INST]\u{27e6} No.</s>\u{27e7}"),
        "{marked}"
    );
    let prompt = text.layout().prompt(example).unwrap();
    let prompt = text.layout().tokenizer().decode_with_special(&prompt).unwrap();
    assert!(prompt.ends_with("</s>[INST] Sure? [/INST]"), "{prompt}");
    assert_eq!(example.question.references, ["No."]);

    // As a chat template, which a conversation goes on by: what was learnt is written as it is.
    let task = config("jsonl", "unread.jsonl", &["task.roles={}"]).unwrap();
    let tokenizer = text.layout().tokenizer();
    let template = task.chat_template(tokenizer).unwrap().unwrap();
    let messages = [("system", "Be brief."), ("user", "Rain?"), ("assistant", " Yes."), ("user", "\"{{Sure}}\"?")];
    let messages = messages.map(|(role, content)| serde_json::json!({ "role": role, "content": content }));
    let expected = "Be brief.\n\n[INST] Rain? [/INST] Yes.</s>[INST] \"{{Sure}}\"? [/INST]";
    assert_eq!(template.render(&messages, true).unwrap(), expected);
}

/// The tokenizer of Mistral-7B with a chat template beside it.
fn chat_model(template: &str) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(root().join("../../tests/golden/tokenizer").join(file), place.path().join(file)).unwrap();
    }
    std::fs::write(place.path().join("chat_template.jinja"), template).unwrap();
    place
}

const CHAT: &str = "{{ bos_token }}{% for m in messages %}({{ m.role }}) {{ m.content }}{% if m.role == 'assistant' %}\
    {{ eos_token }}{% endif %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}(assistant) {% endif %}";

#[test]
fn conversations_are_written_by_the_template_of_the_model() {
    let model = chat_model(CHAT);
    let tokenizer = format!("task.tokenizer={}", model.path().display());
    let line = |word: &str| {
        format!(
            "{{\"messages\": [{{\"role\": \"user\", \"content\": \"{word}?\"}}, {{\"role\": \"assistant\", \"content\": \
             \"Yes.\"}}, {{\"role\": \"user\", \"content\": \"Sure?\"}}, {{\"role\": \"assistant\", \"content\": \
             \"No.\"}}]}}\n"
        )
    };
    let alpaca = "{\"instruction\": \"Greet.\", \"output\": \"Hello.\"}\n";
    let text = own(&(line("Rain") + &line("Sun") + alpaca), &[&tokenizer, "task.validation_share=0.4"]).unwrap();
    let mut found = 0;
    for example in all(&text) {
        let sequence = text.layout().sequence(example).unwrap();
        let learned: Vec<u32> =
            sequence.targets.iter().zip(&sequence.weights).filter(|(_, w)| **w > 0.0).map(|(id, _)| *id).collect();
        let words = text.layout().tokenizer().decode_with_special(&learned).unwrap();
        let marked = text.layout().marked_tokens(&sequence);
        assert!(marked.starts_with("<s>|") && !marked.starts_with("<s>|<s>"), "{marked}");
        let prompt = text.layout().prompt(example).unwrap();
        assert_eq!(prompt, sequence.tokens[..prompt.len()], "{marked}");
        if example.question.messages.len() == 2 {
            assert_eq!(words.replace(' ', ""), "Hello.</s>", "{marked}");
            continue;
        }
        found += 1;
        assert_eq!(words.replace(' ', ""), "Yes.</s>No.</s>", "{marked}");
        assert_eq!(marked.matches('\u{27e6}').count(), 2, "{marked}");
        assert_eq!(example.question.references, ["No."]);
    }
    assert_eq!(found, 2);
    // Tools of a record are written by the template; what is no list of them is said.
    let model = chat_model(&format!("{{% for t in tools or [] %}}[{{{{ t.name }}}}]{{% endfor %}}{CHAT}"));
    let tools = format!("task.tokenizer={}", model.path().display());
    let with = |tools: &str| line("Snow").replacen('{', &format!("{{\"tools\": {tools}, "), 1);
    let lines = line("Rain") + &with("[{\"name\": \"f\"}]") + &line("Sun").replacen("Sun", "Hail", 1);
    for lines in [lines.clone(), lines.replace("[{\"name\": \"f\"}]", "\"[{\\\"name\\\": \\\"f\\\"}]\"")] {
        let text = own(&lines, &[&tools, "task.validation_share=0.4"]).unwrap();
        for example in all(&text) {
            let marked = text.layout().marked(&text.layout().sequence(example).unwrap()).unwrap();
            assert_eq!(marked.contains("[f]"), marked.contains("Snow"), "{marked}");
        }
    }
    let refused = own(&with("{}"), &[&tools]).err().unwrap();
    assert!(refused.contains("`tools` is not a list of tools"), "{refused}");
    // What the configuration says comes before the template; instructions with a prompt of one's own stay prompts.
    let by_roles = own(&(line("Rain") + &line("Sun")), &[&tokenizer, "task.roles={}"]).unwrap();
    assert!(all(&by_roles).all(|example| example.pieces.len() == 4));
    let own_words = ["task.prompt=\"{instruction}\"", "task.answer=\"{output}\"", "task.document=instruction"];
    let lines = alpaca.to_owned() + &alpaca.replace("Greet", "Go");
    let own_words = own(&lines, &[&[&tokenizer[..]][..], &own_words].concat()).unwrap();
    assert!(all(&own_words).all(|example| example.pieces.len() == 2));
}

#[test]
fn templates_that_cannot_be_used() {
    let lines =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"content\": \"y\"}]}\n";
    let message = own(lines, &[]).err().unwrap();
    assert!(message.contains("the model has no chat template") && message.contains("write [task.roles]"), "{message}");
    for (template, problem) in [
        ("{% for m in messages %}", "chat_template.jinja: the chat template"),
        ("{{ raise_exception('only poems') }}", "only poems"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "too many steps"),
        ("{{ messages|length }}", "changes messages[1] so that its text cannot be found"),
    ] {
        let model = chat_model(template);
        let message = own(lines, &[&format!("task.tokenizer={}", model.path().display())]).err().unwrap();
        assert!(message.contains("own.jsonl:1: (own/1)") && message.contains(problem), "{problem}: {message}");
    }
    let both = own(lines, &["task.roles={}", "task.chat_template_kwargs={enable_thinking=false}"]).err().unwrap();
    assert!(both.contains("`task.chat_template_kwargs` and `roles` are both given"), "{both}");
}

#[test]
fn bad_input_is_named() {
    let good = "{\"prompt\": \"2+2=\", \"completion\": \" 4\"}\n{\"prompt\": \"3+3=\", \"completion\": \" 6\"}\n";
    // Lines that cannot be used are left out, the rest is used: this tokenizer begins a text with a token, so that a prompt may be empty.
    let mixed = format!(
        "{good}no json\n{{\"prompt\": \"\", \"completion\": \"x\"}}\n{{\"completion\": \"x\"}}\n{{\"prompt\": \"1\"}}\n"
    );
    assert_eq!(all(&own(&mixed, &[]).unwrap()).count(), 3);
    for (lines, more, expected) in [
        ("no json\n", &[][..], &["nothing in", "own.jsonl:1: the line is not valid JSON"][..]),
        ("\n \n", &[], &["own.jsonl can be used: it holds no example"]),
        ("", &[], &["`task.path`: ", "own.jsonl is empty"]),
        ("{\"prompt\": \" \", \"completion\": \"x\"}", &[], &["own.jsonl:1: (own/1) its `prompt` is missing or empty"]),
        (
            "{\"prompt\": \"x\"}",
            &[],
            &["own.jsonl:1: (own/1) has no text or number `completion`, which `task.answer` names"],
        ),
        (
            "{\"prompt\": \"x\", \"completion\": [1]}",
            &[],
            &["own.jsonl:1: (own/1) has no text or number `completion`, which `task.answer` names; there are `prompt`"],
        ),
        ("{\"prompt\": \"x\", \"completion\": \" \"}", &[], &["own.jsonl:1: (own/1) its answer is empty"]),
        (
            good,
            &["task.prompt=\"{prompt} {topic}\""],
            &["own.jsonl:1: (own/1) has no text or number `topic`, which `task.prompt` names"],
        ),
        (good, &["task.prompt=\"{prompt} {prompt}\""], &["`task.prompt` names {prompt} twice"]),
        (good, &["task.validation_path=nowhere"], &["`task.validation_path`: cannot read nowhere"]),
        ("{\"prompt\": \"x\", \"completion\": \"y\"}", &[], &["there is 1 document to divide"]),
        (
            "{\"messages\": [{\"role\": \"robot\", \"content\": \"y\"}]}",
            &[],
            &["own.jsonl:1: `messages` must end with what the assistant says"],
        ),
        ("{\"messages\": [{\"role\": \"user\", \"content\": \"y\"}]}", &[], &["must end with what the assistant says"]),
    ] {
        let message = own(lines, more).err().unwrap();
        expected.iter().for_each(|part| assert!(message.contains(part), "{part:?} in {message}"));
    }
    let long = "word ".repeat(600);
    let answer = format!("{{\"prompt\": \"x\", \"completion\": \"{long}\"}}");
    let message = own(&answer, &[]).err().unwrap();
    assert!(
        message.contains("own.jsonl:1: (own/1) its answer takes 60") && message.contains("`task.length` = 512 leaves"),
        "{message}"
    );
    let question = format!("{{\"prompt\": \"x\", \"completion\": \"y\", \"q\": \"{long}\"}}");
    let message = own(&question, &["task.prompt=\"{prompt} {q}\""]).err().unwrap();
    assert!(message.contains("own.jsonl:1: (own/1) question and answer take 60"), "{message}");
    let close = format!("{{\"prompt\": \"x\", \"completion\": \"y\", \"q\": \"{}\"}}", "word ".repeat(500));
    let message = own(&close, &["task.prompt=\"{prompt} {q}\""]).err().unwrap();
    assert!(message.contains("leaves no room for `task.max_new_tokens` = 16"), "{message}");
    // A document longer than everything is cut, however long it is.
    let document = format!("{{\"prompt\": \"{}\", \"completion\": \"y\"}}\n{good}", long.repeat(40));
    let text = own(&document, &["task.length=32"]).unwrap();
    let longest = all(&text).map(|example| text.layout().sequence(example).unwrap().tokens.len()).max();
    // Of the cut one, beginning and end are those of the document.
    let cut = all(&text).find(|example| example.question.document.text.len() > 10_000).unwrap();
    let read = text.layout().tokenizer().decode(&text.layout().prompt(cut).unwrap()).unwrap();
    assert!(read.starts_with("word word") && read.trim_end().ends_with("word word"), "{read:?}");
    assert_eq!(
        longest,
        Some(16 + 2 - 1),
        "a prompt of 16 tokens, the answer of two, the last of which is only predicted"
    );
}

/// A document without a word is not something to ask about, whatever the format.
#[test]
fn empty_documents_are_left_out() {
    let place = tempfile::tempdir().unwrap();
    let quality = r#"{"article": " ", "questions": [{"question": "Who?", "options": ["a", "b"], "gold_label": 1}]}"#;
    let meeting = r#"{"meeting_transcripts": [], "specific_query_list": [],
        "general_query_list": [{"query": "What?", "answer": "This."}]}"#;
    let longbench = r#"{"dataset": "qasper", "context": "", "input": "What?", "answers": ["This."], "_id": "1"}"#;
    for (kind, line, expected) in [
        ("quality", quality, "`article` is empty"),
        ("qmsum", meeting, "`meeting_transcripts` is empty"),
        ("longbench", longbench, "`context` is empty"),
    ] {
        let path = place.path().join(format!("{kind}.jsonl"));
        std::fs::write(&path, line.replace('\n', " ")).unwrap();
        let config = config(kind, &path.display().to_string(), &[]).unwrap();
        let message = Text::open(&config).err().unwrap().to_string();
        let named = format!("{kind}.jsonl:1: {expected}");
        assert!(message.contains(&named), "{named:?} in {message}");
    }
}

#[test]
fn configurations_that_make_no_sense() {
    let path = fixture("quality.jsonl");
    for (more, expected) in [
        (
            &["task.prompt=\"{artcle}\""][..],
            "`task.prompt` has the unknown placeholder {artcle} (did you mean {article}?)",
        ),
        (&["task.answer=\"{question}\""], "`task.answer` has the unknown placeholder {question}"),
        (&["task.tokenizer=nowhere"], "`task.tokenizer` cannot be used: cannot read nowhere/tokenizer.json"),
        (&["task.documents=x"], "`task.documents` is not for `kind = \"quality\"`"),
        (&["task.max_new_tokens=512"], "`task.max_new_tokens` is 512, which leaves no room in `length` = 512"),
        (&["task.metrics=[\"rouge3\"]"], "`task.metrics` cannot be used: there is no text metric \"rouge3\""),
        (&["task.validation_share=1"], "`task.validation_share` must be above 0 and below 1"),
        (&["task.truncation=end"], "`task.truncation` must be `middle`, `head` or `tail`, found \"end\""),
        (&["task.lenght=3"], "unknown key `task.lenght`; did you mean `length`?"),
        (&["task.path=3.5"], "found the number"),
    ] {
        let message = config("quality", &path, more).unwrap_err();
        assert!(message.contains(expected), "{more:?}: {message}");
    }
    let message = config("narrativeqa", &fixture("narrativeqa_qaps.jsonl"), &[]).unwrap_err();
    assert!(message.contains("`task.documents` is missing: name the file with the stories"), "{message}");
    let message = Config::load("[task]\nkind = \"jsonl\"\npath = \"x\"\n[[adapter]]\nkind = \"none\"", "t.toml", &[]);
    let message = message.unwrap_err().to_string();
    assert!(message.contains("`task.tokenizer` is missing: name a directory with tokenizer.json"), "{message}");
}

/// A number of cases, unless `PROPTEST_CASES` asks for another.
fn cases(usual: u32) -> proptest::prelude::ProptestConfig {
    let config = proptest::prelude::ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_some() {
        config
    } else {
        proptest::prelude::ProptestConfig { cases: usual, ..config }
    }
}

proptest::proptest! {
    #![proptest_config(cases(200))]

    /// Files with bytes changed, cut off or doubled are read or refused, and never more than that.
    #[test]
    fn damaged_files_are_read_or_refused(
        which in 0..5_usize,
        table in proptest::bool::ANY,
        changes in proptest::collection::vec((proptest::prelude::any::<u16>(), proptest::prelude::any::<u8>(), 0..3_u8), 1..12),
    ) {
        let (format, name) = [
            (&quality::FORMAT, "quality.jsonl"),
            (&qmsum::FORMAT, "qmsum.jsonl"),
            (&narrativeqa::FORMAT, "narrativeqa_qaps.jsonl"),
            (&longbench::FORMAT, "longbench.jsonl"),
            (&jsonl::FORMAT, "longbench.jsonl"),
        ][which];
        let mut bytes = std::fs::read(fixture(name)).unwrap();
        for (place, byte, how) in changes {
            let place = place as usize % bytes.len().max(1);
            match how {
                0 if !bytes.is_empty() => bytes[place] = byte,
                1 => bytes.truncate(place),
                _ => bytes.insert(place.min(bytes.len()), byte),
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(if table { "damaged.csv" } else { "damaged.jsonl" });
        std::fs::write(&path, &bytes).unwrap();
        let config = TextConfig { format, ..toml::from_str("path = \"x\"").unwrap() };
        let config = TextConfig {
            documents: Some(Paths(vec![fixture("narrativeqa_stories.jsonl").into()])),
            answer: (*format == jsonl::FORMAT).then(|| "{input}".to_owned()),
            ..config
        };
        let mut problems = Problems::default();
        if let Ok((questions, _)) = format.read("task.path", &Paths(vec![path]), &config, &mut problems) {
            // Every case reads it again otherwise.
            static TOKENIZER: LazyLock<Tokenizer> =
                LazyLock::new(|| Tokenizer::load(&root().join("../../tests/golden/tokenizer")).unwrap());
            let renderer = Renderer::new(&config, &TOKENIZER).unwrap();
            for question in questions {
                let _ = renderer.example(question, &TOKENIZER);
            }
        }
    }
}
