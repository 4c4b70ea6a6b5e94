//! `bt verify`.

use crate::cli::VerifyArgs;
use crate::progress::Progress;
use crate::reduce::{KEPT_TOLERANCE, certificate_beside, holds, holds_of, note_on_proof, proved};
use crate::subject::{SYSTEM_LABEL, Subject};
use crate::text::{self, number, number_above};
use anyhow::{Context, Result, bail};
use hankel_files::{AdapterHashes, TRAINED_BACKBONE_FILE};
use hankel_io::{input, terminal};
use hankel_lti::GramianSource;
use hankel_plots::Align;
use hankel_reduce::{CERTIFICATE_FILE, Certificate, LayerWeights, Plant, Verification, verify, verify_layer, weigh};
use std::path::Path;

/// Runs the command; `false` if a claim is false.
pub fn run(args: &VerifyArgs) -> Result<bool> {
    let progress = Progress::start("reading");
    let full = Subject::load(&args.full, args.continuous)?;
    let other = if let Subject::System { plant, .. } = &full { Some(&**plant) } else { None };
    let reduced = Subject::load_beside(&args.reduced, false, other)?;
    progress.stage("verification");
    let certificate_path = match reduced {
        Subject::Adapter { .. } => args.reduced.join(CERTIFICATE_FILE),
        Subject::System { .. } => certificate_beside(&args.reduced),
    };
    let certificate = read_certificate(&certificate_path)?;
    let (hashes, reduced_hashes) = (full.hashes(), reduced.hashes());
    if reduced_hashes.trained_backbone != hashes.trained_backbone
        && matches!((&full, &reduced), (Subject::Adapter { .. }, Subject::Adapter { .. }))
    {
        bail!(
            "{TRAINED_BACKBONE_FILE} is not the same in {} and {}: what was trained with the full adapter belongs to the \
             reduced one",
            args.full.display(),
            args.reduced.display()
        );
    }
    if let Some(certificate) = &certificate {
        if certificate.format != Certificate::FORMAT {
            bail!(
                "{} has format {}, this program knows format {}; reduce the system again",
                certificate_path.display(),
                certificate.format,
                Certificate::FORMAT
            );
        }
        check_hash(&certificate_path, "full", certificate.full.as_ref(), &hashes, &args.full)?;
        check_hash(&certificate_path, "reduced", certificate.reduced.as_ref(), &reduced_hashes, &args.reduced)?;
    }
    let weights = args.weights.read(&full, args.continuous)?;
    check_weights(&certificate_path, certificate.as_ref(), &weights)?;
    let verification = match (&full, &reduced) {
        (Subject::Adapter { adapter: a, .. }, Subject::Adapter { adapter: b, .. }) => {
            verify(a, b, certificate.as_ref(), &weights)?
        }
        (Subject::System { plant, .. }, Subject::System { plant: reduced, .. }) => {
            let layers = full.analyse(&args.full)?;
            let claimed = match &certificate {
                None => None,
                Some(c) if c.layers.len() == 1 && c.layers[0].layer == SYSTEM_LABEL => Some(&c.layers[0].facts),
                Some(c) if c.layers.len() == 1 => {
                    bail!("{} is about {}, not about a system", certificate_path.display(), c.layers[0].layer)
                }
                Some(c) => bail!("{} is about {} systems, not one", certificate_path.display(), c.layers.len()),
            };
            let source = claimed.map_or(GramianSource::Analytic, |c| c.gramians);
            let layers = weigh(layers, source, &weights).with_context(|| args.full.display().to_string())?;
            let mut layer = verify_layer(&layers[0], &reduced.system, 1.0, claimed)?;
            layer.problems.extend(plant_problems(plant, reduced, certificate.as_ref(), layer.measured.hinf_norm)?);
            Verification::new(vec![layer], certificate.as_ref())
        }
        _ => bail!("one of {} and {} is an adapter, the other is not", args.full.display(), args.reduced.display()),
    };
    drop(progress);
    if args.json {
        terminal::json(&serde_json::to_string_pretty(&verification)?)?;
    } else {
        // States that are kept aside are in both, as in the table of `bt reduce`.
        let aside = other.map(|plant| plant.kept.a.states());
        terminal::print(&report(&verification, certificate.is_some(), aside))?;
    }
    for layer in &verification.layers {
        for problem in &layer.problems {
            terminal::tell(&format!("{}: {problem}", layer.layer));
        }
    }
    for problem in &verification.problems {
        terminal::tell(&format!("total: {problem}"));
    }
    Ok(verification.passed)
}

fn read_certificate(path: &Path) -> Result<Option<Certificate>> {
    let bytes = match input::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let certificate = Certificate::parse(&bytes).with_context(|| format!("{} is not a certificate", path.display()))?;
    Ok(Some(certificate))
}

fn check_hash(
    path: &Path,
    which: &str,
    claimed: Option<&AdapterHashes>,
    found: &AdapterHashes,
    subject: &Path,
) -> Result<()> {
    match claimed {
        Some(claimed) if claimed.match_files(found) => Ok(()),
        Some(_) => bail!(
            "{}: the hash of the {which} files does not match {}; the certificate is about other files",
            path.display(),
            subject.display()
        ),
        None => bail!("{} has no hash of the {which} files", path.display()),
    }
}

/// The weights given must be those of the certificate, by their hashes.
fn check_weights(path: &Path, certificate: Option<&Certificate>, given: &LayerWeights) -> Result<()> {
    let claimed = certificate.and_then(|certificate| certificate.weights.clone()).unwrap_or_default();
    let given = given.files().unwrap_or_default();
    for (option, claimed, given) in
        [("--weight", &claimed.input, &given.input), ("--output-weight", &claimed.output, &given.output)]
    {
        match (claimed, given) {
            (Some(claimed), None) => bail!(
                "{} is about errors under the weight {}: give that file by {option} (SHA-256 {})",
                path.display(),
                claimed.file,
                claimed.sha256
            ),
            (Some(claimed), Some(given)) if claimed.sha256 != given.sha256 => bail!(
                "{}: the hash of the weight {} does not match {}; the certificate is about another weight (SHA-256 {})",
                path.display(),
                claimed.file,
                given.file,
                claimed.sha256
            ),
            (None, Some(given)) => {
                bail!("{}: nothing is claimed under a weight ({option} {})", path.display(), given.file)
            }
            _ => {}
        }
    }
    Ok(())
}

/// False claims about what a system has beside its stable part in discrete time.
fn plant_problems(full: &Plant, reduced: &Plant, certificate: Option<&Certificate>, norm: f64) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let time = |plant: &Plant| if plant.map.is_some() { "continuous" } else { "discrete" };
    if time(full) != time(reduced) {
        problems.push(format!(
            "the full system runs in {} time, the reduced one in {} time",
            time(full),
            time(reduced)
        ));
    } else if full.time != reduced.time {
        problems.push(format!("the sampling times differ: dt is {} and {}", full.time, reduced.time));
    }
    let kept = full.kept_deviation(reduced, norm)?;
    if kept > KEPT_TOLERANCE || kept.is_nan() {
        problems.push(format!("the part that was to be kept has changed by {kept:.1e} of its gain"));
    }
    if let Some(certificate) = certificate {
        let (claimed, found) = (certificate.plant.unwrap_or_default(), full.facts().unwrap_or_default());
        if !claimed.agrees(&found) {
            problems.push(format!("the certificate is about {claimed:?}, measured {found:?}"));
        }
    }
    Ok(problems)
}

/// `aside` is the number of states of a system that are kept in any case; `None` for an adapter.
fn report(verification: &Verification, certified: bool, aside: Option<usize>) -> String {
    let mut table = text::table([
        ("", Align::Left),
        ("states", Align::Right),
        ("kept", Align::Right),
        ("error", Align::Right),
        ("upper end", Align::Right),
        ("proved", Align::Left),
        ("bound", Align::Right),
        ("bound holds", Align::Left),
        ("claims", Align::Left),
    ]);
    for layer in &verification.layers {
        let f = &layer.measured;
        table.row([
            layer.layer.clone(),
            (f.states + aside.unwrap_or(0)).to_string(),
            (f.order + aside.unwrap_or(0)).to_string(),
            number(f.hinf_error),
            number_above(f.hinf_error_upper),
            proved(f).into(),
            f.error_bound.map_or("none".into(), number_above),
            holds_of(f).into(),
            match (certified, layer.problems.is_empty()) {
                (false, true) => "none made",
                (true, true) => "true",
                (_, false) => "FALSE",
            }
            .into(),
        ]);
    }
    let weighted: Vec<_> =
        verification.layers.iter().filter_map(|l| Some((l, l.measured.weighted.as_ref()?))).collect();
    let mut under_weights = text::table([
        ("weighted", Align::Left),
        ("error", Align::Right),
        ("upper end", Align::Right),
        ("bound", Align::Right),
        ("bound holds", Align::Left),
    ]);
    for (layer, f) in &weighted {
        under_weights.row([
            layer.layer.clone(),
            number(f.hinf_error),
            number_above(f.hinf_error_upper),
            f.error_bound.map_or("none".into(), number_above),
            holds(f.holds).into(),
        ]);
    }
    let under_weights = if weighted.is_empty() { String::new() } else { format!("\n{under_weights}") };
    let verdict = match (verification.passed, certified) {
        (true, true) => "what the certificate claims was measured again and is true",
        (true, false) if aside.is_some() => {
            "there is no certificate; the error is within the bound of balanced truncation at this order"
        }
        (true, false) => "there is no certificate; every layer is within the bound of balanced truncation at its order",
        (false, _) => "FAILED",
    };
    let unproved: String =
        verification.layers.iter().map(|layer| note_on_proof(&layer.layer, &layer.measured)).collect();
    format!("{table}{under_weights}{unproved}\n{verdict}\n")
}
