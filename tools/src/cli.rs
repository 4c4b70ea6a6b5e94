//! The command line.

use crate::subject::Subject;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use hankel_files::WeightSet;
use hankel_lti::{Method, OrderRule};
use hankel_reduce::{LayerWeights, OrderChoice};
use std::num::IntErrorKind;
use std::path::PathBuf;

/// Certified model reduction of linear systems and HRM adapters.
#[derive(Debug, Parser)]
#[command(name = "bt", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show Hankel singular values, orders at usual thresholds, bounds and time constants
    Inspect(InspectArgs),
    /// Write a smaller adapter or system with a certificate
    Reduce(Box<ReduceArgs>),
    /// Measure again what a certificate claims; exit code 1 if a claim is false
    Verify(VerifyArgs),
    /// Print what a shell needs to complete the commands and options of `bt`
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// Arguments of `bt inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Adapter directory, or a file with A, B, C[, D][, dt] (.safetensors, .npz)
    pub system: PathBuf,
    /// The matrices are those of a system in continuous time, as with dt = 0 in the file
    #[arg(long)]
    pub continuous: bool,
    /// Measure the H-infinity and H2 norms, too
    #[arg(long)]
    pub norms: bool,
    /// Print the controllability and observability Gramians, too; for a system with poles on, outside or next to the stability
    /// boundary, which are kept, those of the stable part, in its own state coordinates
    #[arg(long)]
    pub gramians: bool,
    /// Write the balanced realisation of a system, without its states below rounding (.safetensors, .npz)
    #[arg(long, value_name = "FILE")]
    pub balanced: Option<PathBuf>,
    /// Print the facts as JSON
    #[arg(long)]
    pub json: bool,
    /// Draw the Hankel singular values (.svg, .png)
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Write Gramians and Hankel singular values of every layer in f64 (.safetensors, .npz)
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
}

/// Arguments of `bt reduce`.
#[derive(Debug, Args)]
pub struct ReduceArgs {
    /// Adapter directory, or a file with A, B, C[, D][, dt] (.safetensors, .npz)
    pub system: PathBuf,
    /// The matrices, those of weights as well, are those of a system in continuous time, as with dt = 0 in the file
    #[arg(long)]
    pub continuous: bool,
    /// Where to write the result, which must not exist: a directory for an adapter, a .safetensors or .npz file for a system, whose
    /// certificate goes to FILE.certificate.json beside it
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
    /// How many states to keep
    #[command(flatten)]
    pub orders: OrderArgs,
    /// With --budget or --total-bound: weigh the error of each layer by how much it can change the loss of a task, as `train eval
    /// --record-gradients` measured; its file, or a run directory that has it as gradients.json
    #[arg(long, value_name = "FILE|RUN")]
    pub task: Option<PathBuf>,
    /// How the smaller system is made
    #[arg(long, value_parser = method_parser(), default_value = Method::default().name())]
    pub method: Method,
    /// Gramians that the reduction is based on; when left out, `frequency-limited` with --band, `weighted` with --weight or
    /// --output-weight if the method uses weights, else `analytic`
    #[arg(long, value_enum)]
    pub gramians: Option<GramiansArg>,
    /// The weights of the errors
    #[command(flatten)]
    pub weights: WeightArgs,
    /// Measure and lower the error between two frequencies, in radians per step from 0 to pi, or, in continuous time, per unit of time
    #[arg(long, value_name = "LOW,HIGH", value_parser = band, allow_hyphen_values = true)]
    pub band: Option<(f64, f64)>,
    /// Number of steps of time-limited Gramians
    #[arg(
        long,
        value_name = "T",
        required_if_eq("gramians", "time-limited"),
        value_parser = steps,
        allow_negative_numbers = true
    )]
    pub horizon: Option<usize>,
    /// State trajectories on calibration data (.safetensors, one tensor per layer), for empirical Gramians
    #[arg(long, value_name = "FILE", required_if_eq("gramians", "empirical"))]
    pub states: Option<PathBuf>,
    /// Write the result without measuring its error, and without a certificate
    #[arg(long, conflicts_with_all = ["plots", "json", "force"])]
    pub no_certify: bool,
    /// Draw Hankel singular values, response and error over frequency, as SVG and PNG into a new directory
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
    /// Write the result even if its measured error exceeds its bound
    #[arg(long)]
    pub force: bool,
    /// Print the certificate as JSON
    #[arg(long)]
    pub json: bool,
}

/// Weights of input and output: `||W (G - G_r) V||` is measured beside `||G - G_r||`.
#[derive(Debug, Args)]
pub struct WeightArgs {
    /// Weight V of the input: a stable system (.safetensors, .npz) with as many outputs as the system has inputs, in the same time
    /// (discrete or continuous) as the system; or the file that `train eval --record-inputs` writes, with one weight per layer
    #[arg(long, value_name = "FILE")]
    pub weight: Option<PathBuf>,
    /// Weight W of the output: a stable system with as many inputs as the system has outputs, or one per layer
    #[arg(long, value_name = "FILE")]
    pub output_weight: Option<PathBuf>,
}

impl WeightArgs {
    /// Reads the files.
    ///
    /// # Errors
    /// Files that hold no weights, or none for `subject`.
    pub fn read(&self, subject: &Subject, continuous: bool) -> anyhow::Result<LayerWeights> {
        let read = |path: &Option<PathBuf>| {
            path.as_deref().map(|path| WeightSet::read(path, |stored| subject.weight(stored, continuous))).transpose()
        };
        Ok(LayerWeights { input: read(&self.weight)?, output: read(&self.output_weight)? })
    }
}

fn band(text: &str) -> Result<(f64, f64), String> {
    let ends = text.split_once(',').and_then(|(low, high)| Some((low.trim().parse().ok()?, high.trim().parse().ok()?)));
    ends.ok_or_else(|| "expected two numbers, such as 0.1,0.5".into())
}

/// A number of states.
fn count(text: &str) -> Result<usize, String> {
    at_least(0, text)
}

/// A number of steps.
fn steps(text: &str) -> Result<usize, String> {
    at_least(1, text)
}

/// A whole number of at least `least`. Negative numbers are refused here with a clear message: clap would take them for options.
fn at_least(least: usize, text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(number) if number >= least => Ok(number),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Err("it is too large".into()),
        _ => Err(format!("expected a whole number, {least} or above")),
    }
}

/// Rules for the order, one at a time; without one, `--epsilon 0.01`.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct OrderArgs {
    /// Keep states with a Hankel singular value of at least E times the largest (default 0.01)
    #[arg(long, value_name = "E", allow_negative_numbers = true)]
    pub epsilon: Option<f64>,
    /// Keep N states in every layer
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub order: Option<usize>,
    /// Keep the fewest states with at least the fraction F (above 0, at most 1) of the sum of Hankel singular values, per layer
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    pub energy: Option<f64>,
    /// Keep the fewest states whose certified error bound is at most TOL (absolute, per layer)
    #[arg(long, value_name = "TOL", allow_negative_numbers = true)]
    pub bound: Option<f64>,
    /// Keep N states in all layers together, where they lower the sum of the bounds most
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub budget: Option<usize>,
    /// Keep the fewest states in all layers together whose bounds sum to at most TOL
    #[arg(long, value_name = "TOL", allow_negative_numbers = true)]
    pub total_bound: Option<f64>,
}

impl OrderArgs {
    /// The rule given, or the default one.
    pub fn choice(&self) -> OrderChoice {
        let rules = [
            self.epsilon.map(|e| OrderChoice::PerLayer(OrderRule::Epsilon(e))),
            self.order.map(|n| OrderChoice::PerLayer(OrderRule::Order(n))),
            self.energy.map(|f| OrderChoice::PerLayer(OrderRule::Energy(f))),
            self.bound.map(|t| OrderChoice::PerLayer(OrderRule::Bound(t))),
            self.budget.map(OrderChoice::Budget),
            self.total_bound.map(OrderChoice::TotalBound),
        ];
        rules.into_iter().flatten().next().unwrap_or_default()
    }
}

/// Arguments of `bt verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The full adapter directory or system file
    pub full: PathBuf,
    /// The reduced adapter directory or system file; its certificate is certificate.json in the directory, or FILE.certificate.json
    /// beside the file. Without one, errors are checked against the bound of balanced truncation
    pub reduced: PathBuf,
    /// The full matrices, and those of weights, are those of a system in continuous time, as with dt = 0 in the file
    #[arg(long)]
    pub continuous: bool,
    /// The weights that the certificate is about
    #[command(flatten)]
    pub weights: WeightArgs,
    /// Print everything measured as JSON
    #[arg(long)]
    pub json: bool,
}

/// The names of the methods with a line of help each.
fn method_parser() -> impl TypedValueParser<Value = Method> {
    let values = Method::ALL.iter().map(|method| PossibleValue::new(method.name()).help(method.summary()));
    PossibleValuesParser::new(values).try_map(|name| Method::named(&name).ok_or("unknown method"))
}

/// Names of the Gramians on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GramiansArg {
    /// Of the system over an infinite horizon
    Analytic,
    /// Of the first --horizon steps (no guarantee)
    TimeLimited,
    /// From recorded --states (no guarantee)
    Empirical,
    /// Under --weight and --output-weight, modified for a stable result and a bound of the weighted error
    Weighted,
    /// Enns' Gramians under --weight and --output-weight, unmodified (no guarantee; refused if the reduced system is unstable)
    Enns,
    /// Of the frequencies of --band
    FrequencyLimited,
}

/// Runs a command; `Ok(false)` means that a check failed.
///
/// # Errors
/// Bad input: files that cannot be read, systems that cannot be reduced, an output that exists.
pub fn run(cli: &Cli) -> anyhow::Result<bool> {
    match &cli.command {
        Command::Inspect(args) => crate::inspect::run(args).map(|()| true),
        Command::Reduce(args) => crate::reduce::run(args),
        Command::Verify(args) => crate::verify::run(args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "bt", &mut script);
            hankel_io::terminal::data(&script)?;
            Ok(true)
        }
    }
}
