//! From files to the examples of each part.

use super::config::TextConfig;
use super::document::{Example, Question, Unread};
use super::formats::SYSTEM;
use super::layout::Layout;
use super::lines::Problems;
use super::render::Renderer;
use super::split::{self, Parts};
use crate::format::counted;
use crate::results::{DataFile, Split};
use crate::settings::Paths;
use crate::tasks::{TaskError, named};
use hankel_core::Random;
use hankel_models::weights::WeightsError;
use rayon::prelude::*;
use std::collections::HashSet;
use std::path::Path;

/// Reads the files of a resolved configuration and divides their examples. Lines and examples that cannot be used are
/// reported on standard error and left out.
///
/// # Errors
/// When a file cannot be read, nothing in it can be used, or a part is left with nothing.
pub(super) fn load(
    config: &TextConfig,
    layout: &Layout,
    renderer: &Renderer,
) -> Result<(Parts, Vec<DataFile>), TaskError> {
    let mut files = Vec::new();
    let mut part = |key, paths: Option<&Paths>| {
        let examples = paths.map(|paths| examples(key, paths, config, (layout, renderer), &mut files));
        examples.transpose()
    };
    let train = part("task.path", Some(&config.path))?.unwrap_or_default();
    let (train, validation, test) = if config.official_split {
        let of = |part: Split| train.iter().filter(|example| example.question.part == Some(part)).cloned().collect();
        let parts: [Vec<Example>; 3] = [Split::Train, Split::Validation, Split::Test].map(of);
        if let Some(empty) =
            ["train", "valid"].iter().zip(&parts).find_map(|(name, part)| part.is_empty().then_some(name))
        {
            let problem = format!("`task.official_split`: no question that can be used has the set {empty:?}");
            return Err(TaskError::Unusable(problem));
        }
        let [train, validation, test] = parts;
        (train, Some(validation), Some(test))
    } else {
        let validation = part("task.validation_path", config.validation_path.as_ref())?;
        (train, validation, part("task.test_path", config.test_path.as_ref())?)
    };
    let given = [("roles", config.roles.is_some()), ("chat_template_kwargs", config.chat_template_kwargs.is_some())];
    if let Some((key, _)) = given.into_iter().find(|(_, is_given)| *is_given)
        && train.iter().all(|example| example.question.messages.is_empty())
    {
        tell!("note: `task.{key}` has no effect: no example of `task.path` is a conversation");
    }
    for name in renderer.unread_variables() {
        tell!("note: `task.chat_template_kwargs.{name}` has no effect: the model's chat template does not read it");
    }
    let dated = train.iter().filter(|example| example.is_dated).count();
    if dated > 0 {
        tell!(
            "warning: the model's chat template writes today's date into {} of `task.path`: on another day a run that is resumed, or \
             evaluated, reads other texts. Give the template a date (`task.chat_template_kwargs = {{ date_string = \"26 Jul 2024\" }}` \
             where it reads that), or write one into it",
            counted(dated, "conversation")
        );
    }
    let is_own = |given: &Option<String>, usual: Option<&str>| given.is_some() && given.as_deref() != usual;
    let format = config.format;
    let given =
        [("prompt", is_own(&config.prompt, format.prompt)), ("answer", is_own(&config.answer, Some(format.answer)))];
    if let Some((key, _)) = given.into_iter().find(|(_, is_given)| *is_given)
        && config.format.is_own
        && train.iter().all(|example| !example.question.messages.is_empty() && example.question.fields.is_empty())
    {
        tell!("note: `task.{key}` has no effect: every example of `task.path` is a conversation");
    }
    let has_fields = |example: &Example| !example.question.fields.is_empty();
    let is_instruction = |example: &&Example| has_fields(example) && !example.question.messages.is_empty();
    if let Some(problem) = renderer.problem_of_chat().filter(|_| train.iter().any(|example| is_instruction(&example))) {
        tell!("warning: instructions are plain prompts, since the model's chat template cannot be used: {problem}");
    }
    let has_system = |example: &Example| example.question.fields.contains_key(SYSTEM);
    let is_text = |example: &Example| has_fields(example) && example.question.messages.is_empty();
    let has_unread = |example: &Example| is_text(example) && has_system(example);
    if format.is_own && !renderer.names(SYSTEM) && train.iter().any(has_unread) {
        tell!("note: `system` beside texts is not read: `task.prompt = \"{{system}}...{{prompt}}\"` reads it");
    }
    if renderer.has_chat() && train.iter().any(is_text) {
        tell!(
            "note: prompts that are texts are read as they stand, without the model's chat template: write them as `messages` to use it"
        );
    }
    let writes = if config.roles.is_some() { "[task.roles] write" } else { "the model's chat template writes" };
    for (what, is_unread) in [
        ("`tools`", (|unread: Unread| unread.tools) as fn(Unread) -> bool),
        ("words beside calls", |unread: Unread| unread.words),
    ] {
        let count = train.iter().filter(|example| is_unread(example.unread)).count();
        if count > 0 {
            tell!("note: {what} in {} of `task.path` are not read: {writes} none", counted(count, "conversation"));
        }
    }
    let seed = config.data_seed.unwrap_or(0);
    let is_drawn = validation.is_none();
    if !is_drawn && config.validation_share != TextConfig::default_share() {
        tell!("note: `task.validation_share` has no effect: validation examples are given");
    }
    let mut parts = split::divide(train, validation, test, (config.format, config.validation_share, seed))
        .map_err(|problem| TaskError::Unusable(format!("`task.path`: {problem}")))?;
    let (held_out, all) = (parts.validation.len(), parts.train.len() + parts.validation.len());
    if is_drawn && held_out as f64 > 2.0 * config.validation_share * all as f64 + 1.0 {
        tell!(
            "warning: {held_out} of {all} examples are held out for validation: those with the same document or prompt stay together. \
             Name a `task.validation_path`, or another `task.data_seed`"
        );
    }
    if parts.left_out > 0 {
        tell!("note: left out: {} on documents that are held out", counted(parts.left_out, "example"));
    }
    if config.test_sequences.is_some() && parts.test.is_empty() {
        tell!("note: `task.test_sequences` has no effect: there is no test part");
    }
    for (name, part, limit) in [
        ("train", &mut parts.train, config.train_sequences),
        ("validation", &mut parts.validation, config.validation_sequences),
        ("test", &mut parts.test, config.test_sequences),
    ] {
        let before = part.len();
        part.retain(|example| example.fits);
        if part.is_empty() && before > 0 {
            let length = config.length;
            return Err(TaskError::Unusable(format!(
                "`task.length`: none of the {before} {name} examples can be used: each is longer than {length} tokens, or has an \
                 empty prompt"
            )));
        }
        if let Some(limit) = limit {
            sample(part, limit, &Random::new(seed, &format!("text.sample.{name}"), 0));
        }
    }
    Ok((parts, files))
}

/// All examples of `file`, as the test part.
///
/// # Errors
/// When it cannot be read, or nothing in it can be used.
pub(super) fn whole(
    config: &TextConfig,
    layout: &Layout,
    renderer: &Renderer,
    file: &Path,
) -> Result<(Parts, Vec<DataFile>), TaskError> {
    let mut files = Vec::new();
    let mut test = examples("--data", &Paths(vec![file.to_owned()]), config, (layout, renderer), &mut files)?;
    test.retain(|example| example.fits);
    Ok((Parts { test, ..Parts::default() }, files))
}

/// The examples of some files, of which at least one fits into a sequence.
fn examples(
    key: &'static str,
    paths: &Paths,
    config: &TextConfig,
    (layout, renderer): (&Layout, &Renderer),
    files: &mut Vec<DataFile>,
) -> Result<Vec<Example>, TaskError> {
    let mut problems = Problems::default();
    let (questions, own) = config.format.read(key, paths, config, &mut problems)?;
    files.extend(own);
    // An example, what is wrong with it, or both: one that does not fit is told now and takes part in the division.
    let made = |question: Question| -> Result<(Option<Example>, Option<String>), WeightsError> {
        let place = format!("{}: ({})", question.origin, question.id);
        Ok(match renderer.example(question, layout.tokenizer()) {
            Err(problem) => (None, Some(format!("{place} {problem}"))),
            Ok(example) => {
                // A token that the model has no embedding for is a fault of this text.
                let objection = |example: &Example| match layout.size(example) {
                    Ok(size) => layout.objection(example, size),
                    Err(error) => Some(error.to_string()),
                };
                let mut problem = objection(&example);
                if let Some(other) = example.other().filter(|_| problem.is_none()) {
                    problem = objection(&other);
                }
                let example = Example { fits: problem.is_none(), ..example };
                (Some(example), problem.map(|problem| format!("{place} {problem}")))
            }
        })
    };
    let found: Vec<_> = questions.into_par_iter().map(made).collect::<Result<_, _>>().map_err(TaskError::Tokenizer)?;
    let mut examples = Vec::with_capacity(found.len());
    for (example, problem) in found {
        examples.extend(example);
        problem.into_iter().for_each(|problem| problems.note(problem));
    }
    if !examples.iter().any(|example| example.fits) {
        let names: Vec<String> = paths.0.iter().map(|path| path.display().to_string()).collect();
        let why = problems.first().map_or_else(|| "it holds no example".to_owned(), str::to_owned);
        return Err(TaskError::Unusable(format!("{}nothing in {} can be used: {why}", named(key), names.join(", "))));
    }
    problems.warn();
    // Documents are divided into tokens when they are read: a few from everywhere tell.
    let every = examples.len().div_ceil(LOOKED_AT).max(1);
    let few: Vec<&Example> = examples.iter().filter(|example| example.fits).step_by(every).collect();
    let is_cut = |example: &&Example| layout.is_cut(example).map(usize::from);
    let cut: usize = few.par_iter().map(is_cut).sum::<Result<usize, _>>().map_err(TaskError::Tokenizer)?;
    if cut > 0 {
        // As they are learned: what is kept for an answer may be what does not fit.
        let is_long =
            |example: &&Example| layout.is_cut(&Example { new_tokens: 0, ..(*example).clone() }).map(usize::from);
        let long: usize = few.par_iter().map(is_long).sum::<Result<usize, _>>().map_err(TaskError::Tokenizer)?;
        let kept = few.iter().map(|example| example.new_tokens).max().unwrap_or(0);
        let beside = if long < cut {
            format!(", {} of them because {kept} are kept for an answer (`task.max_new_tokens`)", cut - long)
        } else {
            String::new()
        };
        let (which, length) = (if every == 1 { "" } else { " that were looked at" }, config.length);
        let names: Vec<String> = paths.0.iter().map(|path| path.display().to_string()).collect();
        tell!(
            "note: of the {} examples{which} in {} {cut} are longer than `task.length` = {length} tokens{beside}: their documents are cut \
             (`task.truncation`)",
            few.len(),
            names.join(", ")
        );
    }
    Ok(examples)
}

/// Examples, at most, of which it is told how many are cut.
const LOOKED_AT: usize = 256;

/// Keeps `limit` examples, drawn at random, in their order.
fn sample(examples: &mut Vec<Example>, limit: usize, random: &Random) {
    if limit < examples.len() {
        let chosen: HashSet<usize> = random.permutation(examples.len()).into_iter().take(limit).collect();
        let mut index = 0..;
        examples.retain(|_| index.next().is_some_and(|index| chosen.contains(&index)));
    }
}
