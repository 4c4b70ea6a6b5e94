//! The binary on a GPU beside the CPU. Skipped, with a word, where there is no GPU.

use crate::common::{Finished, Place, TINY, collect_losses, stop_at};
use hankel_core::Precision;
use hankel_core::gpu::for_tests;
use hankel_models::decoder::{InitType, init_model};
use hankel_models::{DecoderConfig, adapters};
use hankel_ops::linear::gpu_precisions;
use hankel_trainer::config::Config;
use hankel_trainer::fit::{Prepared, Stop, fit};
use hankel_trainer::parallel::Group;
use hankel_trainer::run::RunDirectory;
use hankel_trainer::run::checkpoint;
use safetensors::SafeTensors;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

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

#[test]
fn adapters_trained_on_the_cpu_are_evaluated_on_a_gpu() {
    let Some(gpu) = for_tests() else { return };
    let place = Place::new();
    // Every kind that there is; `hrm` is in the file.
    let kinds: Vec<_> = adapters::kinds().into_iter().filter(|kind| kind.name() != "hrm").collect();
    let table = |kind: &adapters::Kind| {
        let size = kind.size().map_or(String::new(), |size| format!("{size} = 2\n"));
        format!("[[adapter]]\nkind = \"{}\"\n{size}", kind.name())
    };
    place.fit(&(TINY.to_owned() + &kinds.iter().map(table).collect::<String>()), "run", &[]);
    let eval = |more: &[&str]| {
        let finished = place.run(&[&["eval", "run", "--json"], more].concat());
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        json(&finished.stdout)
    };
    let told = place.run(&["eval", "run", "--adapter", "hrm", "--device", "gpu"]).stderr;
    let is_software = gpu.facts().kind == "software";
    assert_eq!(told.matches("is a driver in software").count(), usize::from(is_software), "{told}");
    let here = eval(&[]);
    assert_eq!(here.as_array().unwrap().len(), 2 + 1 + kinds.len());
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
    let on_gpu = |precision: &str| place.run(&[&fit[..], &["device=gpu", "--set", precision]].concat());
    let devices = json(&place.run(&["devices", "--json"]).stdout);
    let precisions: Vec<&str> =
        devices["gpus"][0]["precisions"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let resolved = place.run(&["fit", "config.toml", "--dry-run", "--set", "device=gpu"]).stdout;
    if precisions.contains(&"f16") {
        assert!(resolved.contains("precision = \"f16\""), "{resolved}");
    } else {
        assert_eq!(precisions, ["f32"]);
        assert!(resolved.contains("precision = \"f32\""), "{resolved}");
        on_gpu("precision=f16").refused(&["`precision` cannot be used", "f16 needs", &gpu.facts().name]);
    }
    on_gpu("precision=bf16").refused(&["`precision` cannot be used", "bf16 is for the CPU", &gpu.facts().name]);
    let mut nowhere = place.command(&[&fit[..], &["device=gpu"]].concat());
    let nowhere = Finished::new(&nowhere.env("VK_DRIVER_FILES", "").output().unwrap());
    nowhere.refused(&["there is no GPU: no Vulkan, Metal or Direct3D 12 driver was found", "mesa-vulkan-drivers"]);
    // 1e-5 GiB are 10,737 bytes, less than the backbone.
    place.run(&[&fit[..], &["device=gpu", "--set", "gpu_memory=1e-5"]].concat()).refused(&[
        " bytes for model.layers.",
        "over the budget of 10737 bytes",
        "raise `gpu_memory`",
    ]);
    assert!(!place.path("run").exists());
}

/// Largest difference between the losses that two runs logged, in units of the losses.
fn apart(place: &Place, one: &str, other: &str, stage: &str) -> f64 {
    let [one, other] = [one, other].map(|run| collect_losses(place, run, stage));
    assert_eq!(one.len(), other.len());
    assert!(one.len() > 1);
    one.iter().zip(&other).map(|(a, b)| (a - b).abs() / a.abs()).max_by(f64::total_cmp).unwrap_or(0.0)
}

fn events(place: &Place, run: &str, kind: &str) -> Vec<Value> {
    let text = fs::read_to_string(place.path(run).join("metrics.jsonl")).unwrap();
    text.lines().map(json).filter(|event| event["event"] == kind).collect()
}

#[test]
fn sixty_steps_follow_the_cpu_and_a_run_may_change_its_device() {
    let Some(gpu) = for_tests() else { return };
    let place = Place::new();
    let sixty = TINY.replace("steps = 12", "steps = 60\ncheckpoint_every = 10\neval_every = 30");
    place.fit(&sixty, "cpu", &[]);
    let finished = place.fit(&sixty, "gpu", &["--set", "device=gpu"]);
    let difference = apart(&place, "cpu", "gpu", "hrm");
    assert!(difference < 1e-4, "losses differ by {difference:e}");
    let result = |run: &str| json(&fs::read_to_string(place.path(run).join("result.json")).unwrap());
    let (here, there) = (result("cpu"), result("gpu"));
    close(&here["rows"][1]["validation"], &there["rows"][1]["validation"], 1e-3);
    let device = format!("gpu ({})", gpu.facts().name);
    assert_eq!(there["environment"]["device"], device.as_str());
    assert!(there["peak_device_bytes"].as_u64().unwrap() > 10_000 && here["peak_device_bytes"].is_null());
    assert!(finished.stdout.contains(&format!("KiB on {device}")), "{}", finished.stdout);

    // The CPU begins, the GPU goes on, the CPU ends.
    place.write("config.toml", &sixty);
    let first = stop_at(&place, &["fit", "config.toml", "--out", "run"], "run", "hrm-step-000010", "-KILL");
    assert_eq!(first.code, None, "killed");
    let resume = ["fit", "--out", "run", "--resume", "--set"];
    let second = stop_at(&place, &[&resume[..], &["device=gpu"]].concat(), "run", "hrm-step-000040", "-INT");
    assert_eq!(second.code, Some(130), "{}", second.stderr);
    assert!(second.stderr.contains("resuming on device = \"gpu\"; it was \"cpu\" before"), "{}", second.stderr);
    let third = place.run(&[&resume[..], &["device=cpu"]].concat());
    assert_eq!(third.code, Some(0), "{}", third.stderr);
    let devices: Vec<Value> = events(&place, "run", "start").iter().map(|event| event["device"].clone()).collect();
    assert_eq!(devices, ["cpu", device.as_str(), "cpu"]);
    let difference = apart(&place, "cpu", "run", "hrm");
    assert!(difference < 1e-4, "losses differ by {difference:e}");
    assert!(fs::read_to_string(place.path("run/config.toml")).unwrap().contains("device = \"cpu\""));
    // Anything else is as it was begun.
    place.run(&[&resume[..], &["train.lr=1"]].concat()).refused(&["was begun with another configuration"]);
    place.run(&[&resume[..], &["precision=f64"]].concat()).refused(&["was begun in f32: it cannot go on in f64"]);
    // From a card with matrix units to a CPU.
    let config = fs::read_to_string(place.path("run/config.toml")).unwrap();
    let other =
        config.replace("device = \"cpu\"", "device = \"gpu\"").replace("precision = \"f32\"", "precision = \"f16\"");
    assert!(other.contains("\"gpu\"") && other.contains("\"f16\""), "{other}");
    place.write("run/config.toml", &other);
    for elsewhere in [&["eval", "run", "--device", "cpu"][..], &[&resume[..], &["device=cpu"]].concat()] {
        let back = place.run(elsewhere);
        assert_eq!(back.code, Some(0), "{}", back.stderr);
        assert!(back.stderr.contains("computing products in f32"), "{}", back.stderr);
    }
    assert_eq!(
        fs::read_to_string(place.path("run/config.toml")).unwrap(),
        other,
        "a run that is finished stays as it is"
    );
}

#[test]
fn every_adapter_trains_as_on_the_cpu() {
    let Some(_) = for_tests() else { return };
    let start = TINY.find("[[adapter]]").unwrap();
    let adapters = [
        ("regularized", "kind = \"hrm\"\nstate_dim = 4\nhsv_regularization = 0.01\npreset = \"released\""),
        ("reduced", "kind = \"hrm\"\nstate_dim = 4\nreduce = { after_epoch = 1, order = 2, warmup_steps = 2 }"),
        (
            "fft",
            "kind = \"hrm\"\nstate_dim = 4\nscan = \"fft\"\ntruncate = { total = 5 }\nprobe = { gate = 0.5 }\nexactness = { sequences = 2 }",
        ),
        (
            "signed",
            "kind = \"hrm\"\nmode = \"signed\"\nstate_dim = 5\nhsv_regularization = 0.01\ntruncate = { order = 2 }",
        ),
        ("turning", "kind = \"hrm\"\nmode = \"complex\"\nstate_dim = 4\nscan = \"fft\"\ntruncate = { order = 3 }"),
        ("lora", "kind = \"lora\"\nrank = 2\ndropout = 0.1"),
        ("dora", "kind = \"dora\"\nrank = 2\ndropout = 0.1\ntargets = \"all-linear\""),
        ("adalora", "kind = \"adalora\"\ninit_rank = 3\ntarget_rank = 1\ntinit = 1\ntfinal = 2\ndelta_t = 2"),
        ("ia3", "kind = \"ia3\""),
        ("selective", "kind = \"selective\"\ntruncate = { order = 3 }"),
        ("rotation", "kind = \"rotation\""),
        ("householder", "kind = \"householder\"\nreflections = 2"),
        ("delta", "kind = \"delta\""),
        ("hankel-shared", "kind = \"hankel-shared\""),
        ("state-offset", "kind = \"state-offset\""),
        ("full", "kind = \"full\""),
    ];
    let tables = adapters.map(|(name, text)| format!("[[adapter]]\nname = \"{name}\"\n{text}\n")).concat();
    let place = Place::new();
    let config = format!("{}{tables}", &TINY[..start]);
    place.fit(&config, "cpu", &["--set", "train.chunk=7"]);
    place.fit(&config, "gpu", &["--set", "train.chunk=7", "--set", "device=gpu", "--set", "train.read_every=5"]);
    for (name, _) in adapters {
        let difference = apart(&place, "cpu", "gpu", name);
        assert!(difference < 1e-4, "{name}: losses differ by {difference:e}");
    }
    let rows = |run: &str| json(&fs::read_to_string(place.path(run).join("result.json")).unwrap())["rows"].clone();
    for (here, there) in rows("cpu").as_array().unwrap().iter().zip(rows("gpu").as_array().unwrap()) {
        assert_eq!(here["name"], there["name"]);
        close(&here["validation"], &there["validation"], 1e-3);
        close(&here["layers"], &there["layers"], 1e-3);
    }
}

#[test]
fn memory_stays_flat_and_a_step_over_the_budget_says_so() {
    let Some(gpu) = for_tests() else { return };
    let place = Place::new();
    let long = TINY.replace("steps = 12", "steps = 40\ncheckpoint_every = 40\neval_every = 40\nlog_every = 4");
    place.fit(&long, "long", &["--set", "device=gpu", "--set", "train.accumulation=1"]);
    let bytes: Vec<u64> =
        events(&place, "long", "step").iter().map(|event| event["device_bytes"].as_u64().unwrap()).collect();
    eprintln!("bytes of the pool every 4 steps: {bytes:?}");
    assert!(bytes.len() == 10 && bytes.iter().all(|&later| later == bytes[0]), "{bytes:?}");

    place.write("config.toml", TINY.replace("steps = 12", "steps = 2"));
    let large = ["--set", "device=gpu", "--set", "train.batch_size=512", "--set", "gpu_memory=0.002"];
    let refused = place.run(&[&["fit", "config.toml", "--out", "run"], &large[..]].concat());
    refused.refused(&[
        &format!("`hrm` stopped at step 1: {}", gpu.facts().name),
        " bytes for layers.0.",
        "are over the budget of 2.0 MiB: raise `gpu_memory`",
        "`train.batch_size`",
        "`backbone.recompute`",
    ]);
    assert_eq!(events(&place, "run", "stopped").len(), 1);
    let resumed = place.run(&["fit", "--out", "run", "--resume", "--set", "gpu_memory=1"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
}

#[test]
fn a_loss_that_is_not_finite_is_found_in_its_step() {
    let Some(_) = for_tests() else { return };
    let place = Place::new();
    let config = TINY.replace("steps = 12", "steps = 12\neval_every = 12\ncheckpoint_every = 12\nwarmup_steps = 0");
    place.write("config.toml", config.replace("lr = 1e-2", "lr = 1e30\nclip = 0"));
    let run = |device: &str| place.run(&["fit", "config.toml", "--out", &device[7..], "--set", device]);
    let (here, there) = (run("device=cpu"), run("device=gpu"));
    let said = |finished: &Finished| {
        assert_eq!(finished.code, Some(1), "{}", finished.stderr);
        // A driver may write lines of its own.
        let line = finished.stderr.lines().find(|line| line.contains("produced a value that is not finite"));
        let line = line.unwrap_or_else(|| panic!("{}", finished.stderr)).to_owned();
        assert!(line.starts_with("error: "), "{line}");
        line
    };
    assert_eq!(said(&here), said(&there));
    let steps = |run: &str| events(&place, run, "step").iter().map(|event| event["step"].clone()).collect::<Vec<_>>();
    assert_eq!(steps("cpu"), steps("gpu"));
    assert_eq!(events(&place, "gpu", "stopped")[0], events(&place, "cpu", "stopped")[0]);
}

/// On a card with cooperative matrices, at widths that they are used for.
#[test]
fn training_in_f16_follows_that_in_f32() {
    let Some(gpu) = for_tests() else { return };
    let place = Place::new();
    place.write("config.toml", TINY);
    let sizes = ["--set", "backbone.d_model=64", "--set", "task.length=40", "--set", "backbone.train_head=false"];
    let fit = |precision: &str| {
        let more = ["--set", "device=gpu", "--set", precision];
        place.run(&[&["fit", "config.toml", "--out", precision][..], &sizes, &more].concat())
    };
    if !gpu_precisions(gpu.facts()).contains(&Precision::F16) {
        fit("precision=f16").refused(&["`precision` cannot be used", "f16 needs", &gpu.facts().name]);
        return eprintln!("SKIPPED: {} has no products in f16", gpu.facts().name);
    }
    for precision in ["precision=f32", "precision=f16"] {
        let finished = fit(precision);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    }
    let difference = apart(&place, "precision=f32", "precision=f16", "hrm");
    assert!(difference > 0.0 && difference < 1e-3, "{difference:e}");
}

fn mistral(place: &Place) {
    let config = DecoderConfig {
        vocabulary: 256,
        d_model: 64,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        d_ff: 96,
        sliding_window: Some(8),
        init_std: 0.1,
        ..DecoderConfig::mistral_7b()
    };
    init_model(&config, 1, InitType::Bf16, &place.path("model")).unwrap();
    place.write("text", "the quick brown fox jumps over the lazy dog; ".repeat(60));
}

const MISTRAL: &str = r#"
name = "mistral"
precision = "f32"
[task]
kind = "bytes"
path = "text"
length = 24
train_sequences = 64
validation_sequences = 4
test_sequences = 4
[backbone]
kind = "mistral"
model = "model"
quantize = "nf4"
[train]
steps = 4
batch_size = 2
lr = 1e-2
[[adapter]]
kind = "hrm"
state_dim = 4
[[adapter]]
kind = "lora"
rank = 2
"#;

#[test]
fn a_model_in_four_bits_trains_generates_and_computes_the_same() {
    let Some(_) = for_tests() else { return };
    let place = Place::new();
    mistral(&place);
    place.fit(MISTRAL, "cpu", &[]);
    place.fit(MISTRAL, "gpu", &["--set", "device=gpu"]);
    for name in ["hrm", "lora"] {
        let difference = apart(&place, "cpu", "gpu", name);
        assert!(difference < 1e-4, "{name}: losses differ by {difference:e}");
    }
    // Inputs of layers kept in 16 bits: nearly the same course.
    place.fit(MISTRAL, "kept", &["--set", "device=gpu", "--set", "backbone.kept_inputs=bf16"]);
    let difference = apart(&place, "gpu", "kept", "hrm");
    assert!(difference > 0.0 && difference < 2e-2, "{difference:e}");
    let generate = |run: &str, more: &[&str]| {
        let arguments = ["generate", run, "--adapter", "cpu/adapters/hrm", "--prompt", "the q", "--temperature", "0"];
        let finished = place.run(&[&arguments[..], &["--max-tokens", "20"], more].concat());
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        finished.stdout
    };
    let text = generate("cpu", &[]);
    assert!(text.len() > 20, "{text}");
    assert_eq!(text, generate("gpu", &[]), "the run says where");
    assert_eq!(text, generate("cpu", &["--device", "gpu"]));

    let ids: Vec<u8> = (0..2 * 9_i64).flat_map(|i| (i * 37 % 256).to_le_bytes()).collect();
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::I64, vec![2, 9], &ids).unwrap();
    place.write("tokens.safetensors", safetensors::serialize([("input_ids", view)], None).unwrap());
    let forward = |device: &str| {
        let file = format!("{device}.safetensors");
        let arguments = ["forward", "--model", "model", "--adapter", "cpu/adapters/lora", "--quantize", "nf4"];
        let more = ["--tokens", "tokens.safetensors", "--gradients", "-o", &file, "--device", device];
        let finished = place.run(&[&arguments[..], &more].concat());
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        fs::read(place.path(&file)).unwrap()
    };
    let (here, there) = (forward("cpu"), forward("gpu"));
    let (here, there) = (SafeTensors::deserialize(&here).unwrap(), SafeTensors::deserialize(&there).unwrap());
    assert_eq!(here.names().len(), there.names().len());
    for (name, view) in here.iter() {
        let floats =
            |bytes: &[u8]| -> Vec<f32> { bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect() };
        let (here, there) = (floats(view.data()), floats(there.tensor(name).unwrap().data()));
        let largest = here.iter().fold(1e-6, |m: f32, x| m.max(x.abs()));
        assert!(here.iter().zip(&there).all(|(a, b)| (a - b).abs() < 1e-4 * largest), "{name}");
    }
}

/// Trains in a process of its own and pulls the device out on the way: nothing can be done with it afterwards.
#[test]
#[ignore = "started by `a_device_that_is_lost_leaves_the_last_checkpoint`"]
fn lose_the_device() {
    let (Ok(text), Some(gpu)) = (fs::read_to_string("lost.toml"), for_tests()) else { return };
    let (config, _) = Config::load(&text, "lost.toml", &[]).unwrap();
    let prepared = Prepared::within_memory(&config, 1, true).unwrap();
    let (directory, _held) = RunDirectory::begin("lost", Some(Path::new("run"))).unwrap();
    std::thread::spawn(move || {
        while checkpoint::list(Path::new("run/checkpoints")).is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        gpu.destroy();
    });
    let error = fit(&config, prepared, directory, false, &Group::alone()).err().expect("the device was lost");
    assert!(matches!(error.downcast_ref::<Stop>(), Some(Stop::Device(_))), "{error:#}");
    eprintln!("error: {error:#}");
}

#[test]
fn a_device_that_is_lost_leaves_the_last_checkpoint() {
    let Some(gpu) = for_tests() else { return };
    let place = Place::new();
    let config = TINY.replace("steps = 12", "steps = 400\ncheckpoint_every = 5\neval_every = 400\nlog_every = 5");
    place.fit(&config, "whole", &[]);
    place.write("lost.toml", format!("device = \"gpu\"\n{config}"));
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "gpu::lose_the_device", "--ignored", "--nocapture"]).current_dir(place.path("."));
    let lost = Finished::new(&child.output().unwrap());
    assert_eq!(lost.code, Some(0), "{}\n{}", lost.stdout, lost.stderr);
    for part in ["`hrm` stopped at step", &gpu.facts().name, "the last good checkpoint is run/checkpoints/", "--resume"]
    {
        assert!(lost.stderr.contains(part), "{part} in {}", lost.stderr);
    }
    assert_eq!(events(&place, "run", "stopped").len(), 1);
    let resumed = place.run(&["fit", "--out", "run", "--resume", "--set", "device=cpu"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    let difference = apart(&place, "whole", "run", "hrm");
    assert!(difference < 1e-4, "losses differ by {difference:e}");
}
