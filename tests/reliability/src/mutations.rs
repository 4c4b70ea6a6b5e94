//! Damaged input for every reader: no panic, abort, signal or hang, and nothing written where a command failed.

use crate::binaries::{Binaries, run, run_and_judge};
use crate::kills::{Whole, copy, files};
use crate::random::Random;
use crate::tally::Tally;
use anyhow::{Result, ensure};
use flate2::{Compression, write::GzEncoder};
use serde_json::json;
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
    of_models("GGUF", &["model.gguf"], GENERATE_GGUF),
    of_models("GGUF", &["model.gguf"], &["tokenize", "model.gguf", "--text", "Tom \u{20ac} <s>"]),
    of_models("GGUF", &["model.gguf"], &["convert", "model.gguf", "-o", "out.gguf", "--type", "f16"]),
    of_models("GGUF", &["model.gguf"], &["chat", "model.gguf"]),
    of_models("model", MODEL, &["generate", "--model", "model", "--prompt", "Tom", "--max-tokens", "3"]),
    of_models("model", MODEL, &["convert", "model", "-o", "out.gguf"]),
    of_models("model", MODEL, &["quantize", "model", "-o", "out"]),
    of_models("tokenizer", &["model/tokenizer.json"], &["tokenize", "model", "--text", "Tom \u{20ac} <s>"]),
    of_models("chat template", &["model/chat_template.jinja", "chats.jsonl"], &["fit", "chats.toml", "--dry-run"]),
    of_models("chat template", &["model/chat_template.jinja"], &["chat", "model", "--system", "Be brief."]),
    of_models("records", &["prompts.jsonl", "prompts.toml"], &["fit", "prompts.toml", "--dry-run"]),
    of_models("records", &["table.csv"], &["fit", "table.toml", "--dry-run"]),
    of_models("records", &["packed.jsonl.gz"], &["fit", "packed.toml", "--dry-run"]),
    of_models("prompts", &["prompts.jsonl"], PREDICT),
    of_models("PEFT", TUNED, &["convert", "tuned/adapters/lora", "--model", "model", "-o", "out.gguf"]),
    of_models("PEFT", TUNED, &["merge", "tuned/adapters/lora", "--model", "model", "-o", "out"]),
    of_models("MIDI", &["three.midi", "maestro.csv"], &["fit", "music.toml", "--dry-run"]),
    Target {
        name: "system",
        folder: "systems",
        files: &["full.npz"],
        is_bt: true,
        arguments: &["reduce", "full.npz", "-o", "out.npz", "--order", "2"],
        writes: false,
    },
    Target {
        name: "system",
        folder: "systems",
        files: &["full.safetensors"],
        is_bt: true,
        arguments: &["inspect", "full.safetensors"],
        writes: false,
    },
    Target {
        name: "system and certificate",
        folder: "systems",
        files: &["full.npz", "reduced.npz", "reduced.npz.certificate.json"],
        is_bt: true,
        arguments: &["verify", "full.npz", "reduced.npz"],
        writes: false,
    },
];

const GENERATE_GGUF: &[&str] = &["generate", "--model", "model.gguf", "--prompt", "Tom", "--max-tokens", "3"];
const PREDICT: &[&str] = &["predict", "model", "prompts.jsonl", "-o", "out.jsonl", "--max-tokens", "2"];
const MODEL: &[&str] = &["model/config.json", "model/model.safetensors"];
const TUNED: &[&str] = &["tuned/adapters/lora/adapter_config.json", "tuned/adapters/lora/adapter_model.safetensors"];

/// What `train` reads of the models.
const fn of_models(name: &'static str, files: &'static [&'static str], arguments: &'static [&'static str]) -> Target {
    Target { name, folder: "models", files, is_bt: false, arguments, writes: false }
}

/// Damages a file and runs what reads it, `count` times.
pub fn attack(
    b: &Binaries,
    whole: &Whole,
    models: &Path,
    place: &Path,
    count: usize,
    seed: u64,
    tally: &mut Tally,
) -> Result<()> {
    let mut random = Random(seed ^ 2);
    let valid = place.join("valid");
    prepare(b, whole, &valid)?;
    copy(models, &valid.join("models"))?;
    are_valid(b, &valid, &place.join("cell"), tally)?;
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

/// Every command does its work while nothing is damaged: else its errors would mean nothing.
fn are_valid(b: &Binaries, valid: &Path, cell: &Path, tally: &mut Tally) -> Result<()> {
    for target in TARGETS {
        let _ = fs::remove_dir_all(cell);
        copy(&valid.join(target.folder), cell)?;
        let (code, problem) = run_and_judge(if target.is_bt { &b.bt } else { &b.train }, target.arguments, cell)?;
        let refused = (code != 0).then(|| format!("{:?}: exit {code}", target.arguments));
        tally.add("what is not damaged is read", problem.or(refused));
    }
    Ok(())
}

fn prepare(b: &Binaries, whole: &Whole, valid: &Path) -> Result<()> {
    copy(&whole.run, &valid.join("run"))?;
    let systems = valid.join("systems");
    fs::create_dir(&systems)?;
    fs::write(systems.join("full.safetensors"), system())?;
    for [from, to, order] in [["full.safetensors", "full.npz", "4"], ["full.npz", "reduced.npz", "2"]] {
        let output = run(&b.bt, &["reduce", from, "-o", to, "--order", order], &systems)?;
        ensure!(output.status.success(), "bt reduce {from}: {}", String::from_utf8_lossy(&output.stderr));
    }
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

/// A file of five modes with one input and one output.
pub fn system() -> Vec<u8> {
    let (a, b, c) = ([0.95, 0.7, -0.4, 0.2, 0.1], [1.0, -0.5, 0.25, 2.0, 1.0], [0.5, 1.0, 1.5, -0.25, 1.0]);
    let entry =
        |shape: &[usize], first: usize| json!({"dtype": "F64", "shape": shape, "data_offsets": [first, first + 40]});
    let header = json!({"A": entry(&[5], 0), "B": entry(&[5, 1], 40), "C": entry(&[1, 5], 80)}).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.into_bytes());
    file.extend([a, b, c].as_flattened().iter().flat_map(|value: &f64| value.to_le_bytes()));
    file
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
