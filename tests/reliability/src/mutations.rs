//! Damaged input for every reader: no panic, abort, signal or hang, and nothing written where a command failed.

use crate::binaries::{Binaries, run_and_judge};
use crate::kills::{Whole, copy, files};
use crate::random::Random;
use crate::tally::Tally;
use anyhow::Result;
use flate2::{Compression, write::GzEncoder};
use std::fs;
use std::io::Write;
use std::path::Path;

/// A folder of valid inputs, what is damaged in it, and a command that reads that.
struct Target {
    name: &'static str,
    folder: &'static str,
    files: &'static [&'static str],
    is_bt: bool,
    arguments: &'static [&'static str],
    /// Whether it may write although it fails: a run that goes on does.
    writes: bool,
}

const ADAPTER: &[&str] = &["adapters/hrm/adapter_config.json", "adapters/hrm/adapter_model.safetensors"];
const RESULTS: &[&str] = &["metrics.jsonl", "result.json", "config.toml"];

const TARGETS: &[Target] = &[
    Target {
        name: "configuration",
        folder: "data",
        files: &["run.toml"],
        is_bt: false,
        arguments: &["fit", "run.toml", "--dry-run"],
        writes: false,
    },
    Target {
        name: "gzip",
        folder: "data",
        files: &["text.gz"],
        is_bt: false,
        arguments: &["fit", "bytes.toml", "--dry-run"],
        writes: false,
    },
    Target {
        name: "events and result",
        folder: "run",
        files: RESULTS,
        is_bt: false,
        arguments: &["report", ".", "-o", "out/report.html"],
        writes: false,
    },
    Target {
        name: "events",
        folder: "run",
        files: RESULTS,
        is_bt: false,
        arguments: &["export", ".", "--tensorboard", "out"],
        writes: false,
    },
    Target {
        name: "adapter",
        folder: "run",
        files: ADAPTER,
        is_bt: true,
        arguments: &["inspect", "adapters/hrm"],
        writes: false,
    },
    Target {
        name: "adapter",
        folder: "run",
        files: ADAPTER,
        is_bt: true,
        arguments: &["reduce", "adapters/hrm", "-o", "reduced"],
        writes: false,
    },
    Target {
        name: "adapter",
        folder: "run",
        files: ADAPTER,
        is_bt: false,
        arguments: &["eval", ".", "--adapter", "hrm", "--sequences", "4"],
        writes: false,
    },
    Target {
        name: "PEFT",
        folder: "run",
        files: &["adapters/lora/adapter_config.json", "adapters/lora/adapter_model.safetensors"],
        is_bt: false,
        arguments: &["merge", "adapters/lora", "--model", "backbone", "-o", "merged"],
        writes: false,
    },
    Target {
        name: "certificate",
        folder: "run",
        files: &["adapters/hrm-order-3/certificate.json"],
        is_bt: true,
        arguments: &["verify", "adapters/hrm", "adapters/hrm-order-3"],
        writes: false,
    },
    Target {
        name: "checkpoint",
        folder: "half",
        files: &["state.json", "state.safetensors"],
        is_bt: false,
        arguments: &["fit", "--out", ".", "--resume"],
        writes: true,
    },
];

/// Damages a file and runs what reads it, `count` times.
pub fn attack(b: &Binaries, whole: &Whole, place: &Path, count: usize, seed: u64, tally: &mut Tally) -> Result<()> {
    let mut random = Random(seed ^ 2);
    let valid = place.join("valid");
    prepare(whole, &valid)?;
    let cell = place.join("cell");
    for number in 0..count {
        let target = random.choice(TARGETS);
        let _ = fs::remove_dir_all(&cell);
        copy(&valid.join(target.folder), &cell)?;
        let wanted = *random.choice(target.files);
        // The newest checkpoint, whatever its name.
        let Some(path) = files(&cell)?.into_iter().rfind(|path| path.ends_with(wanted)) else { continue };
        let content = mutate(&mut random, &fs::read(&path)?);
        fs::write(&path, content)?;
        let before = files(&cell)?;
        let (code, problem) = run_and_judge(if target.is_bt { &b.bt } else { &b.train }, target.arguments, &cell)?;
        let wrote = code == 2 && !target.writes && files(&cell)? != before;
        let problem = problem.or(wrote.then(|| "failed, and wrote".to_owned()));
        let told = problem.map(|problem| format!("number {number}, {wanted}, {:?}: {problem}", target.arguments));
        tally.add(&format!("damaged {}", target.name), told);
    }
    Ok(())
}

fn prepare(whole: &Whole, valid: &Path) -> Result<()> {
    copy(&whole.run, &valid.join("run"))?;
    copy(&whole.run, &valid.join("half"))?;
    fs::remove_file(valid.join("half/result.json"))?;
    let data = valid.join("data");
    fs::create_dir(&data)?;
    fs::write(data.join("run.toml"), include_str!("run.toml"))?;
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    (0..400).try_for_each(|line| writeln!(packed, "line {line} of a text"))?;
    fs::write(data.join("text.gz"), packed.finish()?)?;
    let bytes = "[task]\nkind = \"bytes\"\npath = \"text.gz\"\nlength = 16\ntrain_sequences = 4\nvalidation_sequences = 2\n\
                 test_sequences = 0\n[backbone]\nlayers = 1\nd_model = 16\nheads = 2\n[train]\nsteps = 1\nbatch_size = 2\n\
                 [[adapter]]\nkind = \"none\"\n";
    Ok(fs::write(data.join("bytes.toml"), bytes)?)
}

/// Flips bits, cuts, repeats, overwrites with bytes that often matter, or replaces a number.
fn mutate(random: &mut Random, content: &[u8]) -> Vec<u8> {
    let mut out = content.to_vec();
    for _ in 0..=random.below(3) {
        if out.is_empty() {
            return out;
        }
        let at = random.below(out.len());
        match random.below(6) {
            0 => out[at] ^= 1 << random.below(8),
            1 => out.truncate(at),
            2 => {
                let end = (at + 1 + random.below(40)).min(out.len());
                let piece = out[at..end].to_vec();
                out.splice(at..at, piece);
            }
            3 => out[at] = *random.choice(b"\0\xff\x7f\x80{}[]\",:-.0e\n\x1b"),
            4 => {
                let end = (at + 1 + random.below(20)).min(out.len());
                out.drain(at..end);
            }
            _ => {
                let digits = out[at..].iter().position(u8::is_ascii_digit).map(|first| at + first);
                if let Some(first) = digits {
                    let end =
                        out[first..].iter().position(|byte| !byte.is_ascii_digit()).map_or(out.len(), |n| first + n);
                    let numbers = ["0", "-1", "18446744073709551616", "1e308", "99999999999", "NaN", "null"];
                    out.splice(first..end, random.choice(&numbers).bytes());
                }
            }
        }
    }
    out
}
