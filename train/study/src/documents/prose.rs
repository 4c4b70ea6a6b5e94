//! Figures in sentences, outside tables.

use super::{entry, median, number, page, performance, root, step};
use crate::statistics::Estimate;
use hankel_trainer::format::thousands;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

fn result(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(root().join("docs/results").join(name)).unwrap()).unwrap()
}

fn says(page: &str, words: &str) {
    assert!(page.contains(words), "not on the page: {words}");
}

/// Minutes of contacts.toml, and how much faster steps are than PyTorch's, in README.md.
#[test]
fn times_of_the_readme_are_their_results() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let contacts = result("contacts/result.json");
    let minutes = |seconds: &Value| (number(seconds) / 60.0).round();
    for row in contacts["rows"].as_array().unwrap().iter().filter(|row| !row["training"].is_null()) {
        assert!(minutes(&row["training"]["seconds"]) == 1.0 && row["training"]["steps"] == 60, "{}", row["training"]);
    }
    assert_eq!(minutes(&contacts["wall_time_seconds"]), 5.0);
    says(&readme, "in 60 steps: one minute of training for each adapter on two cores, five in all");

    let steps = performance("steps");
    let ratios = steps["sections"].as_array().unwrap().iter().flat_map(|section| {
        let of = |ours: &str, peer: &str| step(entry(section, peer)) / step(entry(section, ours));
        [of("ours, LoRA", "PyTorch, LoRA"), of("ours, HRM", "PyTorch, HRM, FFT")]
    });
    let mut ratios: Vec<f64> = ratios.collect();
    ratios.sort_by(f64::total_cmp);
    let smollm2 = &performance("smollm2-step")["sections"][0];
    let (ours, torch) = (entry(smollm2, "ours, LoRA"), entry(smollm2, "transformers and PEFT, LoRA"));
    // Beyond what the libraries take.
    let memory = |entry: &Value| number(&entry["peak_memory"]) - number(&entry["memory_before"]);
    says(
        &readme,
        &format!(
            "a step of TinyGPT {:.1} to {:.1} times as fast, of SmolLM2 {:.1} times with {:.2} of the memory",
            ratios[0],
            ratios[ratios.len() - 1],
            step(torch) / step(ours),
            memory(ours) / memory(torch)
        ),
    );
}

/// An exchange of 8.4 million values in cluster.md, where Open MPI reads the memory of the other process and where it may not.
#[test]
fn a_large_exchange_is_its_result() {
    let page = page("cluster.md");
    let large = result("cluster.json")["large"]["rows"].clone();
    let of = |single_copy: bool, key: &str| {
        let rows = large.as_array().unwrap().iter().filter(|row| row["single_copy"] == single_copy);
        median(&rows.map(|row| row[key].clone()).collect())
    };
    let (step, exchange) = (of(true, "seconds_per_step"), of(true, "exchange_seconds"));
    says(&page, &format!("steps of\n{step:.2} s)"));
    says(&page, &format!("takes {:.0} ms, {:.0} % of the step;", 1e3 * exchange, 100.0 * exchange / step));
    says(&page, &format!("{:.0} ms where Open MPI may not read", 1e3 * of(false, "exchange_seconds")));
    says(&page, &format!("at most {exchange:.3} s of each process"));
}

/// How far adapters and merged models are from those of PEFT, transformers and llama.cpp, in gguf.md.
#[test]
fn interchange_is_its_result() {
    let page = page("gguf.md");
    let rows = result("gguf/interchange.json")["rows"].clone();
    let largest = |model: &str, keys: [&str; 2]| {
        let of_it = rows.as_array().unwrap().iter().filter(|row| row["model"].as_str().unwrap().contains(model));
        let most = of_it.flat_map(|row| keys.map(|key| number(&row[key]))).fold(0.0, f64::max);
        format!("{most:.1e}")
    };
    let peft = ["peft_to_ours", "transformers_on_merged_to_ours_on_merged"];
    let llamacpp = ["llamacpp_lora", "llamacpp_merged"];
    says(&page, &format!("to {} (all in float64), llama.cpp the", largest("qwen3", peft)));
    let [own, other] = ["qwen3", "SmolLM2"].map(|model| largest(model, llamacpp));
    says(
        &page,
        &format!("log-probabilities to {own}; on SmolLM2-135M to {} and to {other}.", largest("SmolLM2", peft)),
    );
}

/// Random systems under weights in truncation.md: how many, and which check failed by how much.
#[test]
fn random_weights_are_their_result() {
    let page = page("truncation.md");
    let random = result("weighted/random.json");
    assert!(random["violated_bounds"] == 0 && random["violated_enclosures"] == 0);
    says(&page, &format!("Of {} systems under weights and in bands", thousands(random["systems"].as_u64().unwrap())));
    let failures = random["failures"].as_array().unwrap();
    let mut apart: Vec<f64> = failures.iter().map(|failure| number(&failure["apart"])).collect();
    apart.sort_by(f64::total_cmp);
    assert_eq!(apart.len(), 4);
    says(&page, "Four failed the check of coordinates");
    says(&page, &format!("differed by {:.1e} to {:.1e} from those in other coordinates", apart[0], apart[3]));
}

/// Parity over sequences of the trained length, with signed and with positive poles, in adapters.md.
#[test]
fn parity_with_signed_poles_is_its_result() {
    let page = page("adapters.md");
    let lines = fs::read_to_string(root().join("docs/results/modes-paper.jsonl")).unwrap();
    let cells: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(cells.len(), 5);
    let of = |name: &str| {
        let accuracy = |cell: &Value| {
            let rows = cell["result"]["rows"].as_array().unwrap();
            let row = rows.iter().find(|row| row["name"] == name).unwrap();
            assert_eq!(row["training"]["steps"], 3125);
            number(&row["validation"]["metrics"]["accuracy"])
        };
        Estimate::of(&cells.iter().map(accuracy).collect::<Vec<_>>()).unwrap()
    };
    let [signed, positive] = ["signed", "positive"].map(of);
    let [mean, other] = [&signed, &positive].map(|found| found.summary.mean);
    says(&page, &format!("(64 bits, 3,125 steps: {mean:.2} of the answers, {other:.2} with positive poles"));
    let (low, high) = signed.interval;
    assert!(high > 1.0);
    says(&page, &format!("the interval over five seeds is wide, {low:.2} to above 1)"));
}

/// HRM with a short memory beside that of the paper, in every run on text that a backbone of other text was adapted to, in adapters.md.
#[test]
fn a_short_memory_is_better_in_every_run() {
    let lines = fs::read_to_string(root().join("docs/results/enwik8_pretrained-paper.jsonl")).unwrap();
    let cells: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(cells.len(), 6);
    for cell in &cells {
        let bits = |name: &str| {
            let row = cell["result"]["rows"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap();
            number(&row["test"]["metrics"]["bits_per_character"])
        };
        assert!(bits("hrm-short-memory") < bits("hrm"), "{}", cell["axes"]);
    }
    says(&page("adapters.md"), "HRM was better than with the paper's in all six runs (two lengths, three seeds)");
}

/// Every figure of three digits or more in the sentences of a page stands in one of its tables, which other tests compare, or in `other`.
fn figures_are_those_of_tables(name: &str, other: &[&str]) {
    let page = page(name);
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let figures = |lines: &mut dyn Iterator<Item = &str>| -> BTreeSet<String> {
        let words = lines.flat_map(|line| line.split(|c| !is_part(c))).map(|word| word.trim_matches('.'));
        let long = words.filter(|word| word.split_once('.').is_some_and(|(_, digits)| digits.len() >= 3));
        long.map(str::to_owned).collect()
    };
    let of_tables = figures(&mut page.lines().filter(|line| line.starts_with('|')));
    let is_sentence = |line: &&str| !line.starts_with('|') && !line.starts_with("    ");
    let said = figures(&mut page.lines().filter(is_sentence));
    assert!(said.len() > 20, "{name}: {said:?}");
    let unknown: Vec<_> =
        said.iter().filter(|said| !of_tables.contains(*said) && !other.contains(&said.as_str())).collect();
    assert!(unknown.is_empty(), "{name}: {unknown:?}");
}

/// Figures of conclusions, beside those that tests of these pages name.
#[test]
fn figures_of_conclusions_are_those_of_tables() {
    figures_are_those_of_tables("state.md", &["0.625", "0.9714", "0.9897"]);
    let of_articles = ["0.145", "0.160", "0.251", "0.253", "0.276", "0.306", "0.347", "0.393", "0.693"];
    let by_letters = [
        "0.123", "0.161", "0.172", "0.177", "0.187", "0.239", "0.260", "0.277", "0.313", "0.316", "0.334", "0.355",
        "0.390", "0.439",
    ];
    let others = ["0.002", "0.275", "0.280", "0.325", "0.375", "0.490", "0.864", "0.996", "6.4658"];
    figures_are_those_of_tables("language.md", &[&of_articles[..], &by_letters, &others].concat());
}

/// What performance.md says between its tables.
#[test]
fn sentences_of_performance_are_their_results() {
    let page = page("performance.md");
    let steps = performance("steps");
    let sections = steps["sections"].as_array().unwrap();
    let of_bf16 = sections.iter().flat_map(|section| {
        let own = section["entries"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| entry["name"].as_str().unwrap().ends_with(", bf16"));
        own.flat_map(|entry| entry["differences"].as_object().unwrap().values())
            .flat_map(|differences| differences.as_object().unwrap())
            .filter(|(name, _)| name.starts_with("gradient/"))
            .map(|(_, value)| 100.0 * number(value))
    });
    let (least, most) = of_bf16.fold((f64::MAX, 0.0_f64), |(low, high), x| (low.min(x), high.max(x)));
    says(&page, &format!("from PyTorch's in f32 by {least:.1} to {most:.0} %."));
    let torch = sections.iter().map(|section| number(&entry(section, "PyTorch, LoRA")["memory_before"]));
    says(&page, &format!("PyTorch has {:.0} MB after its imports", torch.fold(0.0, f64::max) / 1e6));
    let floors = sections.iter().map(|section| {
        let floor = number(&entry(section, "ours, LoRA")["floor_seconds"]["step"]);
        format!("{:.1}", step(entry(section, "PyTorch, LoRA")) / floor)
    });
    let floors: Vec<String> = floors.collect();
    says(
        &page,
        &format!("PyTorch would take {}, {} and {} times as long as ours with LoRA", floors[0], floors[1], floors[2]),
    );

    let slices = performance("slices");
    let of = |tokens: u64, sequences: u64| {
        let mut rows = slices["rows"].as_array().unwrap().iter();
        let row =
            rows.find(|row| row["precision"] == "f32" && row["T"] == tokens && row["sequences"] == sequences).unwrap();
        [median(&row["seconds"]), number(&row["peak_mb"])]
    };
    let ratio = |tokens: u64, sequences: u64, whole: u64, of_what: usize| {
        of(tokens, sequences)[of_what] / of(tokens, whole)[of_what]
    };
    for said in [
        format!(
            "they take {:.0} % less time than the whole batch, with {:.0} % of its memory",
            100.0 * (1.0 - ratio(512, 8, 32, 0)),
            100.0 * ratio(512, 8, 32, 1)
        ),
        format!(
            "{:.0} % more than the whole batch at T = 512, {:.0} % more than slices of 16 sequences at T = 1024",
            100.0 * (ratio(512, 4, 32, 0) - 1.0),
            100.0 * (ratio(1024, 2, 16, 0) - 1.0)
        ),
    ] {
        says(&page, &said);
    }

    let generation = &performance("llamacpp-before")["bars"]["generation"];
    let intel = &performance("llamacpp-intel")["bars"];
    says(&page, &format!("A token took {:.1} ms before", number(&generation["ours_ms"])));
    says(
        &page,
        &format!(
            "it was {:.2} of llama.cpp's speed and {:.2} for prompts",
            number(&intel["generation"]["ratio"]),
            number(&intel["prompt"]["ratio"])
        ),
    );

    let mistral = &performance("mistral")["sections"][0];
    let [ours, ours_bf16, theirs, theirs_bf16] =
        ["ours, nf4", "ours, nf4, bf16", "transformers and PEFT, f32", "transformers and PEFT, bf16"]
            .map(|name| entry(mistral, name));
    let floor = |entry: &Value| 100.0 * number(&entry["floor_seconds"]["step"]) / step(entry);
    for said in [
        format!(
            "is {:.2} times as fast as theirs in f32 and at {:.0} % of the floor",
            step(theirs) / step(ours),
            floor(ours)
        ),
        format!(
            "ours in bf16 is {:.2} times as fast as theirs in f32, and as fast as theirs in bf16 ({:.2})",
            step(theirs) / step(ours_bf16),
            step(theirs_bf16) / step(ours_bf16)
        ),
        format!(
            "both run at {:.0} and {:.0} % of twice the f32 rate",
            0.5 * floor(ours_bf16),
            0.5 * floor(theirs_bf16)
        ),
    ] {
        says(&page, &said);
    }
    let layers = [ours_bf16, theirs_bf16].map(|entry| format!("{:.0} s", 32.0 * step(entry)));
    assert_eq!(layers[0], layers[1]);
    says(&page, &format!("in bf16, are {} for ours and for theirs", layers[0]));
    let large = performance("large-models");
    let lora = |precision: &str| {
        let mut rows = large["steps"].as_array().unwrap().iter();
        let row =
            rows.find(|row| row["adapter"] == "lora" && row["length"] == 256 && row["precision"] == precision).unwrap();
        number(&row["step_seconds"])
    };
    says(&page, &format!("with LoRA takes {:.1} s in bf16 and {:.1} s in f32", lora("bf16"), lora("f32")));

    let copies = performance("few-rows")["rows"].clone();
    let copies = copies.as_array().unwrap().iter().map(|row| number(&row["copy_gb_per_s"]));
    let (least, most) = copies.fold((f64::MAX, 0.0_f64), |(low, high), x| (low.min(x), high.max(x)));
    says(&page, &format!("reached {least:.1} to {most:.1} GB/s on this thread"));

    let smollm2 = &performance("smollm2-step")["sections"][0];
    let apart = entry(smollm2, "ours, LoRA")["differences"].as_object().unwrap().values();
    let apart = apart.map(number).fold(0.0, f64::max);
    says(&page, &format!("Gradients agree to {apart:.0e}."));
    let (ours, one) =
        (entry(smollm2, "ours, LoRA"), entry(smollm2, "transformers and PEFT, LoRA, one sequence at once"));
    let memory = |entry: &Value| number(&entry["peak_memory"]) - number(&entry["memory_before"]);
    says(
        &page,
        &format!(
            "one sequence at once | {:.2} | {:.2} | {:.2} GB | {:.2} |",
            step(one),
            step(one) / step(ours),
            memory(one) / 1e9,
            memory(ours) / memory(one)
        ),
    );
    let intel = &performance("smollm2-step-intel")["sections"][0];
    let of = |name: &str| step(entry(intel, name));
    let (peft, peft_bf16) = (of("transformers and PEFT, LoRA"), of("transformers and PEFT, LoRA, bf16"));
    let noisy = entry(intel, "ours, HRM, bf16")["seconds"]["step"].as_array().unwrap().iter().map(number);
    let (least, most) = noisy.fold((f64::MAX, 0.0_f64), |(low, high), x| (low.min(x), high.max(x)));
    says(&page, &format!("a step with HRM in bf16 took {least:.1} to {most:.1} s"));
    says(&page, &format!("the ratio in f32 was {:.2}", peft / of("ours, LoRA")));
    for name in ["ours, LoRA", "ours, HRM"] {
        let own = of(&format!("{name}, bf16"));
        says(&page, &format!("| {name} | {own:.2} | {:.2} | {:.2} |", peft / own, peft_bf16 / own));
    }
    says(&page, &format!("| transformers and PEFT, LoRA | {peft_bf16:.2} | | |"));
    let apart = |name: &str, other: &str| {
        let of_tensors = entry(intel, name)["differences"][other].as_object().unwrap().values();
        100.0 * of_tensors.map(number).fold(0.0, f64::max)
    };
    says(
        &page,
        &format!(
            "differ by up to {:.0} % between PyTorch in bf16 and ours in f32, and by up to {:.0} % between ours in bf16 and PyTorch in f32",
            apart("ours, LoRA", "transformers and PEFT, LoRA, bf16"),
            apart("ours, LoRA, bf16", "transformers and PEFT, LoRA")
        ),
    );

    let reduce = |threads: &str| entry(&performance(threads)["sections"][0], "ours").clone();
    let [two, one] = ["reduce", "reduce-one-thread"].map(reduce);
    let certified = |entry: &Value| 1e3 * median(&entry["seconds"]["reduce, with modal form and certificate"]);
    says(
        &page,
        &format!(
            "| ours, with modal form and certificate | {:.1} ms | | {:.1} ms | |",
            certified(&two),
            certified(&one)
        ),
    );
    says(&page, &format!("Peak memory is {:.0} MB.", number(&two["peak_memory"]) / 1e6));
    let load =
        |name: &str| 1e3 * median(&entry(&performance("load")["sections"][0], name)["seconds"]["open, one tensor"]);
    says(
        &page,
        &format!(
            "read after {:.2} ms, with `safetensors` and PyTorch after {:.2} ms",
            load("ours"),
            load("safetensors.torch")
        ),
    );
}

/// Loads, misses of the goal and memory in control.md.
#[test]
fn sentences_of_slicot_are_its_result() {
    let page = page("control.md");
    let files = ["slicot", "slicot-1000"].map(performance);
    let loads = || files.iter().flat_map(|file| file["load"].as_array().unwrap()).map(number);
    let (least, most) = (loads().fold(f64::MAX, f64::min), loads().fold(0.0, f64::max));
    says(&page, &format!("load averages (in the files) were {least:.1} to {most:.1} ("));
    let rows = || files.iter().flat_map(|file| file["rows"].as_array().unwrap());
    let ratio = |row: &Value| {
        let of = |program: &str| {
            median(&row["turns"].as_array().unwrap().iter().map(|turn| turn[program][0].clone()).collect())
        };
        of("ours") / of("AB09AD")
    };
    let missed: Vec<(u64, String)> = rows()
        .filter(|row| ratio(row) > 2.0)
        .map(|row| {
            assert_eq!(row["system"], "random");
            (row["d"].as_u64().unwrap(), format!("{:.0} %", 50.0 * ratio(row) - 100.0))
        })
        .collect();
    let [(200, small), (1000, large)] = &missed[..] else { panic!("{missed:?}") };
    says(&page, &format!("the random system misses it by {small} at 200 and by {large} at 1000"));
    let bytes = rows()
        .filter(|row| row["d"] == 1000)
        .flat_map(|row| row["peak_bytes"].as_array().cloned().unwrap_or_else(|| vec![row["peak_bytes"].clone()]));
    let most = bytes.map(|bytes| number(&bytes)).fold(0.0, f64::max);
    says(&page, &format!("Peak memory at d = 1000 is {:.0} MiB", most / f64::from(1 << 20)));
}
