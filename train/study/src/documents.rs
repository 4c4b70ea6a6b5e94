//! What pages of docs/ say in figures stands in the files of results that they name.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
}

fn performance(name: &str) -> Value {
    let path = root().join("docs/results/performance").join(name).with_extension("json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

fn median(values: &Value) -> f64 {
    let mut values: Vec<f64> = values.as_array().unwrap().iter().map(number).collect();
    values.sort_by(f64::total_cmp);
    f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2])
}

/// Programs of a section of a comparison, by their names.
fn entry<'a>(section: &'a Value, name: &str) -> &'a Value {
    section["entries"].as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap()
}

fn step(entry: &Value) -> f64 {
    median(&entry["seconds"]["step"])
}

fn says(page: &str, line: &str) {
    assert!(page.lines().any(|found| found == line), "not on the page: {line}");
}

/// The table of training steps in performance.md.
#[test]
fn training_steps_are_their_result() {
    let page = page("performance.md");
    let mut of_lora = vec![Vec::new(); 3];
    for section in performance("steps")["sections"].as_array().unwrap() {
        let shape = &entry(section, "ours, LoRA")["settings"];
        for (adapter, peer) in [("LoRA", "PyTorch, LoRA"), ("HRM", "PyTorch, HRM, FFT")] {
            let of = |name: String| entry(section, &name);
            let (ours, bf16) = (of(format!("ours, {adapter}")), of(format!("ours, {adapter}, bf16")));
            let (torch, slices) = (of(peer.to_owned()), of(format!("{peer}, in slices")));
            let memory = |entry: &Value| number(&entry["peak_memory"]);
            let floor = number(&ours["floor_seconds"]["step"]);
            let line = format!(
                "| {adapter} | {}, {} | {:.3} s | {:.3} s | **{:.2}** | {:.3} s | {:.2} | {:.2} | {:.0} %, {:.0} % | {:.0} of {:.0} MB ({:.2}; {:.2}) |",
                shape["steps"],
                shape["batch"],
                step(torch),
                step(ours),
                step(torch) / step(ours),
                step(bf16),
                step(torch) / step(bf16),
                step(slices) / step(ours),
                100.0 * floor / step(ours),
                100.0 * floor / step(bf16),
                memory(ours) / 1e6,
                memory(torch) / 1e6,
                memory(ours) / memory(torch),
                memory(ours) / memory(slices),
            );
            says(&page, &line);
        }
        let lora = step(entry(section, "ours, LoRA"));
        for (ratios, name) in of_lora.iter_mut().zip(["ours, HRM", "ours, HRM, sequential", "ours, HRM, FFT"]) {
            ratios.push(format!("{:.3}", step(entry(section, name)) / lora));
        }
    }
    for (name, ratios) in ["as `auto` chooses", "step by step", "by FFT"].iter().zip(of_lora) {
        says(&page, &format!("| {name} | {} |", ratios.join(" | ")));
    }
}

/// The table of slices in performance.md.
#[test]
fn slices_are_their_result() {
    let (page, result) = (page("performance.md"), performance("slices"));
    let rows = result["rows"].as_array().unwrap();
    for f32 in rows.iter().filter(|row| row["precision"] == "f32") {
        let same =
            |row: &&Value| row["precision"] == "bf16" && ["T", "sequences"].iter().all(|key| row[key] == f32[key]);
        let bf16 = rows.iter().find(same).unwrap();
        let least = |row: &Value| number(&row["seconds"][0]);
        let line = format!(
            "| {} | {} | {:.3} s | {:.3} s | {:.3} s | {:.3} s | {:.0} MB |",
            f32["T"],
            f32["sequences"],
            least(f32),
            median(&f32["seconds"]),
            least(bf16),
            median(&bf16["seconds"]),
            number(&f32["peak_mb"]),
        );
        says(&page, &line);
    }
}

/// The products of one row in performance.md, and generation beside llama.cpp.
#[test]
fn generation_is_its_result() {
    let page = page("performance.md");
    for row in performance("few-rows")["rows"].as_array().unwrap().iter().filter(|row| row["rows"] == 1) {
        let [time, rate, share] = ["milliseconds", "weight_gb_per_s", "of_a_copy"].map(|key| number(&row[key]));
        says(&page, &format!("| {} | {time:.2} ms | {rate:.1} | {share:.2} |", row["type"].as_str().unwrap()));
    }
    let bars = &performance("llamacpp")["bars"];
    for (name, key) in [("a token generated", "generation"), ("a token of a prompt of 512", "prompt")] {
        let [ours, other, ratio] = ["ours_ms", "llama.cpp_ms", "ratio"].map(|name| number(&bars[key][name]));
        let bar = &bars[key]["bar"];
        says(&page, &format!("| {name} | {ours:.1} ms | {other:.1} ms | {ratio:.2} | {bar} |"));
    }
    let memory = &bars["memory"];
    says(&page, &format!("| peak memory / file | {:.2} | | | {} |", number(&memory["of_the_file"]), memory["bar"]));
}

/// The Mistral block and the step of SmolLM2 in performance.md.
#[test]
fn steps_of_decoders_are_their_result() {
    let page = page("performance.md");
    for entry in performance("mistral")["sections"][0]["entries"].as_array().unwrap() {
        let (name, memory) = (entry["name"].as_str().unwrap(), number(&entry["peak_memory"]) / 1e9);
        says(&page, &format!("| {name} | {:.3} | {memory:.2} GB |", step(entry)));
    }
    let result = performance("smollm2-step");
    let of = |name| entry(&result["sections"][0], name);
    let own = |entry: &Value| number(&entry["peak_memory"]) - number(&entry["memory_before"]);
    let (lora, hrm) = (of("ours, LoRA"), of("ours, HRM"));
    for (name, entry) in [("LoRA", lora), ("HRM", hrm)] {
        says(&page, &format!("| ours, {name} | {:.2} | | {:.2} GB | |", step(entry), own(entry) / 1e9));
    }
    let peft = of("transformers and PEFT, LoRA");
    let line = format!(
        "| transformers and PEFT, LoRA | {:.2} | {:.2} (HRM {:.2}); **the bar, 1.8, is missed** | {:.2} GB | {:.2} (HRM {:.2}), bar 0.2 |",
        step(peft),
        step(peft) / step(lora),
        step(peft) / step(hrm),
        own(peft) / 1e9,
        own(lora) / own(peft),
        own(hrm) / own(peft),
    );
    says(&page, &line);
}

/// Balanced truncation of adapters and loading in performance.md.
#[test]
fn truncation_and_loading_are_their_result() {
    let page = page("performance.md");
    let [two, one] = ["reduce", "reduce-one-thread"].map(performance);
    let time = |result: &Value, name| median(&entry(&result["sections"][0], name)["seconds"]["reduce"]);
    let (of_two, of_one) = (time(&two, "ours"), time(&one, "ours"));
    for name in ["scipy, solve_discrete_lyapunov", "numpy, diagonal by division"] {
        let (two, one) = (time(&two, name), time(&one, name));
        let line = format!(
            "| {name} | {:.1} ms | {:.2} | {:.1} ms | {:.2} |",
            two * 1e3,
            two / of_two,
            one * 1e3,
            one / of_one
        );
        says(&page, &line);
    }
    says(&page, &format!("| ours | {:.1} ms | 1.00 | {:.1} ms | 1.00 |", of_two * 1e3, of_one * 1e3));
    let pymor = time(&two, "pyMOR, BTReductor");
    says(&page, &format!("| pyMOR, BTReductor | {:.1} ms | {:.2} | | |", pymor * 1e3, pymor / of_two));
    let load = performance("load");
    for (name, text) in [("ours", "Opening the whole model takes"), ("safetensors.torch", "maps the files and takes")] {
        let whole = median(&entry(&load["sections"][0], name)["seconds"]["whole model, every page"]);
        assert!(page.contains(&format!("{text} {:.0} ms", whole * 1e3)), "{name}: {whole}");
    }
}

/// The table of truncation under weights in truncation.md: means over all seeds of the file.
#[test]
fn truncation_under_weights_is_its_result() {
    let page = page("truncation.md");
    let text = fs::read_to_string(root().join("docs/results/weighted/small.jsonl")).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mean = |task: &str, order: u64, method: &str| {
        let asked = |row: &&Value| {
            row["task"] == task && row["method"] == method && (method == "full" || row["order"] == order)
        };
        let values: Vec<f64> = rows.iter().filter(asked).map(|row| row["value"].as_f64().unwrap()).collect();
        assert_eq!(values.len(), 3, "{task} {order} {method}");
        values.iter().sum::<f64>() / 3.0
    };
    let columns = [("bytes", 16), ("bytes", 8), ("automaton", 8), ("automaton", 4), ("automaton", 2)];
    for (name, method) in [
        ("full adapter", "full"),
        ("`bt`", "bt"),
        ("`svd`", "svd"),
        ("`modal`", "modal"),
        ("`energy`", "energy"),
        ("`hankel`", "hankel"),
        ("`h2`", "h2"),
        ("empirical Gramians", "empirical"),
        ("`--weight`", "weighted"),
        ("`--weight`, `--gramians enns`", "enns"),
        ("`--weight`, `--method h2`", "weighted-h2"),
    ] {
        let figures = columns.map(|(task, order)| format!("{:.4}", mean(task, order, method)));
        let line = format!("| {name} | {} |", figures.join(" | "));
        assert!(page.lines().any(|found| found.replace("**", "") == line), "not in truncation.md: {line}");
    }
}

/// The table of states shared out over layers in truncation.md: what is lost against the full adapter of the same seed, mean over seeds.
#[test]
fn states_shared_out_are_their_result() {
    let page = page("truncation.md");
    let text = fs::read_to_string(root().join("docs/results/budget/small.jsonl")).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let value = |task: &str, way: &str, budget: u64, seed: u64| {
        let asked =
            |row: &&Value| row["task"] == task && row["way"] == way && row["budget"] == budget && row["seed"] == seed;
        rows.iter().find(asked).unwrap()["value"].as_f64().unwrap()
    };
    for (share, name) in [(2, "a half"), (4, "a quarter"), (8, "an eighth"), (16, "a sixteenth")] {
        let mut figures = Vec::new();
        for (task, states) in [("automaton", 32), ("text", 128)] {
            for way in ["even", "bounds", "task"] {
                let lost = |seed| value(task, way, states / share, seed) - value(task, "full", states, seed);
                figures.push(format!("{:.4}", (lost(3) + lost(4) + lost(5)) / 3.0));
            }
        }
        let line = format!("| {name} | {} |", figures.join(" | "));
        assert!(page.lines().any(|found| found == line), "not in truncation.md: {line}");
    }
}

/// Attempts and failures by name, of all entries of the campaign's results.
fn campaign() -> BTreeMap<String, [u64; 2]> {
    let text = fs::read_to_string(root().join("docs/results/reliability/campaign.json")).unwrap();
    let entries: Vec<Value> = serde_json::from_str(&text).unwrap();
    let mut counts = BTreeMap::new();
    for (name, found) in entries.iter().flat_map(|entry| entry["counts"].as_object().unwrap()) {
        let [attempts, failures] = counts.entry(name.clone()).or_insert([0, 0]);
        *attempts += found["attempts"].as_u64().unwrap();
        *failures += found["failures"].as_u64().unwrap();
    }
    counts
}

/// `20,000`.
fn grouped(number: u64) -> String {
    let mut told = number.to_string();
    for at in (1..told.len()).rev().filter(|at| (told.len() - at).is_multiple_of(3)).collect::<Vec<_>>() {
        told.insert(at, ',');
    }
    told
}

/// The table of the campaign in reliability.md: attempts of all entries of its results, of which none failed.
#[test]
fn attempts_of_the_campaign_are_its_result() {
    let page = page("reliability.md");
    let counts = campaign();
    assert!(counts.values().all(|[_, failures]| *failures == 0), "{counts:?}");
    let attempts = |wanted: &[&str]| -> u64 {
        let named = counts.iter().filter(|(name, _)| wanted.iter().any(|wanted| name.starts_with(wanted)));
        named.map(|(_, [attempts, _])| attempts).sum()
    };
    let outputs = ["a full output", "a reader that", "a device named", "a link named", "a pipe named", "three "];
    for (attack, names) in [
        ("SIGKILL of `train fit`", &["kill -9 at a random"][..]),
        ("SIGKILL of a command", &["kill -9 of a command"]),
        ("power failure", &["a run goes on after a power failure"]),
        ("a disk that is too small", &["a run on a disk"]),
        ("a damaged input", &["damaged "]),
        ("outputs that are full", &outputs),
        ("a certificate with a changed claim", &["a changed claim"]),
        ("a system that is hard to reduce", &["a system is reduced", "a system at an extreme scale"]),
    ] {
        let line = page.lines().find(|line| line.starts_with(&format!("| {attack}"))).unwrap();
        let told = line.rsplit('|').nth(1).unwrap().trim();
        assert_eq!(told, grouped(attempts(names)), "{line}");
    }
    let extreme = grouped(attempts(&["a system at an extreme scale"]));
    assert!(page.contains(&format!("{extreme} of the systems are at extreme scales")), "{extreme}");
}
