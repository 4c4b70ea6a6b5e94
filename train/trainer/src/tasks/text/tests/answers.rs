//! What answers are compared with, and what they are written behind.

use super::*;
use serde_json::{Value, json};

fn lines(records: &[Value]) -> String {
    records.iter().map(|record| record.to_string() + "\n").collect()
}

/// The setting that takes the tokenizer and the template of a model.
fn of(model: &tempfile::TempDir) -> String {
    format!("task.tokenizer={}", model.path().display())
}

/// The prompts of a run on one's own lines.
fn prompts(more: &[&str]) -> Prompts {
    let task = config("jsonl", "unread.jsonl", more).unwrap();
    Prompts::of_run(&TaskConfig::Text(task), None).unwrap()
}

/// A prompt of pairs of texts is put into the template that they were trained with.
#[test]
fn prompts_of_pairs_are_those_of_the_run() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("pairs.jsonl");
    let pair = |n: usize| json!({"prompt": format!("Ball {n}."), "chosen": " red", "rejected": " blue", "system": "Be brief."});
    std::fs::write(&path, lines(&[pair(1), pair(2), pair(3)])).unwrap();
    let set = ["task.prompt='{system} Story: {prompt} It is'", "task.validation_share=0.4", "task.beta=0.1"];
    let task = config("dpo", &path.display().to_string(), &set).unwrap();
    let text = Text::open(&task).unwrap();
    let prompts = Prompts::of_run(&TaskConfig::Text(task), None).unwrap();
    for example in all(&text) {
        let asked = json!({"prompt": example.question.document.text.trim(), "system": "Be brief."});
        let ids = prompts.of_line(&asked, "1").unwrap().ids;
        assert_eq!(ids, text.layout().prompt(example).unwrap());
        assert!(text.layout().tokenizer().decode(&ids).unwrap().starts_with("Be brief. Story: Ball"));
    }
}

/// Instructions are compared with their output, whatever writes them.
#[test]
fn instructions_have_references() {
    let record = |n: u32, output: &str| json!({"instruction": format!("Say {n}."), "output": output});
    let records = [record(1, "One"), record(2, "Two"), record(3, "Three"), record(4, " ")];
    let model = chat_model(CHAT);
    for more in [&of(&model)[..], "task.roles={}", "task.pack=true"] {
        let text = own(&lines(&records), &[more]).unwrap();
        assert_eq!(all(&text).count(), 3, "{more}: an output without a word is no answer");
        for example in all(&text) {
            assert_eq!(example.question.references, [&example.question.fields["output"][..]], "{more}");
        }
    }
    let refused = own(&lines(&records[3..]), &[&of(&model)]).err().unwrap();
    assert!(refused.contains("own.jsonl:1: (own/1) its answer is empty"), "{refused}");
}

/// No model writes behind nothing: such a line is left out before anything is trained, and does not end an evaluation.
#[test]
fn prompts_without_a_token_are_left_out() {
    let model = chat_model(CHAT);
    let nothing_before = r#"{"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": false}"#;
    std::fs::write(model.path().join("tokenizer_config.json"), nothing_before).unwrap();
    let records = ["Rain?", "", "Snow?", "Wind?", "Hail?"].map(|asked| json!({"question": asked, "answer": "yes"}));
    let set = ["task.prompt=\"{question}\"", "task.answer=\" {answer}\"", "task.validation_share=0.4"];
    assert_eq!(all(&own(&lines(&records), &set).unwrap()).count(), 5, "the token that begins a text stands before it");
    let tokenizer = of(&model);
    let set = [&set[..], &[&tokenizer[..]]].concat();
    let text = own(&lines(&records), &set).unwrap();
    assert_eq!(all(&text).count(), 4);
    assert!(all(&text).all(|example| !text.layout().prompt(example).unwrap().is_empty()));
    let expected = "its prompt is empty: no token stands before the answer";
    let refused = own(&lines(&records), &["task.prompt=\"\"", set[1], &tokenizer]).err().unwrap();
    assert!(refused.contains("own.jsonl:1: (own/1)") && refused.contains(expected), "{refused}");
    let prompts = prompts(&set);
    let refused = prompts.of_line(&json!({"question": ""}), "1").unwrap_err();
    assert!(refused.contains(expected), "{refused}");
    assert!(prompts.of_line(&json!({"question": "Rain?"}), "2").is_ok());
    // So is a conversation that the template begins with the answer.
    let model = chat_model("{% for m in messages %}{{ m.content }}\n{% endfor %}");
    let alone = json!({"messages": [{"role": "assistant", "content": "Hello."}]});
    let refused = own(&lines(&[alone]), &[&of(&model)]).err().unwrap();
    assert!(refused.contains(expected), "{refused}");
}

/// Writes calls of tools, and nothing for what is not there.
const CALLS: &str = "{{ bos_token }}{% for m in messages %}({{ m.role }}) {{ m.content or '' }}\
    {% for call in m.tool_calls or [] %}<call>{{ call.name }}{% endfor %}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}\
    {{ '\n' }}{% endfor %}{% if add_generation_prompt %}(assistant) {% endif %}";

/// A call of a tool is an answer where the template writes it, and compared with what it writes.
#[test]
fn calls_are_answers() {
    let record = |n: u32, words: Value| {
        let call = json!({"role": "assistant", "content": words, "tool_calls": [{"name": format!("f{n}")}]});
        json!({"messages": [{"role": "user", "content": format!("Weather {n}?")}, call]})
    };
    let records = [record(0, json!(null)), record(1, json!("")), record(2, json!("I ask."))];
    let expected = ["<call>f0", "<call>f1", "I ask.<call>f2"];
    let model = chat_model(CALLS);
    let text = own(&lines(&records), &[&of(&model)]).unwrap();
    assert_eq!(all(&text).count(), 3);
    for example in all(&text) {
        let [reference] = &example.question.references[..] else { panic!("{:?}", example.question.references) };
        assert!(expected.contains(&&reference[..]), "{reference}");
        let sequence = text.layout().sequence(example).unwrap();
        let marked = text.layout().marked(&sequence).unwrap().replace(' ', "");
        let learned = format!("\u{27e6}{reference}</s>\u{27e7}").replace(' ', "");
        assert!(marked.contains(&learned), "{learned} in {marked}");
    }
    let model = chat_model(CHAT);
    let refused = own(&lines(&records[..1]), &[&of(&model)]).err().unwrap();
    let not_written = "message 2: has `tool_calls`, which the model's chat template does not write";
    assert!(refused.contains(not_written), "{refused}");
    // Beside words, and in the middle, too.
    let after = [json!({"role": "user", "content": "5"}), json!({"role": "assistant", "content": "Warm."})];
    let mut middle = records[1].clone();
    middle["messages"].as_array_mut().unwrap().extend(after);
    for record in [middle, records[2].clone()] {
        let refused = own(&lines(&[record]), &[&of(&model)]).err().unwrap();
        assert!(refused.contains(not_written), "{refused}");
    }
    let refused = own(&lines(&records[..1]), &["task.roles={}"]).err().unwrap();
    assert!(refused.contains("message 2: has `tool_calls`, which [task.roles] cannot write"), "{refused}");
}

/// Tools that nothing writes are known, so that a run can say so.
#[test]
fn tools_that_nothing_writes_are_known() {
    let conversation =
        |n: u32| json!([{"role": "user", "content": format!("{n}?")}, {"role": "assistant", "content": "Yes."}]);
    let records = [
        json!({"messages": conversation(0), "tools": [{"name": "f"}]}),
        json!({"messages": conversation(1), "tools": []}),
        json!({"messages": conversation(2)}),
    ];
    let unread = |settings: &[&str]| {
        let text = own(&lines(&records), settings).unwrap();
        assert_eq!(all(&text).count(), 3);
        all(&text).filter(|example| example.unread.tools).count()
    };
    let writes = chat_model(&format!("{{% for tool in tools or [] %}}[{{{{ tool.name }}}}]{{% endfor %}}{CHAT}"));
    assert_eq!(unread(&[&of(&writes)]), 0);
    assert_eq!(unread(&[&of(&chat_model(CHAT))]), 1);
    assert_eq!(unread(&["task.roles={}"]), 1);
}

/// Answers of weight 0 are read and not learned, as in OpenAI's files.
#[test]
fn answers_without_weight_are_not_learned() {
    let said = |role: &str, content: &str| json!({"role": role, "content": content});
    let record = |n: u32, weight: Value| {
        let bad = json!({"role": "assistant", "content": format!("bad {n}"), "weight": weight});
        json!({"messages": [said("user", "Rain?"), bad, said("user", "Again?"), said("assistant", "good")]})
    };
    let model = chat_model(CHAT);
    let learned = |weight: Value| {
        let records = [0, 1, 2].map(|n| record(n, weight.clone()));
        let text = own(&lines(&records), &[&of(&model)]).unwrap();
        let example = all(&text).next().unwrap();
        let marked = text.layout().marked(&text.layout().sequence(example).unwrap()).unwrap();
        (marked.matches('\u{27e6}').count(), marked.contains("bad"))
    };
    assert_eq!((learned(json!(0)), learned(json!(1)), learned(json!(null))), ((1, true), (2, true), (2, true)));
    let refused = own(&lines(&[record(0, json!(0))]), &["task.roles={}"]).err().unwrap();
    assert!(refused.contains("message 2: has a `weight` of 0"), "{refused}");
}

/// A message of the system is not lost without a word.
#[test]
fn system_messages_that_the_template_leaves_out_are_refused() {
    let silent = "{% for m in messages %}{% if m.role == 'user' %}<{{ m.content }}>{% elif m.role == 'assistant' %}{{ m.content }}\
        {{ eos_token }}{% endif %}{% endfor %}";
    let record = json!({"messages": [
        {"role": "system", "content": "Answer in French."}, {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Bonjour."}]});
    let refused = own(&lines(&[record]), &[&of(&chat_model(silent))]).err().unwrap();
    assert!(
        refused.contains("message 1: `role` is \"system\", which the model's chat template does not write"),
        "{refused}"
    );
}

/// Templates that drop what the data say.
#[test]
fn templates_without_a_place_for_the_data_are_refused() {
    for (setting, problem) in [
        ("task.answer=\" done\"", "`task.answer` names no field in braces"),
        ("task.roles.user=\"no content\"", "`task.roles.user` must have {content} in it"),
        ("task.roles.assistant=\"done\"", "`task.roles.assistant` must have {content} in it"),
        ("task.roles.system=\"be kind\"", "`task.roles.system` must have {content} in it"),
    ] {
        let refused = config("jsonl", "unread.jsonl", &[setting]).unwrap_err();
        assert!(refused.contains(problem), "{refused}");
    }
    assert!(config("jsonl", "unread.jsonl", &["task.roles.system=\"\""]).is_ok());
}

/// What a line says of its answer is a reference, and changes nothing of the prompt.
#[test]
fn references_of_prompts() {
    let model = chat_model(CHAT);
    let prompts = prompts(&[&of(&model)]);
    let user = json!({"role": "user", "content": "Rain?"});
    let said = |content: Value| json!([user, {"role": "assistant", "content": content}]);
    let share_gpt = |value: &str| json!([{"from": "human", "value": "Rain?"}, {"from": "gpt", "value": value}]);
    let asked = json!([user]);
    let open = prompts.of_line(&json!({"messages": asked}), "1").unwrap();
    assert!(open.references.is_empty());
    // The model does not read it: it need not fit.
    let long = "word ".repeat(600);
    for (line, references) in [
        (json!({"messages": asked, "references": ["No.", "Never."]}), &["No.", "Never."][..]),
        (json!({"messages": asked, "references": null}), &[]),
        (json!({"messages": asked, "references": []}), &[]),
        (json!({"messages": said(json!("Yes."))}), &["Yes."]),
        (json!({"messages": said(json!("Yes.")), "references": null}), &["Yes."]),
        (json!({"messages": said(json!("Yes.")), "references": ["No."]}), &["No."]),
        (json!({"messages": said(json!(" "))}), &[]),
        (json!({"messages": said(json!(null)), "references": ["No."]}), &["No."]),
        (json!({"messages": said(json!(long))}), &[long.trim()]),
        (json!({"prompt": asked, "completion": ""}), &[]),
        (json!({"conversations": share_gpt("Yes.")}), &["Yes."]),
        (json!({"conversations": share_gpt("")}), &[]),
        (json!({"conversations": share_gpt(&long)}), &[long.trim()]),
        (json!({"instruction": "Rain?", "output": "Yes."}), &["Yes."]),
        (json!({"instruction": "Rain?"}), &[]),
        (json!({"messages": asked, "references": "No."}), &["No."]),
    ] {
        let prompt = prompts.of_line(&line, "1").unwrap_or_else(|problem| panic!("{line}: {problem}"));
        assert_eq!(prompt.ids, open.ids, "{line}");
        assert_eq!(prompt.references, references, "{line}");
    }
}

/// A run that generates nothing says nothing of how long answers may be: most of a short length is left to the prompt.
#[test]
fn a_short_run_that_generates_nothing_answers_prompts() {
    let set = ["task.metrics=[]", "task.length=80", "task.prompt=\"{q}\"", "task.answer=\"{a}\""];
    let task = config("jsonl", "unread.jsonl", &set).unwrap();
    let prompts = |of_run: Option<usize>, given: Option<usize>, length: usize| {
        let task = TextConfig { max_new_tokens: of_run, length, ..task.clone() };
        Prompts::of_run(&TaskConfig::Text(task), given).unwrap()
    };
    let words = |count: usize| json!({"q": "word ".repeat(count)});
    let short = prompts(None, None, 80);
    assert_eq!(short.new_tokens(), 20);
    assert!(short.of_line(&words(50), "1").is_ok());
    assert_eq!(prompts(None, None, 4096).new_tokens(), 128);
    for (prompts, named) in [
        (short, "`--max-tokens` = 20"),
        (prompts(Some(16), None, 80), "`task.max_new_tokens` = 16"),
        (prompts(Some(16), Some(30), 80), "`--max-tokens` = 30"),
    ] {
        let refused = prompts.of_line(&words(70), "1").unwrap_err();
        assert!(refused.ends_with(&format!("leaves no room for {named} of `task.length` = 80")), "{refused}");
    }
}

/// What the template leaves out would be missing from what is learned.
#[test]
fn messages_that_the_template_does_not_write_are_told() {
    let model = chat_model(
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}\n{% elif m.role == 'assistant' %}{{ m.content }}</s>{% endif %}\
         {% endfor %}",
    );
    let record = |role: &str, n: usize| {
        let asked = json!({"role": role, "content": format!("Say {n}.")});
        json!({"messages": [{"role": "user", "content": "Hi."}, asked, {"role": "assistant", "content": format!("It is {n}.")}]})
    };
    let refused = own(&lines(&[record("usr", 1)]), &[&of(&model)]).err().unwrap();
    assert!(
        refused.contains("message 2: `role` is \"usr\", which the model's chat template does not write"),
        "{refused}"
    );
    let known: Vec<Value> = (0..4).map(|n| record("user", n)).collect();
    assert_eq!(all(&own(&lines(&known), &[&of(&model)]).unwrap()).count(), 4);
    // A template that writes every role is content with any.
    let other: Vec<Value> = (0..4).map(|n| record("tool", n)).collect();
    assert_eq!(all(&own(&lines(&other), &[&of(&chat_model(CHAT))]).unwrap()).count(), 4);
}

/// The words of a role around the message are learned, and scored.
#[test]
fn answers_are_compared_with_the_words_of_their_role() {
    let record = |n: usize| json!({"messages": [{"role": "user", "content": format!("{n}?")}, {"role": "assistant", "content": " Yes."}]});
    let records: Vec<Value> = (0..4).map(record).collect();
    let text = own(&lines(&records), &["task.roles.assistant=\"Bot:{content}\\n\""]).unwrap();
    assert!(all(&text).all(|example| example.question.references == ["Bot: Yes."]));
    let mut listed = records;
    listed[0]["references"] = json!(["No."]);
    let text = own(&lines(&listed), &["task.roles.assistant=\"Bot:{content}\""]).unwrap();
    assert!(all(&text).any(|example| example.question.references == ["No."]));
}

/// The same question is in one part, whatever is answered.
#[test]
fn conversations_with_the_same_question_stay_together() {
    let model = chat_model(CHAT);
    let record = |n: usize, said: usize| json!({"messages": [{"role": "user", "content": format!("{n}?")}, {"role": "assistant", "content": format!("{said}")}]});
    let records: Vec<Value> = (0..18).map(|i| record(i % 6, i)).collect();
    let text = own(&lines(&records), &[&of(&model), "task.validation_share=0.3"]).unwrap();
    let asked =
        |split| text.examples(split).iter().map(|example| example.group).collect::<std::collections::BTreeSet<_>>();
    let (train, validation) = (asked(Split::Train), asked(Split::Validation));
    assert_eq!((train.len(), validation.len()), (4, 2));
    assert!(train.is_disjoint(&validation));
}

/// A document that the prompt does not name is a slip: nothing would be cut, and its examples not kept together.
#[test]
fn documents_are_in_the_prompt() {
    let set = ["task.prompt=\"{contract} {question}\"", "task.answer=\"{answer}\""];
    let refused = config("jsonl", "unread.jsonl", &[&set[..], &["task.document=contrct"]].concat()).unwrap_err();
    assert!(
        refused.contains("`task.document` is \"contrct\", which `task.prompt` does not name as {contrct}"),
        "{refused}"
    );
    assert!(config("jsonl", "unread.jsonl", &[&set[..], &["task.document=contract"]].concat()).is_ok());
    let task = config("jsonl", "unread.jsonl", &set).unwrap();
    assert_eq!(task.document.as_deref(), Some("prompt"));
    let record = json!({"contract": "word ".repeat(600), "question": "?", "answer": "Yes."});
    let long = own(&lines(&[record]), &set).err().unwrap();
    assert!(long.contains("a field that may be cut is named as `task.document`"), "{long}");
}

/// What the assistant says in a prompt is read; what completes it is learned.
#[test]
fn a_completion_alone_is_learned() {
    let said = |role: &str, content: &str| json!({"role": role, "content": content});
    let prompt = json!([said("user", "One"), said("assistant", "Bad."), said("user", "Two")]);
    let record = json!({"prompt": prompt, "completion": [said("assistant", "Good.")]});
    let model = chat_model(CHAT);
    for settings in [of(&model), "task.roles={}".to_owned()] {
        for record in
            [record.clone(), json!({"prompt": prompt, "completion": record["completion"], "system": "Be kind."})]
        {
            let mut other = record.clone();
            other["prompt"][0]["content"] = json!("Uno");
            let text = own(&lines(&[record, other]), &[&settings]).unwrap();
            let example = all(&text).next().unwrap();
            let marked = text.layout().marked(&text.layout().sequence(example).unwrap()).unwrap().replace(' ', "");
            assert_eq!(marked.matches('\u{27e6}').count(), 1, "{marked}");
            assert!(marked.contains("\u{27e6}Good.</s>") && marked.contains("Bad."), "{marked}");
        }
    }
}

/// A template that writes more than the words of an answer, or less, is what answers are compared with.
#[test]
fn answers_are_compared_with_what_the_template_writes() {
    const THOUGHTS: &str = "{% for m in messages %}({{ m.role }}) {% if m.role == 'assistant' %}{{ 'no thoughts ' if '#' not in m.content }}\
        {{ m.content.split('#')[-1] }}{{ eos_token }}{% else %}{{ m.content }}{% endif %}{{ '\\n' }}{% endfor %}\
        {% if add_generation_prompt %}(assistant) {% endif %}";
    let record = |n: u32, answer: &str| json!({"messages": [{"role": "user", "content": format!("{n}?")}, {"role": "assistant", "content": answer}]});
    let model = chat_model(THOUGHTS);
    let text = own(&lines(&[record(0, "Yes."), record(1, "I think #No.")]), &[&of(&model)]).unwrap();
    let mut found: Vec<&str> = all(&text).map(|example| &example.question.references[0][..]).collect();
    found.sort_unstable();
    assert_eq!(found, ["No.", "no thoughts Yes."]);
}

/// Words beside calls that the template leaves out are known, so that a run can say so.
#[test]
fn words_that_nothing_writes_are_known() {
    let record = |n: u32, words: &str| {
        let call = json!({"role": "assistant", "content": words, "tool_calls": [{"name": "f"}]});
        json!({"messages": [{"role": "user", "content": format!("{n}?")}, call]})
    };
    let records = lines(&[record(0, "Let me look."), record(1, "")]);
    let unread = |template: &str| {
        let text = own(&records, &[&of(&chat_model(template))]).unwrap();
        all(&text).filter(|example| example.unread.words).count()
    };
    assert_eq!(unread(CALLS), 0);
    assert_eq!(unread(&CALLS.replace("{{ m.content or '' }}", "{{ m.content if not m.tool_calls }}")), 1);
}
