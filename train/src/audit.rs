//! `train audit`.

use anyhow::{Context, Result, bail, ensure};
use hankel_io::{Existing, input, terminal};
use hankel_study::{
    Cell, Plan, Provenance, audit, changes, claims, experiment_files, experiment_header, incomplete_results, plans,
    read_results, studies,
};
use hankel_trainer::tell;
use std::path::{Path, PathBuf};

const PAGE: &str = "docs/reproduction.md";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory with the files that `train report --results` writes
    #[arg(default_value = "docs/results")]
    results: PathBuf,
    /// Markdown page to write; its figures go to images/ beside it
    #[arg(short, long, value_name = "FILE", default_value = PAGE)]
    output: PathBuf,
    /// Directory of the experiment files; the part from `# Measured` on of the comment at the head of each is rewritten [default:
    /// train/experiments/paper, if it is there; its files are rewritten only if the page is the default one]
    #[arg(long, value_name = "DIR")]
    experiments: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<()> {
    let (claims, cells) = (claims::all(), read_results(&args.results)?);
    if cells.is_empty() {
        let results = args.results.display();
        let incomplete = incomplete_results(&args.results)?;
        ensure!(!incomplete.is_empty(), "{results} holds no results, which `train report --results` writes");
        bail!(
            "{results} holds only incomplete cells, {} of them: run the rows that they lack (`train sweep --by-row`), and write them again with \
             `train report --results`",
            incomplete.len()
        );
    }
    if args.output.is_file() && !input::read(&args.output)?.starts_with(audit::TITLE.as_bytes()) {
        bail!("{} exists and was not written by this command: name another file with -o", args.output.display());
    }
    let here = || Some(PathBuf::from("train/experiments/paper")).filter(|path| path.is_dir());
    let experiments = args.experiments.clone().or_else(here);
    let plans = experiments.as_ref().map(|directory| plans(directory, &cells)).transpose()?.unwrap_or_default();
    let own = experiments.as_ref().map(|directory| studies(directory, &args.results)).transpose()?.unwrap_or_default();
    let outcomes = claims::evaluate(&claims, &cells, &plans);
    write(&args.output, &audit::audit(&outcomes, &cells, &plans, &own))?;
    let images = args.output.with_file_name("images");
    for (name, svg) in audit::pictures(&outcomes)? {
        hankel_io::create_folder(&images)?;
        write(&images.join(name), &svg)?;
    }
    // Heads go with the page of the repository.
    let with_heads = args.experiments.is_some() || args.output == Path::new(PAGE);
    let headed = experiments.as_ref().filter(|_| with_heads);
    let files = headed.map(|directory| experiment_files(directory)).transpose()?.unwrap_or_default();
    for path in files {
        let text = input::read_to_string(&path)?;
        match experiment_header::rewrite(&text, &outcomes, &cells).with_context(|| path.display().to_string())? {
            Some(new) if new != text => write(&path, &new)?,
            _ => {}
        }
    }
    if let Some(directory) = &experiments {
        commits(&args.results, directory, &plans, &cells)?;
        for study in &own {
            commits(&study.results, &study.experiments, &study.plans, &study.cells)?;
        }
    }
    Ok(())
}

/// Prints the commits of plans and results, which are not on the page, since a commit cannot tell its own name; and warns of runs that were not
/// planned, or are missing.
fn commits(results: &Path, experiments: &Path, plans: &[Plan], cells: &[Cell]) -> Result<()> {
    let claims_file = Path::new("train/study/src/claims.toml");
    for plan in plans {
        let Some(cell) = cells.iter().find(|c| c.id.experiment == plan.experiment && c.id.scale == plan.scale) else {
            continue;
        };
        let file = experiments.join(format!("{}.toml", plan.experiment));
        let results = results.join(format!("{}.jsonl", cell.id.directory()));
        let line = match Provenance::of((&plan.experiment, plan.scale.as_deref()), &file, claims_file, &results) {
            Some(provenance) => provenance.describe(&changes::commits(&plan.experiment, plan.scale.as_deref())),
            None => format!("{}: git does not tell the commits of its plan and results", plan.experiment),
        };
        terminal::line(&line)?;
        if let Some(deviation) = plan.deviation(cells) {
            tell!("warning: {}: {deviation}", plan.experiment);
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    hankel_io::write_file(path, text.as_bytes(), Existing::Replace)?;
    Ok(terminal::line(&path.display().to_string())?)
}
