//! `train` on several processes of Open MPI on this machine: the same bits for any number of them, and an end of all when one ends.
//!
//! `cargo test --workspace --features hankel-train/mpi --test mpi`; the long campaign of kills: `-- --ignored --nocapture`.

#[path = "../all/common/mod.rs"]
mod common;
mod faults;
mod gpu;
mod same_bits;

use common::{Finished, Place};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// HRM, LoRA and `AdaLoRA` with dropout, on five micro-batches: no other number of processes divides them.
const CONFIG: &str = r#"
name = "shared"
seed = 3

[task]
kind = "dfa"
length = 12
train_sequences = 64
validation_sequences = 22
test_sequences = 9

[backbone]
layers = 1
d_model = 16
heads = 2
dropout = 0.1
train_head = true

[train]
steps = 20
batch_size = 3
accumulation = 5
lr = 1e-2
eval_sequences = 8
log_every = 10
checkpoint_every = 4

[[adapter]]
kind = "hrm"
state_dim = 4
truncate = { order = 2 }

[[adapter]]
kind = "lora"
rank = 2
dropout = 0.2

[[adapter]]
kind = "adalora"
init_rank = 3
target_rank = 2
dropout = 0.1
tinit = 2
tfinal = 5
delta_t = 2
"#;

/// `mpirun` with its options, for any user on any number of cores.
fn mpirun(place: &Place) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "--bind-to", "none"]).current_dir(place.path(""));
    let settings = [
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        // Not every container lets a process read another one's memory.
        ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
        ("OMPI_MCA_mpi_yield_when_idle", "1"),
        ("RAYON_NUM_THREADS", "1"),
    ];
    command.envs(settings).stdin(std::process::Stdio::null());
    command
}

/// `train` with `arguments` on so many processes.
fn on(place: &Place, processes: usize, arguments: &[&str]) -> Command {
    let mut command = mpirun(place);
    command.args(["-n", &processes.to_string(), env!("CARGO_BIN_EXE_train")]).args(arguments);
    command
}

fn finish(mut command: Command) -> Finished {
    Finished::new(&command.output().expect("mpirun can be started: openmpi-bin is installed"))
}

/// What must not depend on the number of processes: adapters as bytes, the figures of every step and evaluation, and the scores.
fn essence(place: &Place, run: &str) -> Vec<(String, Vec<u8>)> {
    let path = |file: &str| place.path(run).join(file);
    let mut essence = Vec::new();
    for file in adapter_files(&path("adapters")) {
        let file = format!("adapters/{file}");
        essence.push((file.clone(), fs::read(path(&file)).unwrap_or_else(|error| panic!("{file}: {error}"))));
    }
    for line in fs::read_to_string(path("metrics.jsonl")).unwrap().lines() {
        let mut event: Value = serde_json::from_str(line).unwrap();
        let kind = event["event"].as_str().unwrap().to_owned();
        let fields = event.as_object_mut().unwrap();
        for other in ["seconds", "tokens_per_second", "communication", "device_bytes"] {
            fields.remove(other);
        }
        if ["step", "eval", "layers", "truncation"].contains(&&kind[..]) {
            essence.push((kind, serde_json::to_vec(&event).unwrap()));
        }
    }
    let result: Value = serde_json::from_slice(&fs::read(path("result.json")).unwrap()).unwrap();
    for row in result["rows"].as_array().unwrap() {
        let scores = serde_json::to_vec(&[&row["validation"], &row["test"], &row["layers"]]).unwrap();
        essence.push((row["name"].to_string(), scores));
    }
    essence.push(("diverged".to_owned(), serde_json::to_vec(&result["diverged"]).unwrap()));
    essence
}

/// The weights in the directories of a run's adapters.
fn adapter_files(adapters: &Path) -> Vec<String> {
    let list = |folder: &Path| -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let of = |adapter: String| list(&adapters.join(&adapter)).into_iter().map(move |file| format!("{adapter}/{file}"));
    let mut files: Vec<String> = list(adapters).into_iter().flat_map(of).collect();
    files.retain(|file| file.ends_with(".safetensors"));
    files.sort();
    assert!(!files.is_empty(), "{} holds no adapter", adapters.display());
    files
}

#[track_caller]
fn same(place: &Place, one: &str, other: &str) {
    let (left, right) = (essence(place, one), essence(place, other));
    let names = |essence: &[(String, Vec<u8>)]| essence.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&left), names(&right), "{one} and {other}");
    for ((name, left), (_, right)) in left.iter().zip(&right) {
        let shown = [left, right].map(|bytes| String::from_utf8_lossy(bytes));
        assert!(left == right, "{name} of {one} and {other} differs: {} {}", shown[0], shown[1]);
    }
}

/// A place with the configuration, for so many steps and a checkpoint every so often, and with its run `alone` on one process.
fn with_run_alone(steps: usize, every: usize) -> Place {
    let place = Place::new();
    let config = CONFIG.replace("steps = 20", &format!("steps = {steps}"));
    place.fit(&config.replace("every = 4", &format!("every = {every}")), "alone", &[]);
    place
}
