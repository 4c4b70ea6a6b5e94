//! The binary on a GPU beside the CPU. Skipped, with a word, where there is no GPU.

mod common;

use common::{Place, TINY};
use hankel_core::gpu::for_tests;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Every number in `other` is within `tolerance` of that in `one`.
#[track_caller]
fn close(one: &Value, other: &Value, tolerance: f64) {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            assert!((a - b).abs() <= tolerance * a.abs().max(1.0), "{a} {b}");
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).for_each(|(a, b)| close(a, b, tolerance));
        }
        (Value::Object(a), Value::Object(b)) if a.len() == b.len() => {
            a.iter().for_each(|(key, a)| close(a, &b[key], tolerance));
        }
        _ => assert_eq!(one, other),
    }
}

const KINDS: [&str; 6] = ["lora", "ia3", "selective", "complex", "hankel-shared", "state-offset"];

#[test]
fn adapters_trained_on_the_cpu_are_evaluated_on_a_gpu() {
    let Some(gpu) = for_tests() else { return };
    let place = Place::new();
    let more = KINDS.map(|kind| format!("[[adapter]]\nkind = \"{kind}\"\n")).concat();
    place.fit(&(TINY.to_owned() + &more.replace("\"lora\"\n", "\"lora\"\nrank = 2\n")), "run", &[]);
    let eval = |more: &[&str]| {
        let finished = place.run(&[&["eval", "run", "--json"], more].concat());
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        json(&finished.stdout)
    };
    let here = eval(&[]);
    assert_eq!(here.as_array().unwrap().len(), 2 + 1 + KINDS.len());
    close(&here, &eval(&["--device", "gpu"]), 1e-4);
    close(&here, &eval(&["--device", &gpu.facts().name, "--gpu-memory", "0.5"]), 1e-4);
    // The same states, in a file.
    let record = |device: &str| {
        let file = format!("{}.safetensors", &device[..3]);
        eval(&["--adapter", "hrm", "--device", device, "--record-states", &file]);
        hankel_models::weights::recorded_states(&place.path(&file)).unwrap()
    };
    let (cpu, gpu) = (record("cpu"), record("gpu:0"));
    for (label, cpu) in &cpu {
        assert!((&cpu.states - &gpu[label].states).norm_max() < 1e-5 * cpu.states.norm_max(), "{label}");
    }
}

#[test]
fn what_cannot_be_computed_is_refused_before_anything_is_written() {
    let Some(gpu) = for_tests() else { return };
    let place = Place::new();
    place.write("config.toml", TINY);
    let fit = ["fit", "config.toml", "--out", "run", "--set"];
    let set = |setting: &str| place.run(&[&fit[..], &[setting]].concat());
    set("device=gpu:99").refused(&["`device` cannot be used: gpu:99: there is no such GPU", &gpu.facts().name]);
    set("device=nothing").refused(&["nothing: there is no such GPU", "gpu:0 is"]);
    place
        .run(&[&fit[..], &["device=gpu", "--set", "precision=f64"]].concat())
        .refused(&["`precision` \"f64\" is for the CPU"]);
    let mut nowhere = place.command(&[&fit[..], &["device=gpu"]].concat());
    let nowhere = common::Finished::new(&nowhere.env("VK_DRIVER_FILES", "").output().unwrap());
    nowhere.refused(&["there is no GPU: no Vulkan, Metal or Direct3D 12 driver was found", "mesa-vulkan-drivers"]);
    // 1e-5 GiB are 10,737 bytes, less than the backbone.
    place.run(&[&fit[..], &["device=gpu", "--set", "gpu_memory=1e-5"]].concat()).refused(&[
        " bytes for model.layers.",
        "over the budget of 10737 bytes",
        "raise `gpu_memory`",
    ]);
    assert!(!place.path("run").exists());
}
