//! `train generate`.

use super::device::DeviceArgs;
use super::fit::{is_model, load_run};
use super::limit::Limit;
use super::model::{LENGTH, ModelArgs, attach, checked};
use crate::adapters;
use anyhow::{Context, Result, bail, ensure};
use hankel_core::{Precision, with_precision};
use hankel_io::terminal;
use hankel_io::{Existing, write_file};
use hankel_models::tokenizer::{TOKENIZER_FILE, TextStream, TokenTexts};
use hankel_models::{Generator, Sampling, StopFilter, Tokenizer, TurnStart};
use hankel_trainer::fit::{BackboneSnapshot, Model};
use hankel_trainer::tasks::TokenKind;
use hankel_trainer::tasks::maestro::events::{Event, decode, token};
use hankel_trainer::tasks::maestro::midi;
use hankel_trainer::tell;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run directory: its backbone
    run: Option<PathBuf>,
    /// Model directory or GGUF file, instead of a run
    #[arg(long, value_name = "DIR", conflicts_with = "run")]
    model: Option<PathBuf>,
    #[command(flatten)]
    of_model: ModelArgs,
    /// Adapter: a name of the run's or a directory; the backbone alone when left out
    #[arg(long, value_name = "NAME|DIR")]
    adapter: Option<String>,
    /// Text to continue. If it is empty (the default), the model begins a text, for which its tokenizer must have a token that begins
    /// one. For a model of performances, events separated by spaces: `velocity6 on60 +480ms +20ms off60`
    #[arg(long, default_value = "")]
    prompt: String,
    /// Tokens to generate (bytes for a model of bytes, events for one of performances)
    #[arg(long, default_value_t = 256, alias = "length")]
    max_tokens: usize,
    /// Divides the logits; 0 always takes the most probable token
    #[arg(long, default_value_t = 0.8, allow_negative_numbers = true)]
    temperature: f64,
    /// Draw from the fewest tokens whose probabilities sum to this
    #[arg(long, default_value_t = 1.0)]
    top_p: f64,
    /// Divide the positive logits of tokens that are there already by this, and multiply the negative ones
    #[arg(long, default_value_t = 1.0)]
    repetition_penalty: f64,
    /// Stop before this string; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Write what a model of performances plays, the prompt included, as a MIDI file; it must not exist
    #[arg(long, value_name = "FILE")]
    midi: Option<PathBuf>,
    /// Seed of the sampling
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn run(args: &Args) -> Result<()> {
    let sampling = checked(Sampling {
        temperature: args.temperature,
        top_p: args.top_p,
        repetition_penalty: args.repetition_penalty,
        seed: args.seed,
    })?;
    if let Some(file) = args.midi.as_ref().filter(|file| file.exists()) {
        bail!("--midi {}: this file exists already: remove it, or name another", file.display());
    }
    args.midi.as_deref().map(hankel_io::check_folder).transpose().context("--midi")?;
    let Loaded { model, codec, precision, turn_start } = load(args)?;
    ensure!(args.stop.iter().all(|stop| !stop.is_empty()), "--stop \"\" would stop before the first character");
    if args.midi.is_some() && !matches!(codec, Codec::Events) {
        bail!("--midi: only a model that was trained on `task.kind = \"maestro\"` writes MIDI");
    }
    with_precision(precision, || generate(args, sampling, &model, &codec, turn_start))
}

fn generate(
    args: &Args,
    sampling: Sampling,
    model: &Model,
    codec: &Codec,
    turn_start: Option<TurnStart>,
) -> Result<()> {
    let prompt = codec.prompt(&args.prompt)?;
    let limit = Limit::of(&*model.backbone, turn_start.is_some());
    let mut generator = Generator::new(&*model.backbone, &model.adapters, &prompt, sampling)?.by_turns(turn_start);
    limit.check(generator.turn_length(), "--prompt", "shorten it")?;
    let mut writer = codec.writer(&prompt)?;
    let mut filter = StopFilter::new(&args.stop);
    let mut open = terminal::data(codec.shown(&args.prompt).as_bytes())?;
    let mut played = prompt.clone();
    for _ in 0..args.max_tokens {
        if !open && args.midi.is_none() {
            return Ok(());
        }
        let token = generator.step()?;
        if codec.is_end(token) {
            break;
        }
        played.push(token);
        open = terminal::data(&filter.push(&writer.push(token)?))?;
        if filter.stopped() || limit.ends(generator.turn_length()) {
            break;
        }
    }
    let mut rest = filter.push(&writer.finish()?);
    rest.extend(filter.finish());
    rest.push(b'\n');
    terminal::data(&rest)?;
    if let Some(file) = &args.midi {
        let notes = decode(played);
        write_file(file, &midi::write(&notes), Existing::Refuse)?;
        tell!("{} notes written to {}", notes.len(), file.display());
    }
    Ok(())
}

/// What continues a prompt.
struct Loaded {
    model: Model,
    codec: Codec,
    precision: Precision,
    turn_start: Option<TurnStart>,
}

fn load(args: &Args) -> Result<Loaded> {
    if let Some(directory) = &args.model {
        ensure!(
            is_model(directory),
            "{} is not a model: expected a directory with config.json, or a GGUF file",
            directory.display()
        );
        let (device, precision) = args.device.open()?;
        let read = Read::of(directory, &args.prompt, &args.stop)?;
        let snapshot = BackboneSnapshot::from_model(directory, args.of_model.quantizes(), precision, device)?;
        let codec = Codec::of_model(directory, read, &snapshot)?;
        let turn_start = args.of_model.turn_start(directory)?;
        let model = attach(&snapshot, args.adapter.as_deref().map(Path::new), LENGTH)?;
        return Ok(Loaded { model, codec, precision: precision.of_products(), turn_start });
    }
    let run = args.run.as_deref().context("name a run directory, or a model directory with --model")?;
    args.of_model.ensure_none(run)?;
    let mut config = load_run(run)?;
    args.device.apply(&mut config)?;
    // The run's own tokenizer, which may be another than the one beside its backbone.
    let tokenizer = config.task.tokenizer_place();
    let read = match (config.task.token_kind(), tokenizer.as_deref().or(config.backbone.path().map(PathBuf::as_path))) {
        (TokenKind::Bytes | TokenKind::Events, _) | (_, None) => None,
        (_, Some(path)) => Read::of(path, &args.prompt, &args.stop)?,
    };
    let turn_start = config.task.turn_start()?;
    let snapshot = BackboneSnapshot::from_run(&config, run)?;
    let precision = config.precision.of_products();
    let codec = match (config.task.token_kind(), config.backbone.path()) {
        (TokenKind::Bytes, _) => Codec::Bytes,
        (TokenKind::Events, _) => Codec::Events,
        _ if read.is_some() => Codec::of_model(run, read, &snapshot)?,
        _ => bail!(
            "{} was trained on `task.kind = {:?}`, which is not text: generation is for bytes, for performances, and \
             for models with a {TOKENIZER_FILE}",
            run.display(),
            config.task.kind()
        ),
    };
    let adapter = args.adapter.as_ref().map_or(Ok(None), |name| adapters::directory(run, name))?;
    let model = attach(&snapshot, adapter.as_deref(), config.task.sequence_length())?;
    Ok(Loaded { model, codec, precision, turn_start })
}

/// How tokens and text belong together.
enum Codec {
    /// A token is a byte.
    Bytes,
    /// A token is an event of a performance.
    Events,
    Tokens(Box<Read>),
}

/// A prompt that a tokenizer has read, and what writes its answer.
struct Read {
    prompt: Vec<u32>,
    texts: TokenTexts,
    /// Special tokens among the strings at which the answer stops.
    stop: Vec<u32>,
}

impl Read {
    /// By the tokenizer of a model, if it has one.
    ///
    /// This comes before the weights, which then use the memory that the tokenizer gives back.
    fn of(model: &Path, text: &str, stop: &[String]) -> Result<Option<Self>> {
        if !Tokenizer::is_beside(model) {
            return Ok(None);
        }
        let tokenizer = Tokenizer::load(model)?;
        let mut prompt = [tokenizer.before(), &tokenizer.encode(text)?].concat();
        if prompt.is_empty() {
            prompt.extend(tokenizer.bos());
        }
        if prompt.is_empty() {
            bail!(
                "--prompt is missing: the tokenizer has no token that begins a text, so the model needs something to continue"
            );
        }
        Ok(Some(Read { prompt, texts: TokenTexts::of(&tokenizer), stop: tokenizer.special_ids(stop) }))
    }
}

impl Codec {
    fn of_model(directory: &Path, read: Option<Read>, snapshot: &BackboneSnapshot) -> Result<Self> {
        let vocabulary = snapshot.backbone().vocabulary();
        if let Some(read) = read {
            read.texts.check(vocabulary)?;
            return Ok(Codec::Tokens(Box::new(read)));
        }
        if vocabulary == 256 {
            return Ok(Codec::Bytes);
        }
        bail!(
            "{} has no {TOKENIZER_FILE}, and with {vocabulary} tokens it is not a model of bytes",
            directory.display()
        )
    }

    /// What the model reads first.
    fn prompt(&self, text: &str) -> Result<Vec<u32>> {
        match self {
            Codec::Bytes if text.is_empty() => bail!(
                "--prompt is missing: a model of bytes has no token that begins a text, so it needs at least one byte to \
                 continue"
            ),
            Codec::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Codec::Events => {
                let event = |name: &str| {
                    token(name).with_context(|| {
                        format!(
                            "--prompt: {name:?} is not an event; expected on60, off60, velocity6 or a time: 10 ms to 150 ms, or a \
                             multiple of 160 ms up to 2720 (500 ms are +480ms +20ms)"
                        )
                    })
                };
                self.shown(text).split_whitespace().map(event).collect()
            }
            Codec::Tokens(read) => Ok(read.prompt.clone()),
        }
    }

    /// The prompt as printed: a performance begins with a velocity.
    fn shown<'a>(&self, prompt: &'a str) -> &'a str {
        if matches!(self, Codec::Events) && prompt.trim().is_empty() { "velocity6" } else { prompt }
    }

    /// Whether nothing comes after a token.
    fn is_end(&self, token: u32) -> bool {
        match self {
            Codec::Bytes | Codec::Events => false,
            Codec::Tokens(read) => read.texts.is_end(token) || read.stop.contains(&token),
        }
    }

    /// Turns what follows `prompt` into text.
    fn writer(&self, prompt: &[u32]) -> Result<TokenWriter<'_>> {
        let texts = match self {
            Codec::Bytes => return Ok(TokenWriter::Bytes),
            Codec::Events => return Ok(TokenWriter::Events),
            Codec::Tokens(read) => &read.texts,
        };
        // The prompt's own text is not written again.
        Ok(TokenWriter::Text(texts.stream().after(prompt)?))
    }
}

/// Text as tokens come.
enum TokenWriter<'a> {
    Bytes,
    Events,
    Text(TextStream<'a>),
}

impl TokenWriter<'_> {
    fn push(&mut self, token: u32) -> Result<Vec<u8>> {
        match self {
            TokenWriter::Bytes => Ok(vec![token as u8]),
            TokenWriter::Events => Ok(Event::of(token).map_or_else(Vec::new, |event| format!(" {event}").into_bytes())),
            TokenWriter::Text(stream) => Ok(stream.push(token)?.into_bytes()),
        }
    }

    fn finish(self) -> Result<Vec<u8>> {
        match self {
            TokenWriter::Text(stream) => Ok(stream.finish()?.into_bytes()),
            TokenWriter::Bytes | TokenWriter::Events => Ok(Vec::new()),
        }
    }
}
