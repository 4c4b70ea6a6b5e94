//! Sweeps that are stopped, or of which a cell fails, and go on.

use crate::common::{Finished, Place, TINY, stop_at};
use std::fs;
use std::process::Stdio;
use std::time::Duration;

/// A sweep that is killed within a cell goes on with it, repeats no other, and ends with the bits of one that was not.
#[cfg(unix)]
#[test]
fn a_killed_sweep_loses_nothing() {
    let sweep = "[sweep.grid]\nseed = [3, 4]\n\"train.lr\" = [1e-2, 1e30]\n";
    let experiment = TINY.replace("steps = 12", "steps = 60\ncheckpoint_every = 5").replace("seed = 3\n", "") + sweep;
    let place = Place::new();
    place.write("grid.toml", experiment);
    let whole = place.run(&["sweep", "grid.toml", "--out", "whole"]);
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);
    assert!(whole.stdout.contains("2 of 4 cells done, 2 diverged"), "{}", whole.stdout);
    assert!(place.path("whole/tiny/report.html").is_file());
    let arguments = ["sweep", "grid.toml", "--out", "parts"];
    let second = "parts/tiny/seed-4_lr-0.01";
    assert_eq!(stop_at(&place, &arguments, second, "hrm-step-000020", "-KILL").code, None, "killed");
    let first = place.snapshot("parts/tiny/seed-3_lr-0.01");
    let list = place.run(&["sweep", "grid.toml", "--out", "parts", "--list", "--json"]);
    let cells: serde_json::Value = serde_json::from_str(&list.stdout).unwrap();
    let states: Vec<&str> = cells.as_array().unwrap().iter().map(|cell| cell["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["done", "diverged", "begun", "open"]);
    let rest = place.run(&["sweep", "grid.toml", "--out", "parts", "--shard", "1/1"]);
    assert_eq!(rest.code, Some(0), "{}", rest.stderr);
    assert!(rest.stderr.contains("cell 3 of 4") && !rest.stderr.contains("cell 1 of 4"), "{}", rest.stderr);
    assert!(first == place.snapshot("parts/tiny/seed-3_lr-0.01"), "a finished cell is left alone");
    for file in ["backbone/model.safetensors", "adapters/hrm/adapter_model.safetensors"] {
        let read = |out: &str| fs::read(place.path(out).join("tiny/seed-4_lr-0.01").join(file)).unwrap();
        assert!(read("whole") == read("parts"), "{file}");
    }
}

/// Cells that differ in what comes after the pretraining share it: their bits are those of runs that pretrain themselves.
#[cfg(unix)]
#[test]
fn a_sweep_pretrains_a_backbone_once() {
    let sweep = "[sweep.grid]\nseed = [3, 4]\n\"train.lr\" = [1e-2, 3e-3]\n";
    let pretrain = "[pretrain]\nsteps = 200\ncheckpoint_every = 20\nlr = 5e-3\n\n[train]\n";
    let place = Place::new();
    place.write("grid.toml", TINY.replace("[train]\n", pretrain).replace("seed = 3\n", "") + sweep);
    // The first cell is killed in its pretraining, and looks as if another process had it.
    let (arguments, first) = (["sweep", "grid.toml"], "runs/tiny/seed-3_lr-0.01");
    assert_eq!(stop_at(&place, &arguments, first, "pretrain-step-000020", "-KILL").code, None, "killed");
    let held = fs::File::create(place.path(first).join(".lock")).unwrap();
    held.lock().unwrap();
    let others = place.run(&arguments);
    assert_eq!(others.code, Some(0), "{}", others.stderr);
    let at = |text: &str| others.stderr.find(text).unwrap_or_else(|| panic!("{text}: {}", others.stderr));
    assert!(at("cell 3 of 4") < at("cell 4 of 4") && at("cell 4 of 4") < at("cell 2 of 4"), "{}", others.stderr);
    let shared = "the 200 steps of its pretraining are those of seed-4_lr-0.01";
    assert_eq!(others.stderr.matches("of its pretraining are those of").count(), 1, "{}", others.stderr);
    assert!(at(shared) > at("cell 4 of 4"), "{}", others.stderr);
    drop(held);
    // It goes on with what it has, and the one beside it has been through.
    let rest = place.run(&arguments);
    assert!(rest.stderr.contains("resuming `pretrain` after step") && rest.stdout.contains("4 of 4 cells done"));

    place.run(&["fit", "runs/tiny/seed-4_lr-0.003/config.toml", "--out", "alone"]);
    let figures = |run: &str| {
        let result = fs::read_to_string(place.path(run).join("result.json")).unwrap();
        let mut result: serde_json::Value = serde_json::from_str(&result).unwrap();
        let pretraining = result["backbone"]["pretrain"].as_object_mut().unwrap();
        pretraining.remove("seconds");
        let shared_by = pretraining.remove("shared_by");
        (shared_by, result["backbone"].take(), result["rows"][0]["validation"].take())
    };
    let (shared, alone) = (figures("runs/tiny/seed-4_lr-0.003"), figures("alone"));
    assert_eq!((shared.0, alone.0), (Some("seed-4_lr-0.01".into()), None));
    assert_eq!((shared.1, shared.2), (alone.1, alone.2));
    for file in ["backbone/model.safetensors", "adapters/hrm/adapter_model.safetensors"] {
        let read = |run: &str| fs::read(place.path(run).join(file)).unwrap();
        assert!(read("runs/tiny/seed-4_lr-0.003") == read("alone"), "{file}");
    }
    let curve = |run: &str| {
        let lines = fs::read_to_string(place.path(run).join("metrics.jsonl")).unwrap();
        lines.lines().filter(|line| line.contains("\"step\",\"stage\":\"pretrain\"")).count()
    };
    assert!(curve("alone") > 0 && curve("alone") == curve("runs/tiny/seed-4_lr-0.003"));
}

/// A model that is not there is the failure of the cells that name it, and of no other.
#[test]
fn a_missing_model_stops_no_other_cell() {
    let place = Place::new();
    place.fit(TINY, "base", &[]);
    let file = "backbone.toml";
    place.write(
        file,
        TINY.to_owned() + "[sweep.grid]\n\"backbone.path\" = [\"nowhere\", \"base\"]\n[sweep.scales.full]\n",
    );
    let paper = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/paper/longbench.toml");
    let list = place.run(&["sweep", paper, file, "--set", "scale=full", "--list"]);
    assert_eq!(list.code, Some(0), "{}", list.stderr);
    // The line at which the file names the model.
    let model = fs::read_to_string(paper).unwrap().lines().position(|line| line.starts_with("model = ")).unwrap() + 1;
    let problem = format!("longbench.toml:{model}: `backbone.model` names ");
    let of = |name: &str| list.stdout.lines().filter(|line| line.contains(name)).collect::<Vec<_>>();
    for line in of("longbench-full/") {
        assert!(line.contains("failed") && line.contains(&problem) && line.contains("hf download"), "{line}");
    }
    assert!(!of("longbench-full/").is_empty());
    let own = of("tiny-full/");
    assert!(
        own[0].contains("failed") && own[0].contains("`backbone.path` cannot be used") && own[1].contains("open"),
        "{own:?}"
    );
    let finished = place.run(&["sweep", file, "--set", "scale=full"]);
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    assert!(finished.stdout.contains("1 of 2 cells done, 1 failed"), "{}", finished.stdout);
    assert!(
        !place.path("runs/tiny-full/path-nowhere").exists()
            && place.path("runs/tiny-full/path-base/result.json").exists()
    );
    // What no other file would mend is refused before anything is run.
    place.run(&["sweep", file, "--set", "scale=full", "--set", "train.lrr=1"]).refused(&["unknown key `train.lrr`"]);
}

#[cfg(unix)]
#[test]
fn an_interrupted_sweep_says_how_it_goes_on() {
    let place = Place::new();
    let experiment = TINY.replace("steps = 12", "steps = 60\ncheckpoint_every = 5").replace("seed = 3\n", "");
    place.write("grid.toml", experiment + "[sweep.grid]\nseed = [3, 4]\n");
    let within = stop_at(&place, &["sweep", "grid.toml"], "runs/tiny/seed-3", "hrm-step-000010", "-INT");
    assert_eq!(within.code, Some(130), "{}", within.stderr);
    assert!(within.stderr.contains("of `hrm` in tiny/seed-3; the full state is saved"), "{}", within.stderr);
    assert!(
        within.stderr.contains("run the same command to continue") && !within.stderr.contains("--resume"),
        "{}",
        within.stderr
    );
    // With its last cell a sweep is done, whatever was asked for meanwhile.
    let only = ["sweep", "grid.toml", "--task-index", "1"];
    let behind = stop_at(&place, &only, "runs/tiny/seed-4", "-next-", "-INT");
    assert_eq!(behind.code, Some(0), "{}", behind.stderr);
    assert!(behind.stdout.contains("1 of 1 cells done") && place.path("runs/tiny/report.html").exists());
}

/// A cell that cannot be run is written down, the others go on, and it is tried again when what was missing is there.
#[test]
fn a_failed_cell_does_not_stop_a_sweep() {
    let place = Place::new();
    let sweep = "[sweep.grid]\n\"task.path\" = [\"late.txt\", \"there.txt\"]\n";
    place.write("grid.toml", TINY.replace("\"dfa\"", "\"bytes\"") + sweep);
    let text = "a line of text\n".repeat(100);
    place.write("there.txt", &text);
    let arguments = ["sweep", "grid.toml"];
    let first = place.run(&arguments);
    assert_eq!(first.code, Some(1), "{}", first.stderr);
    assert!(first.stderr.contains("1 of the cells failed") && first.stderr.contains("late.txt"), "{}", first.stderr);
    assert!(place.path("runs/tiny/path-there.txt/result.json").is_file());
    assert!(place.path("runs/tiny/path-late.txt/failed.json").is_file());
    place.write("late.txt", &text);
    let second = place.run(&arguments);
    assert_eq!(second.code, Some(0), "{}", second.stderr);
    assert!(second.stdout.contains("2 of 2 cells done"), "{}", second.stdout);
    assert!(!place.path("runs/tiny/path-late.txt/failed.json").exists());
    // One process at a time makes a report, of what is there when its turn comes.
    fs::remove_file(place.path("runs/tiny/report.html")).unwrap();
    let held = fs::File::create(place.path("runs/tiny/.lock")).unwrap();
    held.lock().unwrap();
    let mut waiting = place.command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert!(waiting.try_wait().unwrap().is_none() && !place.path("runs/tiny/report.html").exists());
    drop(held);
    assert!(waiting.wait().unwrap().success() && place.path("runs/tiny/report.html").is_file());
    // Elsewhere products may have been made in another precision, if none is asked for.
    for cell in ["path-late.txt", "path-there.txt"] {
        let config = place.path(&format!("runs/tiny/{cell}/config.toml"));
        let text = fs::read_to_string(&config).unwrap();
        assert!(text.contains("precision = \"f32\""), "{text}");
        fs::write(&config, text.replace("precision = \"f32\"", "precision = \"bf16\"")).unwrap();
    }
    let elsewhere = place.run(&["sweep", "grid.toml"]);
    assert_eq!(elsewhere.code, Some(0), "{}", elsewhere.stderr);
    assert!(elsewhere.stdout.contains("2 of 2 cells done"), "{}", elsewhere.stdout);
    place.run(&["sweep", "grid.toml", "--set", "precision=f32"]).refused(&["was run with another configuration"]);
    place.run(&["sweep", "grid.toml", "--set", "precision=f64"]).refused(&["was run with another configuration"]);
    place.run(&["sweep", "grid.toml", "--set", "seed=9"]).refused(&["was run with another configuration"]);
    place.run(&["sweep", "grid.toml", "--task-index", "2"]).refused(&["there are 2 cells"]);
    // From another directory the same files have other names.
    fs::create_dir(place.path("below")).unwrap();
    let mut below = place.command(&["sweep", "../grid.toml", "--out", "../runs"]);
    let below = Finished::new(&below.current_dir(place.path("below")).output().unwrap());
    assert_eq!(below.code, Some(0), "{}", below.stderr);
    assert!(below.stdout.contains("2 of 2 cells done"), "{}", below.stdout);
}

/// Other seeds of an earlier command belong to the experiment.
#[test]
fn the_report_has_what_earlier_commands_have_run() {
    let place = Place::new();
    place.write("grid.toml", TINY.replace("seed = 3\n", "") + "[sweep.grid]\nseed = [3, 4]\n");
    for (set, cells) in [("seed=[3, 4]", 2), ("seed=7", 3)] {
        let finished = place.run(&["sweep", "grid.toml", "--set", set]);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        let page = fs::read_to_string(place.path("runs/tiny/report.html")).unwrap();
        assert!(page.contains(&format!("{cells} cells at 1 point of the grid")), "{set}: {page}");
    }
}
