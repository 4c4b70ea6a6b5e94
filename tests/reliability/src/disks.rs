//! Disks that are too small, and disks as a power failure leaves them: file systems in files, which root can mount.

use crate::binaries::{Binaries, command, problem_of, run};
use crate::kills::{Whole, judge};
use crate::random::Random;
use crate::tally::Tally;
use anyhow::{Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A mounted file system, which is taken down with it.
struct Mounted(PathBuf);

impl Mounted {
    fn new(arguments: &[&str], at: &Path) -> Result<Self> {
        fs::create_dir_all(at)?;
        shell("mount", arguments, at)?;
        Ok(Mounted(at.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A process that was just killed may hold it for a moment.
        for _ in 0..50 {
            if shell("umount", &[], &self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        eprintln!("{} stays mounted", self.0.display());
    }
}

fn shell(program: &str, arguments: &[&str], last: &Path) -> Result<()> {
    let output = Command::new(program).args(arguments).arg(last).output()?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

fn is_root() -> Result<bool> {
    Ok(Command::new("id").arg("-u").output()?.stdout.trim_ascii() == b"0")
}

/// What goes on in a directory: a run that has begun, or a new one.
fn arguments(place: &Path) -> &'static [&'static str] {
    let begun = place.join("run/config.toml").is_file();
    if begun { &["fit", "--out", "run", "--resume"] } else { &["fit", "run.toml", "--out", "run"] }
}

/// Copies the device of a run `count` times at a random instant, as it is at that moment: what the system has not written is
/// lost. The run goes on on the copy.
pub fn fail_power(b: &Binaries, whole: &Whole, place: &Path, count: usize, seed: u64, tally: &mut Tally) -> Result<()> {
    if count > 0 && !is_root()? {
        bail!("power failures need root, who can mount file systems");
    }
    let mut random = Random(seed ^ 4);
    let (image, copy) = (place.join("disk.img"), place.join("copy.img"));
    for number in 0..count {
        fs::create_dir_all(place)?;
        for path in [&image, &copy] {
            let _ = fs::remove_file(path);
        }
        shell("truncate", &["-s", "64M"], &image)?;
        shell("mkfs.ext4", &["-q"], &image)?;
        // The system writes by itself after one second, or after five.
        let options = if number % 2 == 0 { "loop" } else { "loop,commit=1" };
        let mounted = Mounted::new(&["-o", options, &image.display().to_string()], &place.join("before"))?;
        fs::write(mounted.0.join("run.toml"), crate::kills::CONFIG)?;
        shell("sync", &["-f"], &mounted.0)?;
        let fit = arguments(&mounted.0);
        let mut child = command(&b.train, fit, &mounted.0).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        std::thread::sleep(whole.life.mul_f64(random.below(2500) as f64 / 1000.0));
        shell("kill", &["-STOP"], Path::new(&child.id().to_string()))?;
        shell("cp", &["--sparse=always", &image.display().to_string()], &copy)?;
        child.kill()?;
        child.wait()?;
        drop(mounted);
        let mounted = Mounted::new(&["-o", "loop", &copy.display().to_string()], &place.join("after"))?;
        let output = run(&b.train, arguments(&mounted.0), &mounted.0)?;
        let failed = problem_of(&output).or((!output.status.success())
            .then(|| format!("number {number}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr))));
        let is_done = failed.is_none();
        tally.add("a run goes on after a power failure", failed);
        if is_done {
            judge(whole, &mounted.0.join("run"), tally)?;
        }
    }
    Ok(())
}

/// Trains on `count` disks that are too small, and goes on when there is room.
pub fn fill(b: &Binaries, whole: &Whole, place: &Path, count: usize, seed: u64, tally: &mut Tally) -> Result<()> {
    if count > 0 && !is_root()? {
        bail!("small disks need root, who can mount file systems");
    }
    let mut random = Random(seed ^ 5);
    let pages: u64 = crate::kills::files(&whole.run)?
        .iter()
        .map(|path| Ok(fs::metadata(path)?.len().div_ceil(4096) + 1))
        .sum::<Result<u64>>()?;
    for number in 0..count {
        let size = format!("size={}", 4096 * (2 + random.below(pages as usize + 10)));
        let mounted = Mounted::new(&["-t", "tmpfs", "-o", &size, "tmpfs"], &place.join("small"))?;
        let output = if fs::write(mounted.0.join("run.toml"), crate::kills::CONFIG).is_ok() {
            run(&b.train, arguments(&mounted.0), &mounted.0)?
        } else {
            continue;
        };
        let said = String::from_utf8_lossy(&output.stderr).contains("No space left");
        let silent = (!output.status.success() && !said).then(|| format!("number {number}: it does not say why"));
        tally.add("a run on a disk that is too small", problem_of(&output).or(silent));
        shell("mount", &["-o", "remount,size=256m"], &mounted.0)?;
        fs::write(mounted.0.join("run.toml"), crate::kills::CONFIG)?;
        let output = run(&b.train, arguments(&mounted.0), &mounted.0)?;
        let failed = (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned());
        let is_done = failed.is_none();
        tally.add("it goes on when there is room", failed);
        if is_done {
            judge(whole, &mounted.0.join("run"), tally)?;
        }
    }
    Ok(())
}
