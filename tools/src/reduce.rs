//! `bt reduce`.

use crate::cli::{GramiansArg, ReduceArgs};
use crate::pictures;
use crate::subject::{SYSTEM_LABEL, Subject};
use crate::text::number;
use anyhow::{Context, Result, bail};
use hankel_files::hrm_file::sha256;
use hankel_files::system_file::{ArrayFormat, parse_arrays, system_from_arrays, system_to_bytes};
use hankel_files::{AdapterHashes, HrmAdapterFile, TRAINED_BACKBONE_FILE, recorded_states};
use hankel_io::{Existing, Outputs, PendingFolder, input, terminal};
use hankel_lti::LinearSystem;
use hankel_plots::{Align, Table};
use hankel_reduce::hrm::linear_system;
use hankel_reduce::{
    CERTIFICATE_FILE, Certificate, Gramians, LayerCertificate, ReduceOptions, choose_orders, reduce_adapter,
    reduce_system, verify_layer,
};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Where the certificate of a reduced system file goes: for `NAME.npz`, `NAME.npz.certificate.json` beside it.
pub fn certificate_beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".certificate.json");
    name.into()
}

/// Runs the command. Nothing is written before everything is computed; `false` if nothing is, because an error exceeds its bound.
pub fn run(args: &ReduceArgs) -> Result<bool> {
    if args.output.symlink_metadata().is_ok() {
        bail!("{} already exists; remove it or choose another name", args.output.display());
    }
    if let Some(folder) = args.plots.as_ref().filter(|f| f.symlink_metadata().is_ok()) {
        bail!("{} already exists; remove it or choose another name", folder.display());
    }
    let subject = Subject::load(&args.system)?;
    let options = ReduceOptions { method: args.method, orders: args.orders.choice(), gramians: gramians(args)? };
    let reduction = match &subject {
        Subject::Adapter { adapter, hashes } => reduce_directory(args, adapter, hashes, &options)?,
        Subject::System { .. } => reduce_file(args, &subject, &options)?,
    };
    let certificate = &reduction.certificate;
    let broken: Vec<&str> =
        certificate.layers.iter().filter(|l| l.facts.holds == Some(false)).map(|l| l.layer.as_str()).collect();
    let written = broken.is_empty() || args.force;
    if written {
        let plots = match &args.plots {
            Some(folder) => Some(pictures::draw_all(folder, &reduction.systems, certificate)?),
            None => None,
        };
        reduction.write(&args.output)?;
        plots.map_or(Ok(()), PendingFolder::commit)?;
    }
    if args.json {
        terminal::json(&serde_json::to_string_pretty(certificate)?)?;
    } else if written {
        terminal::line(&format!("{}\nwritten to {}", report(certificate), args.output.display()))?;
    } else {
        terminal::line(&report(certificate))?;
    }
    if !written {
        terminal::tell(&format!(
            "{}: the measured error exceeds the bound, so rounding has spoiled the reduction; nothing is written. Choose \
             another order or method, or write it with --force",
            broken.join(", ")
        ));
    }
    Ok(written)
}

/// A reduction in memory.
struct Reduction {
    certificate: Certificate,
    /// Every layer before and after.
    systems: Vec<(LinearSystem, LinearSystem)>,
    content: Content,
}

enum Content {
    /// An adapter directory with further files.
    Directory { adapter: Box<HrmAdapterFile>, files: Vec<(&'static str, Vec<u8>)> },
    /// A system file, and what goes into the file beside it.
    File { system: Vec<u8>, certificate: Vec<u8> },
}

impl Reduction {
    fn write(&self, output: &Path) -> Result<()> {
        match &self.content {
            Content::Directory { adapter, files } => {
                let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
                adapter.save_with(output, &files, Existing::Refuse)?;
            }
            Content::File { system, certificate } => {
                // A result without its certificate never shows: the certificate gets its name first.
                let mut outputs = Outputs::new();
                outputs.file(&certificate_beside(output), certificate, Existing::Refuse)?;
                outputs.file(output, system, Existing::Refuse)?;
                outputs.commit()?;
            }
        }
        Ok(())
    }
}

fn reduce_directory(
    args: &ReduceArgs,
    adapter: &HrmAdapterFile,
    hashes: &AdapterHashes,
    options: &ReduceOptions,
) -> Result<Reduction> {
    let reduction = reduce_adapter(adapter, options).with_context(|| args.system.display().to_string())?;
    // A head that was trained with the full adapter belongs to the reduced one, too.
    let trained = args.system.join(TRAINED_BACKBONE_FILE);
    let trained = if trained.is_file() { Some(input::read(&trained)?) } else { None };
    let mut certificate = Certificate { full: Some(hashes.clone()), ..reduction.certificate };
    if let Some(reduced) = &mut certificate.reduced {
        reduced.trained_backbone = trained.as_deref().map(sha256);
    }
    let mut files = vec![(CERTIFICATE_FILE, to_json(&certificate)?)];
    files.extend(trained.map(|bytes| (TRAINED_BACKBONE_FILE, bytes)));
    let full = adapter.layers.iter().map(|l| linear_system(l, adapter.config.discretization));
    let systems = full.zip(reduction.layers).map(|(full, reduced)| Ok((full?, reduced.system)));
    Ok(Reduction {
        certificate,
        systems: systems.collect::<Result<_>>()?,
        content: Content::Directory { adapter: Box::new(reduction.adapter), files },
    })
}

fn to_json(certificate: &Certificate) -> Result<Vec<u8>> {
    let mut json = serde_json::to_vec_pretty(certificate)?;
    json.push(b'\n');
    Ok(json)
}

fn reduce_file(args: &ReduceArgs, subject: &Subject, options: &ReduceOptions) -> Result<Reduction> {
    if ArrayFormat::of(&args.output).is_none() {
        bail!("the output {} must end in .safetensors or .npz", args.output.display());
    }
    let beside = certificate_beside(&args.output);
    if beside.exists() {
        bail!("{} already exists; remove it or choose another name", beside.display());
    }
    let layers = subject.analyse(&args.system)?;
    let layer = &layers[0];
    let order = choose_orders(&layers, options)?[0];
    let reduction = reduce_system(layer, options.method, order, &options.gramians, true)?;
    let bytes = system_to_bytes(&args.output, &reduction.system)?;
    // Certified is what is read from the file: a pair written out as a matrix has its rounding in the pole.
    let stored = system_from_arrays(&args.output, parse_arrays(&args.output, &bytes)?)?
        .with_context(|| format!("{} as it would be written", args.output.display()))?;
    let measured = verify_layer(layer, &stored, 1.0, Some(&reduction.certificate))?.measured;
    let facts = LayerCertificate { layer: SYSTEM_LABEL.into(), facts: measured };
    let mut certificate = Certificate::new(options.orders, vec![facts]);
    certificate.full = Some(subject.hashes());
    certificate.reduced = Some(AdapterHashes::of_file(&bytes));
    let content = Content::File { system: bytes, certificate: to_json(&certificate)? };
    Ok(Reduction { certificate, systems: vec![(layer.system.clone(), stored)], content })
}

fn gramians(args: &ReduceArgs) -> Result<Gramians> {
    Ok(match (args.gramians, args.horizon, &args.states) {
        (GramiansArg::Analytic, None, None) => Gramians::Analytic,
        (GramiansArg::TimeLimited, Some(steps), None) => Gramians::TimeLimited(steps),
        (GramiansArg::Empirical, None, Some(path)) => Gramians::Empirical(recorded_states(path)?),
        _ => bail!("--horizon goes with --gramians time-limited, --states with --gramians empirical"),
    })
}

/// The table of a certificate.
pub fn report(certificate: &Certificate) -> String {
    let mut table = Table::new([
        ("", Align::Left),
        ("states", Align::Right),
        ("kept", Align::Right),
        ("form", Align::Left),
        ("sigma_next", Align::Right),
        ("error", Align::Right),
        ("bound", Align::Right),
        ("error/|G|", Align::Right),
        ("H2 error", Align::Right),
        ("radius", Align::Right),
        ("holds", Align::Left),
    ]);
    for layer in &certificate.layers {
        let f = &layer.facts;
        table.row([
            layer.layer.clone(),
            f.states.to_string(),
            f.order.to_string(),
            f.form.clone(),
            number(f.lower_bound),
            number(f.hinf_error),
            f.error_bound.map_or("none".into(), number),
            if f.hinf_norm > 0.0 { number(f.hinf_error / f.hinf_norm) } else { "-".into() },
            number(f.h2_error),
            number(f.reduced_spectral_radius),
            holds(f.holds).into(),
        ]);
    }
    let total = &certificate.total;
    table.row([
        "sum".to_string(),
        total.states.to_string(),
        total.order.to_string(),
        String::new(),
        String::new(),
        number(total.hinf_error),
        total.error_bound.map_or("none".into(), number),
        String::new(),
        String::new(),
        String::new(),
        holds(total.holds).into(),
    ]);
    let mut out = format!(
        "H-infinity errors, measured and guaranteed, of every layer's gated system. The sum over the layers is no guarantee\n\
         for the network's output.\n\n{table}"
    );
    for layer in certificate.layers.iter().filter(|l| l.facts.clamped_poles > 0 && l.facts.error_bound.is_none()) {
        let _ = writeln!(
            out,
            "\nnote: {} has {} poles with a time constant above 1e6 steps; its Gramians treat them as having that one, and\n\
             bound the error of another system",
            layer.layer, layer.facts.clamped_poles
        );
    }
    out
}

/// The last column: a guarantee that was checked, one that failed, or none.
pub fn holds(holds: Option<bool>) -> &'static str {
    match holds {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "no guarantee",
    }
}
