//! What people meet who come to a run from elsewhere: other directories, other names, more steps, longer texts.

use crate::common::{Finished, Place, TINY, stop_at};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn model() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/gguf/models/hf/llama").display().to_string()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_run_is_looked_at_from_another_directory() {
    let place = Place::new();
    place.write("book.txt", "It was a bright cold day in April, and the clocks were striking thirteen. ".repeat(60));
    let start = TINY.find("[task]").unwrap();
    let end = TINY.find("[backbone]").unwrap();
    let task = "[task]\nkind = \"bytes\"\npath = \"book.txt\"\nlength = 12\ntrain_sequences = 64\nvalidation_sequences = 16\ntest_sequences = 0\n\n";
    let config = [&TINY[..start], task, &TINY[end..]].concat();
    let out = place.path("far/away/run").display().to_string();
    place.fit(&config, &out, &[]);
    fs::create_dir(place.path("elsewhere")).unwrap();
    let mut command = place.command(&["eval", &out, "--adapter", "hrm", "--json"]);
    let finished = Finished::new(&command.current_dir(place.path("elsewhere")).output().unwrap());
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let here = place.run(&["eval", "far/away/run", "--adapter", "hrm", "--json"]);
    assert_eq!(finished.stdout, here.stdout);
    // Its paths are as they were written.
    assert!(fs::read_to_string(place.path("far/away/run/config.toml")).unwrap().contains("path = \"book.txt\""));
}

#[cfg(unix)]
#[test]
fn a_run_that_goes_on_from_another_directory_can_still_be_moved() {
    let place = Place::new();
    fs::create_dir_all(place.path("project/runs")).unwrap();
    place.write("project/book.txt", "It was a bright cold day in April. ".repeat(60));
    let start = TINY.find("[task]").unwrap();
    let end = TINY.find("[backbone]").unwrap();
    let task = "[task]\nkind = \"bytes\"\npath = \"book.txt\"\nlength = 12\ntrain_sequences = 64\nvalidation_sequences = 16\ntest_sequences = 0\n\n";
    let config =
        [&TINY[..start], task, &TINY[end..]].concat().replace("steps = 12", "steps = 80\ncheckpoint_every = 5");
    place.write("project/config.toml", config);
    let run = place.path("project/runs/x").display().to_string();
    let mut begun = place.command(&["fit", "config.toml", "--out", &run]);
    let mut child = begun.current_dir(place.path("project")).stderr(std::process::Stdio::null()).spawn().unwrap();
    while !fs::read_dir(place.path("project/runs/x/checkpoints")).is_ok_and(|mut found| found.next().is_some()) {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be stopped");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let resumed = place.run(&["fit", "--out", &run, "--resume"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    fs::rename(place.path("project"), place.path("moved")).unwrap();
    let evaluated = place.run(&["eval", "moved/runs/x", "--adapter", "hrm"]);
    assert_eq!(evaluated.code, Some(0), "{}", evaluated.stderr);
}

#[test]
fn adapters_are_chosen_by_name() {
    let place = Place::new();
    let two = TINY.to_owned() + "\n[[adapter]]\nkind = \"lora\"\nrank = 2\n";
    let chosen = place.fit(&two, "run", &["--only", "lora", "--json"]);
    let result = json(&chosen.stdout);
    let names: Vec<&str> = result["rows"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["lora"]);
    assert_eq!(result, json(&fs::read_to_string(place.path("run/result.json")).unwrap()));
    place
        .run(&["fit", "config.toml", "--only", "hrm,lorra"])
        .refused(&["--only lorra: there is no such adapter; tiny has hrm, lora"]);
    let dry = json(&place.run(&["fit", "config.toml", "--dry-run", "--json"]).stdout);
    assert_eq!((&dry["stages"][1]["name"], &dry["config"]["train"]["lr"]), (&"lora".into(), &0.01.into()));
    assert!(
        dry["stages"][0]["memory_bytes"].as_u64().unwrap() > 1000 && dry["stages"][0]["parameters"]["adapter"].is_u64()
    );
    place.run(&["export", "run"]).refused(&["say what to export of run: `train export run --csv`", "`train convert`"]);
    place.run(&["eval", "run", "--adapter", "hrn"]).refused(&["`hrn` is not an adapter of run (it has lora)"]);
    // A directory inside the run, as seen from the run.
    let evaluated = place.run(&["eval", "run", "--adapter", "adapters/lora"]);
    assert_eq!(evaluated.code, Some(0), "{}", evaluated.stderr);
    // Only what is asked for is another configuration.
    let other = place.run(&["fit", "--out", "run", "--resume", "--set", "train.lr=0.5"]);
    other.refused(&["was begun with another configuration", "lr = 0.01", "lr = 0.5"]);
}

#[test]
fn commands_and_keys_that_are_spelt_in_another_way_are_named() {
    let place = Place::new();
    for (word, own) in
        [("fti", "fit"), ("finetune", "fit"), ("evla", "eval"), ("inference", "predict"), ("fuse", "merge")]
    {
        let told = place.run(&[word, "x"]);
        assert_eq!(told.code, Some(2), "{}", told.stderr);
        assert!(told.stderr.contains(&format!("'{own}'")), "{word}: {}", told.stderr);
    }
    place.write("config.toml", TINY);
    for (set, part) in [
        ("train.seed=3", "`train.seed`; it is a key of the top level"),
        ("task.lr=3", "`task.lr`; it is a key of [train]"),
        ("backbone.model=\"x\"", "`backbone.model`; it is a key of [backbone] with `kind = \"decoder\"`"),
        ("adapter.hrm.init_lora_weights=\"pissa\"", "`init`"),
    ] {
        place.run(&["fit", "config.toml", "--set", set]).refused(&[part]);
    }
    place.run(&["eval", "nowhere"]).refused(&["there is no run nowhere"]);
    fs::create_dir(place.path("empty")).unwrap();
    place.run(&["eval", "empty"]).refused(&["empty is not the directory of a run"]);
}

/// One step says nothing about LoRA, whose A gets its first gradient in the second.
#[test]
fn one_step_is_no_reason_for_a_warning() {
    let place = Place::new();
    let start = TINY.find("[[adapter]]").unwrap();
    let lora = format!("{}[[adapter]]\nkind = \"lora\"\nrank = 2\n", &TINY[..start]);
    for (steps, warmup) in [("1", "0"), ("2", "0"), ("2", "1")] {
        let set = [format!("train.steps={steps}"), format!("train.warmup_steps={warmup}")];
        let told = place.fit(&lora, &format!("run-{steps}-{warmup}"), &["--set", &set[0], "--set", &set[1]]);
        assert!(!told.stderr.contains("got a gradient"), "{}", told.stderr);
    }
}

#[cfg(unix)]
#[test]
fn a_run_goes_on_for_more_steps_where_its_schedule_permits() {
    let place = Place::new();
    let long = TINY.replace(
        "steps = 12",
        "steps = 80\ncheckpoint_every = 5\nschedule = \"constant\"\nwarmup_steps = 2\nlog_every = 1\neval_every = 10",
    );
    place.fit(&long, "whole", &[]);
    let short = long.replace("steps = 80", "steps = 60");
    place.write("config.toml", &short);
    assert_eq!(
        stop_at(&place, &["fit", "config.toml", "--out", "run"], "run", "hrm-step-000010", "-KILL").code,
        None,
        "killed"
    );
    let resume = |more: &[&str]| place.run(&[&["fit", "--out", "run", "--resume"], more].concat());
    resume(&["--set", "train.steps=3"]).refused(&["steps done already: more than that are needed"]);
    let longer = resume(&["--set", "train.steps=80"]);
    assert_eq!(longer.code, Some(0), "{}", longer.stderr);
    // A longer run from the beginning has the same.
    let file = "adapters/hrm/adapter_model.safetensors";
    assert!(fs::read(place.path("whole").join(file)).unwrap() == fs::read(place.path("run").join(file)).unwrap());
    resume(&["--set", "train.steps=90"]).refused(&[
        "run has finished `hrm` with the steps it was begun with",
        "begin a new run with `path = \"run/adapters/hrm\"`",
    ]);
    // One that was evaluated where a longer run is not may have kept what that one would not.
    let ended = |name: &str, evaluations: &str, set: &[&str]| {
        place.fit(&short.replace("eval_every = 10", &format!("{evaluations}\nkeep_checkpoints = 20")), name, set);
        for entry in fs::read_dir(place.path(name).join("checkpoints")).unwrap() {
            let checkpoint = entry.unwrap().path();
            if !checkpoint.ends_with("00-hrm-step-000060") {
                fs::remove_dir_all(checkpoint).unwrap();
            }
        }
        fs::remove_file(place.path(name).join("result.json")).unwrap();
    };
    ended("ended", "eval_every = 7", &[]);
    let longer = ["fit", "--out", "ended", "--resume", "--set", "train.steps=80"];
    place.run(&longer).refused(&["`hrm` was evaluated after its last step, 60", "(`eval_every` = 7)"]);
    ended("waited", "eval_every = 30\npatience = 1", &["--set", "train.lr=0"]);
    place
        .run(&["fit", "--out", "waited", "--resume", "--set", "train.steps=80"])
        .refused(&["no better in its last 1 evaluation,"]);
    let own = ["fit", "--out", "ended", "--resume", "--set", "adapter.hrm.train.steps=80"];
    place.run(&own).refused(&["`hrm` has no settings of training of its own: set `train.steps`"]);
    // A row without an adapter has learnt nothing that could be gone on from.
    place.fit(&short.replacen("[[adapter]]", "[[adapter]]\nkind = \"none\"\n[[adapter]]", 1), "both", &[]);
    place.run(&["fit", "--out", "both", "--resume", "--set", "train.steps=90"]).refused(&[
        "both has finished `none`",
        "`path = \"both/adapters/hrm\"`",
        "what `hrm` has learnt",
    ]);

    place.write("config.toml", short.replace("schedule = \"constant\"\n", ""));
    let arguments = ["fit", "config.toml", "--out", "cosine"];
    assert_eq!(stop_at(&place, &arguments, "cosine", "hrm-step-000005", "-KILL").code, None, "killed");
    let refused = place.run(&["fit", "--out", "cosine", "--resume", "--set", "train.steps=80"]);
    refused
        .refused(&["the schedule of the learning rate of `hrm` was laid out for 60 steps: for more, begin a new run"]);
    assert_eq!(place.run(&["fit", "--out", "cosine", "--resume"]).code, Some(0), "as it was begun it goes on");

    // Settings of an adapter's own are stored whole, so that those of all do not reach them.
    place.write("config.toml", format!("{short}[adapter.train]\nlr = 2e-2\n"));
    assert_eq!(stop_at(&place, &["fit", "config.toml", "--out", "own"], "own", "hrm-step-000005", "-KILL").code, None);
    let resume = |set| place.run(&["fit", "--out", "own", "--resume", "--set", set]);
    resume("train.steps=80").refused(&["`train.steps` does not reach `hrm`", "set `adapter.hrm.train.steps`"]);
    // With the file of its configuration, too.
    let with_file = ["fit", "config.toml", "--out", "own", "--resume", "--set", "train.steps=80"];
    place.run(&with_file).refused(&["`train.steps` does not reach `hrm`"]);
    let longer = resume("adapter.hrm.train.steps=80");
    assert_eq!(longer.code, Some(0), "{}", longer.stderr);
    assert!(longer.stderr.contains("/80"), "{}", longer.stderr);
}

/// What follows from the steps is kept as the run was begun, and is no other configuration.
#[cfg(unix)]
#[test]
fn a_command_given_again_goes_on() {
    let place = Place::new();
    let steps = |text: &str| TINY.replace("steps = 12", &format!("{text}checkpoint_every = 5\nkeep_checkpoints = 100"));
    place.write("config.toml", steps("steps = 300\nschedule = \"constant\"\n"));
    let begun = ["fit", "config.toml", "--out", "run"];
    assert_eq!(stop_at(&place, &begun, "run", "hrm-step-000005", "-KILL").code, None, "killed");
    let longer = [&begun[..], &["--resume", "--set", "train.steps=400"]].concat();
    assert_eq!(stop_at(&place, &longer, "run", "hrm-step-000030", "-KILL").code, None, "killed");
    // What is set is meant, though it follows from the steps as well.
    place
        .run(&[&longer[..], &["--set", "train.eval_every=40"]].concat())
        .refused(&["was begun with another configuration"]);
    place.run(&[&begun[..], &["--resume", "--set", "train.epochs=60"]].concat()).refused(&["counts steps"]);
    let again = place.run(&longer);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert!(again.stderr.contains("/400"), "{}", again.stderr);

    place.write("config.toml", steps(""));
    let passes = ["fit", "config.toml", "--out", "passes", "--set", "train.epochs=40"];
    assert_eq!(stop_at(&place, &passes, "passes", "hrm-step-000005", "-KILL").code, None, "killed");
    let other = ["fit", "config.toml", "--out", "passes", "--set", "train.epochs=50", "--resume"];
    place.run(&other).refused(&["train.epochs=50", "counts steps", "set `train.steps` instead"]);
    let again = place.run(&[&passes[..], &["--resume"]].concat());
    assert_eq!(again.code, Some(0), "{}", again.stderr);
}

/// The model was made for 256 tokens.
#[test]
fn generation_ends_where_the_model_does() {
    let place = Place::new();
    let model = model();
    let generate = |prompt: &str, tokens: &str| {
        place.run(&["generate", "--model", &model, "--prompt", prompt, "--max-tokens", tokens, "--temperature", "1"])
    };
    let ended = generate("the in", "400");
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.is_empty() || ended.stderr.contains("note: this ends at 256 tokens"), "{}", ended.stderr);
    generate(&"the in ".repeat(300), "4")
        .refused(&["--prompt has", "the model was made for 256 (`max_position_embeddings`,"]);
    place.run(&["chat", "/nonexistent/model"]).refused(&["/nonexistent/model does not exist"]);

    place.write("book.txt", "the in the in on an to of and or the in it was so ".repeat(120));
    let config = format!(
        "name = \"long\"\n[task]\nkind = \"text\"\npath = \"book.txt\"\nlength = 300\n[backbone]\nkind = \"llama\"\nmodel = {model:?}\n\
         [train]\nsteps = 1\nbatch_size = 1\neval_sequences = 1\n[[adapter]]\nkind = \"lora\"\nrank = 1\n"
    );
    let told = place.fit(&config, "run", &["--set", "task.validation_sequences=1"]).stderr;
    assert!(told.contains("warning: sequences of 300 tokens for a model that was made for 256"), "{told}");
    let quiet =
        place.fit(&config, "short", &["--set", "task.validation_sequences=1", "--set", "task.length=256"]).stderr;
    assert!(!quiet.contains("max_position_embeddings"), "{quiet}");
}

/// `TINY` on the bytes of a file.
fn on_bytes(path: &str) -> String {
    let [start, end] = ["[task]", "[backbone]"].map(|section| TINY.find(section).unwrap());
    let task = format!(
        "[task]\nkind = \"bytes\"\npath = {path:?}\nlength = 12\ntrain_sequences = 64\nvalidation_sequences = 16\n\
         test_sequences = 0\n\n"
    );
    [&TINY[..start], &task, &TINY[end..]].concat()
}

#[test]
fn data_are_looked_for_here_and_then_beside_the_configuration() {
    let place = Place::new();
    fs::create_dir_all(place.path("conf/data")).unwrap();
    place.write("conf/data/book.txt", "It was a bright cold day in April. ".repeat(100));
    place.write("conf/c.toml", on_bytes("data/book.txt"));
    let fit = |out: &str| place.run(&["fit", "conf/c.toml", "--out", out]);
    let read = |run: &str| fs::read_to_string(place.path(run).join("config.toml")).unwrap();
    assert_eq!(fit("beside").code, Some(0));
    assert!(read("beside").contains("path = \"conf/data/book.txt\""), "{}", read("beside"));
    // It is found again, and the same command goes on with the run.
    for again in [&["eval", "beside"][..], &["fit", "conf/c.toml", "--out", "beside", "--resume"]] {
        let finished = place.run(again);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    }
    fs::create_dir(place.path("data")).unwrap();
    place.write("data/book.txt", "The clocks were striking thirteen. ".repeat(100));
    assert_eq!(fit("here").code, Some(0));
    assert!(read("here").contains("path = \"data/book.txt\""), "{}", read("here"));

    place.write("conf/c.toml", on_bytes("data/none.txt"));
    let here = place.path("").canonicalize().unwrap();
    let [here, beside] = ["data/none.txt", "conf/data/none.txt"].map(|path| here.join(path).display().to_string());
    let parts = [&*format!("`task.path` names data/none.txt, but there is no {here} and no {beside}"), "docs/data.md"];
    fit("none").refused(&[&parts[..], &["conf/c.toml:7: "]].concat());
    place.run(&["fit", "conf/c.toml", "--dry-run"]).refused(&parts);
    let set = ["fit", "conf/c.toml", "--set", "task.path=book.txt"];
    place.run(&set).refused(&["--set task.path=book.txt: `task.path` names book.txt"]);
    assert!(!place.path("none").exists());
    place.write("conf/grid.toml", on_bytes("data/none.txt") + "[sweep.grid]\nseed = [0]\n");
    let swept = place.run(&["sweep", "conf/grid.toml"]);
    assert_eq!(swept.code, Some(1), "{}", swept.stderr);
    assert!(swept.stderr.contains("conf/grid.toml:7: `task.path` names"), "{}", swept.stderr);
    assert_eq!(place.run(&["sweep", "conf/grid.toml", "--set", "task.path=data/book.txt"]).code, Some(0));
}

#[test]
fn what_is_no_configuration_is_told_where_it_belongs() {
    let place = Place::new();
    place.fit(TINY, "run", &[]);
    place.run(&["fit", "run", "--resume"]).refused(&["run is a run: continue it with `train fit --out run --resume`"]);
    place.run(&["fit", "run"]).refused(&["run is a run", "`train fit run/config.toml`"]);
    place.write("model.gguf", "");
    for model in ["model.gguf", &model()] {
        place.run(&["fit", model]).refused(&[model, "is a model: `fit` takes a configuration", "`train chat"]);
        place.run(&["generate", model]).refused(&[model, "it is a model", "`generate` as --model"]);
    }
}

/// Files of others are not replaced by pages, tensors or runs.
#[test]
fn what_is_there_stays() {
    let place = Place::new();
    place.write("config.toml", TINY);
    place.write("precious.md", "mine");
    fs::create_dir(place.path("empty")).unwrap();
    place.run(&["audit", "empty", "-o", "page.md"]).refused(&["empty holds no results", "--results"]);
    let results = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/results");
    place
        .run(&["audit", results, "-o", "precious.md"])
        .refused(&["precious.md exists and was not written by this command"]);
    assert_eq!(fs::read_to_string(place.path("precious.md")).unwrap(), "mine");
    place
        .run(&["forward", "--model", "m", "--tokens", "t", "-o", "precious.md"])
        .refused(&["precious.md already exists"]);
    for (file, part) in
        [("report.html", "already holds report.html of a run"), ("config.json", "holds a model or an adapter")]
    {
        fs::create_dir(place.path(&format!("{file}-of"))).unwrap();
        place.write(&format!("{file}-of/{file}"), "mine");
        place.run(&["fit", "config.toml", "--out", &format!("{file}-of")]).refused(&[part]);
        assert_eq!(fs::read_dir(place.path(&format!("{file}-of"))).unwrap().count(), 1);
    }
}

#[test]
fn what_is_no_model_is_named() {
    let place = Place::new();
    place.write("config.toml", TINY);
    for arguments in [&["predict", "config.toml", "p.jsonl", "-o", "a.jsonl"][..], &["chat", "config.toml"]] {
        place.run(arguments).refused(&["config.toml is neither a run", "nor a model"]);
    }
    let generate = ["generate", "--prompt", "a", "--model"];
    place.run(&[&generate[..], &["config.toml"]].concat()).refused(&["config.toml is not a model"]);
    place.run(&["tokenize", "config.toml", "--text", "a"]).refused(&["config.toml is a file: name a directory"]);
    // No object, which a configuration of a model is.
    fs::create_dir(place.path("list")).unwrap();
    place.write("list/config.json", "[]");
    place.run(&[&generate[..], &["list"]].concat()).refused(&["list/config.json", "expected a map"]);
    // A byte order mark is no text, in a file or in the standard input.
    place.write("marked", "\u{feff}hello");
    let tokenized = |marked: bool| {
        let mut command = place.command(&["tokenize", &model(), if marked { "marked" } else { "--text=hello" }]);
        let of_file = Finished::new(&command.output().unwrap()).stdout;
        let mut command = place.command(&["tokenize", &model()]);
        command.stdin(fs::File::open(place.path("marked")).unwrap());
        (of_file, Finished::new(&command.output().unwrap()).stdout)
    };
    let (plain, of_input) = tokenized(false);
    assert_eq!((&tokenized(true).0, &of_input), (&plain, &plain));
}

/// Prompts of a model that talks: as texts they pass its template by.
#[test]
fn texts_beside_a_chat_template_are_told() {
    let place = Place::new();
    fs::create_dir(place.path("model")).unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(Path::new(&model()).join(file), place.path("model").join(file)).unwrap();
    }
    let line = |n: usize| format!("{{\"prompt\": \"the in {n}\", \"completion\": \" on {}\"}}\n", 2 * n);
    place.write("own.jsonl", (0..10).map(line).collect::<String>());
    place.write(
        "config.toml",
        "[task]\nkind = \"jsonl\"\npath = \"own.jsonl\"\nlength = 64\nmax_new_tokens = 8\n[backbone]\nkind = \"decoder\"\n\
         model = \"model\"\n[train]\nsteps = 2\n[[adapter]]\nkind = \"lora\"\nrank = 1\n",
    );
    let told = |more: &[&str]| {
        let finished = place.run(&[&["fit", "config.toml", "--dry-run"], more].concat());
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        finished.stderr
    };
    let note = "note: prompts that are texts are read as they stand, without the model's chat template";
    assert!(!told(&[]).contains(note));
    place.write("model/chat_template.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
    assert!(told(&[]).contains(note));
    assert!(!told(&["--set", "task.prompt=\"of {prompt}\""]).contains(note));
}

/// As caches of models name it; and Llama 3, whose `max_position_embeddings` is the stretched length.
#[test]
fn a_gguf_file_of_another_name_and_the_length_of_llama_3() {
    let place = Place::new();
    place.run(&["convert", &model(), "-o", "m.gguf", "--type", "f32"]);
    fs::rename(place.path("m.gguf"), place.path("blob")).unwrap();
    let generate = |model: &str| {
        let more = ["--prompt", "the in", "--temperature", "0", "--max-tokens", "60"];
        place.run(&[&["generate", "--model", model], &more[..]].concat())
    };
    let (one, other) = (generate("blob"), generate(&model()));
    assert_eq!((one.code, &one.stdout), (Some(0), &other.stdout), "{}", one.stderr);
    fs::create_dir(place.path("stretched")).unwrap();
    for entry in fs::read_dir(model()).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), place.path("stretched").join(entry.file_name())).unwrap();
    }
    let path = place.path("stretched/config.json");
    let mut config = json(&fs::read_to_string(&path).unwrap());
    config.as_object_mut().unwrap().remove("rope_parameters");
    config["max_position_embeddings"] = 40.into();
    config["rope_scaling"] = serde_json::json!({
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8
    });
    fs::write(&path, config.to_string()).unwrap();
    let ended = generate("stretched").stderr;
    assert!(ended.contains("this ends at 40 tokens"), "{ended}");
}

/// The command with which a run was begun continues it, and the newest of a name is taken.
#[test]
fn the_same_command_resumes() {
    let place = Place::new();
    place.write("config.toml", TINY);
    let begin = ["fit", "config.toml", "--set", "train.steps=6"];
    for _ in 0..2 {
        assert_eq!(place.run(&begin).code, Some(0));
    }
    let resumed = place.run(&[&begin[..], &["--resume"]].concat());
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    assert!(resumed.stderr.contains("runs/tiny-2"), "{}", resumed.stderr);
    // One that was removed hides no other.
    fs::remove_dir_all(place.path("runs/tiny")).unwrap();
    let resumed = place.run(&[&begin[..], &["--resume"]].concat());
    assert!(resumed.code == Some(0) && resumed.stderr.contains("runs/tiny-2"), "{}", resumed.stderr);
    let shown = place.run(&["fit", "--out", "runs/tiny-2", "--resume", "--dry-run", "--json"]);
    assert_eq!(json(&shown.stdout)["config"]["train"]["steps"], 6);
    // Steps take the place of passes over the data.
    let passes =
        place.run(&["fit", "config.toml", "--set", "train.epochs=2", "--set", "train.steps=5", "--dry-run", "--json"]);
    assert_eq!(json(&passes.stdout)["config"]["train"]["steps"], 5, "{}", passes.stderr);
}
