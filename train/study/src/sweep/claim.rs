//! Claims of cells: which process is at a cell, also where a file system has no locks or does not share them between machines.
//!
//! A claim is a file `.claim-N` in the directory of the cell, made in one step that fails when it is there. Its owner writes it
//! again every [`BEAT`]. One that was not written for [`STALE`] is stale, by the clock of the file system alone: the file's time is
//! compared with that of a file written now. Whoever makes `.claim-(N+1)` has the cell then; among several, one does. The owner of
//! a claim that was taken over ends with its next sign of life when it wakes up. What it writes until then is what the new one writes:
//! runs are deterministic.

use anyhow::{Context, Result};
use hankel_io::{Existing, create_folder, write_file};
use hankel_trainer::format::duration;
use hankel_trainer::parallel::host;
use hankel_trainer::tell;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Time between two signs of life.
pub(super) const BEAT: Duration = Duration::from_secs(20);
/// Time without one after which a claim is stale.
pub(super) const STALE: Duration = Duration::from_secs(300);

const PREFIX: &str = ".claim-";
/// Of files that tell the time, which a process that is killed may leave.
const NOW: &str = ".now-";

/// Contents of a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Owner {
    host: String,
    process: u32,
    /// What no other running system has.
    boot: String,
    /// Whether the owner holds the lock of the directory as well.
    locked: bool,
    /// The number of the file system as it is mounted there: locks of another mount are not seen.
    #[serde(default)]
    device: u64,
}

#[cfg(unix)]
fn device(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(directory).map_or(0, |facts| facts.dev())
}

#[cfg(not(unix))]
fn device(_: &Path) -> u64 {
    0
}

/// A cell that this process has claimed, until the value is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    path: PathBuf,
    beating: Option<(Sender<()>, JoinHandle<()>)>,
}

/// Claims the cell in `directory`, or says who has it. `locked` says that this process holds the directory's lock.
///
/// # Errors
/// When the directory cannot be written.
pub(super) fn claim(directory: &Path, locked: bool) -> Result<Result<Claim, String>> {
    claim_within(directory, locked, (BEAT, STALE))
}

fn claim_within(directory: &Path, locked: bool, (beat, stale): (Duration, Duration)) -> Result<Result<Claim, String>> {
    create_folder(directory)?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
    let own = Owner { host: host(), process: std::process::id(), boot, locked, device: device(directory) };
    let newest = newest(directory)?;
    if let Some((_, path)) = &newest {
        match owner(path) {
            // Gone between the two looks: whoever had it is through.
            None if !path.exists() => return Ok(Err("another process has just left it".to_owned())),
            owner => {
                let who = owner.as_ref().map_or_else(
                    || "a process".to_owned(),
                    |owner| format!("process {} on {}", owner.process, owner.host),
                );
                // A lock that this process got on the same running system was left by the owner.
                let is_here = |owner: Owner| {
                    owner.locked && owner.device == own.device && owner.boot == own.boot && !own.boot.is_empty()
                };
                let is_left = locked && owner.is_some_and(is_here);
                let Some(age) = age(directory, path)? else {
                    return Ok(Err("another process was faster".to_owned()));
                };
                if !is_left && age < stale {
                    return Ok(Err(format!(
                        "{who} is running it (last sign of life {} ago)",
                        duration(age.as_secs_f64())
                    )));
                }
                tell!("{}: {who} has left its claim; taking over", directory.display());
            }
        }
    }
    let number = newest.as_ref().map_or(1, |(number, _)| number.saturating_add(1));
    let path = directory.join(format!("{PREFIX}{number:04}"));
    let text = serde_json::to_vec(&own).context("a claim as JSON")?;
    match OpenOptions::new().write(true).create_new(true).open(&path) {
        Ok(mut file) => {
            let written = file.write_all(&text).and_then(|()| file.sync_all());
            if written.is_err() {
                // A full disk: nobody else is to take it for that of a process at work.
                let _ = fs::remove_file(&path);
            }
            written
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Ok(Err("another process was faster".to_owned()));
        }
        Err(error) => Err(error),
    }
    .with_context(|| format!("cannot write {}", path.display()))?;
    // From here on it goes with the value.
    let mut claim = Claim { path: path.clone(), beating: None };
    for (_, older) in claims(directory)?.into_iter().filter(|(other, _)| *other < number) {
        let _ = fs::remove_file(older);
    }
    for left in left_times(directory, stale)? {
        let _ = fs::remove_file(left);
    }
    let (stop, stopped) = channel();
    let beats = path;
    let alive = move || {
        while stopped.recv_timeout(beat) == Err(RecvTimeoutError::Timeout) {
            if !beats_on(&beats, &text, number) {
                tell!(
                    "error: {} was taken over by another process, since this one gave no sign of life for {}: it ends here",
                    beats.display(),
                    duration(stale.as_secs_f64())
                );
                std::process::exit(2);
            }
        }
    };
    let thread = thread::Builder::new().name("claim".to_owned()).spawn(alive).context("cannot start a thread")?;
    claim.beating = Some((stop, thread));
    Ok(Ok(claim))
}

/// Whether a process has claimed the cell in `directory` and has given a sign of life since.
///
/// # Errors
/// When the directory cannot be read or written.
pub(super) fn is_claimed(directory: &Path) -> Result<bool> {
    let Some((_, path)) = newest(directory)? else { return Ok(false) };
    Ok(age(directory, &path)?.is_some_and(|age| age < STALE))
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.beating.take() {
            drop(stop);
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.path);
    }
}

/// Writes the same text of a claim again, for its time; false when it is not this process's any more.
fn beats_on(path: &Path, text: &[u8], number: u64) -> bool {
    let directory = path.parent().unwrap_or(path);
    // A file system that does not answer for a moment is not a reason to end.
    let Ok(newest) = newest(directory) else { return true };
    if newest.is_none_or(|(newest, _)| newest != number) {
        return false;
    }
    let write = || -> std::io::Result<()> {
        // It is written, not made: a claim that was removed stays so. Nor is it emptied before: others read it meanwhile.
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.write_all(text)?;
        file.sync_all()
    };
    !matches!(write(), Err(error) if error.kind() == ErrorKind::NotFound)
}

/// The claims in a directory with their numbers.
fn claims(directory: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let claim = |path: PathBuf| {
        let number = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.parse().ok()?;
        Some((number, path))
    };
    // One that cannot be listed is not one that is not there.
    let entries = entries.collect::<std::io::Result<Vec<_>>>();
    let entries = entries.with_context(|| format!("cannot read {}", directory.display()))?;
    Ok(entries.into_iter().filter_map(|entry| claim(entry.path())).collect())
}

/// Files that told the time to processes that were killed then.
fn left_times(directory: &Path, stale: Duration) -> Result<Vec<PathBuf>> {
    let mut left = Vec::new();
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(NOW)) {
        let path = entry.path();
        if age(directory, &path)?.is_some_and(|age| age > stale) {
            left.push(path);
        }
    }
    Ok(left)
}

fn newest(directory: &Path) -> Result<Option<(u64, PathBuf)>> {
    Ok(claims(directory)?.into_iter().max())
}

/// Who wrote a claim; `None` while it is being written.
fn owner(path: &Path) -> Option<Owner> {
    serde_json::from_str(&hankel_io::input::read_to_string(path).ok()?).ok()
}

/// How long ago a file was written, by the clock that the file system gives to files, or how far in its future, after it was set back;
/// `None` when it is gone.
fn age(directory: &Path, path: &Path) -> Result<Option<Duration>> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let now = directory.join(format!("{NOW}{}-{}-{number}", host(), std::process::id()));
    let time = |path: &Path| fs::metadata(path).and_then(|facts| facts.modified());
    write_file(&now, b"now", Existing::Replace)?;
    let here = time(&now).with_context(|| format!("cannot read {}", now.display()));
    let _ = fs::remove_file(&now);
    match time(path) {
        Ok(then) => Ok(Some(here?.duration_since(then).unwrap_or_else(|ahead| ahead.duration()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    const QUICK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(1500));

    fn names(directory: &Path) -> Vec<String> {
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        fs::read_dir(directory).unwrap().map(|entry| name(entry.unwrap())).collect()
    }

    #[test]
    fn one_process_has_a_cell_until_it_lets_go() {
        let directory = tempfile::tempdir().unwrap();
        let cell = directory.path().join("cell");
        let held = claim_within(&cell, false, QUICK).unwrap().unwrap();
        // Signs of life keep it.
        thread::sleep(2 * QUICK.1);
        let refused = claim_within(&cell, false, QUICK).unwrap().unwrap_err();
        assert!(refused.contains(&format!("process {} on ", std::process::id())), "{refused}");
        assert!(is_claimed(&cell).unwrap());
        fs::write(cell.join(".now-node7-1-0"), "now").unwrap();
        drop(held);
        assert!(!is_claimed(&cell).unwrap());
        assert_eq!(names(&cell), [".now-node7-1-0"], "one that may be in use");
        thread::sleep(2 * QUICK.1);
        let held = claim_within(&cell, false, QUICK).unwrap().unwrap();
        assert_eq!(names(&cell), [".claim-0001"]);
        drop(held);
    }

    #[test]
    fn a_sign_of_life_is_the_time_and_never_hides_the_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(".claim-0001");
        let own = Owner { host: "node7".into(), process: 1, boot: String::new(), locked: false, device: 0 };
        let text = serde_json::to_vec(&own).unwrap();
        fs::write(&path, &text).unwrap();
        let written = || fs::metadata(&path).unwrap().modified().unwrap();
        let first = written();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let reads = scope.spawn(|| {
                let mut reads = 0;
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(owner(&path).as_ref(), Some(&own), "after {reads} reads");
                    reads += 1;
                }
                reads
            });
            thread::sleep(Duration::from_millis(50));
            for _ in 0..300 {
                assert!(beats_on(&path, &text, 1));
            }
            done.store(true, Ordering::Relaxed);
            assert!(reads.join().unwrap() > 0);
        });
        assert!(written() > first);
    }

    /// A claim of a process that is gone: `boot` is where it ran.
    fn left_behind(cell: &Path, boot: &str, locked: bool) {
        fs::create_dir_all(cell).unwrap();
        let owner = Owner { host: "node7".into(), process: 1, boot: boot.into(), locked, device: device(cell) };
        fs::write(cell.join(".claim-0007"), serde_json::to_vec(&owner).unwrap()).unwrap();
    }

    #[test]
    fn a_claim_of_before_the_clock_was_set_back_is_stale() {
        let directory = tempfile::tempdir().unwrap();
        let cell = directory.path().join("cell");
        left_behind(&cell, "elsewhere", false);
        let file = fs::File::options().write(true).open(cell.join(".claim-0007")).unwrap();
        file.set_modified(std::time::SystemTime::now() + Duration::from_secs(7200)).unwrap();
        assert!(!is_claimed(&cell).unwrap());
        assert!(claim(&cell, false).unwrap().is_ok());
    }

    #[test]
    fn a_stale_claim_is_taken_over_by_one() {
        let directory = tempfile::tempdir().unwrap();
        let cell = directory.path().join("cell");
        left_behind(&cell, "elsewhere", true);
        assert!(claim_within(&cell, true, QUICK).unwrap().unwrap_err().contains("process 1 on node7"));
        thread::sleep(QUICK.1);
        // Without the lock: a second holder of it on the same system would take a fresh claim for one that was left.
        let claims: Vec<_> = thread::scope(|scope| {
            let tries: Vec<_> = (0..8).map(|_| scope.spawn(|| claim_within(&cell, false, QUICK).unwrap())).collect();
            tries.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(claims.iter().filter(|claim| claim.is_ok()).count(), 1);
        assert_eq!(names(&cell), [".claim-0008"]);
        // The former owner sees it.
        assert!(!beats_on(&cell.join(".claim-0007"), b"", 7) && beats_on(&cell.join(".claim-0008"), b"", 8));
    }

    #[test]
    fn a_lock_on_the_same_system_tells_at_once() {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        if boot.is_empty() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        left_behind(directory.path(), boot.trim(), true);
        assert!(claim_within(directory.path(), true, QUICK).unwrap().is_ok());
        left_behind(directory.path(), boot.trim(), false);
        assert!(claim_within(directory.path(), true, QUICK).unwrap().is_err(), "it held no lock that could be left");
    }
}
