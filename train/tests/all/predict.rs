//! Answers to files of prompts, and evaluation on other files.

use crate::common::Place;
use hankel_models::DecoderConfig;
use hankel_models::decoder::{InitType, init_model};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// A small random model with a tokenizer.
fn place() -> Place {
    let place = Place::new();
    let sizes = DecoderConfig {
        vocabulary: 320,
        d_model: 16,
        layers: 1,
        heads: 2,
        kv_heads: 2,
        head_dim: 8,
        ..DecoderConfig::mistral_7b()
    };
    let config = DecoderConfig { d_ff: 24, context: 256, sliding_window: None, init_std: 0.3, ..sizes };
    init_model(&config, 1, InitType::F32, &place.path("model")).unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/gguf/models/hf/llama");
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        fs::copy(golden.join(file), place.path("model").join(file)).unwrap();
    }
    place
}

fn prompts(count: usize) -> String {
    let line = |i| format!("{{\"id\": \"q{i}\", \"prompt\": \"the in {i}\", \"completion\": \"x{i}\"}}\n");
    (1..=count).map(line).collect::<Vec<_>>().concat()
}

fn lines(place: &Place, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(place.path(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Paths of Unix are bytes, and the working directory counts, too.
#[cfg(target_os = "linux")]
#[test]
fn a_model_may_lie_in_a_folder_that_is_not_utf_8() {
    use std::os::unix::ffi::OsStrExt;
    let place = place();
    place.write("prompts.jsonl", prompts(1));
    let folder = place.path("d").with_file_name(std::ffi::OsStr::from_bytes(b"d\xff"));
    fs::create_dir(&folder).unwrap();
    for name in ["model", "prompts.jsonl"] {
        fs::rename(place.path(name), folder.join(name)).unwrap();
    }
    let mut command = place.command(&["predict", "model", "prompts.jsonl", "-o", "out.jsonl", "--max-tokens", "1"]);
    let output = command.current_dir(&folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn killed_and_continued_without_repeating_an_answer() {
    let place = place();
    place.write("prompts.jsonl", prompts(120));
    let arguments = |out| ["predict", "model", "prompts.jsonl", "-o", out, "--max-tokens", "6", "--temperature", "1"];
    let whole = place.run(&arguments("whole.jsonl"));
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);
    let expected = lines(&place, "whole.jsonl");
    assert_eq!(expected.len(), 120);
    assert!(expected.iter().enumerate().all(|(i, line)| line["index"] == i + 1 && line["id"] == format!("q{}", i + 1)));
    assert!(!place.path("whole.jsonl.unfinished").exists());
    place.run(&arguments("whole.jsonl")).refused(&["exists already", "remove it, or name another"]);
    place
        .run(&arguments("no/such/out.jsonl"))
        .refused(&["cannot write no/such/out.jsonl: there is no folder no/such; make it, or choose another place"]);
    let mut kills = 0;
    for size in [1000_u64, 3000] {
        let mut child = place.command(&arguments("parts.jsonl")).spawn().unwrap();
        let begun = Instant::now();
        while fs::metadata(place.path("parts.jsonl")).map_or(0, |file| file.len()) < size
            && child.try_wait().unwrap().is_none()
        {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
        kills += u32::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        if size == 1000 {
            // As after a crash in the middle of a line.
            let mut text = fs::read_to_string(place.path("parts.jsonl")).unwrap();
            text.push_str("{\"index\": 9");
            fs::write(place.path("parts.jsonl"), text).unwrap();
            let mut other = arguments("parts.jsonl").to_vec();
            other[6] = "7";
            place.run(&other).refused(&["begun with another max_tokens"]);
        }
    }
    assert!(kills > 0, "it was never killed");
    let done = place.run(&arguments("parts.jsonl"));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("continued after prompt"), "{}", done.stderr);
    assert_eq!(lines(&place, "parts.jsonl"), expected);
}

#[test]
fn bad_prompts_are_named_and_files_without_any_refused() {
    let place = place();
    place.write("some.jsonl", "{\"prompt\": \"the\"}\n{\"text\": \"no\"}\nnothing\n{\"prompt\": \"in\"}\n");
    let done = place.run(&["predict", "model", "some.jsonl", "-o", "out.jsonl", "--max-tokens", "2"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let answers = lines(&place, "out.jsonl");
    assert_eq!(answers.iter().map(|line| line["index"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 4]);
    assert!(done.stderr.contains("some.jsonl:2") && done.stderr.contains("some.jsonl:3"), "{}", done.stderr);
    place.write("table.csv", "prompt\rthe\rin\ron\r");
    let done = place.run(&["predict", "model", "table.csv", "-o", "table.jsonl", "--max-tokens", "2"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let answers = lines(&place, "table.jsonl");
    assert_eq!(answers.iter().map(|line| line["index"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 3, 4]);
    // What is wrong with all records, not with the one line that is none.
    place
        .run(&["predict", "model", "some.jsonl", "--prompt", "{what}", "-o", "none.out"])
        .refused(&["nothing in some.jsonl can be used: some.jsonl:1: ", "`what`"]);
    place.write("none.jsonl", "{\"text\": \"no\"}\n");
    place
        .run(&["predict", "model", "none.jsonl", "-o", "none.out"])
        .refused(&["nothing in none.jsonl can be used: none.jsonl:1"]);
    place.write("array.json", "[\n{\"text\": \"the in\"}\n]");
    place
        .run(&["predict", "model", "array.json", "-o", "refused.jsonl"])
        .refused(&["nothing in array.json can be used: array.json: item 1: "]);
    place.run(&["predict", "nowhere", "some.jsonl", "-o", "none.out"]).refused(&["nowhere"]);
    fs::create_dir(place.path("empty")).unwrap();
    place.run(&["predict", "empty", "some.jsonl", "-o", "none.out"]).refused(&["empty"]);
    assert!(!place.path("none.out").exists() && !place.path("none.out.unfinished").exists());
    place.run(&["predict", "model", "nowhere.jsonl", "-o", "x"]).refused(&["error: cannot read nowhere.jsonl: "]);
    place.run(&["predict", "model", "some.jsonl", "-o", "y", "--temperature=-1"]).refused(&["--temperature"]);
    fs::create_dir(place.path("damaged")).unwrap();
    place.write("damaged/config.json", "{}");
    place.run(&["predict", "damaged", "some.jsonl", "-o", "z"]).refused(&["damaged"]);
    for name in ["none.out", "x", "y", "z"] {
        assert!(!place.path(name).exists() && !place.path(&format!("{name}.unfinished")).exists(), "{name}");
    }
    // What is there and is not an answer stays as it is.
    let begun = |name: &str| {
        let mut child = place.command(&["predict", "model", "many.jsonl", "-o", name]).spawn().unwrap();
        while fs::metadata(place.path(name)).map_or(0, |file| file.len()) == 0 && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    };
    place.write("many.jsonl", prompts(200));
    begun("begun");
    place.write("begun", "my thesis");
    place.run(&["predict", "model", "many.jsonl", "-o", "begun"]).refused(&["the last line of begun is not an answer"]);
    assert_eq!(fs::read(place.path("begun")).unwrap(), b"my thesis");
    fs::remove_file(place.path("begun")).unwrap();
    place.write("begun.unfinished", "my thesis");
    place.run(&["predict", "model", "many.jsonl", "-o", "begun"]).refused(&["begun.unfinished is damaged"]);
    assert_eq!(fs::read(place.path("begun.unfinished")).unwrap(), b"my thesis");
}

/// Lines as they are trained on, without their answers: Alpaca's, ShareGPT's and messages; ids may be numbers.
#[test]
fn lines_of_every_form_are_prompts() {
    let place = place();
    place.write(
        "lines.jsonl",
        "{\"id\": 7, \"prompt\": \"the\"}\n{\"id\": 0, \"instruction\": \"the\", \"input\": \"in\"}\n\
         {\"instruction\": \"the\", \"output\": \"\"}\n{\"id\": \"a\", \"prompt\": \"in\"}\n",
    );
    let asked = ["predict", "model", "lines.jsonl", "-o", "out.jsonl", "--max-tokens", "2"];
    let done = place.run(&asked);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let ids: Vec<Value> = lines(&place, "out.jsonl").iter().map(|line| line["id"].clone()).collect();
    assert_eq!(ids, ["7", "0", "3", "a"], "{}", done.stderr);
}

/// Kills the command once `out` has an answer, and gives what is there.
fn killed(place: &Place, asked: &[&str]) -> Vec<u8> {
    let mut child = place.command(asked).spawn().unwrap();
    while fs::metadata(place.path("out")).map_or(0, |file| file.len()) == 0 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    fs::read(place.path("out")).unwrap()
}

#[test]
fn turns_that_begin_in_no_prompt_are_told() {
    let place = place();
    place.write("prompts.jsonl", "{\"prompt\": \"User: a\"}\n{\"prompt\": \"User: a\\nUser: b\"}\n");
    let told = |text: &str, out: &str| {
        let done =
            place.run(&["predict", "model", "prompts.jsonl", "-o", out, "--max-tokens", "1", "--turn-start", text]);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        done.stderr.contains(&format!("--turn-start {text:?} begins no second turn in any prompt"))
    };
    assert!(told("nobody", "one") && !told("User:", "two"));
}

/// A file is not continued with an option taken back, nor with another precision.
#[test]
fn an_unfinished_file_is_continued_as_it_was_begun() {
    let place = place();
    place.write("many.jsonl", prompts(400));
    let asked = ["predict", "model", "many.jsonl", "-o", "out", "--turn-start", "the"];
    let before = killed(&place, &asked);
    place.run(&asked[..5]).refused(&["turn_start"]);
    place.run(&[&asked[..], &["--precision", "f64"]].concat()).refused(&["precision"]);
    assert_eq!(fs::read(place.path("out")).unwrap(), before);
}

/// Nor with another adapter of the same name.
#[test]
fn an_unfinished_file_is_continued_with_its_own_adapter() {
    let place = place();
    place.write("train.jsonl", prompts(40));
    let config = "name = \"t\"\n[task]\nkind = \"jsonl\"\npath = \"train.jsonl\"\nlength = 48\nmax_new_tokens = 4\n[backbone]\n\
                  kind = \"decoder\"\nmodel = \"model\"\n[train]\nsteps = 1\nbatch_size = 2\n[[adapter]]\nkind = \"lora\"\nrank = 2\n";
    for (run, seed) in [("one", "seed=1"), ("two", "seed=2")] {
        place.fit(config, run, &["--set", seed]);
    }
    let weights = |run: &str| fs::read(place.path(run).join("adapters/lora/adapter_model.safetensors")).unwrap();
    let (one, two) = (weights("one"), weights("two"));
    place.write("many.jsonl", prompts(400));
    let asked = ["predict", "model", "many.jsonl", "-o", "out", "--adapter", "one/adapters/lora"];
    let before = killed(&place, &asked);
    let file = place.path("one/adapters/lora/adapter_model.safetensors");
    fs::write(&file, two).unwrap();
    place.run(&asked).refused(&["begun with another adapter_files_sha256"]);
    assert_eq!(fs::read(place.path("out")).unwrap(), before);
    fs::write(&file, one).unwrap();
    // So is the model.
    let model = place.path("model/model.safetensors");
    let own = fs::read(&model).unwrap();
    let mut other = own.clone();
    *other.last_mut().unwrap() ^= 1;
    fs::write(&model, other).unwrap();
    place.run(&asked).refused(&["begun with another model_files_sha256"]);
    fs::write(&model, own).unwrap();
    let done = place.run(&asked);
    assert_eq!((done.code, lines(&place, "out").len()), (Some(0), 400), "{}", done.stderr);
}

/// What the model does not read need not fit, and may be missing; a file that was removed is begun anew.
#[test]
fn answers_of_prompts_are_references_alone() {
    let place = place();
    let long = "the ".repeat(400);
    place.write(
        "lines.jsonl",
        format!("{{\"prompt\": \"the\", \"completion\": \"{long}\"}}\n{{\"prompt\": \"in\", \"completion\": null}}\n"),
    );
    let asked = ["predict", "model", "lines.jsonl", "-o", "out.jsonl", "--max-tokens", "2"];
    assert_eq!(place.run(&asked).code, Some(0));
    let answers = lines(&place, "out.jsonl");
    assert_eq!((answers.len(), answers[0]["references"][0].as_str()), (2, Some(long.trim())));
    assert!(answers[1].get("references").is_none(), "{}", answers[1]);
    fs::remove_file(place.path("out.jsonl")).unwrap();
    place.write("many.jsonl", prompts(400));
    killed(&place, &["predict", "model", "many.jsonl", "-o", "out"]);
    fs::remove_file(place.path("out")).unwrap();
    assert_eq!(place.run(&["predict", "model", "lines.jsonl", "-o", "out"]).code, Some(0));
    assert_eq!(lines(&place, "out").len(), 2);
    place.run(&["predict", "model", "lines.jsonl", "-o", "."]).refused(&["expected a regular file"]);
    place.run(&["predict", "model", "lines.jsonl", "-o", "x", "--stop", ""]).refused(&["--stop"]);
}

#[test]
fn a_run_answers_and_is_evaluated_on_another_file() {
    let place = place();
    place.write("train.jsonl", prompts(40));
    let config = "name = \"t\"\nseed = 3\n[task]\nkind = \"jsonl\"\npath = \"train.jsonl\"\nlength = 48\nmax_new_tokens = 4\n\
                  repetition_penalty = 5.0\nprompt = \"Q: {prompt} A:\"\n[backbone]\nkind = \"decoder\"\nmodel = \"model\"\n[train]\nsteps = 2\n\
                  batch_size = 2\n[[adapter]]\nkind = \"lora\"\nrank = 2\n";
    place.fit(config, "run", &[]);
    place.write("other.jsonl", prompts(7));
    let done = place.run(&["predict", "run", "other.jsonl", "-o", "out.jsonl", "--adapter", "lora"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let answers = lines(&place, "out.jsonl");
    assert_eq!((answers.len(), &answers[6]["references"][0]), (7, &"x7".into()));
    let done = place.run(&["eval", "run", "--data", "other.jsonl", "--json"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let rows: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&rows[0]["split"], &rows[1]["adapter"]), (&"other".into(), &"lora".into()), "{rows}");
    assert_eq!(rows[1]["scores"]["sequences"], 7);
    let evaluated = lines(&place, "run/eval-other/predictions.jsonl");
    let of_lora = evaluated.iter().filter(|line| line["adapter"] == "lora");
    for (line, answer) in of_lora.zip(&answers) {
        assert_eq!(line["prediction"].as_str().unwrap().trim(), answer["prediction"], "{line}");
    }
    let asked =
        ["predict", "run", "other.jsonl", "-o", "plain.jsonl", "--adapter", "lora", "--repetition-penalty", "1"];
    assert_eq!(place.run(&asked).code, Some(0));
    assert_ne!(lines(&place, "plain.jsonl"), answers, "the penalty is that of the run where none is given");
    // Those of an earlier evaluation stay.
    let before = place.snapshot("run/eval-other");
    let again = place.run(&["eval", "run", "--data", "other.jsonl", "--adapter", "lora"]);
    assert!(again.stderr.contains("run/eval-other-2/predictions.jsonl"), "{}", again.stderr);
    assert_eq!(lines(&place, "run/eval-other-2/predictions.jsonl").len(), 7);
    let named = ["eval", "run", "--data", "other.jsonl", "-o", "run/eval-other"];
    place.run(&named).refused(&["run/eval-other/predictions.jsonl has the answers of an earlier evaluation", "-o"]);
    assert!(before == place.snapshot("run/eval-other"));
    // Answers end where those of the evaluation do, unless another end is asked for.
    let first = |name: &str| lines(&place, name)[0]["prediction"].as_str().unwrap().to_owned();
    let whole = first("out.jsonl");
    let last = whole.chars().last().expect("an answer").to_string();
    let config = fs::read_to_string(place.path("run/config.toml")).unwrap();
    assert!(config.contains("stop = []"), "{config}");
    place.write("run/config.toml", config.replace("stop = []", &format!("stop = [{last:?}]")));
    for (out, more) in [("stopped.jsonl", &[][..]), ("asked.jsonl", &["--stop", "\u{1}"])] {
        let done = place.run(&[&["predict", "run", "other.jsonl", "-o", out, "--adapter", "lora"], more].concat());
        assert_eq!(done.code, Some(0), "{}", done.stderr);
    }
    assert_eq!(first("stopped.jsonl"), whole.split(&last).next().unwrap());
    assert_eq!(first("asked.jsonl"), whole);
    place.write("run/config.toml", config);
    place.run(&["eval", "run", "--adapter", "lroa"]).refused(&["`lroa` is not an adapter of run (it has lora)"]);
    place.run(&["eval", "run", "--data", "other.jsonl", "--expect", "loss<=lora"]).refused(&["name a number"]);
    place.run(&["eval", "run", "--data", "nowhere.jsonl"]).refused(&["nowhere.jsonl"]);
    place.run(&["predict", "run", "other.jsonl", "-o", "y", "--prompt", "{prompt}"]).refused(&["task.prompt"]);
}
