//! `bt inspect`.

use crate::cli::InspectArgs;
use crate::clock::Clock;
use crate::pictures::{self, Decay, decay_chart};
use crate::progress::Progress;
use crate::subject::{SYSTEM_LABEL, Subject, assumed_time, note_on_plant};
use crate::targets::{check_distinct, check_new_file};
use crate::text::{self, decay, number, number_above};
use anyhow::{Result, anyhow, bail};
use faer::{Mat, MatRef, c64};
use hankel_files::system_file::{ArrayFormat, arrays_to_bytes};
use hankel_io::{Existing, Outputs, terminal};
use hankel_lti::methods::bt;
use hankel_lti::norms::{h2_norm, h2_norm_in, hinf_norm_of};
use hankel_lti::order::choose_order;
use hankel_lti::{LtiError, OrderRule, glover_bound};
use hankel_plots::Align;
use hankel_plots::terminal::DecayPlot;
use hankel_reduce::{LayerAnalysis, PlantFacts};
use serde::Serialize;
use std::fmt::Write;

/// Relative thresholds at which orders are shown.
const THRESHOLDS: [f64; 5] = [0.2, 0.1, 0.05, 0.01, 0.001];

/// The threshold of `bt reduce` without a rule.
const DEFAULT_EPSILON: f64 = 0.01;

/// What is shown about a layer.
#[derive(Serialize)]
struct LayerFacts {
    layer: String,
    /// Only for a system in continuous time, or one whose numbers here are those of its stable part.
    #[serde(skip_serializing_if = "Option::is_none")]
    plant: Option<PlantFacts>,
    form: &'static str,
    states: usize,
    inputs: usize,
    outputs: usize,
    gate: f64,
    numerical_rank: usize,
    /// Of the gated system, descending.
    hankel_singular_values: Vec<f64>,
    /// Error bound of keeping 0, 1, ... states.
    error_bounds: Vec<f64>,
    orders: Orders,
    /// `-1 / ln |pole|` in steps, descending.
    time_constants: Vec<f64>,
    /// Where a unit of time is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_time: Option<InTime>,
    spectral_radius: f64,
    lyapunov_residuals: Option<(f64, f64)>,
    clamped_poles: usize,
    /// Of the gated system, with `--norms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    norms: Option<Norms>,
    /// With `--gramians`.
    #[serde(skip_serializing_if = "Option::is_none")]
    gramians: Option<GramianRows>,
}

/// What is told in steps, in the time of the file.
#[derive(Serialize)]
struct InTime {
    /// Descending.
    time_constants: Vec<f64>,
    /// With `--norms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    hinf_frequency: Option<f64>,
}

#[derive(Serialize)]
struct Norms {
    hinf: f64,
    /// Angle in radians per step at which it is attained.
    hinf_frequency: f64,
    /// Upper end of its enclosure.
    hinf_upper: f64,
    /// `null` in JSON where it is infinite: in continuous time with a direct term.
    h2: f64,
}

impl Norms {
    fn new(layer: &LayerAnalysis) -> Result<Self> {
        let (norm, check) = hinf_norm_of(&layer.system)?;
        let gate = layer.gate.abs();
        let direct = layer.system.direct_term_beside(None, norm.value);
        Ok(Self {
            hinf: gate * norm.value,
            hinf_frequency: norm.frequency,
            hinf_upper: gate * check.upper,
            h2: gate * h2_norm_in(layer.map(), &layer.system, direct, h2_norm)?,
        })
    }
}

/// Both Gramians of the gated system, row by row.
#[derive(Serialize)]
struct GramianRows {
    controllability: Vec<Vec<f64>>,
    observability: Vec<Vec<f64>>,
}

impl GramianRows {
    fn new(layer: &LayerAnalysis) -> Self {
        let rows = |m: Mat<f64>| -> Vec<Vec<f64>> {
            (0..m.nrows()).map(|i| (0..m.ncols()).map(|j| m[(i, j)]).collect()).collect()
        };
        let [controllability, observability] = layer.gramians().map(rows);
        Self { controllability, observability }
    }
}

#[derive(Serialize)]
struct Orders {
    /// (threshold, order) by `sigma_i >= threshold * sigma_1`.
    epsilon: Vec<(f64, usize)>,
    /// Order that keeps 90 % of the sum.
    energy_90: usize,
}

impl LayerFacts {
    fn new(layer: &LayerAnalysis, args: &InspectArgs, clock: Clock) -> Result<Self> {
        let sigma = layer.hankel_singular_values();
        let rank = layer.rank();
        let order = |rule| choose_order(rule, &sigma, rank);
        let poles: Vec<(c64, f64)> = match layer.system.a().modes() {
            Some(modes) => modes.iter().map(|m| (m.pole().value(), 1.0 / m.pole().rate)).collect(),
            None => layer.system.eigenvalues().iter().map(|l| (*l, -1.0 / l.norm().ln())).collect(),
        };
        let descending = |of: &dyn Fn(&(c64, f64)) -> f64| {
            let mut values: Vec<f64> = poles.iter().map(of).collect();
            values.sort_by(|a, b| b.total_cmp(a));
            values
        };
        let norms = if args.norms { Some(Norms::new(layer)?) } else { None };
        let in_time = clock.has_unit().then(|| InTime {
            time_constants: descending(&|&(pole, steps)| clock.time_constant(pole, steps)),
            hinf_frequency: norms.as_ref().map(|norms| clock.frequency(norms.hinf_frequency)),
        });
        Ok(Self {
            layer: layer.label.clone(),
            plant: None,
            form: layer.system.a().form(),
            states: layer.system.states(),
            inputs: layer.system.inputs(),
            outputs: layer.system.outputs(),
            gate: layer.gate,
            numerical_rank: rank,
            error_bounds: (0..=sigma.len()).map(|r| glover_bound(&sigma, r)).collect(),
            orders: Orders {
                epsilon: THRESHOLDS.iter().map(|&e| Ok((e, order(OrderRule::Epsilon(e))?))).collect::<Result<_>>()?,
                energy_90: order(OrderRule::Energy(0.9))?,
            },
            hankel_singular_values: sigma,
            time_constants: descending(&|pole| pole.1),
            in_time,
            spectral_radius: layer.system.spectral_radius(),
            lyapunov_residuals: layer.factors.residual_c.zip(layer.factors.residual_o),
            clamped_poles: layer.factors.clamped_poles,
            norms,
            gramians: args.gramians.then(|| GramianRows::new(layer)),
        })
    }

    /// Time constants in the time of the file, or in steps.
    fn time_constants(&self) -> &[f64] {
        self.in_time.as_ref().map_or(&self.time_constants, |in_time| &in_time.time_constants)
    }

    /// States kept at the default threshold.
    fn default_order(&self) -> usize {
        self.orders.epsilon.iter().find(|(epsilon, _)| *epsilon == DEFAULT_EPSILON).map_or(0, |o| o.1)
    }
}

/// Runs the command.
pub fn run(args: &InspectArgs) -> Result<()> {
    for path in [&args.save, &args.balanced].into_iter().flatten() {
        ArrayFormat::of_output(path)?;
        check_new_file(path)?;
    }
    if let Some(path) = &args.plot {
        pictures::check_target(path)?;
    }
    check_distinct(&[("--save", args.save.as_deref()), ("--balanced", args.balanced.as_deref())])?;
    let progress = Progress::start("reading");
    let subject = Subject::load(&args.system, args.continuous)?;
    progress.stage("Gramians and Hankel singular values");
    let layers = subject.analyse(&args.system)?;
    let clock = Clock::of(&subject);
    if args.norms {
        progress.stage("norms");
    }
    let mut facts: Vec<LayerFacts> =
        layers.iter().map(|layer| LayerFacts::new(layer, args, clock)).collect::<Result<_>>()?;
    if let Subject::System { plant, .. } = &subject {
        facts.iter_mut().for_each(|layer| layer.plant = plant.facts());
    }
    drop(progress);
    let mut outputs = Outputs::new();
    if let Some(path) = &args.save {
        outputs.file(path, &gramians(path, &layers)?, Existing::Refuse)?;
    }
    if let Some(path) = &args.plot {
        let decays: Vec<Decay<'_>> = facts
            .iter()
            .map(|f| Decay { label: &f.layer, values: &f.hankel_singular_values, kept: f.default_order() })
            .collect();
        outputs.file(path, &pictures::file(path, &decay_chart(&decays, Some(DEFAULT_EPSILON)))?, Existing::Refuse)?;
    }
    if let Some(path) = &args.balanced {
        outputs.file(path, &balanced(path, &subject, &layers[0])?, Existing::Refuse)?;
    }
    outputs.commit()?;
    if args.json {
        terminal::json(&serde_json::to_string_pretty(&facts)?)?;
    } else {
        let mut note = String::new();
        if let Subject::System { plant, .. } = &subject {
            let facts = plant.facts().unwrap_or_default();
            note += &note_on_plant(&facts);
            if let Some(hint) = assumed_time(plant).strip_prefix("; ") {
                let _ = writeln!(note, "{hint}");
            }
        }
        terminal::print(&format!("{note}{}", report(&facts, clock)))?;
    }
    Ok(())
}

/// The balanced realisation of a system: all states above rounding, with both Gramians of the stable part equal and diagonal.
fn balanced(path: &std::path::Path, subject: &Subject, layer: &LayerAnalysis) -> Result<Vec<u8>> {
    let Subject::System { plant, .. } = subject else {
        bail!(
            "--balanced is for systems in files; no command writes an adapter in balanced coordinates (--save FILE writes the Gramians \
             of its layers)"
        );
    };
    let reduced = bt::balanced(&layer.system, &layer.spectrum).map_err(|error| match error {
        LtiError::Unstable { .. } => {
            anyhow!("--balanced: a pole is so near the unit circle that the rounding of a balanced A moves it beyond")
        }
        other => other.into(),
    })?;
    Ok(plant.assemble(&reduced.system, reduced.projection.as_ref())?.to_bytes(path)?)
}

fn report(facts: &[LayerFacts], clock: Clock) -> String {
    let mut table = text::table([
        ("", Align::Left),
        ("gate", Align::Right),
        ("states", Align::Right),
        ("rank", Align::Right),
        ("sigma_1", Align::Right),
        ("slowest", Align::Right),
        ("fastest", Align::Right),
    ]);
    let headings: Vec<String> = THRESHOLDS.iter().map(|e| format!("e={e}")).chain(["90%".into()]).collect();
    let columns = std::iter::once(("", Align::Left)).chain(headings.iter().map(|h| (h.as_str(), Align::Right)));
    let mut orders = text::table(columns);
    for f in facts {
        let constant = |value: Option<&f64>| value.map_or("-".into(), |v| number(*v));
        table.row([
            f.layer.clone(),
            number(f.gate),
            f.states.to_string(),
            f.numerical_rank.to_string(),
            constant(f.hankel_singular_values.first()),
            constant(f.time_constants().first()),
            constant(f.time_constants().last()),
        ]);
        let by_threshold = f.orders.epsilon.iter().map(|(_, order)| *order).chain([f.orders.energy_90]);
        orders.row(std::iter::once(f.layer.clone()).chain(by_threshold.map(|order| order.to_string())));
    }
    let mut out = format!(
        "Time constants {}\n\n{table}\n\
         Orders by threshold e (sigma_i >= e sigma_1) and by 90 % of the sum\n\n{orders}\n",
        clock.time_constants()
    );
    out += &decays(facts);
    out += "\nError bound (H-infinity, absolute) by the number of states kept\n\n";
    let states = facts.iter().map(|f| f.states).max().unwrap_or(0);
    let kept = shown_orders(states);
    let headings: Vec<String> = kept.iter().map(ToString::to_string).collect();
    let columns = std::iter::once(("", Align::Left)).chain(headings.iter().map(|h| (h.as_str(), Align::Right)));
    let mut bounds = text::table(columns);
    for f in facts {
        let cells = kept.iter().map(|&r| f.error_bounds.get(r).map_or(String::new(), |b| number_above(*b)));
        bounds.row(std::iter::once(f.layer.clone()).chain(cells));
    }
    out += &bounds.to_string();
    if facts.iter().any(|f| f.norms.is_some()) {
        out += &norms(facts, clock);
    }
    for f in facts {
        out += &gramian_tables(f);
    }
    for f in facts.iter().filter(|f| f.clamped_poles > 0) {
        let _ = writeln!(
            out,
            "\nnote: {} has {} poles with a time constant above 1e6 steps; its Gramians treat them as having that one, and\n\
             its bounds are not a guarantee",
            f.layer, f.clamped_poles
        );
    }
    out
}

fn norms(facts: &[LayerFacts], clock: Clock) -> String {
    let mut table = text::table([
        ("", Align::Left),
        ("H-infinity", Align::Right),
        ("at", Align::Right),
        ("upper end", Align::Right),
        ("H2", Align::Right),
    ]);
    for f in facts {
        let Some(norms) = &f.norms else { continue };
        let at = clock.frequency(norms.hinf_frequency);
        let numbers = [number(norms.hinf), number(at), number_above(norms.hinf_upper), number(norms.h2)];
        table.row(std::iter::once(f.layer.clone()).chain(numbers));
    }
    format!("\nNorms; the first is attained at a frequency in {}\n\n{table}", clock.frequencies())
}

fn gramian_tables(facts: &LayerFacts) -> String {
    let Some(gramians) = &facts.gramians else { return String::new() };
    let mut out = String::new();
    for (name, rows) in [("Controllability", &gramians.controllability), ("Observability", &gramians.observability)] {
        let headings = (1..=rows.len()).map(|column| (column.to_string(), Align::Right));
        let mut table = text::table(std::iter::once((String::new(), Align::Right)).chain(headings));
        for (i, row) in rows.iter().enumerate() {
            table.row(std::iter::once((i + 1).to_string()).chain(row.iter().map(|value| number(*value))));
        }
        let states = if facts.plant.as_ref().is_some_and(|plant| plant.kept_poles > 0) {
            ": the stable part, in states of its own"
        } else {
            ""
        };
        let _ = write!(out, "\n{name} Gramian, {}{states}\n\n{table}", facts.layer);
    }
    out
}

/// Hankel singular values as plots for a few layers, as a line of characters each for many.
fn decays(facts: &[LayerFacts]) -> String {
    const PLOTTED: usize = 4;
    let mut out = String::new();
    if facts.len() <= PLOTTED {
        for f in facts {
            let largest = f.hankel_singular_values.first().copied().unwrap_or(0.0);
            let plot = DecayPlot::new(&f.hankel_singular_values)
                .kept(f.default_order())
                .threshold(DEFAULT_EPSILON * largest, format!("e = {DEFAULT_EPSILON}"));
            let _ = writeln!(out, "Hankel singular values, {}\n\n{}", f.layer, plot.render());
        }
        return out;
    }
    out += "Hankel singular values, one character each, half a decade per step of height\n\n";
    let width = facts.iter().map(|f| f.layer.len()).max().unwrap_or(0);
    for f in facts {
        let ends =
            [f.hankel_singular_values.first(), f.hankel_singular_values.last()].map(|v| number(*v.unwrap_or(&0.0)));
        let _ = writeln!(out, "{:width$}  {}  {} .. {}", f.layer, decay(&f.hankel_singular_values), ends[0], ends[1]);
    }
    out
}

/// At most about a dozen orders from 0 to `states`.
fn shown_orders(states: usize) -> Vec<usize> {
    let step = states.div_ceil(12).max(1);
    let mut orders: Vec<usize> = (0..=states).step_by(step).collect();
    if orders.last() != Some(&states) {
        orders.push(states);
    }
    orders
}

fn gramians(path: &std::path::Path, layers: &[LayerAnalysis]) -> Result<Vec<u8>> {
    let mut arrays: Vec<(String, Mat<f64>)> = Vec::new();
    for layer in layers {
        let prefix =
            if layer.label == SYSTEM_LABEL { String::new() } else { format!("{}.", layer.label.replace(' ', "_")) };
        let sigma = layer.hankel_singular_values();
        let [controllability, observability] = layer.gramians();
        arrays.push((format!("{prefix}Wc"), controllability));
        arrays.push((format!("{prefix}Wo"), observability));
        arrays.push((format!("{prefix}hsv"), Mat::from_fn(1, sigma.len(), |_, j| sigma[j])));
    }
    let named: Vec<(&str, MatRef<'_, f64>)> = arrays.iter().map(|(n, m)| (n.as_str(), m.as_ref())).collect();
    Ok(arrays_to_bytes(path, &named)?)
}
