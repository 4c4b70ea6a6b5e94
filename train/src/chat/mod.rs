//! `train chat`: a conversation in the terminal.

mod conversation;
mod input;

use super::device::DeviceArgs;
use super::fit::{ensure_model, load_run};
use super::limit::Limit;
use super::model::{LENGTH, ModelArgs, attach, checked};
use crate::adapters;
use anyhow::{Result, bail, ensure};
use conversation::Conversation;
use hankel_core::{Precision, with_precision};
use hankel_io::terminal;
use hankel_models::chat::ChatTemplate;
use hankel_models::{Generator, Sampling, Tokenizer, TurnStart};
use hankel_trainer::fit::{BackboneSnapshot, Model};
use hankel_trainer::format::counted;
use hankel_trainer::run::interrupt;
use hankel_trainer::tasks::TaskConfig;
use hankel_trainer::tell;
use input::{Input, NotText};
use serde_json::json;
use std::path::{Path, PathBuf};

const HELP: &str = "\
/reset         forget the conversation
/adapter NAME  go on with another adapter (a name of the run's, or a directory), or with none
/again         take back the last answer, and answer again: with another adapter, for one
/help          this list
/quit          end; so does the end of the input (Ctrl-D)
Ctrl-C stops an answer. Anything else is said to the model.";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run directory, or a model: a directory or a GGUF file
    model: PathBuf,
    /// Adapter: a name of the run's or a directory; the backbone alone when left out
    #[arg(long, value_name = "NAME|DIR")]
    adapter: Option<String>,
    /// System message, put before the conversation
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Tokens of an answer, at most
    #[arg(long, default_value_t = 512)]
    max_tokens: usize,
    /// Divides the logits; 0 always takes the most probable token
    #[arg(long, default_value_t = 0.8, allow_negative_numbers = true)]
    temperature: f64,
    /// Draw from the fewest tokens whose probabilities sum to this
    #[arg(long, default_value_t = 0.95)]
    top_p: f64,
    /// Divide the positive logits of tokens that are there already by this, and multiply the negative ones
    #[arg(long, default_value_t = 1.0)]
    repetition_penalty: f64,
    /// Seed of the sampling
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    of_model: ModelArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

/// What is talked to, without an adapter.
struct Partner {
    snapshot: BackboneSnapshot,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    /// Whether a conversation is encoded part by part, with what the tokenizer puts before a text; a model's template writes all of it.
    by_parts: bool,
    /// The run, where it is one.
    run: Option<PathBuf>,
    length: usize,
    precision: Precision,
    turn_start: Option<TurnStart>,
}

/// How a conversation with one adapter ended.
enum Next {
    Quit,
    /// Goes on with this adapter.
    Adapter(String),
}

pub fn run(args: &Args) -> Result<()> {
    let sampling = checked(Sampling {
        temperature: args.temperature,
        top_p: args.top_p,
        repetition_penalty: args.repetition_penalty,
        seed: args.seed,
    })?;
    ensure!(args.max_tokens > 0, "--max-tokens must be at least 1");
    let partner = Partner::load(args)?;
    let mut adapter = args.adapter.clone().unwrap_or_else(|| adapters::NONE.to_owned());
    let mut model = partner.with(&adapter)?;
    if partner.template.is_none() {
        tell!("note: {} has no chat template: what you write is continued as it stands", args.model.display());
    }
    tell!("adapter: {adapter}; /help lists the commands");
    ensure!(
        args.system.is_none() || partner.template.is_some(),
        "--system: {} has no chat template, which would say how it is written: begin your first line with it",
        args.model.display()
    );
    if let (Some(system), Some(template)) = (&args.system, &partner.template) {
        let written = |words: &str| {
            let messages = [json!({"role": "system", "content": words}), json!({"role": "user", "content": "Hello"})];
            template.render(&messages, true)
        };
        // What a template refuses, it says at the first turn.
        let is_written =
            system.trim().is_empty() || written(system).is_err() || written(system) != written(&system.repeat(2));
        ensure!(
            is_written,
            "--system: the chat template of {} does not write it: begin your first line with it",
            args.model.display()
        );
    }
    let mut conversation = Conversation::new(args.system.as_deref());
    let mut input = Input::open()?;
    let mut failed = 0;
    // Through a pipe it ends the program, as everywhere.
    if matches!(input, Input::Typed(_)) {
        interrupt::catch_some()?;
    }
    while let Next::Adapter(name) = with_precision(partner.precision, || {
        talk(args, sampling, &partner, &model, &mut input, &mut conversation, &mut failed)
    })? {
        match partner.with(&name) {
            Ok(other) => {
                (model, adapter) = (other, name);
                tell!("adapter: {adapter}");
            }
            Err(error) => {
                tell!("error: {error:#}");
                failed += 1;
                // Whatever of the backbone was put back meanwhile.
                model = partner.with(&adapter)?;
            }
        }
    }
    // Who types has seen it.
    ensure!(failed == 0 || matches!(input, Input::Typed(_)), "{} failed, as told above", counted(failed, "line"));
    Ok(())
}

/// Reads lines and answers until another adapter is asked for, or the end. Counts the lines that `failed`.
fn talk(
    args: &Args,
    sampling: Sampling,
    partner: &Partner,
    model: &Model,
    input: &mut Input,
    conversation: &mut Conversation,
    failed: &mut usize,
) -> Result<Next> {
    // Keys, values and states of what was said so far; nothing before the first answer.
    let mut generator: Option<Generator<'_>> = None;
    let mut answers = 0_u64;
    loop {
        let line = match input.line()? {
            None => return Ok(Next::Quit),
            Some(Ok(line)) => line,
            Some(Err(NotText)) => {
                tell!("error: this line is not UTF-8, and is left out");
                *failed += 1;
                continue;
            }
        };
        let line = line.trim();
        // A generator that begins anew draws other numbers than those before it.
        let sampling = Sampling { seed: sampling.seed.wrapping_add(answers << 32), ..sampling };
        answers += 1;
        match line.split_once(' ').map_or((line, ""), |(word, rest)| (word, rest.trim())) {
            ("", _) => {}
            ("/quit" | "/exit", _) => return Ok(Next::Quit),
            ("/help", _) => tell!("{HELP}"),
            ("/reset", _) => {
                *conversation = Conversation::new(args.system.as_deref());
                generator = None;
                tell!("the conversation is forgotten");
            }
            ("/adapter", "") => tell!("{}", partner.known()?),
            ("/adapter", name) => return Ok(Next::Adapter(name.to_owned())),
            ("/again", _) => match conversation.take_back() {
                Some(line) => {
                    generator = None;
                    *failed +=
                        usize::from(!exchange(args, sampling, partner, model, conversation, &mut generator, &line));
                }
                None => tell!("nothing has been said yet"),
            },
            (word, _) if word.starts_with('/') => {
                tell!("there is no command {word}: /help lists them");
                *failed += 1;
            }
            _ => *failed += usize::from(!exchange(args, sampling, partner, model, conversation, &mut generator, line)),
        }
    }
}

/// Says a line and writes the answer, and returns whether it did. What goes wrong is told, and the conversation is what it was.
fn exchange<'a>(
    args: &Args,
    sampling: Sampling,
    partner: &Partner,
    model: &'a Model,
    conversation: &mut Conversation,
    generator: &mut Option<Generator<'a>>,
    line: &str,
) -> bool {
    let before = conversation.clone();
    let _catches = interrupt::catch_one();
    let answered = answer(args, sampling, partner, model, conversation, generator, line);
    if let Err(error) = &answered {
        tell!("error: {error:#}");
        (*conversation, *generator) = (before, None);
    }
    answered.is_ok()
}

/// Says a line and writes the answer as it comes. A generator that has read what came before is continued.
fn answer<'a>(
    args: &Args,
    sampling: Sampling,
    partner: &Partner,
    model: &'a Model,
    conversation: &mut Conversation,
    generator: &mut Option<Generator<'a>>,
    line: &str,
) -> Result<()> {
    let tokenizer = &partner.tokenizer;
    let is_first = conversation.tokens().is_empty();
    let said = conversation.say(line, tokenizer, partner.template.as_ref(), partner.by_parts)?;
    let mut own = if let Some(mut own) = generator.take().filter(|_| !said.is_whole) {
        said.ids.iter().try_for_each(|&id| own.push(id))?;
        own
    } else {
        let all = if said.is_whole { said.ids } else { [conversation.tokens(), &said.ids].concat() };
        Generator::new(&*model.backbone, &model.adapters, &all, sampling)?.by_turns(partner.turn_start.clone())
    };
    ensure!(
        is_first || partner.turn_start.is_none() || own.turn_length() < own.tokens().len(),
        "no turn begins here: --turn-start, or the run's `task.turn_start`, must be what the chat template writes before a line of yours"
    );
    let limit = Limit::of(&*model.backbone, partner.turn_start.is_some());
    limit.check(own.turn_length(), "the conversation", "/reset begins it anew")?;
    let mut stream = tokenizer.stream().after(own.tokens())?;
    let (mut text, mut end, mut count) = (String::new(), None, 0);
    while count < args.max_tokens && !interrupt::requested() && own.turn_length() < limit.most() {
        let token = own.step()?;
        if tokenizer.is_end(token) {
            end = Some(token);
            break;
        }
        count += 1;
        let new = stream.push(token)?;
        terminal::data(new.as_bytes())?;
        text.push_str(&new);
    }
    let last = stream.finish()?;
    terminal::data(format!("{last}\n").as_bytes())?;
    text.push_str(&last);
    if end.is_none() {
        if interrupt::requested() {
            tell!("(stopped)");
        } else if !limit.ends(own.turn_length()) {
            tell!("(cut off after {count} tokens; --max-tokens allows more)");
        }
    }
    conversation.answered(&text, end.and_then(|id| tokenizer.piece(id)), own.tokens());
    *generator = Some(own);
    Ok(())
}

impl Partner {
    fn load(args: &Args) -> Result<Self> {
        let model = &args.model;
        let is_run = model.join("config.toml").is_file();
        // How the run has written its conversations.
        let mut of_run = None;
        let (snapshot, place, length, precision, turn_start) = if is_run {
            args.of_model.ensure_none(model)?;
            let mut config = load_run(model)?;
            args.device.apply(&mut config)?;
            let place = config.task.tokenizer_place().or_else(|| config.backbone.path().cloned());
            let Some(place) = place.filter(|path| Tokenizer::is_beside(path)) else {
                bail!("the backbone of {} has no tokenizer: there is nothing to talk to", model.display());
            };
            if let TaskConfig::Text(task) = config.task.clone() {
                of_run = Some(task);
            }
            let snapshot = BackboneSnapshot::from_run(&config, model)?;
            let turn_start = config.task.turn_start()?;
            (snapshot, place, config.task.sequence_length(), config.precision.of_products(), turn_start)
        } else {
            ensure!(
                model.exists(),
                "{} does not exist. Nothing is downloaded: `hf download NAME --local-dir DIR` gets a model of Hugging Face",
                model.display()
            );
            ensure_model(model)?;
            ensure!(Tokenizer::is_beside(model), "{} has no tokenizer: there is nothing to talk to", model.display());
            let (device, precision) = args.device.open()?;
            let snapshot = BackboneSnapshot::from_model(model, args.of_model.quantizes(), precision, device)?;
            (snapshot, model.clone(), LENGTH, precision.of_products(), args.of_model.turn_start(model)?)
        };
        let tokenizer = Tokenizer::load(&place)?;
        tokenizer.check(snapshot.backbone().vocabulary())?;
        let by_roles = of_run.as_ref().is_some_and(|task| task.roles.is_some());
        let template = match of_run {
            Some(task) => task.chat_template(&tokenizer)?,
            None => ChatTemplate::load(&place, &tokenizer)?,
        };
        let by_parts = by_roles || template.is_none();
        let run = is_run.then(|| model.clone());
        Ok(Partner { snapshot, tokenizer, template, by_parts, run, length, precision, turn_start })
    }

    /// The backbone with an adapter, or with `none`.
    fn with(&self, adapter: &str) -> Result<Model> {
        let directory = match &self.run {
            Some(run) => adapters::directory(run, adapter)?,
            None if adapter == adapters::NONE => None,
            None => {
                let directory = Path::new(adapter);
                ensure!(directory.is_dir(), "{adapter} is not a directory");
                Some(directory.to_owned())
            }
        };
        attach(&self.snapshot, directory.as_deref(), self.length)
    }

    /// What can be written after /adapter.
    fn known(&self) -> Result<String> {
        let names = self.run.as_ref().map_or(Ok(Vec::new()), |run| adapters::names(run))?;
        let names: Vec<String> = std::iter::once(adapters::NONE.to_owned()).chain(names).collect();
        Ok(format!("/adapter NAME: {}, or a directory", names.join(", ")))
    }
}
