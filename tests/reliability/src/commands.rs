//! SIGKILL at random instants of the commands that write a file or a folder, which are then given again: the same bytes as
//! those of an uninterrupted one, and nothing beside them.

use crate::binaries::{Binaries, command, run};
use crate::kills::{Whole, copy, files};
use crate::random::Random;
use crate::tally::Tally;
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Most kills of a command until it may end.
const EACH: usize = 4;

/// Kills commands `count` times; `models` is what [`crate::models::prepare`] made.
pub fn attack(
    b: &Binaries,
    whole: &Whole,
    models: &Path,
    place: &Path,
    count: usize,
    seed: u64,
    tally: &mut Tally,
) -> Result<()> {
    let mut random = Random(seed ^ 3);
    let base = place.join("base");
    copy(models, &base)?;
    copy(&whole.run, &base.join("run"))?;
    let commands: [(&Path, &[&str]); 9] = [
        (
            &b.train,
            &["predict", "model", "prompts.jsonl", "-o", "out/a.jsonl", "--max-tokens", "16", "--temperature", "1"],
        ),
        (&b.train, &["convert", "model", "-o", "out/a.gguf", "--type", "q4_0"]),
        (&b.train, &["quantize", "model", "-o", "out/a"]),
        (&b.train, &["init-model", "model/config.json", "-o", "out/a"]),
        (&b.train, &["merge", "tuned/adapters/lora", "--model", "model", "-o", "out/a"]),
        (&b.train, &["eval", "run", "--adapter", "hrm", "--record-states", "out/a.safetensors"]),
        (&b.train, &["export", "run", "--tensorboard", "out"]),
        (&b.bt, &["reduce", "run/adapters/hrm", "-o", "out/a", "--order", "3"]),
        (&b.bt, &["inspect", "run/adapters/hrm", "--save", "out/a.npz"]),
    ];
    let mut wholes: Vec<(BTreeMap<String, Vec<u8>>, Duration)> = Vec::new();
    for (program, arguments) in commands {
        fs::create_dir(base.join("out"))?;
        let begun = Instant::now();
        let output = run(program, arguments, &base)?;
        ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        wholes.push((content(&base.join("out"))?, begun.elapsed()));
        fs::remove_dir_all(base.join("out"))?;
    }
    let mut done = 0;
    while done < count {
        let which = random.below(commands.len());
        let ((program, arguments), (expected, life)) = (commands[which], &wholes[which]);
        let name =
            format!("{} {}, killed and given again", program.file_name().unwrap_or_default().display(), arguments[0]);
        fs::create_dir(base.join("out"))?;
        let mut problem = None;
        for attempt in 0.. {
            let mut child = command(program, arguments, &base).stdout(Stdio::null()).spawn()?;
            if attempt < EACH && done < count {
                std::thread::sleep(life.mul_f64(random.below(1000) as f64 / 1000.0));
                if child.try_wait()?.is_none() {
                    child.kill()?;
                    child.wait()?;
                    done += 1;
                    continue;
                }
            }
            let output = child.wait_with_output()?;
            // An output that must not exist may have been finished in the instant of the kill.
            let (error, found) = (String::from_utf8_lossy(&output.stderr), content(&base.join("out"))?);
            let is_there = attempt > 0 && output.status.code() == Some(2) && found == *expected;
            if !(output.status.success() || is_there) {
                problem = Some(format!("{arguments:?}: {}: {error}", output.status));
            } else if found != *expected {
                let names = found.keys().chain(expected.keys()).filter(|name| found.get(*name) != expected.get(*name));
                problem = Some(format!("{arguments:?}: other files: {:?}", names.collect::<Vec<_>>()));
            }
            break;
        }
        tally.add(&name, problem);
        fs::remove_dir_all(base.join("out"))?;
    }
    tally.count("kill -9 of a command that writes", done);
    Ok(())
}

/// All files below a folder by name, hidden ones too.
fn content(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    files(folder)?
        .into_iter()
        .map(|path| Ok((path.strip_prefix(folder)?.display().to_string(), fs::read(path)?)))
        .collect()
}
