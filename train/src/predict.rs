//! `train predict`: answers to a file of prompts, which goes on where it was stopped.

use super::device::DeviceArgs;
use super::fit::{ensure_model, load_run};
use super::model::{LENGTH, ModelArgs, attach, checked};
use crate::adapters;
use anyhow::{Context, Result, bail, ensure};
use hankel_core::{Precision, with_precision};
use hankel_io::{Existing, terminal, write_file};
use hankel_models::{Generator, Sampling, StopFilter};
use hankel_trainer::config::Config;
use hankel_trainer::fit::{BackboneSnapshot, Model};
use hankel_trainer::run::interrupt::{self, Interrupted};
use hankel_trainer::run::{Finder, fingerprint};
use hankel_trainer::tasks::TaskConfig;
use hankel_trainer::tasks::text::{Prompt, Prompts, Records};
use hankel_trainer::tell;
use serde_json::{Value, json};
use std::fs::{File, TryLockError};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Between two lines about how far it is, and two times that answers are brought to the disk.
const INTERVAL: Duration = Duration::from_secs(30);
/// Longest sequence of a model that does not say, an answer included.
const LONGEST: usize = 1 << 16;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run directory, or a model: a directory or a GGUF file
    model: PathBuf,
    /// File of prompts: JSON lines (CSV, TSV and JSON arrays too) with `prompt`, `messages`, or whatever fields the run's
    /// `task.prompt` names
    file: PathBuf,
    /// File of answers: a line {"index", "id", "prediction"} for each prompt. Where it is unfinished, it is continued
    #[arg(short, long, value_name = "OUT.jsonl")]
    output: PathBuf,
    /// Adapter: a name of the run's or a directory; the backbone alone when left out
    #[arg(long, value_name = "NAME|DIR")]
    adapter: Option<String>,
    /// Template of the prompt, with the fields of a line in braces; `{prompt}` when left out. For a model only: a run uses its own
    /// `task.prompt`
    #[arg(long, value_name = "TEMPLATE")]
    prompt: Option<String>,
    /// Maximum number of tokens of an answer; when left out, the run's `task.max_new_tokens`, or else 128 (a quarter of the maximum
    /// sequence length, if that is below 512)
    #[arg(long)]
    max_tokens: Option<usize>,
    /// Divides the logits; 0 always takes the most probable token
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    temperature: f64,
    /// Draw from the fewest tokens whose probabilities sum to this
    #[arg(long, default_value_t = 1.0)]
    top_p: f64,
    /// Divide the positive logits of tokens that are there already by this, and multiply the negative ones; what the run says,
    /// or 1, when left out
    #[arg(long)]
    repetition_penalty: Option<f64>,
    /// Stop before this string; may be given several times; what the run says when left out
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Seed of the sampling
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    of_model: ModelArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print the facts as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    ensure!(args.model.exists(), "{} does not exist", args.model.display());
    ensure!(args.max_tokens != Some(0), "--max-tokens must be at least 1");
    ensure!(args.stop.iter().all(|stop| !stop.is_empty()), "--stop \"\" would stop before the first character");
    let run = args.model.join("config.toml").is_file().then(|| load_run(&args.model)).transpose()?;
    if run.is_none() {
        ensure_model(&args.model)?;
    }
    let penalty = run.as_ref().and_then(|config| match &config.task {
        TaskConfig::Text(task) => task.repetition_penalty,
        _ => None,
    });
    let sampling = checked(Sampling {
        temperature: args.temperature,
        top_p: args.top_p,
        repetition_penalty: args.repetition_penalty.or(penalty).unwrap_or(1.0),
        seed: args.seed,
    })?;
    let records = Records::read(&args.file)?;
    let settings = settings(args, run.as_ref(), sampling, &records)?;
    Output::check(&args.output, &settings)?;
    let Loaded { model, prompts, precision, stop } = load(args, run)?;
    some_can_be_used(&args.file, &records, &prompts)?;
    let mut output = Output::open(&args.output, &settings)?;
    interrupt::install("ending after this answer").context("cannot take over Ctrl-C")?;
    with_precision(precision, || answer_all(args, sampling, &records, &mut output, &model, (&prompts, &stop)))
}

/// Fails, before anything is written, where no record is a prompt.
fn some_can_be_used(file: &Path, records: &Records, prompts: &Prompts) -> Result<()> {
    let mut problem = None;
    for (place, record) in &records.records {
        match prompts.of_line(record, &place.to_string()) {
            Ok(_) => return Ok(()),
            Err(what) => _ = problem.get_or_insert_with(|| format!("{}: {what}", records.problems.at(file, *place))),
        }
    }
    let why = problem.as_deref().or(records.problems.first()).unwrap_or("it is empty");
    bail!("nothing in {} can be used: {why}", file.display())
}

fn answer_all(
    args: &Args,
    sampling: Sampling,
    records: &Records,
    output: &mut Output,
    model: &Model,
    (prompts, stop): (&Prompts, &[String]),
) -> Result<()> {
    let total = records.records.len() + records.problems.len();
    let last = records.records.last().map_or(0, |(place, _)| *place);
    ensure!(
        output.done <= last,
        "{} ends with the answer to prompt {}, and the last prompt is {last}: it is of other prompts",
        args.output.display(),
        output.done
    );
    if output.done > 0 {
        tell!("{}: continued after prompt {}", args.output.display(), output.done);
    }
    let mut problems = records.problems.clone();
    let (mut told, mut answered, mut cut, mut divided) = (Instant::now(), 0, 0, false);
    // Places are those of lines, of which some are no prompts.
    let mut done = problems.len();
    let turn_start = prompts.turn_start();
    for (place, record) in &records.records {
        let prompt = match prompts.of_line(record, &place.to_string()) {
            Ok(prompt) => prompt,
            Err(problem) => {
                problems.add(&args.file, *place, &problem);
                done += 1;
                continue;
            }
        };
        divided |= turn_start.iter().any(|start| start.later_turns(&prompt.ids).next().is_some());
        if *place <= output.done {
            done += 1;
            continue;
        }
        if interrupt::requested() {
            output.sync()?;
            let file = args.output.display();
            return Err(
                Interrupted(format!("after {done} of {total} prompts; the same command continues {file}")).into()
            );
        }
        // A seed for each prompt: what is drawn does not depend on where it was interrupted.
        let sampling = Sampling { seed: sampling.seed.wrapping_add((*place as u64) << 32), ..sampling };
        let prediction = answer(model, prompts, &prompt, sampling, stop).with_context(|| format!("prompt {place}"))?;
        let Prompt { id, references, is_cut, .. } = prompt;
        cut += usize::from(is_cut);
        let mut line = json!({ "index": place, "id": id, "prediction": prediction });
        if !references.is_empty() {
            line["references"] = references.into();
        }
        output.push(*place, &line)?;
        (answered, done) = (answered + 1, done + 1);
        if told.elapsed() >= INTERVAL {
            output.sync()?;
            tell!("{done} of {total} prompts");
            told = Instant::now();
        }
    }
    problems.warn();
    if let Some(text) = args.of_model.turn_start.as_ref().filter(|_| !divided) {
        tell!("warning: --turn-start {text:?} begins no second turn in any prompt: attention started afresh nowhere");
    }
    if cut > 0 {
        let is_run = args.model.join("config.toml").is_file();
        let otherwise = if is_run { ", unless `task.truncation` says otherwise" } else { "" };
        tell!("note: {cut} of {answered} prompts were too long and were cut (in the middle{otherwise})");
    }
    output.finish()?;
    let written = args.output.display();
    if args.json {
        let facts = json!({ "output": written.to_string(), "prompts": total, "answered": answered, "left_out": problems.len(), "cut": cut });
        return Ok(terminal::json(&serde_json::to_string_pretty(&facts)?)?);
    }
    Ok(terminal::line(&format!("{written}: {answered} prompts answered"))?)
}

/// The continuation up to the end of the text, a stop string or the most tokens.
fn answer(model: &Model, prompts: &Prompts, prompt: &Prompt, sampling: Sampling, stops: &[String]) -> Result<String> {
    let tokenizer = prompts.tokenizer();
    let generator = Generator::new(&*model.backbone, &model.adapters, &prompt.ids, sampling)?;
    let mut generator = generator.by_turns(prompts.turn_start());
    // By itself, as `fit` and `eval` decode what they score.
    let mut stream = tokenizer.stream();
    let ends = tokenizer.special_ids(stops);
    let (mut filter, mut text) = (StopFilter::new(stops), Vec::new());
    for _ in 0..prompts.new_tokens() {
        let token = generator.step()?;
        if tokenizer.is_end(token) || ends.contains(&token) {
            break;
        }
        text.extend(filter.push(stream.push(token)?.as_bytes()));
        if filter.stopped() {
            break;
        }
    }
    text.extend(filter.push(stream.finish()?.as_bytes()));
    text.extend(filter.finish());
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

/// What answers.
struct Loaded {
    model: Model,
    prompts: Prompts,
    precision: Precision,
    /// Strings before which an answer ends.
    stop: Vec<String>,
}

/// The model, or that of a `run`.
fn load(args: &Args, run: Option<Config>) -> Result<Loaded> {
    let model = &args.model;
    if let Some(mut config) = run {
        ensure!(args.prompt.is_none(), "--prompt: {} is a run, whose `task.prompt` is used", model.display());
        args.of_model.ensure_none(model)?;
        args.device.apply(&mut config)?;
        let prompts = Prompts::of_run(&config.task, args.max_tokens)?;
        let snapshot = BackboneSnapshot::from_run(&config, model)?;
        let adapter = args.adapter.as_ref().map_or(Ok(None), |name| adapters::directory(model, name))?;
        let precision = config.precision.of_products();
        let model = attach(&snapshot, adapter.as_deref(), config.task.sequence_length())?;
        let of_run = if let TaskConfig::Text(task) = &config.task { task.stop.clone() } else { Vec::new() };
        let stop = if args.stop.is_empty() { of_run } else { args.stop.clone() };
        return Ok(Loaded { model, prompts, precision, stop });
    }
    let (device, precision) = args.device.open()?;
    let snapshot = BackboneSnapshot::from_model(model, args.of_model.quantizes(), precision, device)?;
    let length = snapshot.backbone().made_for().unwrap_or(LONGEST);
    let turn_start = args.of_model.turn_start.as_deref();
    ensure!(turn_start != Some(""), "--turn-start \"\" has no tokens");
    let template = (args.prompt.as_deref().unwrap_or("{prompt}"), turn_start);
    let prompts = Prompts::of_model(model, length, args.max_tokens, template)?;
    prompts.tokenizer().check(snapshot.backbone().vocabulary())?;
    let attached = attach(&snapshot, args.adapter.as_deref().map(Path::new), LENGTH)?;
    Ok(Loaded { model: attached, prompts, precision: precision.of_products(), stop: args.stop.clone() })
}

/// What decides the answers: a file of answers is continued with the same only.
fn settings(args: &Args, run: Option<&Config>, sampling: Sampling, records: &Records) -> Result<Value> {
    // Paths that are not UTF-8 may look alike here; JSON has no others.
    let absolute = |path: &Path| {
        let found = path.canonicalize().with_context(|| path.display().to_string())?;
        anyhow::Ok(found.to_string_lossy().into_owned())
    };
    let quantize = args.of_model.quantizes().then_some("nf4");
    let mut settings = json!({
        "model": absolute(&args.model)?,
        "quantize": quantize,
        "adapter": args.adapter,
        "file": records.file.sha256,
        "prompt": args.prompt,
        "max_tokens": args.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "repetition_penalty": sampling.repetition_penalty,
        "stop": args.stop,
        "seed": sampling.seed,
    });
    // Files that were begun before there were turns have no such key.
    if let Some(start) = &args.of_model.turn_start {
        settings["turn_start"] = start.as_str().into();
    }
    for (option, given) in args.device.given() {
        settings[option] = given.into();
    }
    if let Some(name) = &args.adapter {
        let is_of_run = args.model.join("config.toml").is_file();
        let directory = if is_of_run { adapters::directory(&args.model, name)? } else { Some(PathBuf::from(name)) };
        settings[ADAPTER_SHA256] = directory.as_deref().map(fingerprint).transpose()?.into();
    }
    let of_run = args.model.join("backbone");
    let model = match run {
        None => Some(args.model.clone()),
        Some(_) if of_run.is_dir() => Some(of_run),
        Some(config) => config.backbone.path().map(|path| Finder::new(&args.model).find(path)),
    };
    settings[MODEL_SHA256] = model.filter(|model| model.exists()).as_deref().map(fingerprint).transpose()?.into();
    Ok(settings)
}

/// Keys of the fingerprints of the adapter's and the model's files, since other files may come to have their names. Files of answers
/// that were begun by earlier versions have no such keys.
const ADAPTER_SHA256: &str = "adapter_files_sha256";
const MODEL_SHA256: &str = "model_files_sha256";

/// The file of answers, and beside it, until it is finished, what it is made with.
struct Output {
    file: File,
    path: PathBuf,
    settings: PathBuf,
    /// Place of the last prompt that is answered.
    done: usize,
}

/// How a line of the file begins.
const BEGINNING: &[u8] = b"{\"index\":";

impl Output {
    /// Where the settings of an unfinished file are. Fails where `path` is not to be written to.
    fn check(path: &Path, settings: &Value) -> Result<PathBuf> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".unfinished");
        let beside = PathBuf::from(beside);
        hankel_io::check_folder(path)?;
        ensure!(
            (path.is_file() || !path.exists()) && path.as_os_str() != "-",
            "-o {}: expected a regular file, so that the answers can be continued after an interruption",
            path.display()
        );
        // Or not there.
        let is_empty = || path.metadata().map_or(true, |facts| facts.len() == 0);
        if beside.exists() {
            let before: Value = serde_json::from_slice(&hankel_io::input::read(&beside)?)
                .with_context(|| format!("{} is damaged: remove it and {}", beside.display(), path.display()))?;
            ensure!(before.is_object(), "{} is damaged: remove it and {}", beside.display(), path.display());
            // Of a file that was removed, or has no answer yet, nothing is to be finished.
            if let Some((key, was)) = changed(&before, settings).filter(|_| !is_empty()) {
                let now = &settings[key];
                bail!(
                    "{} was begun with another {key} ({was}, now {now}): finish it as it was begun, or name another file",
                    path.display()
                );
            }
        } else {
            ensure!(
                is_empty(),
                "-o {}: this file exists already, and is finished: remove it, or name another",
                path.display()
            );
        }
        Ok(beside)
    }

    /// Begins a file, or opens an unfinished one: a last line that was cut off is taken away.
    fn open(path: &Path, settings: &Value) -> Result<Self> {
        let beside = Self::check(path, settings)?;
        let mut file = hankel_io::open_to_write(path)?;
        let is_locked = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        ensure!(!is_locked, "{} is being written by another process", path.display());
        // Another process may have begun, or finished, meanwhile.
        Self::check(path, settings)?;
        if file.metadata()?.len() == 0 {
            write_file(&beside, &serde_json::to_vec_pretty(settings)?, Existing::Replace)?;
        }
        let there = hankel_io::input::read(path)?;
        let whole = there.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let last = there[..whole].split(|&byte| byte == b'\n').rfind(|line| !line.is_empty());
        let index = |line: &[u8]| serde_json::from_slice::<Value>(line).ok()?["index"].as_u64();
        let cut_off = &there[whole..];
        let done = match last.map(index) {
            _ if !cut_off.starts_with(BEGINNING) && !BEGINNING.starts_with(cut_off) => None,
            None => Some(0),
            Some(index) => index,
        };
        let Some(done) = done else { bail!("the last line of {} is not an answer", path.display()) };
        file.set_len(whole as u64)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Output { file, path: path.to_owned(), settings: beside, done: done as usize })
    }

    fn push(&mut self, place: usize, answer: &Value) -> Result<()> {
        let line = format!("{answer}\n");
        self.file.write_all(line.as_bytes()).with_context(|| format!("cannot write {}", self.path.display()))?;
        self.done = place;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn finish(&mut self) -> Result<()> {
        self.sync()?;
        Ok(hankel_io::remove_whole(&self.settings)?)
    }
}

/// The first setting that differs, and what it was.
fn changed<'a>(before: &'a Value, now: &'a Value) -> Option<(&'a str, &'a Value)> {
    let keys = now.as_object()?.keys().chain(before.as_object()?.keys());
    let of = |settings: &'a Value, key: &str| settings.get(key).unwrap_or(&Value::Null);
    let is_known =
        |key: &&'a String| ![ADAPTER_SHA256, MODEL_SHA256].contains(&key.as_str()) || before.get(key).is_some();
    keys.filter(is_known)
        .map(|key| (key.as_str(), of(before, key), of(now, key)))
        .find_map(|(key, was, is)| (was != is).then_some((key, was)))
}
