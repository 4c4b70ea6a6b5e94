//! `train eval`.

mod record;

use super::CheckFailed;
use super::device::DeviceArgs;
use super::fit::load_run;
use super::model::attach;
use crate::adapters;
use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::ValueEnum;
use hankel_core::with_precision;
use hankel_io::terminal;
use hankel_io::{Existing, write_file};
use hankel_models::weights::TRAINED_BACKBONE_FILE;
use hankel_trainer::config::Config;
use hankel_trainer::fit::{
    BackboneSnapshot, Forgetting, check_same, check_same_adapters, evaluate_and_generate, position_warning, to_lines,
};
use hankel_trainer::format::counted;
use hankel_trainer::parallel::Group;
use hankel_trainer::report::Run;
use hankel_trainer::results::{DataFile, Scores, Split, metric};
use hankel_trainer::run::checkpoint;
use hankel_trainer::run::interrupt::{self, Interrupted};
use hankel_trainer::tasks::text::Prediction;
use hankel_trainer::tasks::{Task, TaskConfig};
use hankel_trainer::tell;
use serde_json::json;
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// The file of answers.
const PREDICTIONS: &str = "predictions.jsonl";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run directory: its backbone and task
    run: PathBuf,
    /// Adapter to evaluate: a name in the run, a directory, or `none` (no adapter); may be given several times. When left out, `none` and
    /// all adapters of the run
    #[arg(long, value_name = "NAME|DIR")]
    adapter: Vec<String>,
    /// Part of the run's data to evaluate on; validation when left out
    #[arg(long, value_enum)]
    split: Option<SplitArg>,
    /// Evaluate this whole file instead of a split; it must have the format of the run's own data
    #[arg(long, value_name = "FILE", conflicts_with = "split")]
    data: Option<PathBuf>,
    /// Sequences to evaluate, from the first; all when left out
    #[arg(long, value_name = "N")]
    sequences: Option<NonZeroUsize>,
    /// Write the states of one HRM adapter (named by --adapter) on these sequences to a new file, for `bt reduce --gramians
    /// empirical --states FILE`: 4 bytes per state, layer and token
    #[arg(long, value_name = "FILE.safetensors")]
    record_states: Option<PathBuf>,
    /// Fit an input weight to what one HRM adapter (named by --adapter) reads on these sequences, for `bt reduce --weight FILE`: per
    /// layer a stable vector autoregression of order 0 or 1, whichever makes the held-out sequences (every fifth) more likely
    #[arg(long, value_name = "FILE.safetensors")]
    record_inputs: Option<PathBuf>,
    /// Measure how much an error in each layer of one HRM adapter (named by --adapter) can change the loss on these sequences, for
    /// `bt reduce --budget N --task FILE`
    #[arg(long, value_name = "FILE.json")]
    record_gradients: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print the scores as JSON
    #[arg(long)]
    json: bool,
    /// Directory in which to write a new predictions.jsonl, every answer with its references (only for tasks with generated
    /// answers); when left out, the first free one of RUN/eval-SPLIT, RUN/eval-SPLIT-2 ...; with --data, SPLIT is the name of the
    /// file without its ending
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Exit with code 1 unless METRIC>=REFERENCE or METRIC<=REFERENCE holds for every adapter (and for `none`, if --adapter names it);
    /// may be given several times. REFERENCE is a number, or a row of the run's result on the same data with an optional offset:
    /// accuracy>=0.9, accuracy>=hrm-0.01, loss<=lora+0.05
    #[arg(long, value_name = "CHECK")]
    expect: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SplitArg {
    Train,
    Validation,
    Test,
}

impl SplitArg {
    fn split(self) -> Split {
        match self {
            SplitArg::Train => Split::Train,
            SplitArg::Validation => Split::Validation,
            SplitArg::Test => Split::Test,
        }
    }
}

impl Args {
    fn split(&self) -> Split {
        match self.data {
            Some(_) => Split::Test,
            None => self.split.map_or(Split::Validation, SplitArg::split),
        }
    }

    /// Whether the task of `[forgetting]` is evaluated, too: where a result has this metric.
    fn measures_forgetting(&self) -> bool {
        self.data.is_none() && self.split() == Split::Validation
    }

    /// Where the answers go: what is there of an earlier evaluation stays.
    fn predictions(&self) -> PathBuf {
        if let Some(out) = &self.out {
            return out.join(PREDICTIONS);
        }
        first_free(&self.run, &format!("eval-{}", self.part()))
    }

    /// What is evaluated, in a word.
    fn part(&self) -> String {
        let name = self.data.as_ref().and_then(|file| file.file_stem());
        name.map_or_else(|| self.split().name().to_owned(), |name| name.to_string_lossy().into_owned())
    }
}

/// The answers in `folder`, or in the first numbered one that has none. A link to nothing is something, too.
fn first_free(run: &Path, folder: &str) -> PathBuf {
    let numbered = |number: u32| if number == 1 { folder.to_owned() } else { format!("{folder}-{number}") };
    let mut all = (1..=u32::MAX).map(|number| run.join(numbered(number)).join(PREDICTIONS));
    all.find(|file| file.symlink_metadata().is_err()).expect("there are more numbers than files")
}

/// Writes the answers where they are asked for, or to the first number that no other evaluation has taken.
fn write_predictions(args: &Args, lines: &[u8]) -> Result<PathBuf> {
    loop {
        let path = args.predictions();
        path.parent().map(hankel_io::create_folder).transpose()?;
        match write_file(&path, lines, Existing::Refuse) {
            Err(hankel_io::Error::Exists(_)) if args.out.is_none() => {}
            written => return Ok(written.map(|()| path)?),
        }
    }
}

/// What an evaluation needs, set up.
struct Ready {
    checks: Vec<Check>,
    config: Config,
    task: Box<dyn Task>,
    /// That of `[forgetting]`, where it is evaluated, too.
    other: Option<Box<dyn Task>>,
    snapshot: BackboneSnapshot,
}

pub fn run(args: &Args, group: &Group) -> Result<()> {
    let ready = group.agree(prepare(args))?;
    let others = ready.other.iter().flat_map(|task| task.data_files());
    check_same(group, &ready.config, ready.task.data_files().into_iter().chain(others).collect(), Some(&args.run))?;
    let precision = ready.config.precision.of_products();
    with_precision(precision, || evaluate(group, args, ready))
}

fn prepare(args: &Args) -> Result<Ready> {
    // A result has no figures on another file.
    let known = args.data.is_none().then(|| args.split());
    let checks = args.expect.iter().map(|text| Check::parse(text, &args.run, (known, args.sequences)));
    let checks = checks.collect::<Result<Vec<_>>>()?;
    let mut config = load_run(&args.run)?;
    check_metrics(&checks, args)?;
    args.device.apply(&mut config)?;
    let task = match &args.data {
        Some(file) => config.task.build_on(file)?,
        None => config.task.build().with_context(|| args.run.join("config.toml").display().to_string())?,
    };
    let other = config.forgetting.as_ref().filter(|_| args.measures_forgetting());
    let other = other.map(TaskConfig::build).transpose().context("in `[forgetting]`")?;
    if args.data.is_none() {
        let of_other = other.as_ref().map(|task| task.data_files()).unwrap_or_default();
        // Pretraining and forgetting may have files that are not looked at here.
        let pretrains_on_others = config.pretrain.as_ref().is_some_and(|pretrain| pretrain.task.is_some());
        let is_all = !pretrains_on_others && (config.forgetting.is_none() || other.is_some());
        check_data(&args.run, &task.data_files(), &of_other, is_all)?;
    }
    let snapshot = BackboneSnapshot::from_run(&config, &args.run)?;
    if let Some(warning) = position_warning(&**snapshot.backbone(), &config.task) {
        tell!("{warning}");
    }
    Ok(Ready { checks, config, task, other, snapshot })
}

/// Fails where a data file of the task, or of that of `[forgetting]`, is not the one of the run's result, or of its newest checkpoint:
/// another division would test what was trained on. So would more files, or fewer, which is told where these are all that the run has (`is_all`).
fn check_data(run: &Path, are: &[DataFile], of_other: &[DataFile], is_all: bool) -> Result<()> {
    let were = match Run::load(run)?.result {
        Some(result) => result.data,
        None => match checkpoint::list(&run.join("checkpoints")).pop() {
            Some(newest) => checkpoint::state(&newest)?.data,
            None => return Ok(()),
        },
    };
    let (had, has) = (were.len(), are.len() + of_other.len());
    // Runs of earlier versions do not say what they had.
    if had > 0 && (had < has || (is_all && had > has)) {
        bail!(
            "the run was trained with {}, and there are {has} now: put them back, or evaluate on a file of its own with --data",
            counted(had, "file")
        );
    }
    // Behind those of the task stand those of pretraining, and at the end those of `[forgetting]`.
    let at_the_end = were.iter().rev().zip(of_other.iter().rev());
    for (was, is) in were.iter().zip(are).chain(at_the_end) {
        if (was.bytes, &was.sha256) != (is.bytes, &is.sha256) {
            bail!(
                "{} is not the file that the run was trained with: it has {} bytes and the SHA-256 {}, that one had {} and {}; put that \
                 file back, or evaluate on a file of its own with --data",
                is.path,
                is.bytes,
                is.sha256,
                was.bytes,
                was.sha256
            );
        }
    }
    Ok(())
}

fn evaluate(group: &Group, args: &Args, ready: Ready) -> Result<()> {
    let Ready { checks, config, task, other, snapshot } = ready;
    let (config, task, snapshot) = (&config, &*task, &snapshot);
    let (split, part) = (args.split(), args.part());
    let given = args.out.as_ref().map(|_| args.predictions()).filter(|file| file.exists());
    if let Some(file) = given {
        bail!("{} has the answers of an earlier evaluation: name another directory with -o", file.display());
    }
    let answers = task.as_text().is_some_and(|text| text.scoring().generate);
    ensure!(
        answers || args.out.is_none(),
        "-o: the task of {} has no answers to write: its scores are printed",
        args.run.display()
    );
    let available = task.sequences(split);
    if available == 0 {
        bail!("the task of {} has no {part} sequences", args.run.display());
    }
    record::check(args)?;
    let names = if args.adapter.is_empty() {
        adapters::tell_missing(config, &args.run)?;
        std::iter::once(adapters::NONE.to_owned()).chain(adapters::names(&args.run)?).collect()
    } else {
        args.adapter.clone()
    };
    // A run that is still written may have one more on another process.
    let names = group.of_root(Ok(names))?;
    let directories = names.iter().map(|name| adapters::directory(&args.run, name)).collect::<Result<Vec<_>>>();
    let directories = group.agree(directories)?;
    let named = names.iter().zip(&directories).filter_map(|(name, directory)| Some((&**name, directory.as_deref()?)));
    check_same_adapters(group, &named.collect::<Vec<_>>())?;
    interrupt::install("ending after this batch").context("cannot take over Ctrl-C")?;
    let forgetting = match other {
        None => None,
        Some(other) => {
            let alone = attach(snapshot, None, config.task.sequence_length())?;
            let batch_size = config.train.eval_batch_size.unwrap_or(config.train.batch_size);
            let sequences = args.sequences.map(NonZeroUsize::get);
            let measured = Forgetting::new(group, &alone, other, sequences, batch_size)?;
            if measured.is_none() {
                group.end_together();
                return Err(Interrupted("before anything was evaluated".to_owned()).into());
            }
            measured
        }
    };
    let folder = if answers && group.is_root() { Some(place_for_answers(args)) } else { None };
    let folder = group.agree(folder.transpose())?.flatten();
    let mut all: Vec<(String, Scores)> = Vec::new();
    let mut predictions = Vec::new();
    let mut interrupted = None;
    let mut failed_at = None;
    for (name, directory) in names.into_iter().zip(directories) {
        let model = match group.agree(attach(snapshot, directory.as_deref(), config.task.sequence_length())) {
            Ok(model) => model,
            // What was measured before is told first.
            Err(error) => {
                failed_at = Some(error.context(name));
                break;
            }
        };
        let trained = directory.as_ref().is_some_and(|directory| directory.join(TRAINED_BACKBONE_FILE).is_file());
        if !config.backbone.is_fixed() && !trained {
            tell!(
                "warning: `{name}` comes without {TRAINED_BACKBONE_FILE}: it is evaluated on the backbone as it was before \
                 adapters were trained"
            );
        }
        // As the run scored it.
        let own = config.adapter.iter().find(|adapter| adapter.names().contains(&name));
        let settings = own.map_or(&config.train, |adapter| config.training_of(adapter));
        let batch_size = settings.eval_batch_size.unwrap_or(settings.batch_size);
        let sequences = args.sequences.map_or(available, NonZeroUsize::get);
        let smoothing = settings.label_smoothing;
        if group.is_root() {
            let data = record::Data { task, split, sequences, batch_size };
            record::record(args, &model, &data, directory.as_deref()).with_context(|| name.clone())?;
        }
        let evaluated = evaluate_and_generate(group, &model, task, split, sequences, batch_size, smoothing, None)?;
        let measured = match evaluated {
            None => None,
            Some((mut scores, lines)) => {
                let forgotten = forgetting.as_ref().map(|forgetting| forgetting.measure(group, &model, &mut scores));
                forgotten.transpose()?.unwrap_or(true).then_some((scores, lines))
            }
        };
        let Some((scores, lines)) = measured else {
            interrupted = Some(Interrupted(format!("while `{name}` was evaluated, of which there are no scores")));
            break;
        };
        predictions.extend(lines.into_iter().map(|line| Prediction { adapter: Some(name.clone()), ..line }));
        all.push((name, scores));
    }
    // Process 0 prints the scores, but nothing where an error came before the first of them.
    if group.is_root() && !(all.is_empty() && failed_at.is_some()) {
        print(args, &all, &part)?;
    }
    let mut is_lost = false;
    if !predictions.is_empty() && group.is_root() {
        match write_predictions(args, to_lines(&predictions)?.as_bytes()) {
            Ok(path) => tell!("every answer beside its references: {}", path.display()),
            // What was asked of the scores is still answered.
            Err(error) => {
                tell!("error: {error:#}");
                is_lost = true;
            }
        }
    }
    // It was made for answers, of which there are none.
    if let Some(folder) = folder.filter(|_| predictions.is_empty()) {
        let _ = std::fs::remove_dir(folder);
    }
    // From here on every process knows the same.
    group.end_together();
    if let Some(error) = failed_at {
        return Err(error);
    }
    if let Some(interrupted) = interrupted {
        return Err(interrupted.into());
    }
    let mut failed = Vec::new();
    for check in &checks {
        // The model without an adapter is printed to be compared with. It is held to a check where it is asked for.
        let held = all.iter().filter(|(name, _)| !args.adapter.is_empty() || name != adapters::NONE || all.len() == 1);
        for (name, scores) in held {
            failed.extend(check.failure(name, scores)?);
        }
    }
    if !failed.is_empty() {
        return Err(CheckFailed(failed.join("; ")).into());
    }
    ensure!(!is_lost, "the answers could not be written: name another directory with -o");
    Ok(())
}

/// Makes the folder of the answers, before they are worth something: its path if it is new.
fn place_for_answers(args: &Args) -> Result<Option<PathBuf>> {
    let file = args.predictions();
    let folder = file.parent().expect("a file in a folder").to_owned();
    let named = folder.display();
    let is_link = folder.symlink_metadata().is_ok_and(|found| found.is_symlink());
    ensure!(!is_link || folder.exists(), "{named} is a link to what does not exist: name another directory with -o");
    ensure!(
        !folder.exists() || folder.is_dir(),
        "-o {named}: expected a directory for the answers, and this is a file"
    );
    let is_new = !folder.exists();
    hankel_io::create_folder(&folder).context("the answers cannot be written: name another directory with -o")?;
    Ok(is_new.then_some(folder))
}

fn print(args: &Args, all: &[(String, Scores)], part: &str) -> Result<()> {
    if args.json {
        let row = |(name, scores): &(String, Scores)| json!({ "adapter": name, "split": part, "scores": scores });
        terminal::json(&serde_json::to_string_pretty(&all.iter().map(row).collect::<Vec<_>>())?)?;
    } else {
        terminal::print(&table(all, part))?;
    }
    Ok(())
}

fn table(all: &[(String, Scores)], part: &str) -> String {
    let width = all.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(8);
    let block = |(name, scores): &(String, Scores)| {
        let title = format!("{name:<width$}  {part} of {} sequences, {} targets\n", scores.sequences, scores.tokens);
        let line = |(metric, value): (&String, &f64)| format!("{:<width$}    {metric:<36} {value:.4}\n", "");
        title + &scores.metrics.iter().map(line).collect::<Vec<_>>().concat()
    };
    all.iter().map(block).collect::<Vec<_>>().concat()
}

/// Fails before the evaluation where the run's result, if there is one, has no such metric, or it is not measured here.
fn check_metrics(checks: &[Check], args: &Args) -> Result<()> {
    let Some(result) = Run::load(&args.run)?.result.filter(|_| !checks.is_empty()) else { return Ok(()) };
    let scores = result.rows.iter().flat_map(|row| std::iter::once(&row.validation).chain(&row.test));
    let names = scores.flat_map(|scores| scores.metrics.keys().map(String::as_str));
    let known: BTreeSet<&str> =
        names.filter(|name| args.measures_forgetting() || *name != metric::FORGETTING).collect();
    match checks.iter().find(|check| !known.is_empty() && !known.contains(&*check.metric)) {
        Some(check) => Err(check.unknown(known)),
        None => Ok(()),
    }
}

/// `METRIC>=REFERENCE` or `METRIC<=REFERENCE`.
#[derive(Debug, PartialEq)]
struct Check {
    text: String,
    metric: String,
    at_least: bool,
    limit: f64,
}

impl Check {
    /// A row stands for its figure on `split`, if it has one, in the result of `run`; not where fewer `sequences` are asked for.
    fn parse(text: &str, run: &Path, (split, sequences): (Option<Split>, Option<NonZeroUsize>)) -> Result<Self> {
        let parts = text.split_once(">=").map(|(m, r)| (m, true, r)).or_else(|| {
            let (metric, reference) = text.split_once("<=")?;
            Some((metric, false, reference))
        });
        let Some((metric, at_least, reference)) = parts else {
            bail!("--expect {text}: expected METRIC>=REFERENCE or METRIC<=REFERENCE, for example accuracy>=0.9");
        };
        let (metric, reference) = (metric.trim().to_owned(), reference.trim());
        let limit = match reference.parse() {
            Ok(number) => number,
            Err(_) => {
                relative(&metric, reference, run, (split, sequences)).with_context(|| format!("--expect {text}"))?
            }
        };
        ensure!(f64::is_finite(limit), "--expect {text}: {limit} is no limit");
        Ok(Check { text: text.to_owned(), metric, at_least, limit })
    }

    fn unknown<'a>(&self, known: impl IntoIterator<Item = &'a str>) -> anyhow::Error {
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        anyhow!("--expect {}: there is no metric `{}`; there are {known}", self.text, self.metric)
    }

    /// What is wrong with an adapter's scores, if the check fails.
    fn failure(&self, name: &str, scores: &Scores) -> Result<Option<String>> {
        let found = scores.get(&self.metric).ok_or_else(|| self.unknown(scores.metrics.keys().map(String::as_str)))?;
        let limit = self.limit;
        let holds = if self.at_least { found >= limit } else { found <= limit };
        let sign = if self.at_least { "at least" } else { "at most" };
        Ok((!holds)
            .then(|| format!("{name}: {} is {found:.6}, expected {sign} {limit:.6} ({})", self.metric, self.text)))
    }
}

/// `hrm`, `hrm-0.01`, `lora+0.05`: a row of the run's result and a number.
fn relative(
    metric: &str,
    reference: &str,
    run: &Path,
    (split, sequences): (Option<Split>, Option<NonZeroUsize>),
) -> Result<f64> {
    let split = split.context("a result has no figures on the file of --data: name a number")?;
    let run = Run::load(run)?;
    // Names may hold a minus themselves: the longest one that fits is meant.
    let fitting = run.rows().iter().filter_map(|row| Some((row, offset(reference.strip_prefix(&row.name)?)?)));
    let Some((row, offset)) = fitting.max_by_key(|(row, _)| row.name.len()) else {
        let names: Vec<&str> = run.rows().iter().map(|row| row.name.as_str()).collect();
        bail!("`{reference}` is neither a number nor a row ({}) plus or minus a number", names.join(", "));
    };
    let scores = match split {
        Split::Train => bail!("a result has no figures on training data: name a number, or another --split"),
        Split::Validation => Some(&row.validation),
        Split::Test => row.test.as_ref(),
    };
    let of = scores.map_or(0, |scores| scores.sequences as usize);
    if let Some(asked) = sequences.filter(|asked| asked.get() < of) {
        bail!(
            "the figure of row `{}` is of {of} sequences, and --sequences asks for {asked}: name a number, or leave --sequences out",
            row.name
        );
    }
    let value = scores.and_then(|scores| scores.get(metric));
    value
        .map(|value| value + offset)
        .with_context(|| format!("row `{}` has no `{metric}` on {}", row.name, split.name()))
}

/// What is behind the name of a row: nothing, or a sign and a number.
fn offset(text: &str) -> Option<f64> {
    let text = text.replace(' ', "");
    if text.is_empty() {
        return Some(0.0);
    }
    text.starts_with(['+', '-']).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn checks() {
        let scores = Scores { metrics: BTreeMap::from([("accuracy".to_owned(), 0.7)]), ..Scores::default() };
        let parse = |text: &str| Check::parse(text, Path::new("nowhere"), (Some(Split::Validation), None));
        let failure = |text: &str| parse(text).unwrap().failure("hrm", &scores).map(|failure| failure.is_some());
        assert!(!failure("accuracy>=0.69").unwrap());
        assert!(failure("accuracy >= 0.71").unwrap());
        assert!(failure("accuracy<=0.69").unwrap());
        assert!(failure("loss<=1").unwrap_err().to_string().contains("there are accuracy"));
        assert!(parse("accuracy=1").unwrap_err().to_string().contains("expected METRIC>=REFERENCE"));
    }

    #[cfg(unix)]
    #[test]
    fn answers_go_to_the_first_free_number() {
        let run = tempfile::tempdir().unwrap();
        let expect = |folder: &str| {
            assert_eq!(first_free(run.path(), "eval-test"), run.path().join(folder).join(PREDICTIONS));
            std::fs::create_dir(run.path().join(folder)).unwrap();
        };
        expect("eval-test");
        std::fs::write(run.path().join("eval-test").join(PREDICTIONS), "").unwrap();
        expect("eval-test-2");
        std::os::unix::fs::symlink("nowhere", run.path().join("eval-test-2").join(PREDICTIONS)).unwrap();
        expect("eval-test-3");
    }

    #[test]
    fn offsets_have_a_sign() {
        for (text, expected) in [("", Some(0.0)), ("-0.5", Some(-0.5)), (" + 2", Some(2.0)), ("32", None), ("-x", None)]
        {
            assert_eq!(offset(text), expected, "{text}");
        }
    }
}
