//! Figures in sentences, outside tables.

use super::{entry, median, number, page, performance, root, step};
use hankel_trainer::format::thousands;
use serde_json::Value;
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
