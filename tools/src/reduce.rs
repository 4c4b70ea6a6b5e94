//! `bt reduce`.

use crate::cli::ReduceArgs;
use crate::gramians::gramians;
use crate::pictures;
use crate::progress::Progress;
use crate::subject::{SYSTEM_LABEL, Subject, assumed_time, note_on_plant};
use crate::targets::{check_distinct, check_new};
use crate::text::{self, number, number_above};
use anyhow::{Context, Result, bail};
use hankel_files::hrm_file::sha256;
use hankel_files::system_file::{ArrayFormat, StoredSystem, parse_arrays};
use hankel_files::{AdapterHashes, HrmAdapterFile, Sensitivities, TRAINED_BACKBONE_FILE, WeightFile};
use hankel_io::{Existing, Outputs, PendingFolder, check_folder, input, terminal};
use hankel_lti::{Bound, LinearSystem, LtiError, OrderRule, SystemCertificate};
use hankel_plots::Align;
use hankel_reduce::hrm::linear_system;
use hankel_reduce::{
    CERTIFICATE_FILE, Certificate, Gramians, LayerAnalysis, LayerCertificate, OrderChoice, Plant, Purpose, ReduceError,
    ReduceOptions, choose_orders, reduce_adapter, reduce_adapter_uncertified, reduce_uncertified, verify_layer, weigh,
};
use std::path::{Path, PathBuf};

/// What rounding may change in the part of a system that is kept, relative to its gain.
pub const KEPT_TOLERANCE: f64 = 1e-8;

/// Where the certificate of a reduced system file goes: for `NAME.npz`, `NAME.npz.certificate.json` beside it.
pub fn certificate_beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".certificate.json");
    name.into()
}

/// Runs the command. Nothing is written before everything is computed; `false` if nothing is, because an error exceeds its bound.
pub fn run(args: &ReduceArgs) -> Result<bool> {
    for path in std::iter::once(&args.output).chain(&args.plots) {
        check_new(path)?;
    }
    let certificate = certificate_beside(&args.output);
    check_distinct(&[
        ("--output", Some(args.output.as_path())),
        ("the certificate beside it", Some(certificate.as_path())),
        ("--plots", args.plots.as_deref()),
    ])?;
    let progress = Progress::start("reading");
    let subject = Subject::load(&args.system, args.continuous)?;
    let options = ReduceOptions {
        method: args.method,
        orders: args.orders.choice(),
        gramians: gramians(args, &subject)?,
        weights: args.weights.read(&subject, args.continuous)?,
        task: task(args, &subject)?,
    };
    if args.no_certify {
        progress.stage("reduction");
        write_uncertified(args, &subject, &options)?;
        return Ok(true);
    }
    let reduction = match &subject {
        Subject::Adapter { adapter, hashes } => {
            check_adapter_output(args)?;
            progress.stage("reduction and certificate");
            reduce_directory(args, adapter, hashes, &options)?
        }
        Subject::System { plant, .. } => reduce_file(args, &subject, plant, &options, &progress)?,
    };
    let certificate = &reduction.certificate;
    let broken: Vec<&str> =
        certificate.layers.iter().filter(|l| l.facts.is_broken()).map(|l| l.layer.as_str()).collect();
    let written = broken.is_empty() || args.force;
    if written {
        let plots = match &args.plots {
            Some(folder) => {
                progress.stage("pictures");
                let map = if let Subject::System { plant, .. } = &subject { plant.map } else { None };
                Some(pictures::draw_all(folder, &reduction.systems, certificate, &options.weights, map)?)
            }
            None => None,
        };
        reduction.write(&args.output)?;
        plots.map_or(Ok(()), PendingFolder::commit)?;
    }
    drop(progress);
    if let Subject::System { plant, .. } = &subject
        && let Some(hint) = assumed_time(plant).strip_prefix("; ")
    {
        terminal::tell(&format!("note: {hint}"));
    }
    for note in fewer_than_asked(&options, certificate) {
        terminal::tell(&note);
    }
    for layer in &reduction.unimproved {
        terminal::tell(&format!(
            "note: {layer}: method h2 found no smaller H2 error than that of bt; the result is that of --method bt"
        ));
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

/// Says where fewer states were kept than `--order` asked for, and why.
fn fewer_than_asked(options: &ReduceOptions, certificate: &Certificate) -> Vec<String> {
    let OrderChoice::PerLayer(OrderRule::Order(asked)) = options.orders else { return Vec::new() };
    let kept = |f: &SystemCertificate| f.order + certificate.plant.map_or(0, |plant| plant.kept_poles);
    let fewer = certificate.layers.iter().filter(|layer| kept(&layer.facts) < asked);
    fewer
        .map(|LayerCertificate { layer, facts }| {
            // Modes are kept without asking how many values there are.
            let by_modes = facts.method.bound() == Bound::Modes && facts.gate != 0.0;
            let why = if facts.order == facts.states {
                "it has no more".to_string()
            } else if !by_modes && facts.order >= facts.numerical_rank {
                format!("only {} of its Hankel singular values are above rounding", facts.numerical_rank)
            } else if by_modes || matches!(options.gramians, Gramians::Analytic) {
                "a complex pair is kept whole or not at all".to_string()
            } else {
                "the Gramians that were asked for have no more directions above rounding, or a complex pair is kept whole".to_string()
            };
            format!("note: {layer} keeps {} states instead of {asked}: {why}", kept(facts))
        })
        .collect()
}

/// Writes a smaller adapter or system that nothing was measured of.
fn write_uncertified(args: &ReduceArgs, subject: &Subject, options: &ReduceOptions) -> Result<()> {
    let (states, order) = match subject {
        Subject::Adapter { adapter, .. } => {
            check_adapter_output(args)?;
            let reduced = reduce_adapter_uncertified(adapter, options).map_err(|error| blamed(args, options, error))?;
            let files = trained_backbone(args)?;
            let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
            reduced.save_with(&args.output, &files, Existing::Refuse)?;
            let sum = |adapter: &HrmAdapterFile| adapter.layers.iter().map(|l| l.state_dim).sum::<usize>();
            (sum(adapter), sum(&reduced))
        }
        Subject::System { plant, .. } => {
            check_system_output(args)?;
            let options = of_stable_part(options, plant).with_context(|| args.system.display().to_string())?;
            let (layers, order) = layers_and_order(args, subject, &options)?;
            let reduced = reduce_uncertified(&layers[0], options.method, order, &options.gramians, PURPOSE)?;
            let whole = plant.stored_as(&reduced, options.method);
            let (_, whole) = whole.with_context(|| args.system.display().to_string())?;
            let mut outputs = Outputs::new();
            outputs.file(&args.output, &whole.to_bytes(&args.output)?, Existing::Refuse)?;
            outputs.commit()?;
            (plant.system.states() + plant.kept.a.states(), whole.a.states())
        }
    };
    let out = args.output.display();
    Ok(terminal::line(&format!("{order} of {states} states kept; nothing was measured\nwritten to {out}"))?)
}

/// Adds to `error` the file that causes it: a weight that cannot be analysed on its own, or else the system.
fn blamed(args: &ReduceArgs, options: &ReduceOptions, error: ReduceError) -> anyhow::Error {
    let (paths, weights) = (&args.weights, &options.weights);
    let sides = [(&paths.weight, &weights.input), (&paths.output_weight, &weights.output)];
    let of_weight = sides.into_iter().find_map(|(path, set)| {
        let (path, (set, _)) = (path.as_ref()?, set.as_ref()?);
        let error = set.systems().find_map(|weight| LayerAnalysis::new("the weight", weight.clone(), 1.0).err())?;
        Some((path, error))
    });
    let (path, error) = of_weight.unwrap_or((&args.system, error));
    anyhow::Error::from(error).context(path.display().to_string())
}

/// The one system in a file, weighed, and the order that it is reduced to.
fn layers_and_order(
    args: &ReduceArgs,
    subject: &Subject,
    options: &ReduceOptions,
) -> Result<(Vec<LayerAnalysis>, usize)> {
    let place = || args.system.display().to_string();
    let analysed = subject.analyse(&args.system)?;
    let layers = weigh(analysed, options.gramians.source(), &options.weights);
    let layers = layers.map_err(|error| blamed(args, options, error))?;
    let order = choose_orders(&layers, options).with_context(place)?[0];
    Ok((layers, order))
}

/// A system in a file may have a direct term, and is stored in f64.
const PURPOSE: Purpose = Purpose { direct_term: true, single: false };

fn check_adapter_output(args: &ReduceArgs) -> Result<()> {
    if ArrayFormat::of(&args.output).is_some() {
        bail!(
            "{} is an adapter, and so is what it is reduced to: a folder; the output {} has the name of a file. Leave its ending out",
            args.system.display(),
            args.output.display()
        );
    }
    Ok(())
}

fn check_system_output(args: &ReduceArgs) -> Result<()> {
    if ArrayFormat::of(&args.output).is_none() {
        bail!("the output {} must end in .safetensors or .npz", args.output.display());
    }
    // Checked first: else a missing folder is reported under the name of the certificate, which the user has not given.
    check_folder(&args.output)?;
    check_new(&certificate_beside(&args.output))
}

/// The options for the stable part, to which `--order` adds what is kept in any case.
fn of_stable_part(options: &ReduceOptions, plant: &Plant) -> Result<ReduceOptions> {
    let kept = plant.kept.a.states();
    let states = kept + plant.system.states();
    if let OrderChoice::PerLayer(OrderRule::Order(order)) = options.orders
        && order > states
    {
        return Err(LtiError::OrderTooLarge { order, states }.into());
    }
    let mut options = options.clone();
    if let OrderChoice::PerLayer(OrderRule::Order(order)) | OrderChoice::Budget(order) = &mut options.orders {
        *order = order.checked_sub(kept).with_context(|| {
            format!(
                "order {order} is below the {kept} poles outside the stability boundary or next to it, which are kept in any case{}",
                assumed_time(plant)
            )
        })?;
    }
    Ok(options)
}

/// The head that was trained with the full adapter, which belongs to the reduced one, too.
fn trained_backbone(args: &ReduceArgs) -> Result<Option<(&'static str, Vec<u8>)>> {
    let trained = args.system.join(TRAINED_BACKBONE_FILE);
    Ok(if trained.is_file() { Some((TRAINED_BACKBONE_FILE, input::read(&trained)?)) } else { None })
}

/// A reduction in memory.
struct Reduction {
    certificate: Certificate,
    /// Every layer before and after.
    systems: Vec<(LinearSystem, LinearSystem)>,
    /// Labels of the layers that method h2 did not improve.
    unimproved: Vec<String>,
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
    let reduction = reduce_adapter(adapter, options).map_err(|error| blamed(args, options, error))?;
    let trained = trained_backbone(args)?;
    let mut certificate = Certificate { full: Some(hashes.clone()), ..reduction.certificate };
    if let Some(reduced) = &mut certificate.reduced {
        reduced.trained_backbone = trained.as_ref().map(|(_, bytes)| sha256(bytes));
    }
    let mut files = vec![(CERTIFICATE_FILE, to_json(&certificate)?)];
    files.extend(trained);
    let labelled = adapter.layers.iter().zip(&reduction.layers);
    let unimproved = labelled.filter(|(_, reduced)| reduced.unimproved).map(|(full, _)| full.label()).collect();
    let full = adapter.layers.iter().map(|l| linear_system(l, adapter.config.discretization));
    let systems = full.zip(reduction.layers).map(|(full, reduced)| Ok((full?, reduced.system)));
    Ok(Reduction {
        certificate,
        systems: systems.collect::<Result<_>>()?,
        unimproved,
        content: Content::Directory { adapter: Box::new(reduction.adapter), files },
    })
}

fn to_json(certificate: &Certificate) -> Result<Vec<u8>> {
    let mut json = serde_json::to_vec_pretty(certificate)?;
    json.push(b'\n');
    Ok(json)
}

fn reduce_file(
    args: &ReduceArgs,
    subject: &Subject,
    plant: &Plant,
    options: &ReduceOptions,
    progress: &Progress,
) -> Result<Reduction> {
    check_system_output(args)?;
    progress.stage("Gramians and Hankel singular values");
    let of_stable = of_stable_part(options, plant).with_context(|| args.system.display().to_string())?;
    let (layers, order) = layers_and_order(args, subject, &of_stable)?;
    let layer = &layers[0];
    progress.stage("reduction and certificate");
    let reduced = plant.reduce(layer, of_stable.method, order, &of_stable.gramians);
    let (reduction, whole) = reduced.with_context(|| args.system.display().to_string())?;
    let bytes = whole.to_bytes(&args.output)?;
    // Certified is what is read from the file.
    let stored = StoredSystem::parse(&args.output, parse_arrays(&args.output, &bytes)?)?;
    let stored = plant.beside(&stored).with_context(|| format!("{} as it would be written", args.output.display()))?;
    let kept = plant.kept_deviation(&stored, reduction.certificate.hinf_norm)?;
    if kept > KEPT_TOLERANCE {
        bail!(
            "{}: the part that is kept would change by {kept:.1e} of its gain; its poles are too close to those of the stable part",
            args.system.display()
        );
    }
    let unimproved = if reduction.unimproved { vec![SYSTEM_LABEL.into()] } else { Vec::new() };
    let measured = if stored.system == reduction.system {
        reduction.certificate
    } else {
        progress.stage("certificate of the file");
        verify_layer(layer, &stored.system, 1.0, Some(&reduction.certificate))?.measured
    };
    let facts = LayerCertificate { layer: SYSTEM_LABEL.into(), facts: measured };
    let mut certificate = Certificate::of_system(options.orders, facts, plant.facts());
    certificate.weights = options.weights.files();
    if let Some(excess) = certificate.excess() {
        bail!("{}: {excess}", args.system.display());
    }
    certificate.full = Some(subject.hashes());
    certificate.reduced = Some(AdapterHashes::of_file(&bytes));
    let content = Content::File { system: bytes, certificate: to_json(&certificate)? };
    Ok(Reduction { certificate, systems: vec![(layer.system.clone(), stored.system)], unimproved, content })
}

/// What errors cost the task, measured with this adapter.
fn task(args: &ReduceArgs, subject: &Subject) -> Result<Option<(Sensitivities, WeightFile)>> {
    let Some(path) = &args.task else { return Ok(None) };
    let Subject::Adapter { hashes, .. } = subject else {
        bail!("--task shares states out over the layers of an adapter; {} is one system", args.system.display());
    };
    if !matches!(args.orders.choice(), OrderChoice::Budget(_) | OrderChoice::TotalBound(_)) {
        bail!("--task goes with --budget or --total-bound, which share states out over the layers");
    }
    let (sensitivities, file) = Sensitivities::read(path)?;
    if sensitivities.adapter != hashes.weights {
        bail!("{} was recorded with another adapter than {}; record it again", path.display(), args.system.display());
    }
    Ok(Some((sensitivities, file)))
}

/// The table of a certificate.
pub fn report(certificate: &Certificate) -> String {
    let mut table = text::table([
        ("", Align::Left),
        ("states", Align::Right),
        ("kept", Align::Right),
        ("error", Align::Right),
        ("at most", Align::Right),
        ("proved", Align::Left),
        ("bound", Align::Right),
        ("holds", Align::Left),
        ("error/|G|", Align::Right),
        ("sigma_next", Align::Right),
        ("H2 error", Align::Right),
        ("form", Align::Left),
        ("radius", Align::Right),
    ]);
    let plant = certificate.plant.unwrap_or_default();
    for layer in &certificate.layers {
        let f = &layer.facts;
        table.row([
            layer.layer.clone(),
            (f.states + plant.kept_poles).to_string(),
            (f.order + plant.kept_poles).to_string(),
            number(f.hinf_error),
            number_above(f.hinf_error_upper),
            proved(f).into(),
            f.error_bound.map_or("none".into(), number_above),
            holds_of(f).into(),
            if f.hinf_norm > 0.0 { number(f.hinf_error / f.hinf_norm) } else { "-".into() },
            number(f.lower_bound),
            number(f.h2_error),
            f.form.clone(),
            number(f.reduced_spectral_radius),
        ]);
    }
    let is_system = certificate.layers.len() == 1 && certificate.layers[0].layer == SYSTEM_LABEL;
    if is_system {
        let facts = &certificate.layers[0].facts;
        return format!(
            "H-infinity error of the reduced system, measured and guaranteed\n{}\n{table}{}{}",
            note_on_plant(&plant),
            weighted_report(certificate),
            notes(&certificate.layers[0].layer, facts)
        );
    }
    let total = &certificate.total;
    table.row([
        "sum".to_string(),
        total.states.to_string(),
        total.order.to_string(),
        number(total.hinf_error),
        String::new(),
        String::new(),
        total.error_bound.map_or("none".into(), number_above),
        holds(total.holds).into(),
    ]);
    let mut out = format!(
        "H-infinity errors, measured and guaranteed, of every layer's gated system. The sum over the layers is not a guarantee\n\
         for the network's output.\n\n{table}"
    );
    out.push_str(&weighted_report(certificate));
    out.push_str(&task_report(certificate));
    for layer in &certificate.layers {
        out += &notes(&layer.layer, &layer.facts);
    }
    out
}

/// The column of what is proved.
pub fn proved(facts: &SystemCertificate) -> &'static str {
    if facts.proved { "yes" } else { "no" }
}

fn notes(label: &str, facts: &SystemCertificate) -> String {
    let within = if facts.is_within_rounding() {
        format!(
            "\nnote: the error of {label} is above the bound of theory, which is for arithmetic without rounding, by less than 1e-9 of\n\
             the norm\n"
        )
    } else {
        String::new()
    };
    note_on_slow_poles(label, facts) + &note_on_rounding(label, facts) + &within + &note_on_proof(label, facts)
}

fn note_on_rounding(label: &str, facts: &SystemCertificate) -> String {
    if facts.rounding == 0.0 {
        return String::new();
    }
    format!(
        "\nnote: {label} has poles so near the stability boundary that rounding its entries to doubles moves the response by more\n\
         than the bound of theory; {} of the bound are for that\n",
        number(facts.rounding)
    )
}

/// What is missing where the upper end is not proved.
pub fn note_on_proof(label: &str, facts: &SystemCertificate) -> String {
    match facts.proof.strip_prefix("none: ") {
        Some(missing) => {
            format!("\nnote: {label} has an upper end from a test in floating point, not a proof: {missing}\n")
        }
        None => String::new(),
    }
}

fn note_on_slow_poles(label: &str, facts: &SystemCertificate) -> String {
    if facts.clamped_poles == 0 || facts.error_bound.is_some() {
        return String::new();
    }
    let (poles, them, they) = match facts.clamped_poles {
        1 => ("1 pole".to_string(), "it", "it is"),
        many => (format!("{many} poles"), "them", "they are"),
    };
    format!(
        "\nnote: {label} has {poles} with a time constant above 1e6 steps. Its Gramians treat {them} as faster than {they} in the file,\n\
         and bound the error of another system: the error is measured, and nothing is guaranteed\n"
    )
}

/// What the errors can cost the task, if states were shared out by that.
fn task_report(certificate: &Certificate) -> String {
    let Some(task) = &certificate.task else { return String::new() };
    let bound = task
        .change_of_loss_bound
        .map_or_else(String::new, |bound| format!(", by their bounds {}", number_above(bound)));
    format!(
        "\nTo first order these errors change the loss of {} ({}) by at most {}{bound}; that is not a guarantee.\n",
        task.file.file,
        number(task.loss),
        number(task.change_of_loss)
    )
}

/// The table of the weighted errors, if there are any.
fn weighted_report(certificate: &Certificate) -> String {
    let weighted = || certificate.layers.iter().filter_map(|layer| Some((layer, layer.facts.weighted.as_ref()?)));
    let Some((_, first)) = weighted().next() else { return String::new() };
    let title = match (first.band, &certificate.weights) {
        (Some(band), _) => {
            let (low, high) = band.ends();
            match certificate.plant.and_then(|plant| plant.map()) {
                None => format!("The largest errors at frequencies from {low} to {high} radians per step."),
                Some(map) => {
                    let [low, high] = [low, high].map(|angle| number(map.frequency(angle)));
                    format!("The largest errors at frequencies from {low} to {high} radians per unit of time.")
                }
            }
        }
        (None, Some(files)) => {
            let side = |name: &str, file: &Option<WeightFile>| file.as_ref().map(|f| format!("{name} by {}", f.file));
            let sides = [side("the input", &files.input), side("the output", &files.output)];
            format!("The same errors with {} weighted.", sides.into_iter().flatten().collect::<Vec<_>>().join(" and "))
        }
        (None, None) => "The same errors under weights.".into(),
    };
    let mut table = text::table([
        ("", Align::Left),
        ("error", Align::Right),
        ("bound", Align::Right),
        ("error/|G|", Align::Right),
        ("H2 error", Align::Right),
        ("H2 error/|G|", Align::Right),
        ("holds", Align::Left),
    ]);
    let share = |part: f64, whole: f64| if whole > 0.0 { number(part / whole) } else { "-".into() };
    for (layer, f) in weighted() {
        // Without a band, one that is absent is infinite.
        let infinite = if f.band.is_none() { "inf" } else { "-" };
        table.row([
            layer.layer.clone(),
            number(f.hinf_error),
            f.error_bound.map_or("none".into(), number_above),
            share(f.hinf_error, f.hinf_norm),
            f.h2_error.map_or(infinite.into(), number),
            f.h2_error.zip(f.h2_norm).map_or("-".into(), |(error, norm)| share(error, norm)),
            if f.is_within_rounding() { WITHIN_ROUNDING } else { holds(f.holds) }.into(),
        ]);
    }
    format!("\n{title}\n\n{table}")
}

/// A bound that holds with what rounding is allowed.
const WITHIN_ROUNDING: &str = "within rounding";

/// [`holds`] of a layer, which says where that takes an allowance for rounding.
pub fn holds_of(facts: &SystemCertificate) -> &'static str {
    if facts.is_within_rounding() { WITHIN_ROUNDING } else { holds(facts.holds) }
}

/// The last column: a guarantee that was checked, one that failed, or none.
pub fn holds(holds: Option<bool>) -> &'static str {
    match holds {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "no guarantee",
    }
}
