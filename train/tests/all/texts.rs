//! Tasks on texts from the command line: real excerpts, the real tokenizer of Mistral-7B on a small random Mistral, and a
//! real small Llama.

use crate::chat::talk;
use crate::common::{Place, collect_losses};
use hankel_models::DecoderConfig;
use hankel_models::decoder::{InitType, families, init_model};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

fn root(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name).display().to_string()
}

fn fixture(name: &str) -> String {
    root(&format!("tests/fixtures/text/{name}"))
}

/// A random model with the vocabulary of Mistral-7B and its tokenizer beside it.
fn place() -> Place {
    let place = Place::new();
    let config = DecoderConfig {
        family: &families::MISTRAL,
        vocabulary: 32_000,
        d_model: 16,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 4,
        d_ff: 24,
        context: 512,
        sliding_window: Some(64),
        init_std: 0.3,
        ..DecoderConfig::mistral_7b()
    };
    init_model(&config, 1, InitType::Bf16, &place.path("model")).unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        fs::copy(root(&format!("../tests/golden/tokenizer/{file}")), place.path("model").join(file)).unwrap();
    }
    place
}

fn config(task: &str, rest: &str) -> String {
    format!(
        "name = \"t\"\nseed = 3\n[task]\n{task}\nlength = 160\nmax_new_tokens = 8\nvalidation_share = 0.3\n[backbone]\nkind = \
         \"mistral\"\nmodel = \"model\"\n[train]\nbatch_size = 2\nlr = 5e-3\nlog_every = 1\n{rest}"
    )
}

const HRM: &str = "[[adapter]]\nkind = \"hrm\"\nstate_dim = 4\ntruncate = { order = 2 }\n";
/// Far from doing nothing.
const STRONG: &str = "[[adapter]]\nkind = \"hrm\"\nstate_dim = 4\ngate_init = 1.0\nb_std = 0.3\nc_std = 0.3\n";
const LORA: &str = "[[adapter]]\nkind = \"lora\"\nrank = 2\nlora_alpha = 4\ndropout = 0.05\n";

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn lines(place: &Place, name: &str) -> Vec<Value> {
    fs::read_to_string(place.path(name)).unwrap_or_else(|e| panic!("{name}: {e}")).lines().map(json).collect()
}

/// Trains, evaluates, scores the predictions once more, and expects the same figures everywhere.
fn pipeline(task: &str, kind: &str, metrics: &[&str]) {
    let place = place();
    place.fit(&config(task, &format!("steps = 3\n{HRM}{LORA}")), "run", &[]);
    let result = json(&fs::read_to_string(place.path("run/result.json")).unwrap());
    assert_eq!(result["task"]["kind"], kind);
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        let found = &row["validation"]["metrics"];
        for metric in metrics.iter().chain(&["loss", "token_accuracy"]) {
            let value = found[metric].as_f64().unwrap_or_else(|| panic!("{kind}: no {metric} in {found}"));
            assert!(value >= 0.0 && (value <= 1.0 || *metric == "loss"), "{metric} = {value}");
        }
        let name = row["name"].as_str().unwrap();
        let predictions = lines(&place, &format!("run/predictions/{name}-validation.jsonl"));
        assert_eq!(predictions.len(), row["validation"]["sequences"].as_u64().unwrap() as usize);
        assert!(predictions.iter().all(|line| !line["references"].as_array().unwrap().is_empty()));
    }
    let finished = place.run(&["eval", "run", "--adapter", "hrm-order-2", "--json", "-o", "out"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let again = &json(&finished.stdout)[0]["scores"]["metrics"];
    let predictions = lines(&place, "out/predictions.jsonl");
    assert_eq!(predictions[0]["adapter"], "hrm-order-2");
    let scored = place.run(&["score", "--task", kind, "out/predictions.jsonl", "--json"]);
    assert_eq!(scored.code, Some(0), "{}", scored.stderr);
    let scored = json(&scored.stdout);
    for metric in metrics {
        let value = |of: &Value| of[metric].as_f64().unwrap();
        let then = value(&rows[1]["validation"]["metrics"]);
        // The truncated adapter was evaluated from memory, now from its files: a tie of two tokens may fall otherwise.
        assert!((value(again) - then).abs() < 0.3, "{metric}");
        assert!((value(&scored["scores"]) - value(again)).abs() < 1e-12, "{metric}");
    }
}

#[test]
fn quality() {
    let task = format!("kind = \"quality\"\npath = {:?}", fixture("quality.jsonl"));
    pipeline(&task, "quality", &["accuracy", "accuracy_log_likelihood"]);
}

#[test]
fn qmsum() {
    let task = format!("kind = \"qmsum\"\npath = {:?}\ntrain_sequences = 4", fixture("qmsum.jsonl"));
    // The answers are longer than 160 tokens leave: most are left out, which is told.
    let task =
        task.replace("kind", "metrics = [\"rouge1\", \"rouge2\", \"rouge_l\", \"released_rouge1_recall\"]\nkind");
    pipeline(&task, "qmsum", &["rouge1", "rouge2", "rouge_l", "released_rouge1_recall"]);
}

#[test]
fn narrativeqa() {
    let task = format!(
        "kind = \"narrativeqa\"\npath = {:?}\ndocuments = {:?}",
        fixture("narrativeqa_qaps.jsonl"),
        fixture("narrativeqa_stories.jsonl")
    );
    pipeline(&task, "narrativeqa", &["token_f1", "exact_match", "rouge_l"]);
}

#[test]
fn packing_padding_and_parts_give_the_same_losses() {
    let place = place();
    let task = format!("kind = \"quality\"\npath = {:?}\nmetrics = []", fixture("quality.jsonl"));
    let text = config(&task, &format!("steps = 3\naccumulation = 2\n{STRONG}{LORA}"))
        .replace("dropout = 0.05", "dropout = 0.0");
    let text = format!("precision = \"f64\"\n{text}").replace("0.3\n[back", "0.3\npack = false\n[back");
    let losses = |out: &str, more: &[&str]| {
        place.fit(&text, out, &[more, &["--set", "task.validation_sequences=1"]].concat());
        ["lora", "hrm"].map(|stage| collect_losses(&place, out, stage))
    };
    let padded = losses("padded", &[]);
    for (name, more) in [
        ("packed", &["--set", "task.pack=true"][..]),
        ("one", &["--set", "train.batch_size=4", "--set", "train.accumulation=1"]),
        ("recompute", &["--set", "backbone.recompute=true", "--set", "task.pack=true"]),
        // Gradients stop at the borders of parts, but every part that has a target has the whole loss.
        ("parts", &["--set", "train.chunk=1000"]),
    ] {
        let other = losses(name, more);
        for (padded, other) in padded.iter().zip(&other) {
            let close = padded.iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-9);
            assert!(close && other.len() == 3, "{name}: {padded:?} {other:?}");
        }
    }
    for pack in ["true", "false"] {
        let parts =
            losses(&format!("parts-{pack}"), &["--set", "train.chunk=37", "--set", &format!("task.pack={pack}")]);
        for (padded, parts) in padded.iter().zip(&parts) {
            // What attention sees and the recurrent state are carried from part to part.
            assert!((padded[0] - parts[0]).abs() < 1e-9, "the first loss is that of the whole: {padded:?} {parts:?}");
            assert!((padded[2] - parts[2]).abs() > 1e-9, "the gradient is another: {padded:?} {parts:?}");
        }
    }
    // The recurrence matters here: without memory the first loss would be another.
    let forgetful = losses("forgetful", &["--set", "adapter.hrm.a_min=1e-9", "--set", "adapter.hrm.a_max=1e-8"]);
    assert!((forgetful[1][0] - padded[1][0]).abs() > 1e-3, "{padded:?} {forgetful:?}");
}

#[test]
fn a_real_model_learns_from_real_meetings() {
    let place = Place::new();
    let task = format!(
        "[task]\nkind = \"qmsum\"\npath = {:?}\nlength = 512\nmetrics = []\ndata_seed = 1",
        fixture("qmsum.jsonl")
    );
    let model = root("../tests/fixtures/stories260k");
    let config = format!(
        "name = \"s\"\nseed = 1\n{task}\n[backbone]\nkind = \"mistral\"\nmodel = {model:?}\n[train]\nsteps = 30\nbatch_size = 2\n\
         lr = 1e-2\nlog_every = 1\n[[adapter]]\nkind = \"none\"\n[[adapter]]\nkind = \"hrm\"\nstate_dim = 16\n\
         preset = \"paper\"\n[[adapter]]\nkind = \"lora\"\nrank = 8\nlora_alpha = 16\n"
    );
    place.fit(&config, "run", &[]);
    let result = json(&fs::read_to_string(place.path("run/result.json")).unwrap());
    let loss = |row: usize| result["rows"][row]["validation"]["metrics"]["loss"].as_f64().unwrap();
    let before = loss(0);
    for (row, name) in [(1, "hrm"), (2, "lora")] {
        assert!(loss(row) < 0.9 * before, "{name}: validation loss {} from {before}", loss(row));
        let losses = collect_losses(&place, "run", name);
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        assert!(mean(&losses[25..]) < 0.9 * mean(&losses[..5]), "{name}: {losses:?}");
    }
}

#[test]
fn the_example_of_the_documentation() {
    let place = Place::new();
    let page = fs::read_to_string(root("../docs/data.md")).unwrap();
    let (_, rest) = page.split_once("    name = \"colours\"").unwrap();
    let (config, _) = rest.split_once("**3.").unwrap();
    let mut lines = Vec::new();
    for name in ["Lily", "Tom", "Ben", "Sue", "Max", "Anna", "Sam", "Mia", "Tim", "Zoe"] {
        for thing in ["ball", "hat", "car", "box", "cup"] {
            for colour in ["red", "blue", "green", "yellow", "black", "white"] {
                let prompt = format!("{name} has a {colour} {thing}. What is it like? The {thing} is");
                lines.push(format!("{{\"prompt\": {prompt:?}, \"completion\": \" {colour}.\"}}\n"));
            }
        }
    }
    place.write("colours.jsonl", lines.concat());
    let model = format!("backbone.model={}", root("../tests/fixtures/stories260k"));
    place.fit(&format!("name = \"colours\"{config}"), "run", &["--set", &model]);
    let result = json(&fs::read_to_string(place.path("run/result.json")).unwrap());
    let right = |row: usize| result["rows"][row]["validation"]["metrics"]["exact_match"].as_f64().unwrap();
    assert!(right(0) < 0.1 && (1..4).all(|row| right(row) > 0.9), "{result}");
    let prompt = "Ava has a yellow kite. What is it like? The kite is";
    let arguments = ["generate", "run", "--adapter", "hrm", "--temperature", "0", "--stop", ".", "--prompt", prompt];
    assert_eq!(place.run(&arguments).stdout, format!("{prompt} yellow\n"));
}

#[test]
fn dry_run_shows_an_example_with_what_is_learned() {
    let place = place();
    let task = format!("kind = \"quality\"\npath = {:?}", fixture("quality.jsonl"));
    place.write("config.toml", config(&task, &format!("epochs = 2\n{HRM}")));
    let finished = place.run(&["fit", "config.toml", "--dry-run"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let learned = [
        "\nAnswer:\u{27e6} A</s>\u{27e7}",
        "\nAnswer:\u{27e6} B</s>\u{27e7}",
        "\nAnswer:\u{27e6} C</s>\u{27e7}",
        "\nAnswer:\u{27e6} D</s>\u{27e7}",
    ];
    assert!(learned.iter().any(|part| finished.stdout.contains(part)), "{}", finished.stdout);
    for part in [
        "<s> Article:\n",
        "tokenizer = \"model\"",
        "repetition_penalty = 1.0",
        "truncation = \"middle\"",
        "hrm: 5 steps of 1 x 2",
    ] {
        assert!(finished.stdout.contains(part), "{part} in {}", finished.stdout);
    }
}

#[test]
fn a_tokenizer_of_another_vocabulary() {
    let place = place();
    let task = format!("kind = \"quality\"\npath = {:?}", fixture("quality.jsonl"));
    place.write("config.toml", config(&task, HRM));
    let small = root("../tests/fixtures/stories260k");
    let tokenizer = format!("task.tokenizer={}", place.path("model").display());
    let finished = place.run(&["fit", "config.toml", "--set", &format!("backbone.model={small}"), "--set", &tokenizer]);
    finished.refused(&["`backbone.model` holds a model with a vocabulary of 512, but the task has one of 32000"]);
    let tokenizer = format!("task.tokenizer={small}");
    let finished = place.run(&["fit", "config.toml", "--set", &tokenizer]);
    finished.refused(&["`task.tokenizer` has 512 ids, but the model has 32000: it is the tokenizer of another model"]);
    assert!(!place.path("runs").exists());
}

#[test]
fn files_that_cannot_be_used() {
    let place = place();
    let own = |content: &str| {
        place.write("own.jsonl", content);
        place.write("config.toml", config("kind = \"jsonl\"\npath = \"own.jsonl\"", HRM));
        place.run(&["fit", "config.toml"])
    };
    own("").refused(&["`task.path`: own.jsonl is empty"]);
    // With one prompt for all, answers tell examples apart; with two, all of one may be held out.
    let story = |n: usize| format!("{{\"prompt\": \"Write.\", \"completion\": \"story {n}\"}}\n");
    place.write("own.jsonl", (0..12).map(story).collect::<String>());
    place.write("config.toml", config("kind = \"jsonl\"\npath = \"own.jsonl\"", HRM));
    let plan = |seed: u64| place.run(&["fit", "config.toml", "--dry-run", "--set", &format!("task.data_seed={seed}")]);
    let divided = plan(0);
    assert!(divided.stdout.contains("training: 8 examples"), "{}{}", divided.stdout, divided.stderr);
    assert!(!divided.stderr.contains("are held out"), "{}", divided.stderr);
    place.write("own.jsonl", (0..12).map(story).collect::<String>() + "{\"prompt\": \"x\", \"completion\": \"y\"}\n");
    let told: Vec<bool> =
        (0..6).map(|seed| plan(seed).stderr.contains("warning: 12 of 13 examples are held out")).collect();
    assert!(told.contains(&true) && told.contains(&false), "{told:?}");
    own("{\"prompt\": \"x\"").refused(&["nothing in own.jsonl can be used: own.jsonl:1: the line is not valid JSON"]);
    own("{\"prompt\": \"x\", \"completion\": \"y\"}\n").refused(&["there is 1 document to divide"]);
    let finished = own("oops\n{\"prompt\": \"x\"}\n{\"prompt\": \"\", \"completion\": \"y\"}\n");
    finished.refused(&["own.jsonl:1: the line is not valid JSON"]);
    assert!(!place.path("runs").exists());
}

#[test]
fn lines_that_cannot_be_used_are_named_and_the_others_used() {
    let place = place();
    let line =
        |n: usize| format!("{{\"prompt\": \"{n}+{n}=\", \"completion\": \" {}\", \"system\": \"Add.\"}}\n", 2 * n);
    let blank = "{\"prompt\": \" \", \"completion\": \"y\"}\n";
    place.write("own.jsonl", [&line(1), "{\"prompt\": \"cut off\n", &line(2), blank, &line(3)].concat());
    place.write("config.toml", config("kind = \"jsonl\"\npath = \"own.jsonl\"", HRM));
    let finished = place.run(&["fit", "config.toml", "--dry-run"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    for part in ["warning: own.jsonl:2: the line is not valid JSON", "own.jsonl:4: ", "`prompt` is missing or empty"] {
        assert!(finished.stderr.contains(part), "{part} in {}", finished.stderr);
    }
    for part in ["training: 2 examples", "validation: 1 example "] {
        assert!(finished.stdout.contains(part), "{part} in {}", finished.stdout);
    }
    // Settings of conversations have no effect where there are none.
    let [roles, test] = ["task.roles.user=\"{content}\"", "task.test_sequences=5"];
    let told = place.run(&["fit", "config.toml", "--dry-run", "--set", roles, "--set", test]).stderr;
    assert!(told.contains("`task.roles` has no effect"), "{told}");
    assert!(told.contains("`task.test_sequences` has no effect: there is no test part"), "{told}");
    assert!(told.contains("note: `system` beside texts is not read"), "{told}");
    let told = place.run(&["fit", "config.toml", "--dry-run", "--set", "task.max_new_tokens=155"]).stderr;
    assert!(told.contains("because 155 are kept for an answer"), "{told}");
}

#[test]
fn conversations_by_the_template_of_the_model() {
    let place = place();
    let template = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% if m.role == 'assistant' %}\
                    {{ eos_token }}{% endif %}{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
    let line = |n: usize| {
        format!(
            "{{\"conversations\": [{{\"from\": \"human\", \"value\": \"Double {n}\"}}, {{\"from\": \"gpt\", \"value\": \
             \"{}\"}}]}}\n",
            2 * n
        )
    };
    place.write("own.jsonl", (0..10).map(line).collect::<String>());
    place.write("config.toml", config("kind = \"jsonl\"\npath = \"own.jsonl\"", &format!("steps = 2\n{LORA}")));
    let refused = place.run(&["fit", "config.toml"]);
    refused.refused(&["the model has no chat template", "write [task.roles] with `system`, `user` and `assistant`"]);
    for (bad, problem) in [
        ("{% for m in messages %}", "chat_template.jinja: the chat template"),
        ("{{ raise_exception('no poems') }}", "no poems"),
        (
            "{% set ns = namespace(l=['a']) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
            "too many steps",
        ),
    ] {
        place.write("model/chat_template.jinja", bad);
        place.run(&["fit", "config.toml"]).refused(&[problem]);
    }
    assert!(!place.path("runs").exists());
    place.write("model/chat_template.jinja", template);
    let finished = place.run(&["fit", "config.toml", "--dry-run"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    for part in [
        "the model's chat template writes every token",
        "[assistant]\u{27e6}",
        "</s>\u{27e7}",
        "Token by token:\n\n<s>|",
    ] {
        assert!(finished.stdout.contains(part), "{part} in {}", finished.stdout);
    }
    assert!(!finished.stderr.contains("has no effect"), "{}", finished.stderr);
    place.fit(&fs::read_to_string(place.path("config.toml")).unwrap(), "run", &[]);
    let result = json(&fs::read_to_string(place.path("run/result.json")).unwrap());
    assert!(result["rows"][0]["validation"]["metrics"]["loss"].as_f64().unwrap() > 0.0, "{result}");
}

/// What `chat` writes for a run is what the run's own roles, or the model's template with the run's variables, make of the conversation.
#[test]
fn a_run_is_talked_to_as_it_was_trained() {
    let place = place();
    let line = |n: usize| {
        let said = |role: &str, text: &str| format!("{{\"role\": \"{role}\", \"content\": \"{text}\"}}");
        format!("{{\"messages\": [{}, {}]}}\n", said("user", &n.to_string()), said("assistant", &(2 * n).to_string()))
    };
    place.write("own.jsonl", (0..10).map(line).collect::<String>());
    let config = config("kind = \"jsonl\"\npath = \"own.jsonl\"", &format!("steps = 1\n{LORA}"));
    let short = ["--temperature", "0", "--max-tokens", "6"];
    let answers = |arguments: &[&str], lines: &str| {
        let done = talk(&place, &[&["chat"], arguments, &short[..]].concat(), lines);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        done.stdout.trim().to_owned()
    };
    let continued = |prompt: &str| {
        let arguments = ["generate", "--model", "model", "--prompt", prompt];
        place.run(&[&arguments[..], &short[..]].concat()).stdout.trim().to_owned()
    };
    let is_answer = |prompt: &str, answer: &str| {
        let whole = continued(prompt);
        assert!(!answer.is_empty() && whole.ends_with(answer), "{answer:?} in {whole:?}");
    };
    let roles = "task.roles={ system = \"<{content}> \", user = \"ask {content} say\", assistant = \" {content}\" }";
    place.fit(&config, "roles", &["--set", roles]);
    let plain = ["roles", "--adapter", "none"];
    is_answer("ask Double 7 say", &answers(&plain, "Double 7\n"));
    is_answer(
        "<Be brief.> ask Double 7 say",
        &answers(&[&plain[..], &["--system", "Be brief."]].concat(), "Double 7\n"),
    );
    assert_ne!(answers(&plain, "Double 7\n"), answers(&["model"], "Double 7\n"));
    place.run(&["chat", "model", "--system", "Be brief."]).refused(&["--system", "has no chat template"]);

    // The template of the model, with a variable that only the run sets.
    let template = "{{ bos_token }}{% for m in messages %}{{ volume }} {{ m.role }}: {{ m.content }}{{ '\n' }}{% endfor %}\
                    {% if add_generation_prompt %}assistant:{% endif %}";
    place.write("model/chat_template.jinja", template);
    let kwargs = "task.chat_template_kwargs={ volume = \"loud\", documents = \"none\" }";
    let told = place.fit(&config, "variables", &["--set", kwargs]).stderr;
    assert!(told.contains("kwargs.documents` has no effect") && !told.contains("kwargs.volume"), "{told}");
    is_answer("loud user: Double 7\nassistant:", &answers(&["variables", "--adapter", "none"], "Double 7\n"));
    place.write("model/chat_template.jinja", template.replace("volume", "strftime_now('%Y')"));
    assert!(place.run(&["fit", "config.toml", "--dry-run"]).stderr.contains("writes today's date"));
}

#[test]
fn plain_text() {
    let place = place();
    let text = "It was a dark and stormy night; the rain fell in torrents.\n".repeat(60);
    place.write("book.txt", &text);
    let text_config = |more: &str| {
        config("kind = \"text\"\npath = \"book.txt\"", &format!("steps = 3\n{more}{LORA}"))
            .replace("max_new_tokens = 8\n", "")
            .replace("length = 160", "length = 32")
    };
    place.write("config.toml", text_config(""));
    let finished = place.run(&["fit", "config.toml", "--dry-run"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    for part in [
        "before a text: <s>; after a document: </s>",
        "It was a dark and stormy night",
        "the last 0.3 of every document held out",
    ] {
        assert!(finished.stdout.contains(part), "{part} in {}", finished.stdout);
    }
    place.write("other.txt", "It did not rain at all that night. ".repeat(60));
    let set = |setting| ["--set", setting];
    let settings =
        ["task.validation_path=other.txt", "task.division=documents", "task.test_sequences=2", "task.separator=<none>"]
            .map(set);
    let told = place.run(&[&["fit", "config.toml", "--dry-run"], settings.as_flattened()].concat()).stderr;
    for part in [
        "`task.division` has no effect: `validation_path` is given",
        "`task.validation_share` has no effect: `validation_path` is given",
        "`task.separator` \"<none>\" has no effect on `task.path`: it is nowhere in the texts",
        "`task.test_sequences` has no effect: there is no test part",
    ] {
        assert!(told.contains(part), "{part} in {told}");
    }
    place.fit(&text_config(""), "run", &[]);
    let result = json(&fs::read_to_string(place.path("run/result.json")).unwrap());
    let found = &result["rows"][0]["validation"];
    let figure = |name: &str| found["metrics"][name].as_f64().unwrap_or_else(|| panic!("no {name} in {found}"));
    assert_eq!(result["task"]["primary_metric"], "perplexity");
    assert!((figure("perplexity").ln() - figure("loss")).abs() < 1e-9);
    let bytes = figure("loss") * found["tokens"].as_f64().unwrap() / std::f64::consts::LN_2 / figure("bits_per_byte");
    assert!((bytes - 0.3 * text.len() as f64).abs() < 62.0, "{bytes} of {} bytes", text.len());

    let bytes = text_config("").replace("kind = \"text\"", "kind = \"bytes\"").replace("validation_share = 0.3\n", "");
    place.write("bytes.toml", bytes);
    place.run(&["fit", "bytes.toml"]).refused(&["`task.kind` \"bytes\" would feed bytes", "`kind = \"text\"`"]);
    for (name, content, problem) in [
        ("book.txt", &b"\xff\xfe"[..], "byte 0 is not UTF-8, so it is not text"),
        ("book.txt", b"", "book.txt is empty"),
        ("book.txt", b" \n", "there is no text"),
    ] {
        place.write(name, content);
        place.run(&["fit", "config.toml"]).refused(&["`task.path`", problem]);
    }
    place
        .run(&["fit", "config.toml", "--set", "task.path=nowhere"])
        .refused(&["`task.path` names nowhere, but there is no "]);
    assert!(!place.path("runs").exists());
}

#[test]
fn texts_and_ids() {
    let place = place();
    let run = |arguments: &[&str]| {
        let finished = place.run(&[&["tokenize", "model"], arguments].concat());
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        finished.stdout
    };
    let text = "Hello,  world!\nHéllo";
    let ids = run(&["--text", text]);
    assert_eq!(run(&["--decode", "--text", &ids]), format!("{text}\n"));
    assert_eq!(run(&["--special", "--text", text]), format!("1 {ids}"));
    place.write("text", text);
    assert_eq!(run(&["text"]), ids);
    place.write("marked", format!("\u{feff}{text}"));
    assert_eq!(run(&["marked"]), ids, "a byte order mark is no text");
    let found = json(&run(&["--json", "text"]));
    assert_eq!(found["ids"].as_array().unwrap().len(), ids.split_whitespace().count());
    assert_eq!(found["text"], text);
    assert_eq!(found["tokens"][0], "\u{2581}Hello", "as the vocabulary has it");
    assert_eq!(found["tokens"][5], "<0x0A>");
    assert_eq!(run(&["--decode", "--special", "--text", "[1, 2]"]), "<s></s>\n");
    place
        .run(&["tokenize", "model", "--decode", "--text", "32000"])
        .refused(&["32000 is not a token: there are 32000"]);
    place.run(&["tokenize", "nowhere", "--text", "x"]).refused(&["cannot read nowhere/tokenizer.json"]);
}

#[test]
fn the_configurations_of_the_paper() {
    let place = place();
    let documents = format!("task.documents={}", fixture("narrativeqa_stories.jsonl"));
    // The excerpt is all of one set.
    let questions = fs::read_to_string(fixture("narrativeqa_qaps.jsonl")).unwrap();
    let sets = ["train", "valid", "test", "train", "train"].iter().cycle();
    let set = |(line, set): (&str, &&str)| line.replace("\"set\": \"valid\"", &format!("\"set\": {set:?}")) + "\n";
    // Two questions on a story: they stay together.
    let sets = sets.flat_map(|set| [set, set]);
    place.write("narrativeqa_qaps.jsonl", questions.lines().zip(sets).map(set).collect::<String>());
    let five = &["hrm", "lora", "adalora", "dora", "lora-mlp"][..];
    for (name, data, rows) in [
        ("quality", fixture("quality.jsonl"), five),
        ("quality_qlora", fixture("quality.jsonl"), &["qlora"]),
        ("qmsum", fixture("qmsum.jsonl"), five),
        ("qmsum_qlora", fixture("qmsum.jsonl"), &["qlora"]),
        ("narrativeqa", "narrativeqa_qaps.jsonl".into(), five),
        ("narrativeqa_qlora", "narrativeqa_qaps.jsonl".into(), &["qlora"]),
    ] {
        let file = root(&format!("experiments/longbench/{name}.toml"));
        assert_eq!(
            toml::from_str::<toml::Table>(&fs::read_to_string(&file).unwrap()).unwrap()["train"]["epochs"],
            5.into()
        );
        let path = format!("task.path={data}");
        // Enough epochs of the few examples for the schedule of AdaLoRA.
        let set = ["--set", &path, "--set", "backbone.model=model", "--set", "train.epochs=1500"];
        let more: &[&str] = if name.starts_with("narrativeqa") { &["--set", &documents] } else { &[] };
        let finished = place.run(&[&["fit", &file, "--dry-run"], &set[..], more].concat());
        assert_eq!(finished.code, Some(0), "{name}: {}", finished.stderr);
        for row in rows {
            assert!(finished.stdout.contains(&format!("\n{row}: ")), "{row} in {}", finished.stdout);
        }
        assert!(finished.stdout.contains("</s>\u{27e7}"), "{name}");
        let (resolved, _) = finished.stdout.split_once("\n# Task\n").unwrap();
        protocol(name, &resolved.parse().unwrap(), rows.len() == 1);
    }
}

/// What the paper and, where it is silent, the released code say.
fn protocol(name: &str, config: &toml::Table, quantised: bool) {
    let expect = |table: &toml::Value, wanted: &str| {
        for (key, value) in toml::from_str::<toml::Table>(wanted).unwrap() {
            assert_eq!(table.get(&key), Some(&value), "{name}: {key} in {table}");
        }
    };
    let common = "length = 4096\ntruncation = \"middle\"\nvalidation_share = 0.1\nmax_new_tokens = 128\nrepetition_penalty = 1.3";
    expect(&config["task"], common);
    let official = config["task"].get("official_split").is_some_and(|value| *value == true.into());
    assert_eq!(official, name.starts_with("narrativeqa"));
    expect(
        &config["train"],
        "batch_size = 1\naccumulation = 8\nlr = 5e-4\nclip = 1.0\nschedule = \"cosine\"\nwarmup_ratio = 0.03",
    );
    assert_eq!(config["backbone"].get("quantize"), quantised.then(|| "nf4".into()).as_ref());
    let qv = "lora_alpha = 32.0\ndropout = 0.05\ntargets = [\"q_proj\", \"v_proj\"]\n";
    let adalora = format!(
        "{qv}init_rank = 24\ntarget_rank = 16\ntinit = 50\ntfinal = 600\ndelta_t = 10\nbeta1 = 0.85\nbeta2 = 0.85\n\
         orth_reg_weight = 0.5"
    );
    for adapter in config["adapter"].as_array().unwrap() {
        let wanted = match adapter["name"].as_str().unwrap() {
            "hrm" => "kind = \"hrm\"\nstate_dim = 32\nsites = [\"mlp\"]\npreset = \"identity\"\ninput = \"norm\"",
            "lora" | "qlora" => &format!("kind = \"lora\"\nrank = 16\n{qv}"),
            "dora" => &format!("kind = \"dora\"\nrank = 16\n{qv}"),
            "adalora" => &format!("kind = \"adalora\"\n{adalora}"),
            "lora-mlp" => {
                "kind = \"lora\"\nrank = 4\ndropout = 0.05\ntargets = [\"gate_proj\", \"up_proj\", \"down_proj\"]"
            }
            other => panic!("{other}"),
        };
        expect(adapter, wanted);
    }
}

#[test]
fn every_method_is_trained_and_adalora_shares_out_its_ranks() {
    let place = place();
    let task = format!("kind = \"quality\"\npath = {:?}\nmetrics = []", fixture("quality.jsonl"));
    let methods = "[[adapter]]\nkind = \"adalora\"\ninit_rank = 3\ntarget_rank = 2\ntinit = 2\ntfinal = 2\ndelta_t = 2\n\
        [[adapter]]\nkind = \"dora\"\nrank = 2\n[[adapter]]\nkind = \"ia3\"\n[[adapter]]\nkind = \"lora\"\nrank = 2\n\
        rslora = true\ntargets = [\"gate_proj\", \"up_proj\", \"down_proj\"]\n";
    place.fit(
        &config(&task, &format!("steps = 10\ncheckpoint_every = 5\nkeep_checkpoints = 9\n{methods}")),
        "run",
        &[],
    );
    let result = json(&fs::read_to_string(place.path("run/result.json")).unwrap());
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    let ranks: u64 = rows[0]["layers"].as_array().unwrap().iter().map(|layer| layer["order"].as_u64().unwrap()).sum();
    assert_eq!(ranks, 2 * 4, "a mean of 2 over 4 projections");
    let events = lines(&place, "run/metrics.jsonl");
    let shared = events.iter().filter(|event| event["event"] == "layers" && event["stage"] == "adalora");
    assert!(shared.clone().count() >= 2 && shared.clone().all(|event| event["layers"][0]["rank"].is_u64()));
    // Interrupted in the middle and resumed, it ends with the same bits: scores and masks were saved.
    let alone = &methods[..methods.find("[[adapter]]\nkind = \"dora\"").unwrap()];
    let rest = format!("steps = 10\ncheckpoint_every = 5\nkeep_checkpoints = 9\n{alone}");
    place.fit(&config(&task, &rest), "again", &[]);
    for entry in fs::read_dir(place.path("again/checkpoints")).unwrap() {
        let path = entry.unwrap().path();
        if !path.ends_with("00-adalora-step-000005") {
            fs::remove_dir_all(path).unwrap();
        }
    }
    assert!(place.path("again/checkpoints/00-adalora-step-000005").is_dir());
    let finished = place.run(&["fit", "--out", "again", "--resume"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let bytes = |run: &str| fs::read(place.path(run).join("adapters/adalora/adapter_model.safetensors")).unwrap();
    assert!(bytes("run") == bytes("again"));
}
