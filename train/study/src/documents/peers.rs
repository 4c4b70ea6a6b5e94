//! What pages say of other programs beside this one.

use super::{entry, median, number, page, performance, root, says};
use serde_json::Value;
use std::fmt::Write;
use std::fs;

/// The table of operators in performance.md: scans and convolutions at the longest length, and a linear layer in nf4.
#[test]
fn operators_are_their_result() {
    let page = page("performance.md");
    let operators = performance("operators");
    let longest = operators["sections"].as_array().unwrap().last().unwrap();
    let milliseconds = |entry: &Value, of: &str| 1e3 * median(&entry["seconds"][of]);
    let (scan, convolution) = (entry(longest, "ours, scan, sequential"), entry(longest, "ours, convolution"));
    let [fft_scan, fft] = ["PyTorch, scan, FFT", "PyTorch, convolution"].map(|name| entry(longest, name));
    let (own, other) = (milliseconds(scan, "forward"), milliseconds(fft_scan, "forward"));
    let bandwidth = 1e5 * number(&scan["floor_seconds"]["forward"]) / own;
    says(
        &page,
        &format!(
            "| recurrence, forward | {own:.2} ms | {bandwidth:.0} % of the bandwidth of a large copy (it fits the cache) | `torch.fft` {other:.2} ms | {:.0} |",
            other / own
        ),
    );
    let both = "forward and backward";
    let (own, other) = (milliseconds(scan, both), milliseconds(fft_scan, both));
    says(
        &page,
        &format!("| the same with gradients | {own:.2} ms |  | `torch.fft` {other:.2} ms | {:.0} |", other / own),
    );
    for (name, of) in [("causal convolution by FFT, forward", "forward"), ("the same with gradients", both)] {
        let (own, other) = (milliseconds(convolution, of), milliseconds(fft, of));
        says(&page, &format!("| {name} | {own:.2} ms |  | `torch.fft` {other:.2} ms | {:.2} |", other / own));
    }
    let nf4 = performance("nf4");
    let of = |name: &str, pass: &str| milliseconds(entry(&nf4["sections"][0], name), pass);
    for pass in ["forward", "input gradient"] {
        let dense = of("ours, dense f32", pass);
        for (name, own, beside, other, peer) in [
            (
                format!("linear layer in nf4, {pass}"),
                "ours, nf4",
                " of our dense f32",
                "bitsandbytes, nf4, f32",
                "bitsandbytes, f32",
            ),
            (
                "the same, bf16 products".into(),
                "ours, nf4, bf16",
                " times our dense f32",
                "bitsandbytes, nf4, bf16",
                "bitsandbytes, bf16",
            ),
            ("the same, beside a dense bf16 weight".into(), "ours, nf4, bf16", "", "PyTorch, dense bf16", "PyTorch"),
        ] {
            let (own, other) = (of(own, pass), of(other, pass));
            let share = if beside.is_empty() { String::new() } else { format!("{:.2}{beside}", dense / own) };
            says(&page, &format!("| {name} | {own:.0} ms | {share} | {peer} {other:.0} ms | {:.2} |", other / own));
        }
    }
}

/// The table beside SLICOT in control.md: medians of processor time and of time by the clock, and their ratios.
#[test]
fn slicot_is_its_result() {
    let page = page("control.md");
    let rows: Vec<Value> = ["slicot", "slicot-1000"]
        .iter()
        .flat_map(|name| performance(name)["rows"].as_array().unwrap().clone())
        .collect();
    for row in rows {
        let times = |program: &str| -> [f64; 2] {
            [0, 1].map(|kind| {
                let turns = row["turns"].as_array().unwrap().iter().map(|turn| turn[program][kind].clone());
                median(&Value::Array(turns.collect()))
            })
        };
        let (own, other) = (times("ours"), times("AB09AD"));
        let told = |seconds: [f64; 2]| {
            let decimals = if seconds[0] < 1.0 { 3 } else { 2 };
            format!("{:.decimals$}, {:.decimals$}", seconds[0], seconds[1])
        };
        let line = format!(
            "| {}, d = {} | {} | {} | {:.2}, {:.2} |",
            row["system"].as_str().unwrap(),
            row["d"],
            told(own),
            told(other),
            own[0] / other[0],
            own[1] / other[1]
        );
        says(&page, &line);
    }
}

/// What gguf.md says of llama.cpp as a judge: differences of losses and distributions, and whose rounding they are.
#[test]
fn the_judge_of_gguf_files_is_its_result() {
    let page = page("gguf.md");
    let results = root().join("docs/results/gguf");
    let judge = fs::read_to_string(results.join("judge.txt")).unwrap();
    let judged = |name: &str, what: &str| -> f64 {
        let line = judge.lines().find(|line| line.starts_with(&format!("{name} ")) && line.contains(what)).unwrap();
        line.split(what).nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap()
    };
    let types = ["bf16", "q8_0", "q4_0", "q4_k"].map(|name| format!("smollm2 {name}"));
    let losses = types.each_ref().map(|name| format!("{:.4}", judged(name, "difference of the loss")));
    let divergences = types.each_ref().map(|name| exponent(judged(name, "mean KL divergence"), 2));
    says(&page, &format!("| difference of the mean loss | {} |", losses.join(" | ")));
    says(&page, &format!("| mean KL divergence | {} |", divergences.join(" | ")));
    let largest = |name: &str| judged(name, "largest log-prob. difference");
    let families = "llama llama3 llama_linear llama_yarn qwen2 qwen3 smollm3 olmo2 phi3 phi3_longrope granite";
    let of_families: Vec<f64> = families.split(' ').map(|name| largest(&format!("{name} f32"))).collect();
    let (least, most) = of_families.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), x| (a.min(*x), b.max(*x)));
    let flat = page.replace('\n', " ");
    for sentence in [
        format!("{} to {}, SmolLM2 {};", exponent(least, 0), exponent(most, 0), exponent(largest("smollm2 f32"), 1)),
        format!("LoRA {}, rsLoRA {} on", exponent(largest("lora on f32"), 0), exponent(largest("rslora on f32"), 0)),
        format!(
            "GPT-2 is off by {} and Gemma 3 by {},",
            exponent(largest("gpt2 f32"), 1),
            exponent(largest("gemma3 f32"), 1)
        ),
        format!("F16 files of SmolLM2 by {}.", exponent(largest("smollm2 f16"), 0)),
    ] {
        assert!(flat.contains(&sentence), "{sentence}");
    }

    let rounding: Value = serde_json::from_str(&fs::read_to_string(results.join("rounding.json")).unwrap()).unwrap();
    let rows = rounding["rows"].as_array().unwrap();
    // Of SmolLM2 the text with the larger difference: the answers.
    let columns =
        [("gpt2", "F32"), ("gemma3", "F32"), ("SmolLM2-135M-Instruct", "F32"), ("SmolLM2-135M-Instruct", "F16")];
    let columns =
        columns.map(|(model, of)| rows.iter().find(|row| row["model"] == model && row["type"] == of).unwrap());
    for (name, keys, digits) in [
        ("our own f32 to float64", &["ours_to_float64"][..], [0, 0, 1, 1]),
        ("llama.cpp to float64", &["llamacpp_to_float64"], [1; 4]),
        ("llama.cpp on gguf-py's file to float64", &["llamacpp_on_the_file_of_gguf_py_to_float64"], [1; 4]),
        (
            "float64 with GELU from ggml's table of 16-bit floats, to float64",
            &["float64_with_table_to_float64"],
            [1; 4],
        ),
        ("llama.cpp to that", &["llamacpp_to_float64_with_table"], [1; 4]),
        ("float32 with that table to float64 with it", &["float32_with_table_to_float64_with_table"], [1; 4]),
        ("the MLPs' outputs scaled by 1/100: llama.cpp to float64", &["turned_down", "llamacpp_to_float64"], [1; 4]),
        (
            "float64 with the inputs of products rounded to 16 bits, to float64",
            &["float64_with_inputs_in_16_bits_to_float64"],
            [1; 4],
        ),
        ("the same once more, inputs off by 1e-7 before", &["the_same_with_inputs_off_by_1e-7"], [1; 4]),
    ] {
        let mut line = format!("| {name} |");
        for (row, digits) in columns.iter().zip(digits) {
            let value = keys.iter().fold(*row, |value, key| &value[*key]);
            let told = value.as_f64().map_or_else(String::new, |value| format!("{} ", exponent(value, digits)));
            write!(line, " {told}|").unwrap();
        }
        says(&page, &line);
    }
    let tensors = columns[..3]
        .iter()
        .map(|row| format!("{} of {}", row["tensors_unequal_to_gguf_py"].as_array().unwrap().len(), row["tensors"]));
    let tensors = tensors.collect::<Vec<_>>().join(" | ");
    says(&page, &format!("| tensors whose bytes are not those that gguf-py writes | {tensors} | |"));
}

/// `1.2e-4`.
fn exponent(value: f64, digits: usize) -> String {
    format!("{value:.digits$e}")
}

/// The tables of cluster.md: seconds of a step on one and two processes, and of an exchange on simulated networks.
#[test]
fn processes_are_their_result() {
    let page = page("cluster.md");
    let text = fs::read_to_string(root().join("docs/results/cluster.json")).unwrap();
    let result: Value = serde_json::from_str(&text).unwrap();
    let rows = |of: &str| result[of]["rows"].as_array().unwrap().clone();
    let scaling = rows("scaling");
    for (adapter, name) in [("hrm", "HRM, 33,028 values"), ("lora", "LoRA, 16,384 values")] {
        let of = |processes: u64, threads: u64, key: &str| {
            let is_one =
                |row: &&Value| row["adapter"] == adapter && row["processes"] == processes && row["threads"] == threads;
            median(&scaling.iter().filter(is_one).map(|row| row[key].clone()).collect())
        };
        let step = "seconds_per_step";
        let (alone, threads, both) = (of(1, 1, step), of(1, 2, step), of(2, 1, step));
        let exchange = of(2, 1, "exchange_seconds");
        let line = format!(
            "| {name} | {alone:.3} | {threads:.3} | {both:.3} | {:.2} ms, {:.2} % |",
            1e3 * exchange,
            100.0 * exchange / both
        );
        says(&page, &line);
        for ratio in [alone / both, threads / both] {
            assert!(page.contains(&format!("{ratio:.2}")), "{adapter}: {ratio}");
        }
    }
    for processes in [2_u64, 4, 8, 16, 32] {
        let of_them: Vec<Value> = rows("simulated").into_iter().filter(|row| row["processes"] == processes).collect();
        let seconds = |latency: u64| {
            let found = of_them.iter().find(|row| row["latency_us"] == latency);
            found.map_or_else(|| "not run".to_owned(), |row| format!("{:.3}", number(&row["seconds"])))
        };
        let without = number(&of_them[0]["seconds_without_network"]);
        let line = format!("| {processes} | {without:.3} | {} | {} | {} |", seconds(1), seconds(50), seconds(200));
        says(&page, &line);
    }
}

/// The time of `hankel.reduce` beside `bt reduce` in tools/python/README.md: medians of the ratios of all turns.
#[test]
fn reduction_in_python_is_its_result() {
    let page = fs::read_to_string(root().join("tools/python/README.md")).unwrap();
    let ratios = |file: &str| {
        ["wall", "processor"].map(|clock| {
            let turns = performance(file)["turns"].clone();
            let ratio = |turn: &Value| Value::from(number(&turn["hankel"][clock]) / number(&turn["bt"][clock]));
            format!("{:.2}", median(&turns.as_array().unwrap().iter().map(ratio).collect()))
        })
    };
    let [[wall, processor], [one_wall, one_processor]] = ["python-reduce", "python-reduce-one-thread"].map(ratios);
    for said in [
        format!("takes {wall} times the time of `bt reduce`"),
        format!("on the clock, {processor} of the processor ("),
        format!("with one thread {one_wall} and {one_processor} ("),
    ] {
        assert!(page.contains(&said), "not on the page: {said}");
    }
}
