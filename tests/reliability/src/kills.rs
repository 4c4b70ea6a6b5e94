//! SIGKILL at random instants of a run, which is resumed until it ends: the same bits as those of an uninterrupted run.

use crate::binaries::{Binaries, command, run};
use crate::random::Random;
use crate::tally::Tally;
use anyhow::{Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The configuration of all runs of the campaign.
pub const CONFIG: &str = include_str!("run.toml");
/// Keys that tell of clocks, memory and the machine, not of what was computed.
const CLOCKS: [&str; 8] = [
    "seconds",
    "tokens_per_second",
    "wall_time_seconds",
    "peak_memory_bytes",
    "peak_anonymous_bytes",
    "peak_device_bytes",
    "environment",
    "metrics_bytes",
];
/// Events that say how a run was run, not what it computed.
const OF_THE_WAY: [&str; 5] = ["start", "stage", "checkpoint", "stopped", "finished"];
/// Kills of one run, after which it may end.
const EACH: usize = 12;

/// A run that nothing interrupted.
pub struct Whole {
    /// Its directory.
    pub run: PathBuf,
    /// How long it took.
    pub life: Duration,
    essence: BTreeMap<String, Vec<u8>>,
}

/// Trains without any interruption.
pub fn whole_run(binaries: &Binaries, place: &Path) -> Result<Whole> {
    let folder = place.join("whole");
    fs::create_dir(&folder)?;
    fs::write(place.join("run.toml"), CONFIG)?;
    let begun = Instant::now();
    let output = run(&binaries.train, &["fit", "../run.toml", "--out", "run"], &folder)?;
    ensure!(output.status.success(), "the run itself fails: {}", String::from_utf8_lossy(&output.stderr));
    let run = folder.join("run");
    Ok(Whole { life: begun.elapsed(), essence: essence(&run)?, run })
}

/// Kills runs `count` times.
pub fn attack(b: &Binaries, whole: &Whole, place: &Path, count: usize, seed: u64, tally: &mut Tally) -> Result<()> {
    let mut random = Random(seed);
    fs::create_dir(place)?;
    let (mut done, mut runs) = (0, 0);
    while done < count {
        runs += 1;
        let folder = place.join(format!("run-{runs}"));
        fs::create_dir(&folder)?;
        let run = folder.join("run");
        // Runs that are killed a few times, and runs that are killed again and again within a moment.
        let pace = whole.life / *random.choice(&[1, 1, 4, 12]);
        for attempt in 0.. {
            let begun = run.join("config.toml").is_file();
            let arguments: &[&str] =
                if begun { &["fit", "--out", "run", "--resume"] } else { &["fit", "../../run.toml", "--out", "run"] };
            let mut child = command(&b.train, arguments, &folder).stdout(std::process::Stdio::null()).spawn()?;
            if attempt < EACH && done < count {
                std::thread::sleep(pace.mul_f64(random.below(1000) as f64 / 1000.0));
                if child.try_wait()?.is_none() {
                    child.kill()?;
                    child.wait()?;
                    done += 1;
                    tally.add("kill -9 at a random instant", None);
                    continue;
                }
            }
            let output = child.wait_with_output()?;
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            tally.add("a killed run goes on", (!output.status.success()).then(|| format!("{}: {text}", output.status)));
            if !output.status.success() {
                break;
            }
            judge(whole, &run, tally)?;
            fs::remove_dir_all(&folder)?;
            break;
        }
    }
    Ok(())
}

/// Whether a run ended as the whole one, and left nothing behind.
pub fn judge(whole: &Whole, run: &Path, tally: &mut Tally) -> Result<()> {
    let found = differences(&whole.essence, &essence(run)?);
    tally.add("equal to the whole run", (!found.is_empty()).then(|| format!("{found:?}")));
    let left = leftovers(run)?;
    tally.add("nothing left over", (!left.is_empty()).then(|| format!("{left:?}")));
    Ok(())
}

/// Everything in a run directory that must not depend on how often it was interrupted.
fn essence(run: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for path in files(run)? {
        let name = path.strip_prefix(run)?.to_string_lossy().into_owned();
        let content = fs::read(&path)?;
        let content = if name == "metrics.jsonl" {
            let events = String::from_utf8(content)?;
            let events = events.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
            let kept = events.into_iter().filter(|event| !OF_THE_WAY.iter().any(|kind| event["event"] == *kind));
            serde_json::to_vec(&kept.map(without_clocks).collect::<Vec<_>>())?
        } else if name == "result.json" {
            serde_json::to_vec(&without_clocks(serde_json::from_slice(&content)?))?
        } else if name == ".lock"
            || name == "report.html"
            || name.starts_with("plots")
            || name.starts_with("checkpoints")
        {
            continue;
        } else {
            content
        };
        found.insert(name, content);
    }
    Ok(found)
}

fn without_clocks(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(key, _)| !CLOCKS.contains(&key.as_str()));
            kept.map(|(key, value)| (key, without_clocks(value))).collect()
        }
        Value::Array(all) => all.into_iter().map(without_clocks).collect(),
        other => other,
    }
}

fn differences(one: &BTreeMap<String, Vec<u8>>, other: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let names = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name)));
    names.filter(|name| one.get(*name) != other.get(*name)).cloned().collect()
}

/// Temporary files and parts of checkpoints.
fn leftovers(run: &Path) -> Result<Vec<String>> {
    let mut found: Vec<String> = files(run)?.iter().map(|path| path.display().to_string()).collect();
    found.retain(|path| path.contains(".tmp-") || path.contains(".old-"));
    for entry in fs::read_dir(run.join("checkpoints"))? {
        let path = entry?.path();
        // State, tensors and their checksum.
        if fs::read_dir(&path)?.count() != 3 {
            found.push(path.display().to_string());
        }
    }
    Ok(found)
}

/// All files below a folder.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    found.sort();
    Ok(found)
}

/// Copies a folder with everything in it.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() { copy(&entry.path(), &target)? } else { fs::copy(entry.path(), &target).map(drop)? }
    }
    Ok(())
}
