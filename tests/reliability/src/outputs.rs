//! Outputs that are devices, pipes, full or taken, and readers that go away.

use crate::binaries::{Binaries, command, problem_of};
use crate::kills::Whole;
use crate::tally::Tally;
use anyhow::Result;
use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;

/// Runs every command that prints with a closed and with a full output, and writes to what is not a regular file.
pub fn attack(b: &Binaries, whole: &Whole, place: &Path, tally: &mut Tally) -> Result<()> {
    fs::create_dir(place)?;
    let run = whole.run.display().to_string();
    let adapter = whole.run.join("adapters/hrm").display().to_string();
    let reduced = whole.run.join("adapters/hrm-order-3").display().to_string();
    let printing: [(&Path, Vec<&str>); 8] = [
        (&b.bt, vec!["inspect", &adapter]),
        (&b.bt, vec!["inspect", &adapter, "--json"]),
        (&b.bt, vec!["verify", &adapter, &reduced]),
        (&b.bt, vec!["reduce", "nowhere", "-o", "out"]),
        (&b.train, vec!["eval", &run, "--sequences", "4"]),
        (&b.train, vec!["export", &run, "--csv"]),
        (&b.train, vec!["fit", "../run.toml", "--dry-run"]),
        (&b.train, vec!["devices"]),
    ];
    for (program, arguments) in printing {
        let shown = format!("{} {}", program.file_name().unwrap_or_default().display(), arguments[0]);
        // Nobody reads: the pipe is closed before anything is written.
        let mut child = command(program, &arguments, place).spawn()?;
        drop(child.stdout.take());
        let output = child.wait_with_output()?;
        tally.add("a reader that goes away", problem_of(&output).map(|problem| format!("{shown}: {problem}")));
        if cfg!(target_os = "linux") {
            let full = Stdio::from(File::options().write(true).open("/dev/full")?);
            let output = command(program, &arguments, place).stdout(full).spawn()?.wait_with_output()?;
            let said_nothing = output.status.success().then(|| "exit 0".to_owned());
            let problem = problem_of(&output).or(said_nothing.filter(|_| arguments[1] != "nowhere"));
            tally.add("a full output", problem.map(|problem| format!("{shown}: {problem}")));
        }
    }
    #[cfg(unix)]
    devices(b, &run, place, tally)?;
    Ok(())
}

#[cfg(unix)]
fn devices(b: &Binaries, run: &str, place: &Path, tally: &mut Tally) -> Result<()> {
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::process::Command;
    let (pipe, link, precious) = (place.join("pipe"), place.join("link"), place.join("precious"));
    Command::new("mkfifo").arg(&pipe).status()?;
    fs::write(&precious, "precious")?;
    symlink(&precious, &link)?;
    for (name, target) in [("pipe", "pipe"), ("device", "/dev/null"), ("link", "link")] {
        let output = command(&b.train, &["report", run, "-o", target], place).output()?;
        let there = |path: &Path| path.symlink_metadata().map(|found| found.file_type());
        let kept = there(&pipe)?.is_fifo()
            && there(Path::new("/dev/null"))?.is_char_device()
            && there(&link)?.is_symlink()
            && fs::read(&precious)? == b"precious";
        let replaced = (!kept).then(|| "was replaced or written through".to_owned());
        tally.add(&format!("a {name} named as an output stays"), problem_of(&output).or(replaced));
    }
    Ok(())
}
