//! What examples take, and which are the same.

use super::*;

/// Where no answer is generated none needs room, unless the configuration says how much.
#[test]
fn answers_that_are_not_generated_take_no_room() {
    let line = |n: usize| format!("{{\"prompt\": \"{n}+{n}=\", \"completion\": \" 4\"}}\n");
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("own.jsonl");
    std::fs::write(&path, (0..4).map(line).collect::<String>()).unwrap();
    let tokenizer = root().join("../../tests/golden/tokenizer");
    let text = format!(
        "[task]\nkind = \"jsonl\"\npath = {path:?}\ntokenizer = {tokenizer:?}\nlength = 32\nvalidation_share = 0.4\n[train]\n\
         steps = 1\n[[adapter]]\nkind = \"none\"\n"
    );
    let open = |more: &[&str]| -> Result<Text, String> {
        let more: Vec<String> = more.iter().map(|&more| more.to_owned()).collect();
        let (config, _) = Config::load(&text, "t.toml", &more).map_err(|error| error.to_string())?;
        let TaskConfig::Text(config) = config.task else { panic!("a task on texts") };
        Text::open(&config).map_err(|error| error.to_string())
    };
    let refused = open(&[]).err().unwrap();
    assert!(refused.contains("`task.max_new_tokens` is 128"), "{refused}");
    let text = open(&["task.metrics=[]"]).unwrap();
    assert!(all(&text).count() == 4 && all(&text).all(|example| example.new_tokens == 0));
    let text = open(&["task.metrics=[]", "task.max_new_tokens=8"]).unwrap();
    assert!(all(&text).all(|example| example.new_tokens == 8));
}

/// A space before a document is a token of its own only where the two are divided.
#[test]
fn a_prompt_has_the_tokens_of_its_whole_text() {
    let lines =
        "{\"prompt\": \"Who wrote it?\", \"completion\": \" Ann\"}\n{\"prompt\": \"Why?\", \"completion\": \" So\"}\n";
    for template in ["Question: {prompt}\\nAnswer:", "[INST] {prompt} [/INST]", "{prompt}", " {prompt}", "A\\n{prompt}"]
    {
        let text = own(lines, &[&format!("task.prompt=\"{template}\""), "task.validation_share=0.4"]).unwrap();
        for example in all(&text) {
            let ids = text.layout().prompt(example).unwrap();
            let whole = template.replace("\\n", "\n").replace("{prompt}", example.question.document.text.trim());
            assert_eq!(ids, text.layout().tokenizer().encode_with_special(&whole).unwrap(), "{template}: {whole}");
        }
    }
}

/// A field called `prompt` that no template names does not make examples the same.
#[test]
fn fields_that_are_not_read_divide_nothing() {
    let line = |n: u32| {
        format!("{{\"prompt\": \"You are helpful.\", \"question\": \"What is number {n}?\", \"answer\": \"red\"}}\n")
    };
    let lines: String = (0..6).map(line).collect();
    let set = ["task.prompt=\"{question}\"", "task.answer=\" {answer}\"", "task.validation_share=0.4"];
    let text = own(&lines, &set).unwrap();
    assert_eq!(all(&text).map(|example| example.group).collect::<std::collections::BTreeSet<_>>().len(), 6);
}
