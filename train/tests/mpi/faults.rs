//! What goes wrong in one process ends all, and what is saved goes on with any number of them.

use super::{CONFIG, Finished, Place, finish, mpirun, on, same, with_run_alone};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

fn started(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mpirun can be started")
}

/// Waits until a checkpoint whose name contains `name` is there.
fn wait_for(place: &Place, run: &str, name: &str) {
    let begun = Instant::now();
    let is_there = || {
        let entries = fs::read_dir(place.path(run).join("checkpoints")).into_iter().flatten().flatten();
        let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.any(|entry| entry.contains(name) && !entry.starts_with('.'))
    };
    while !is_there() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{name} did not appear in {run}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a signal; false when the process is gone.
fn signal(signal: &str, process: u32) -> bool {
    Command::new("kill").args([signal, &process.to_string()]).status().unwrap().success()
}

/// The processes that `mpirun` started.
fn children(parent: u32) -> Vec<u32> {
    let of_parent = |status: &str| status.lines().any(|line| line == format!("PPid:\t{parent}"));
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut found: Vec<u32> = numbers
        .filter(|number| fs::read_to_string(format!("/proc/{number}/status")).is_ok_and(|status| of_parent(&status)))
        .filter(|number| fs::read_to_string(format!("/proc/{number}/comm")).is_ok_and(|name| name.trim() == "train"))
        .collect();
    found.sort_unstable();
    found
}

/// Whether a process has not ended; one that has may wait for an init that does not collect it.
fn is_running(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            assert!(fs::copy(entry.path(), target).is_ok());
        }
    }
}

/// Begins a run on four processes and asks it to stop after its first checkpoint; false when it was over before.
fn is_interrupted(place: &Place, run: &str) -> bool {
    let mut command = on(place, 4, &begin(run));
    // `mpirun` waits so many seconds, sends SIGTERM, waits again, and kills.
    command.env("OMPI_MCA_odls_base_sigkill_timeout", "3");
    let child = started(command);
    wait_for(place, run, "hrm-step");
    let asked = signal("-INT", child.id());
    let stopped = Finished::new(&child.wait_with_output().unwrap());
    if !asked || place.path(run).join("result.json").exists() {
        return false;
    }
    assert!(stopped.code.is_some_and(|code| code != 0), "{}", stopped.stderr);
    assert_eq!(stopped.stderr.matches("interrupted after step").count(), 1, "{}", stopped.stderr);
    assert!(place.path(run).join("checkpoints").is_dir());
    true
}

#[test]
fn a_run_is_interrupted_on_four_and_resumed_on_one_and_three() {
    let place = with_run_alone(200, 5);
    // A busy machine may end the run before the request arrives: then another one is begun.
    let interrupted = (0..20).map(|round| format!("run-{round}")).find(|run| is_interrupted(&place, run));
    let run = interrupted.expect("one of 20 runs is interrupted before its end");
    for (processes, name) in [(1, "on-1"), (3, "on-3")] {
        copy(&place.path(&run), &place.path(name));
        let arguments = ["fit", "--out", name, "--resume"];
        let resumed = if processes == 1 { place.run(&arguments) } else { finish(on(&place, processes, &arguments)) };
        assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
        same(&place, "alone", name);
    }
}

#[test]
fn a_killed_process_ends_all_of_them() {
    kills(1);
}

/// `cargo test --workspace --features hankel-train/mpi --test mpi fifty -- --ignored --nocapture`
#[test]
#[ignore = "minutes: 50 runs"]
fn fifty_kills_at_random_instants() {
    kills(50);
}

/// The command that begins a run.
fn begin(run: &str) -> [&str; 4] {
    ["fit", "config.toml", "--out", run]
}

/// Kills one of three processes at some instant, and resumes on one to four: as often as asked for.
fn kills(count: u64) {
    let place = with_run_alone(60, 12);
    let mut whole = (count > 1).then(|| {
        let begun = Instant::now();
        assert_eq!(finish(on(&place, 3, &begin("whole"))).code, Some(0));
        begun.elapsed()
    });
    let (mut kills, mut before_the_run, mut behind_it, mut slowest) = (0, 0, 0, Duration::ZERO);
    for round in 0_u32.. {
        if kills == count {
            break;
        }
        let run = format!("run-{round}");
        let started_at = Instant::now();
        let mut child = started(on(&place, 3, &begin(&run)));
        // A first one in the middle of the run, then at any instant of it: multiples of the golden ratio spread evenly.
        match whole {
            Some(whole) if round > 0 => thread::sleep(whole.mul_f64((f64::from(round) * 0.618_034).fract())),
            _ => wait_for(&place, &run, "hrm-step"),
        }
        let mut victims = children(child.id());
        while victims.is_empty() && child.try_wait().unwrap().is_none() {
            thread::sleep(Duration::from_millis(5));
            victims = children(child.id());
        }
        let victim = victims.get(round as usize % victims.len().max(1)).filter(|victim| signal("-KILL", **victim));
        let Some(victim) = victim else {
            // It was over before, and counts for nothing. Instants are spread over the shortest run: the machine may have
            // been busier during the first.
            whole = whole.map(|whole| whole.min(started_at.elapsed()));
            assert_eq!(Finished::new(&child.wait_with_output().unwrap()).code, Some(0));
            continue;
        };
        kills += 1;
        let begun = Instant::now();
        let ended = Finished::new(&child.wait_with_output().unwrap());
        slowest = slowest.max(begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", ended.stderr);
        // The launcher has sent its signals; the system may need a moment to end whom they were for.
        while begun.elapsed() < Duration::from_secs(20) && victims.iter().any(|victim| is_running(*victim)) {
            thread::sleep(Duration::from_millis(20));
        }
        assert!(!victims.iter().any(|victim| is_running(*victim)), "all have ended");
        if ended.code == Some(0) {
            // Behind its last message to the others.
            same(&place, "alone", &run);
            behind_it += 1;
            continue;
        }
        let named = ended.stderr.contains(&format!("PID {victim}")) || ended.stderr.contains("signal 9");
        assert!(named, "{}", ended.stderr);
        let processes = 1 + round as usize % 4;
        let begins = !place.path(&run).join("config.toml").exists();
        before_the_run += u64::from(begins);
        let arguments = if begins { begin(&run) } else { ["fit", "--out", &run, "--resume"] };
        let resumed = finish(on(&place, processes, &arguments));
        assert_eq!(resumed.code, Some(0), "round {round}: {}", resumed.stderr);
        same(&place, "alone", &run);
        fs::remove_dir_all(place.path(&run)).unwrap();
    }
    println!(
        "{count} kills: {before_the_run} before the run was begun, {behind_it} behind its last message; all ended within \
         {slowest:?}"
    );
}

/// One process of another program, configuration or data is refused, by name, before anything is written.
#[test]
fn what_differs_on_one_process_is_refused() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_train");
    let text = |line: &str| line.repeat(200);
    let config = CONFIG.replace("kind = \"dfa\"", "kind = \"bytes\"\npath = \"data.txt\"");
    for folder in ["one", "two"] {
        fs::create_dir(place.path(folder)).unwrap();
        place.write(&format!("{folder}/config.toml"), &config);
        place.write(&format!("{folder}/data.txt"), text("a line of text\n"));
    }
    // The same program with a byte behind its end.
    let mut bytes = fs::read(program).unwrap();
    bytes.push(0);
    let other_program = place.write("train", bytes);
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&other_program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let out = place.path("run").display().to_string();
    let refused = |other_program: &str, expected: &str| {
        let mut command = mpirun(&place);
        command.args(["-n", "1", "--wdir", "one", program, "fit", "config.toml", "--out", &out]);
        command.args([":", "-n", "1", "--wdir", "two", other_program, "fit", "config.toml", "--out", &out]);
        let finished = finish(command);
        assert_eq!(finished.code, Some(2), "{}", finished.stderr);
        assert!(finished.stderr.contains("process 1 on "), "{}", finished.stderr);
        assert!(finished.stderr.contains(expected), "expected {expected:?} in:\n{}", finished.stderr);
        assert!(!place.path("run").exists());
    };
    refused(&other_program.display().to_string(), "another program file");
    place.write("two/data.txt", text("a line of Text\n"));
    refused(program, "another data file data.txt");
    place.write("two/config.toml", config.replace("lr = 1e-2", "lr = 2e-2"));
    refused(program, "another configuration: [train] lr = 0.02, not [train] lr = 0.01");
    place.write("two/config.toml", config.replace("lr = 1e-2", "lrr = 2e-2"));
    refused(program, "unknown key `train.lrr`");
    // The same files are not refused.
    place.write("two/config.toml", &config);
    place.write("two/data.txt", text("a line of text\n"));
    let mut command = mpirun(&place);
    for (folder, more) in [("one", None), ("two", Some(":"))] {
        command.args(more).args(["-n", "1", "--wdir", folder, program, "fit", "config.toml", "--out", &out]);
        command.args(["--set", "train.steps=8"]);
    }
    let finished = finish(command);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
}
