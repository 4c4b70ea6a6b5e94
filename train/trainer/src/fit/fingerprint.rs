//! Whether all processes train the same: program, configuration, data and weights are compared before anything is written.

use crate::config::{Config, first_difference};
use crate::format::counted;
use crate::format::hexadecimal;
use crate::parallel::{Group, host};
use crate::results::DataFile;
use crate::run::environment;
use crate::run::model_files::{model_files, named};
use anyhow::{Context, Result, bail};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What is compared as it is.
#[derive(Serialize, Deserialize)]
struct Facts {
    host: String,
    program: String,
    cpu_features: Vec<String>,
    config: String,
    data: Vec<DataFile>,
}

/// A file that is compared by its hash, and which file it is on its machine.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Place {
    what: String,
    #[serde(skip)]
    path: PathBuf,
    /// Machine, device, number, size and times: another process that sees the same need not read it again.
    identity: Option<(String, [i64; 7])>,
}

/// Fails on all processes when one of them has another program, configuration, data file, model, or run to resume than process 0.
/// `data` are the files that its task has read.
///
/// # Errors
/// Names the process and the difference.
pub fn check_same(group: &Group, config: &Config, data: Vec<DataFile>, resumed: Option<&Path>) -> Result<()> {
    if !group.is_shared() {
        return Ok(());
    }
    let here = environment("", "");
    let program = format!("{} ({})", here.hankel, here.commit.as_deref().unwrap_or("unknown commit"));
    let facts = Facts { host: host(), program, cpu_features: here.cpu_features, config: config.to_toml(), data };
    compare(group, facts, files(config, resumed))
}

/// Fails on all processes when one of them has other files of these adapters, by name, than process 0.
///
/// # Errors
/// Names the process and the difference.
pub fn check_same_adapters(group: &Group, adapters: &[(&str, &Path)]) -> Result<()> {
    if !group.is_shared() {
        return Ok(());
    }
    let places = || {
        let mut places = Vec::new();
        for (name, directory) in adapters {
            for (what, path) in named(&format!("file of adapter {name},"), directory)? {
                places.push(place(&what, &path)?);
            }
        }
        Ok(places)
    };
    let hosts = group.exchange(Ok(host()))?;
    compare_files(group, &hosts, places())
}

fn compare(group: &Group, facts: Facts, places: Result<Vec<Place>>) -> Result<()> {
    let all = group.exchange(Ok(facts))?;
    let hosts: Vec<String> = all.iter().map(|facts| facts.host.clone()).collect();
    for (rank, other) in all.iter().enumerate().skip(1) {
        if let Some(difference) = difference(&all[0], other) {
            return refuse(group, &hosts, rank, &difference);
        }
    }
    if let Some((rank, other)) = all.iter().enumerate().find(|(_, other)| other.cpu_features != all[0].cpu_features) {
        crate::tell!(
            "warning: the processor of process {rank} on {} has other instructions ({}) than that of process 0 ({}): a run on \
             other processes may end with other last bits",
            other.host,
            other.cpu_features.join(" "),
            all[0].cpu_features.join(" ")
        );
    }
    compare_files(group, &hosts, places)
}

fn refuse(group: &Group, hosts: &[String], rank: usize, difference: &str) -> Result<()> {
    // Every process has compared the same.
    group.end_together();
    bail!(
        "process {rank} on {} has {difference}: all processes need the same program, configuration, data, model and run directory; \
         nothing was written",
        hosts[rank]
    )
}

fn compare_files(group: &Group, hosts: &[String], places: Result<Vec<Place>>) -> Result<()> {
    let refuse = |rank: usize, difference: &str| refuse(group, hosts, rank, difference);
    let own = group.agree(places)?;
    let places = group.exchange(Ok(own.clone()))?;
    for (rank, of_process) in places.iter().enumerate().skip(1) {
        let lacks = |some: &[Place], other: &[Place]| {
            let is_missing = |place: &&Place| other.iter().all(|known| known.what != place.what);
            some.iter().find(is_missing).map(|place| place.what.clone())
        };
        if let Some(missing) = lacks(&places[0], of_process) {
            return refuse(rank, &format!("no {missing}, which process 0 has"));
        }
        if let Some(more) = lacks(of_process, &places[0]) {
            return refuse(rank, &format!("a {more}, which process 0 does not have"));
        }
        // Tokenizers of two tasks may be called the same.
        if !of_process.iter().map(|place| &place.what).eq(places[0].iter().map(|place| &place.what)) {
            return refuse(rank, "other files of tokenizers than process 0");
        }
    }
    let earlier = &places[..group.rank()];
    let is_seen = |place: &Place, index: usize| {
        let mut earlier = earlier.iter().map(|of_process| &of_process[index].identity);
        place.identity.is_some() && earlier.any(|identity| *identity == place.identity)
    };
    let hash = |(index, place): (usize, &Place)| {
        if is_seen(place, index) { Ok(None) } else { digest(&place.path).map(Some) }
    };
    let hashes = group.exchange(own.par_iter().enumerate().map(hash).collect::<Result<Vec<Option<String>>>>())?;
    for (rank, of_process) in hashes.iter().enumerate().skip(1) {
        for (index, hash) in of_process.iter().enumerate() {
            // What was not read again is the file of an earlier process, whose hash is compared.
            let (Some(hash), Some(first)) = (hash, &hashes[0][index]) else { continue };
            if hash != first {
                let what = &places[0][index].what;
                return refuse(
                    rank,
                    &format!("another {what}: its SHA-256 is {}..., not {}...", &hash[..12], &first[..12]),
                );
            }
        }
    }
    Ok(())
}

fn difference(first: &Facts, other: &Facts) -> Option<String> {
    if first.program != other.program {
        return Some(format!("another program: {}, not {}", other.program, first.program));
    }
    if let Some((wanted, found)) = first_difference(&first.config, &other.config) {
        let is_chosen = wanted.starts_with("precision");
        let how = if is_chosen {
            " (each process chooses what suits its device: write one into the configuration)"
        } else {
            ""
        };
        return Some(format!("another configuration: {found}, not {wanted}{how}"));
    }
    let Some((wanted, found)) = first.data.iter().zip(&other.data).find(|(wanted, found)| wanted != found) else {
        let (wanted, found) = (first.data.len(), other.data.len());
        return (wanted != found).then(|| format!("{}, not {wanted}", counted(found, "data file")));
    };
    Some(format!(
        "another data file {}: its SHA-256 is {}... of {} bytes, not {}... of {} bytes",
        found.path,
        &found.sha256[..found.sha256.len().min(12)],
        found.bytes,
        &wanted.sha256[..wanted.sha256.len().min(12)],
        wanted.bytes
    ))
}

/// The files that decide what is computed, besides the data.
fn files(config: &Config, resumed: Option<&Path>) -> Result<Vec<Place>> {
    let mut places = Vec::new();
    if let Ok(program) = std::env::current_exe() {
        places.push(place("program file", &program)?);
    }
    let mut found = model_files(config)?;
    if let Some(run) = resumed {
        if let Some(newest) = crate::run::checkpoint::list(&run.join("checkpoints")).pop() {
            let name = newest.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.extend(named(&format!("file of checkpoint {name},"), &newest)?);
        }
        if run.join("backbone").is_dir() {
            found.extend(named("file of the run's backbone,", &run.join("backbone"))?);
        }
    }
    for (what, path) in found {
        places.push(place(&what, &path)?);
    }
    Ok(places)
}

fn place(what: &str, path: &Path) -> Result<Place> {
    let facts = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    #[cfg(unix)]
    let identity = {
        use std::os::unix::fs::MetadataExt;
        let (device, number, size) = (facts.dev() as i64, facts.ino() as i64, facts.size() as i64);
        let times = [facts.mtime(), facts.mtime_nsec(), facts.ctime(), facts.ctime_nsec()];
        Some((machine(), [device, number, size, times[0], times[1], times[2], times[3]]))
    };
    #[cfg(not(unix))]
    let identity = {
        drop(facts);
        None
    };
    Ok(Place { what: what.to_owned(), path: path.to_owned(), identity })
}

/// What no other running system has.
#[cfg(unix)]
fn machine() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("{} {}", host(), boot.trim())
}

fn digest(path: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    let mut read = || -> std::io::Result<()> {
        let mut file = hankel_io::input::open(path).map_err(std::io::Error::other)?;
        let mut buffer = vec![0; 1 << 20];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(()),
                n => hash.update(&buffer[..n]),
            }
        }
    };
    read().with_context(|| format!("cannot read {}", path.display()))?;
    Ok(hexadecimal(&hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::{Network, together};

    fn facts(program: &str, config: &str, hash: &str) -> Facts {
        let data = DataFile { path: "d.txt".into(), bytes: 3, sha256: hash.repeat(16) };
        let [program, config] = [program, config].map(str::to_owned);
        Facts { host: "node".into(), program, cpu_features: Vec::new(), config, data: vec![data] }
    }

    /// What three processes say when the second one has other facts, or the files of another model.
    fn said(other: fn() -> Facts, models: [&Path; 2]) -> Vec<Option<String>> {
        together(3, Network::default(), |group| {
            let is_other = group.rank() == 1;
            let facts = if is_other { other() } else { facts("1", "a = 1\n[train]\nlr = 0.1\n", "abcd") };
            let files = named("", models[usize::from(is_other)]).unwrap();
            let place_of = |(name, path): &(String, PathBuf)| place(name.trim(), path);
            compare(group, facts, files.iter().map(place_of).collect()).err().map(|error| error.to_string())
        })
    }

    #[test]
    fn every_process_names_the_difference() {
        let directory = tempfile::tempdir().unwrap();
        let folder = |name: &str, files: &[(&str, &str)]| {
            let folder = directory.path().join(name);
            fs::create_dir(&folder).unwrap();
            files.iter().for_each(|(name, content)| fs::write(folder.join(name), content).unwrap());
            folder
        };
        let model = folder("model", &[("config.json", "{}"), ("model.safetensors", "weights"), (".lock", "")]);
        let same = || facts("1", "a = 1\n[train]\nlr = 0.1\n", "abcd");
        assert_eq!(said(same, [&model, &model]), [None, None, None]);
        let copy = folder("copy", &[("config.json", "{}"), ("model.safetensors", "weights")]);
        assert_eq!(said(same, [&model, &copy]), [None, None, None]);
        let other = folder("other", &[("config.json", "{}"), ("model.safetensors", "Weights")]);
        let less = folder("less", &[("config.json", "{}")]);
        let cases: [(fn() -> Facts, &Path, &str); 6] = [
            (
                || Facts { data: Vec::new(), ..facts("1", "a = 1\n[train]\nlr = 0.1\n", "abcd") },
                &model,
                "0 data files, not 1",
            ),
            (|| facts("2", "a = 1\n[train]\nlr = 0.1\n", "abcd"), &model, "another program: 2, not 1"),
            (|| facts("1", "a = 1\n[train]\nlr = 0.2\n", "abcd"), &model, "[train] lr = 0.2, not [train] lr = 0.1"),
            (
                || facts("1", "a = 1\n[train]\nlr = 0.1\n", "abce"),
                &model,
                "data file d.txt: its SHA-256 is abceabceabce",
            ),
            (same, &other, "another model.safetensors: its SHA-256 is"),
            (same, &less, "no model.safetensors, which process 0 has"),
        ];
        for (other, files, expected) in cases {
            let said = said(other, [&model, files]);
            let message = said[0].as_ref().unwrap();
            assert!(message.contains("process 1 on node has") && message.contains(expected), "{expected}: {message}");
            assert!(said.iter().all(|other| other.as_ref() == Some(message)), "{said:?}");
        }
        let adapters = |second: &Path| {
            together(3, Network::default(), |group| {
                let own = if group.rank() == 1 { second } else { &*model };
                check_same_adapters(group, &[("hrm", own)]).err().map(|error| error.to_string())
            })
        };
        assert_eq!(adapters(&copy), [None, None, None]);
        let said = adapters(&other);
        assert!(
            said.iter().all(|one| one.as_ref().unwrap().contains("has another file of adapter hrm, model.safetensors")),
            "{said:?}"
        );
    }
}
