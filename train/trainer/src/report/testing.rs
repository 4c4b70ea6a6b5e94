//! Synthetic runs for the tests of the report.

use std::collections::BTreeMap;
use std::path::Path;

use crate::results::{
    AdapterResult, BackboneResult, DataFile, Environment, Event, LayerResult, LayerState, ParameterCounts, RunResult,
    SCHEMA, Scores, Split, TaskResult, TrainingResult, metric,
};

/// A number in `-1..1` that looks random and is the same everywhere.
fn noise(i: u64) -> f64 {
    let mut x = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    x ^= x >> 29;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^= x >> 32;
    (x >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

pub(super) fn scores(accuracy: f64, loss: f64) -> Scores {
    let mut metrics = BTreeMap::from([(metric::ACCURACY.to_owned(), accuracy), (metric::LOSS.to_owned(), loss)]);
    for (q, share) in [1.45, 0.97, 0.8, 0.78].into_iter().enumerate() {
        metrics.insert(format!("{}{}", metric::ACCURACY_QUARTER, q + 1), (accuracy * share).min(1.0));
    }
    Scores { metrics, tokens: 128_000, sequences: 1000 }
}

fn layers(full: bool) -> Vec<LayerResult> {
    let gates = [0.132, 0.164, 0.171, 0.083];
    let layer = |n: usize| {
        let speed = 0.33 + 0.06 * n as f64;
        let value = |i: usize| 1.7 * (-speed * i as f64).exp() * (1.0 + 0.2 * noise((n * 100 + i) as u64));
        let mut values: Vec<f64> = (0..32).map(value).collect();
        values.sort_by(|a, b| b.total_cmp(a));
        let kept = values.iter().filter(|v| **v >= 0.01 * values[0]).count();
        let bound = 2.0 * values[kept..].iter().sum::<f64>();
        LayerResult {
            layer: n,
            site: "mlp".into(),
            order: if full { 32 } else { kept },
            gate: Some(gates[n]),
            spectral_radius: Some(0.998),
            error_bound: (!full).then_some(bound),
            hinf_error: (!full).then_some(bound * 0.37),
            h2_error: (!full).then_some(bound * 0.11),
            hinf_norm: (!full).then_some(2.9),
            hankel_singular_values: values,
            ..LayerResult::default()
        }
    };
    (0..4).map(layer).collect()
}

fn trained(steps: u64, seconds: f64, accuracy: f64, loss: f64) -> TrainingResult {
    let validation = scores(accuracy, loss);
    TrainingResult {
        steps,
        tokens: steps * 2048,
        seconds,
        final_loss: Some(loss),
        validation,
        ..TrainingResult::default()
    }
}

/// A finished DFA run with the rows none, hrm, lora and hrm-truncated.
pub(crate) fn result(name: &str) -> RunResult {
    let counts = |adapter: u64| ParameterCounts {
        adapter,
        head: 768,
        trainable: adapter + 768,
        frozen: 924_416,
        ..Default::default()
    };
    let row = |name: &str, kind: &str, adapter: u64, accuracy: f64, loss: f64| AdapterResult {
        name: name.into(),
        kind: kind.into(),
        parameters: counts(adapter),
        validation: scores(accuracy, loss),
        ..AdapterResult::default()
    };
    let hrm = AdapterResult {
        path: Some("adapters/hrm".into()),
        training: Some(trained(750, 71.2, 0.5187, 0.963)),
        scan: Some("fft".into()),
        layers: layers(true),
        settings: "d = 32, paper".into(),
        ..row("hrm", "hrm", 33_028, 0.5187, 0.963)
    };
    let lora_layer = |n| LayerResult { layer: n, site: "q_proj".into(), order: 16, ..LayerResult::default() };
    let lora = AdapterResult {
        training: Some(trained(750, 83.9, 0.6671, 0.771)),
        layers: (0..4).map(lora_layer).collect(),
        settings: "r = 16, q_proj v_proj".into(),
        ..row("lora", "lora", 32_768, 0.6671, 0.771)
    };
    let truncated = AdapterResult {
        truncated_from: Some("hrm".into()),
        truncation_rule: Some("epsilon = 0.01".into()),
        scan: Some("fft".into()),
        layers: layers(false),
        ..row("hrm-truncated", "hrm", 14_200, 0.5172, 0.9655)
    };
    let baselines = [
        ("constant", 0.314),
        ("window_0", 0.331),
        ("window_1", 0.388),
        ("window_2", 0.458),
        ("window_4", 0.557),
        ("window_8", 0.699),
    ];
    RunResult {
        schema: SCHEMA,
        name: name.into(),
        seed: 17,
        task: TaskResult {
            kind: "dfa".into(),
            primary_metric: metric::ACCURACY.into(),
            sequence_length: 128,
            vocabulary: 6,
            description: "State of a random automaton with 4 states and 2 symbols at every position".into(),
            baselines: baselines.map(|(n, v)| (n.to_owned(), v)).into(),
            transition_table: Some(vec![vec![3, 2], vec![2, 1], vec![1, 0], vec![0, 0]]),
        },
        backbone: BackboneResult {
            kind: "tiny_gpt".into(),
            source: "random".into(),
            parameters: 924_416,
            layers: 4,
            d_model: 128,
            pretrain: Some(trained(400, 31.0, 0.3, 1.2)),
        },
        rows: vec![row("none", "none", 0, 0.414, 1.138), hrm, lora, truncated],
        diverged: Vec::new(),
        environment: Environment {
            hankel: "0.1.0".into(),
            commit: None,
            platform: "linux x86_64".into(),
            cpu: "Example CPU 9000".into(),
            cpu_features: vec!["avx2".into(), "fma".into()],
            threads: 2,
            processes: None,
            memory_bytes: Some(16 << 30),
            device: "cpu".into(),
            precision: "f32".into(),
        },
        data: vec![DataFile { path: "enwik8.gz".into(), bytes: 36_445_475, sha256: "0123456789abcdef".repeat(4) }],
        model_files: Vec::new(),
        wall_time_seconds: 197.4,
        peak_memory_bytes: Some(412 << 20),
        peak_anonymous_bytes: Some(390 << 20),
        peak_device_bytes: None,
    }
}

/// The events of such a run.
pub(crate) fn events(name: &str) -> Vec<Event> {
    let mut out = vec![Event::Start {
        name: name.into(),
        seed: 17,
        version: "0.1.0".into(),
        directory: None,
        resumed: false,
        device: None,
        processes: None,
    }];
    for (s, (stage, end, speed)) in
        [("pretrain", 1.2, 4.0), ("none", 1.13, 9.0), ("hrm", 0.96, 3.0), ("lora", 0.75, 3.5)].into_iter().enumerate()
    {
        let start = if stage == "pretrain" { 1.9 } else { 1.35 };
        let at = |t: f64| end + (start - end) * (-speed * t).exp();
        for step in 1..=750_u64 {
            let t = step as f64 / 750.0;
            let loss = at(t) + 0.03 * noise(step + 1000 * s as u64);
            out.push(Event::Step {
                stage: stage.into(),
                step,
                loss,
                learning_rate: 3e-3,
                gradient_norm: 0.7,
                tokens: step * 2048,
                tokens_per_second: 21_000.0,
                seconds: t * 80.0,
                device_bytes: None,
                communication: None,
            });
            if step % 75 == 0 {
                let (split, seconds) = (Split::Validation, 0.4);
                let scores = scores(1.12 - at(t) * 0.62, at(t));
                out.push(Event::Eval { stage: stage.into(), step, split, scores, seconds });
                if stage == "hrm" {
                    let layer = |(n, gate): (usize, f64)| LayerState {
                        layer: n,
                        site: "mlp".into(),
                        gate: Some(0.1 + (gate - 0.1) * t.sqrt() + 0.003 * noise(step + n as u64)),
                        pole_range: Some((0.5, 0.998)),
                        ..LayerState::default()
                    };
                    let layers = [0.132, 0.164, 0.171, 0.083].into_iter().enumerate().map(layer).collect();
                    out.push(Event::Layers { stage: stage.into(), step, layers });
                }
            }
        }
    }
    out.push(Event::Finished { seconds: 197.4 });
    out
}

/// Writes a run directory.
pub(super) fn write_run(dir: &Path, result: Option<&RunResult>, events: &[Event]) {
    std::fs::create_dir_all(dir).unwrap();
    if let Some(result) = result {
        std::fs::write(dir.join("result.json"), serde_json::to_string_pretty(result).unwrap()).unwrap();
    }
    let lines: Vec<String> = events.iter().map(|e| serde_json::to_string(e).unwrap()).collect();
    std::fs::write(dir.join("metrics.jsonl"), lines.join("\n") + "\n").unwrap();
    std::fs::write(dir.join("config.toml"), "seed = 17\n\n[task]\nkind = \"dfa\"\nlength = 128\n").unwrap();
}
