//! Direct preference optimization from the command line, against TRL.

use crate::common::Place;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

fn golden(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(name).display().to_string()
}

fn config(task: &str, train: &str, adapters: &str) -> String {
    format!(
        "name = \"t\"\nseed = 3\n[task]\nkind = \"dpo\"\npath = {:?}\nvalidation_path = {:?}\ntokenizer = {:?}\nlength = 64\nbeta = 0.5\n{task}\n\
         [backbone]\nkind = \"mistral\"\nmodel = {:?}\n[train]\nsteps = 20\nbatch_size = 3\naccumulation = 2\nlr = 2e-3\nweight_decay = 0.01\n\
         schedule = \"constant\"\nwarmup_steps = 0\nclip = 0.0\nkeep = \"last\"\nlog_every = 1\n{train}\n{adapters}",
        golden("dpo/pairs.jsonl"),
        golden("dpo/held-out.jsonl"),
        golden("dpo/tokenizer"),
        golden("mistral/window/hf"),
    )
}

fn start() -> String {
    format!("[[adapter]]\nkind = \"lora\"\npath = {:?}\n", golden("dpo/start"))
}

fn losses(place: &Place, run: &str) -> Vec<f64> {
    let text = fs::read_to_string(place.path(run).join("metrics.jsonl")).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["event"] == "step").map(|event| event["loss"].as_f64().unwrap()).collect()
}

fn rows(place: &Place, run: &str) -> Vec<Value> {
    let text = fs::read_to_string(place.path(run).join("result.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["rows"].as_array().unwrap().clone()
}

fn close(what: &str, found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-4 * expected.abs().max(1.0), "{what}: {found}, TRL has {expected}");
}

#[test]
fn twenty_steps_as_trl_does_them() {
    let place = Place::new();
    let none = "[[adapter]]\nkind = \"none\"\n";
    let finished = place.fit(&config("", "", &format!("{}{none}", start())), "run", &[]);
    assert!(!finished.stderr.contains("warning"), "{}", finished.stderr);
    let facts: Value = serde_json::from_str(&fs::read_to_string(golden("dpo/train.json")).unwrap()).unwrap();
    let found = losses(&place, "run");
    let expected = facts["losses"].as_array().unwrap();
    assert_eq!(found.len(), expected.len());
    for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
        close(&format!("loss of step {}", step + 1), *found, expected.as_f64().unwrap());
    }
    assert!(found[19] < 0.9 * found[0], "{found:?}");
    let rows = rows(&place, "run");
    for (row, when) in [(0, "after"), (1, "before")] {
        let metrics = rows[row]["validation"]["metrics"].as_object().unwrap();
        for (name, expected) in facts[when].as_object().unwrap() {
            close(&format!("{name} {when}"), metrics[name].as_f64().unwrap(), expected.as_f64().unwrap());
        }
        assert_eq!(rows[row]["validation"]["sequences"], 3);
    }
    // The adapter without the run.
    let again = place.run(&["eval", "run", "--adapter", "lora", "--data", &golden("dpo/held-out.jsonl"), "--json"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    close(
        "margin",
        again[0]["scores"]["metrics"]["reward_margin"].as_f64().unwrap(),
        facts["after"]["reward_margin"].as_f64().unwrap(),
    );
}

/// A pair weighs the same however long its answers are and in whatever micro-batch it is; HRM, whose gate starts open, too.
#[test]
fn micro_batches_and_packing_change_nothing() {
    let place = Place::new();
    let hrm = "[[adapter]]\nkind = \"hrm\"\nstate_dim = 4\ngate_init = 1.0\nb_std = 0.3\nc_std = 0.3\n";
    let base =
        format!("precision = \"f64\"\n{}", config("", "label_smoothing = 0.1", hrm)).replace("steps = 20", "steps = 3");
    place.fit(&base, "two", &[]);
    let expected = losses(&place, "two");
    assert!(expected.windows(2).all(|pair| pair[0] != pair[1]));
    for (out, more) in [
        ("one", &["train.batch_size=6", "train.accumulation=1"][..]),
        ("six", &["train.batch_size=1", "train.accumulation=6"][..]),
        ("padded", &["task.pack=false"][..]),
    ] {
        let more: Vec<&str> = more.iter().flat_map(|set| ["--set", set]).collect();
        place.fit(&base, out, &more);
        for (found, expected) in losses(&place, out).iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-10, "{out}: {found} {expected}");
        }
    }
    let metrics = &rows(&place, "two")[0]["validation"]["metrics"];
    assert!(metrics["label_smoothed_loss"].as_f64().unwrap() != metrics["loss"].as_f64().unwrap());
}

#[test]
fn conversations() {
    let place = Place::new();
    let said = |role: &str, content: &str| serde_json::json!({"role": role, "content": content});
    let record = |i: usize| {
        let prompt = [said("user", "Hi"), said("assistant", "Yes?"), said("user", &format!("What is {i}?"))];
        serde_json::json!({"prompt": prompt, "chosen": [said("assistant", "A number.")], "rejected": [said("assistant", "Go.")]})
            .to_string()
    };
    let mut records: Vec<String> = (0..8).map(record).collect();
    records.push("{\"prompt\": \"x\", \"chosen\": \"y\"}\n".to_owned());
    place.write("pairs.jsonl", records.join("\n"));
    let roles = "[task.roles]\nuser = \"U: {content}\\n\"\nassistant = \"A: {content}\"\n";
    let text = config(roles, "", &start())
        .replace(&golden("dpo/pairs.jsonl"), "pairs.jsonl")
        .lines()
        .filter(|line| !line.starts_with("validation_path"))
        .collect::<Vec<_>>()
        .join("\n")
        .replace("length = 64", "length = 96")
        .replace("steps = 20", "steps = 2");
    let finished = place.fit(&text, "run", &[]);
    assert!(finished.stderr.contains("pairs.jsonl:9: has no `rejected`"), "{}", finished.stderr);
    let shown = place.run(&["fit", "config.toml", "--dry-run"]).stdout;
    assert!(shown.contains("A: Yes?</s>U: What is") && shown.contains("\u{27e6}A: A number.</s>\u{27e7}"), "{shown}");
    let rejected = shown.split("the rejected answer").nth(1).unwrap();
    assert!(rejected.contains("\u{27e6}A: Go.</s>\u{27e7}") && !rejected.contains("A number."), "{shown}");
    assert_eq!(losses(&place, "run").len(), 2);
    assert!((losses(&place, "run")[0] - std::f64::consts::LN_2).abs() < 1e-6);
    // Prompts are pairs, or what comes before an answer; the answers of all but the pair are not known.
    let prompt = format!("{{\"prompt\": [{}]}}\n", said("user", "What is 3?"));
    let (conversation, pair) = (prompt.replace("prompt", "messages"), format!("{}\n", record(3)));
    // A text is what the user says, as in the pairs.
    let text = "{\"prompt\": \"What is 3?\"}\n";
    place.write("prompts.jsonl", [&prompt[..], &conversation, &pair, text].concat());
    let answered = place.run(&["predict", "run", "prompts.jsonl", "-o", "answers.jsonl", "--max-tokens", "3"]);
    assert_eq!(answered.code, Some(0), "{}", answered.stderr);
    let answers = fs::read_to_string(place.path("answers.jsonl")).unwrap();
    let answers: Vec<Value> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!([1, 3].iter().all(|other| answers[0]["prediction"] == answers[*other]["prediction"]), "{answers:?}");
    let references: Vec<&Value> = answers[..3].iter().map(|answer| &answer["references"]).collect();
    assert_eq!(references, [&Value::Null, &Value::Null, &serde_json::json!(["A: A number."])]);
}

/// Without roles, conversations are written as the model's own template has them.
#[test]
fn messages_are_written_by_the_template_of_the_model() {
    let place = Place::new();
    fs::create_dir(place.path("own")).unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        fs::copy(golden(&format!("dpo/tokenizer/{file}")), place.path("own").join(file)).unwrap();
    }
    place.write(
        "own/chat_template.jinja",
        "{% for m in messages %}({{ m.role }}) {{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}\n{% endfor %}\
         {% if add_generation_prompt %}(assistant) {% endif %}",
    );
    let said = |role: &str, content: &str| serde_json::json!({"role": role, "content": content});
    let record = |i: usize| {
        let prompt = [said("user", "Hi"), said("assistant", "Yes?"), said("user", &format!("What is {i}?"))];
        serde_json::json!({"prompt": prompt, "chosen": [said("assistant", "A number.")], "rejected": [said("assistant", "Go.")]})
            .to_string()
    };
    place.write("pairs.jsonl", (0..8).map(record).collect::<Vec<_>>().join("\n"));
    let text = config("", "", &start())
        .replace(&golden("dpo/pairs.jsonl"), "pairs.jsonl")
        .replace(&golden("dpo/tokenizer"), "own")
        .lines()
        .filter(|line| !line.starts_with("validation_path"))
        .collect::<Vec<_>>()
        .join("\n")
        .replace("length = 64", "length = 96")
        .replace("steps = 20", "steps = 2");
    place.fit(&text, "run", &[]);
    let shown = place.run(&["fit", "config.toml", "--dry-run"]).stdout;
    // The prompt as the template begins an answer; the answer and its end are what is learned.
    assert!(shown.contains("(assistant) Yes?</s>") && shown.contains("(assistant) \u{27e6}A number.</s>"), "{shown}");
    let rejected = shown.split("the rejected answer").nth(1).unwrap();
    assert!(rejected.contains("(assistant) \u{27e6}Go.</s>") && !rejected.contains("A number."), "{shown}");
    assert_eq!(losses(&place, "run").len(), 2);
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let place = Place::new();
    let refused = |text: &str, parts: &[&str]| {
        place.write("config.toml", text);
        place.run(&["fit", "config.toml"]).refused(parts);
        assert!(!place.path("runs").exists());
    };
    refused(&config("", "chunk = 8", &start()), &["`train.chunk`", "scored whole"]);
    refused(&config("", "", &start()).replace("beta = 0.5", "beta = 0.0"), &["`task.beta` must be above 0"]);
    refused(&config("", "", &start()).replace("\"dpo\"", "\"jsonl\""), &["`task.beta` is not for `kind = \"jsonl\"`"]);
    let tiny = config("", "", "[[adapter]]\nkind = \"lora\"\nrank = 2\n");
    let (before, after) = (tiny.find("[backbone]").unwrap(), tiny.find("[train]").unwrap());
    let tiny = |backbone: &str| format!("{}[backbone]\n{backbone}{}", &tiny[..before], &tiny[after..]);
    refused(&tiny("train_head = true\n"), &["`backbone` is trained together with the adapters"]);
    refused(&tiny("").replace("kind = \"lora\"\nrank = 2", "kind = \"full\""), &["\"full\" changes the model"]);
    refused(&(tiny("") + "[pretrain]\nsteps = 1\n"), &["pretrain on another task"]);
    place.write("same.jsonl", "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"b\"}\n");
    let same = config("", "", &start()).replace(&golden("dpo/pairs.jsonl"), "same.jsonl");
    refused(&same, &["same.jsonl:1", "`chosen` and `rejected` are the same"]);
}
