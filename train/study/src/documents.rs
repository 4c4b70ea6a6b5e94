//! What pages of docs/ say in figures stands in the files of results that they name.

use hankel_trainer::format::thousands;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

mod automata;
mod card;
mod costs;
mod examples;
mod gates;
mod language;
pub(crate) mod links;
mod peers;
mod pilots;
mod prose;
mod recomputed;
mod starts;
mod words;

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

/// What an operator for GELU with a hyperbolic tangent saves.
#[test]
fn gelu_is_its_result() {
    let (page, result) = (page("performance.md"), performance("gelu-tanh"));
    let [lora, hrm] = ["lora", "hrm"].map(|row| median(&result[row]["before"]) / median(&result[row]["after"]));
    let [before, after] = ["before", "after"].map(|side| median(&result["peak_memory_megabytes"][side]));
    assert!(page.contains(&format!(
        "took {lora:.2} times as long with LoRA and {hrm:.2} times with an HRM, and {before:.0} MB instead of {after:.0}\n"
    )));
}

/// What the matrix unit of a processor saves, and documents side by side.
#[test]
fn packed_documents_are_their_result() {
    let (page, result) = (page("performance.md"), performance("packed"));
    for (row, name) in [("hrm", "HRM"), ("lora", "LoRA")] {
        let both = |program: &str| {
            let runs: Vec<f64> = result[row][program].as_array().unwrap().iter().map(number).collect();
            let (least, most) = (runs[0].min(runs[1]), runs[0].max(runs[1]));
            assert_eq!(runs.len(), 2);
            format!("{:.1} s ({least:.1}, {most:.1})", f64::midpoint(least, most))
        };
        let [before, unit, packed] = ["before", "matrix_unit", "packed"].map(both);
        let ratio = median(&result[row]["before"]) / median(&result[row]["packed"]);
        says(&page, &format!("| {name} | {before} | {unit} | {packed} | {ratio:.1} |"));
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

/// The table of a 7B in large-models.md, and its bar in performance.md.
#[test]
fn a_random_7b_is_its_result() {
    let (page, result) = (page("large-models.md"), performance("large-models"));
    let steps = result["steps"].as_array().unwrap();
    let of = |adapter: &str, length: u64, precision: &str| {
        let is = |row: &&Value| row["adapter"] == adapter && row["length"] == length && row["precision"] == precision;
        steps.iter().find(is).unwrap()
    };
    let seconds = |adapter, length, precision| number(&of(adapter, length, precision)["step_seconds"]);
    let gib = |bytes: &Value| number(bytes) / f64::from(1 << 30);
    let quantize =
        |key: &str| median(&result["quantize"].as_array().unwrap().iter().map(|run| run[key].clone()).collect());
    says(
        &page,
        &format!(
            "| `quantize`, 14.5 GB of bf16 to 4.1 GB, median of three | {:.0} s, {:.0} s of processor time |",
            quantize("seconds"),
            quantize("processor_seconds")
        ),
    );
    for (precision, name) in [("f32", "f32"), ("bf16", "`precision = \"bf16\"`")] {
        let [hrm, lora] = ["hrm", "lora"].map(|adapter| seconds(adapter, 256, precision));
        says(
            &page,
            &format!("| one step at 256 tokens, {name} | HRM, 32 states: {hrm:.1} s; LoRA, rank 8: {lora:.1} s |"),
        );
    }
    let [hrm, lora] = ["hrm", "lora"].map(|adapter| seconds(adapter, 512, "f32"));
    says(&page, &format!("| one step at 512 tokens, f32 | HRM {hrm:.0} s, LoRA {lora:.0} s |"));
    let own = ["hrm", "lora"].map(|adapter| gib(&of(adapter, 512, "f32")["own_bytes"]));
    let [[hrm, lora], [hrm_long, lora_long]] =
        ["512", "4096"].map(|length| ["hrm", "lora"].map(|adapter| gib(&result["estimates"][length][adapter])));
    says(
        &page,
        &format!(
            "| memory of its own, peak of that step | HRM {:.2} GiB, LoRA {:.2} GiB; estimated by `--dry-run` {hrm:.2} and {lora:.2} |",
            own[0], own[1]
        ),
    );
    says(&page, &format!("| at 4,096 tokens, estimated | HRM {hrm_long:.2} GiB, LoRA {lora_long:.2} GiB |"));
    let bar = format!(
        "| 7B in nf4, step at T = 256 with LoRA, bf16 | at most 14 s | {:.1} s **(missed)** |",
        seconds("lora", 256, "bf16")
    );
    says(&self::page("performance.md"), &bar);
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

/// The worked example of truncation.md: losses, accuracies and errors of an adapter at four orders by four methods.
#[test]
fn truncated_adapters_are_their_result() {
    let page = page("truncation.md");
    let text = fs::read_to_string(root().join("docs/results/truncation.json")).unwrap();
    let result: Value = serde_json::from_str(&text).unwrap();
    let row = |name: &str| {
        result["rows"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}"))
    };
    let of = |name: &str| {
        let metrics = &row(name)["validation"]["metrics"];
        (number(&metrics["loss"]), number(&metrics["accuracy"]))
    };
    let error = |name: &str| {
        let layers = row(name)["layers"].as_array().unwrap();
        let percent = layers
            .iter()
            .map(|layer| 100.0 * number(&layer["hinf_error"]) / number(&layer["hinf_norm"]))
            .fold(0.0, f64::max);
        if percent < 10.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
    };
    let (loss, accuracy) = of("hrm");
    assert!(page.contains(&format!("the full adapter: loss {loss:.4}, accuracy {accuracy:.4}")));
    for order in [12, 8, 4, 2] {
        let columns = ["", "-hankel", "-modal", "-svd"].map(|method| {
            let name = format!("hrm-order-{order}{method}");
            let (loss, accuracy) = of(&name);
            format!("{loss:.4}, {accuracy:.4} | {}", error(&name))
        });
        says(&page, &format!("| {order} | {} |", columns.join(" | ")));
    }
    let [whole, three, on_the_way] =
        ["regularized", "regularized-epsilon-0.05", "reduced-on-the-way"].map(|name| of(name).0);
    assert!(page.contains(&format!("reaches loss {whole:.4} and keeps {three:.4} with **three** states per layer")));
    assert!(page.contains(&format!("it ends at {on_the_way:.4}.")));
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

/// Which methods are told apart from `bt` over three seeds, in truncation.md.
#[test]
fn methods_told_apart_from_bt_are_their_result() {
    let text = fs::read_to_string(root().join("docs/results/weighted/small.jsonl")).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let figures = |task: &str, order: u64, method: &str| {
        let asked = |row: &&Value| row["task"] == task && row["order"] == order && row["method"] == method;
        let by_seed: BTreeMap<u64, f64> =
            rows.iter().filter(asked).map(|row| (row["seed"].as_u64().unwrap(), number(&row["value"]))).collect();
        assert_eq!(by_seed.len(), 3);
        by_seed
    };
    let mut told_apart = Vec::new();
    const METHODS: [&str; 9] =
        ["modal", "energy", "hankel", "svd", "h2", "empirical", "weighted", "enns", "weighted-h2"];
    for (task, order) in [("bytes", 16), ("bytes", 8), ("automaton", 8), ("automaton", 4), ("automaton", 2)] {
        let bt = figures(task, order, "bt");
        for method in METHODS {
            let apart: Vec<f64> = figures(task, order, method).iter().map(|(seed, value)| value - bt[seed]).collect();
            let mean = apart.iter().sum::<f64>() / 3.0;
            let variance = apart.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 2.0;
            // The quantile 0.975 of Student's t with two degrees of freedom.
            if mean.abs() > 4.3027 * (variance / 3.0).sqrt() {
                told_apart.push((task, order, method, mean > 0.0));
            }
        }
    }
    let better = |method| ("bytes", 8, method, false);
    assert_eq!(told_apart, [("bytes", 8, "modal", true), better("h2"), better("enns"), better("weighted-h2")]);
    assert!(page("truncation.md").contains(
        "excludes 0 only on text with 8 states, for `--weight` with `--method h2` or `--gramians enns` and for `h2` without a weight, which are better, and for `modal`, which is worse"
    ));
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
        assert_eq!(told, thousands(attempts(names)), "{line}");
    }
    let extreme = thousands(attempts(&["a system at an extreme scale"]));
    assert!(page.contains(&format!("{extreme} of the systems are at extreme scales")), "{extreme}");
}

/// Bars are held against figures that other tables of the page have, and a missed one is called so.
#[test]
fn bars_are_held_against_the_tables() {
    let page = page("performance.md");
    let (before, rest) = page.split_once("### Bars").unwrap();
    let (bars, after) = rest.split_once("\n### ").unwrap();
    let number = |text: &str| text.trim_end_matches([' ', '%', 's']).parse::<f64>().ok();
    let rows: Vec<Vec<&str>> =
        bars.lines().filter(|line| line.starts_with("| ")).skip(2).map(|line| line.split(" | ").collect()).collect();
    assert!(rows.len() > 20);
    for row in rows {
        let (most, bar) = match row[1].split_once(' ').unwrap() {
            ("at", rest) => (rest.starts_with("most"), number(rest.split_once(' ').unwrap().1).unwrap()),
            _ => panic!("{row:?}"),
        };
        let mut missed = false;
        for figure in row[2].trim_end_matches(" |").split(", ") {
            let value = figure.replace("**(missed)**", "");
            let value = value.trim();
            let told = [before, after].iter().any(|part| {
                let is_part = |c: char| c.is_ascii_digit() || c == '.';
                part.match_indices(value).any(|(at, _)| {
                    let (left, right) = (part[..at].chars().next_back(), part[at + value.len()..].chars().next());
                    !left.is_some_and(is_part) && !right.is_some_and(|c| c.is_ascii_digit())
                })
            });
            assert!(told, "{value} of {row:?} is in no table");
            let value = number(value).unwrap();
            let is_missed = if most { value > bar } else { value < bar };
            missed |= is_missed;
        }
        assert_eq!(missed, row[2].contains("**(missed)**"), "{row:?}");
    }
}

/// The table of random input in reliability.md: minutes and inputs of all runs of every target.
#[test]
fn random_input_is_its_result() {
    let page = page("reliability.md");
    let text = fs::read_to_string(root().join("docs/results/reliability/fuzz.json")).unwrap();
    let runs: Vec<Value> = serde_json::from_str(&text).unwrap();
    for target in fs::read_dir(root().join("tests/fuzz/fuzz_targets")).unwrap() {
        let target = target.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned();
        let of_it = || runs.iter().filter(|run| run["target"] == *target);
        let sum = |key: &str| of_it().map(|run| run[key].as_u64().unwrap()).sum::<u64>();
        let findings: usize = of_it().map(|run| run["findings"].as_array().unwrap().len()).sum();
        let minutes = (sum("seconds") as f64 / 60.0).round();
        says(&page, &format!("| `{target}` | {minutes} | {} | {findings} |", thousands(sum("inputs"))));
    }
}
