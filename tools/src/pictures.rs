//! Charts of Hankel singular values, errors and orders.

use crate::subject::SYSTEM_LABEL;
use crate::targets::check_new_file;
use anyhow::{Result, bail};
use hankel_io::{Existing, PendingFolder};
use hankel_lti::LinearSystem;
use hankel_lti::continuous::Bilinear;
use hankel_lti::norms::FrequencyResponse;
use hankel_lti::{OrderRule, SystemCertificate};
use hankel_plots::{Axis, BarChart, Chart, Ink, Scale, Series, XyChart};
use hankel_reduce::{Certificate, LayerWeights, OrderChoice};
use std::f64::consts::PI;
use std::path::Path;

/// Values this far below the largest are rounding noise and would only stretch the axis.
const FLOOR: f64 = 1e-17;

/// Gains below this part of the largest are left out of a curve.
const SMALLEST: f64 = 1e-8;

/// Evenly spaced frequencies of a curve.
const POINTS: usize = 160;

/// Poles whose neighbourhood a curve is refined in.
const PEAKS: usize = 60;

/// One decaying sequence of a chart.
pub struct Decay<'a> {
    /// `layer 3`.
    pub label: &'a str,
    /// Hankel singular values, descending.
    pub values: &'a [f64],
    /// How many are kept; all if nothing was chosen yet.
    pub kept: usize,
}

/// Hankel singular values relative to the largest of each layer; discarded ones are hollow.
pub fn decay_chart(layers: &[Decay<'_>], epsilon: Option<f64>) -> XyChart {
    let mut chart = XyChart::new("Hankel singular values")
        .subtitle(if layers.len() == 1 {
            "relative to the largest, which bounds what a state can contribute"
        } else {
            "relative to the largest of each layer, which bounds what a state can contribute"
        })
        .x(Axis::new("index i").integers())
        .y(Axis::new("σᵢ / σ₁").scale(Scale::Log10));
    for (i, layer) in layers.iter().enumerate() {
        let Some(&largest) = layer.values.first().filter(|v| **v > 0.0) else { continue };
        let point = |i: usize| (i as f64 + 1.0, layer.values[i] / largest);
        let points: Vec<(f64, f64)> = (0..layer.values.len()).map(point).filter(|p| p.1 > FLOOR).collect();
        let (kept, discarded) = points.split_at(layer.kept.min(points.len()));
        let ink = ink(i, layers.len());
        chart = chart.series(Series::line_and_points(legend(layer.label, i, layers.len()), kept.to_vec()).ink(ink));
        if !discarded.is_empty() {
            chart = chart.series(Series::points("", discarded.to_vec()).ink(ink).hollow());
        }
    }
    match epsilon {
        Some(epsilon) => chart.horizontal_line(epsilon, format!("ε = {epsilon}")),
        None => chart,
    }
}

/// A layer's colour: distinct for a few layers, along the ramp of depth for many.
fn ink(index: usize, count: usize) -> Ink {
    if count <= 7 { Ink::Slot(index) } else { Ink::Ramp(index as f64 / (count - 1) as f64) }
}

/// With many layers only the first and the last are in the legend.
fn legend(label: &str, index: usize, count: usize) -> String {
    if count <= 7 || index == 0 || index + 1 == count { label.to_string() } else { String::new() }
}

/// Gain of the error over frequency, relative to each layer's guaranteed bound.
fn error_chart(
    pairs: &[(LinearSystem, LinearSystem)],
    certificate: &Certificate,
    map: Option<Bilinear>,
) -> Result<XyChart> {
    let bounded = certificate.layers.iter().all(|l| l.facts.error_bound.is_some());
    let (label, subtitle) = if bounded {
        ("error / bound", "largest singular value of G − Gᵣ by frequency, relative to its bound")
    } else {
        ("error / ‖G‖", "largest singular value of G − Gᵣ by frequency, relative to the norm of G (no bound is known)")
    };
    let mut chart = XyChart::new("Error of the reduction")
        .subtitle(subtitle)
        .x(frequency_axis(map))
        .y(Axis::new(label).scale(Scale::Log10));
    for (i, ((full, reduced), layer)) in pairs.iter().zip(&certificate.layers).enumerate() {
        let facts = &layer.facts;
        let unit = facts.error_bound.filter(|_| bounded).unwrap_or(facts.hinf_norm);
        // A layer that lost nothing has only rounding to show.
        if facts.hinf_error <= 1e-12 * facts.hinf_norm || unit <= 0.0 {
            continue;
        }
        let response = FrequencyResponse::new(&full.difference(reduced)?);
        let unit = unit / facts.gate.abs();
        let points = curve(&response, facts.hinf_error_frequency, map, |gain| gain / unit)?;
        let count = certificate.layers.len();
        chart = chart.series(Series::line(legend(&layer.layer, i, count), points).ink(ink(i, count)));
    }
    if let Some(band) = certificate.layers.first().and_then(|l| l.facts.weighted.as_ref()?.band) {
        let (low, high) = band.ends();
        for (angle, name) in [(low, "from"), (high, "to")] {
            // The logarithmic axis has no place for frequency 0, and ends at the highest one.
            if (f64::MIN_POSITIVE..PI).contains(&angle) {
                chart = chart.vertical_line(map.map_or(angle, |map| map.frequency(angle)), name);
            }
        }
    }
    Ok(if bounded { chart.horizontal_line(1.0, "bound") } else { chart })
}

/// Errors under weights over frequency: of a system with the weights themselves and the unweighted error, of layers relative to their
/// bounds. `None` without weights.
fn weighted_error_chart(
    pairs: &[(LinearSystem, LinearSystem)],
    certificate: &Certificate,
    weights: &LayerWeights,
    map: Option<Bilinear>,
) -> Result<Option<XyChart>> {
    if weights.files().is_none() {
        return Ok(None);
    }
    let alone = matches!(&certificate.layers[..], [layer] if layer.layer == SYSTEM_LABEL);
    let claimed = certificate.layers.iter().filter_map(|layer| layer.facts.weighted.as_ref());
    let bounded = claimed.clone().all(|facts| facts.error_bound.is_some());
    let (subtitle, label) = match (alone, bounded) {
        (true, _) => ("largest singular values by frequency; V weighs the input, W the output", "gain"),
        (false, true) => {
            ("largest singular value of W (G − Gᵣ) V by frequency, relative to its bound", "error / bound")
        }
        (false, false) => {
            ("largest singular value of W (G − Gᵣ) V by frequency, relative to the norm of W G V", "error / ‖W G V‖")
        }
    };
    let mut chart = XyChart::new("Weighted error of the reduction")
        .subtitle(subtitle)
        .x(frequency_axis(map))
        .y(Axis::new(label).scale(Scale::Log10));
    let count = certificate.layers.len();
    for (i, ((full, reduced), layer)) in pairs.iter().zip(&certificate.layers).enumerate() {
        let Some(facts) = &layer.facts.weighted else { continue };
        let sides = weights.of(&layer.layer)?;
        let difference = full.difference(reduced)?;
        let weighted = sides.around(&difference)?;
        let gains = |system: &LinearSystem, unit: f64| {
            curve(&FrequencyResponse::new(system), facts.hinf_error_frequency, map, |gain| gain / unit)
        };
        if alone {
            let product = match (&sides.input, &sides.output) {
                (Some(_), None) => "(G − Gᵣ) V",
                (None, _) => "W (G − Gᵣ)",
                (Some(_), Some(_)) => "W (G − Gᵣ) V",
            };
            let all = [
                ("V", sides.input.as_ref(), Ink::Muted),
                ("W", sides.output.as_ref(), Ink::Slot(3)),
                ("G − Gᵣ", Some(&difference), Ink::Slot(2)),
                (product, Some(&weighted), Ink::Slot(0)),
            ];
            for (name, system, ink) in all {
                let Some(system) = system else { continue };
                let points = gains(system, 1.0)?;
                if !points.is_empty() {
                    chart = chart.series(Series::line(name, points).ink(ink));
                }
            }
            chart = match facts.error_bound {
                Some(bound) if bound > 0.0 => chart.horizontal_line(bound, format!("bound of {product}")),
                _ => chart,
            };
            continue;
        }
        let unit = facts.error_bound.filter(|_| bounded).unwrap_or(facts.hinf_norm) / layer.facts.gate.abs();
        if unit > 0.0 && facts.hinf_error > 1e-12 * facts.hinf_norm {
            let points = gains(&weighted, unit)?;
            chart = chart.series(Series::line(legend(&layer.layer, i, count), points).ink(ink(i, count)));
        }
    }
    Ok(Some(if bounded && !alone { chart.horizontal_line(1.0, "bound") } else { chart }))
}

fn frequency_axis(map: Option<Bilinear>) -> Axis {
    let unit = if map.is_some() { "radians per unit of time" } else { "radians per step" };
    Axis::new(format!("frequency ({unit})")).scale(Scale::Log10)
}

/// A gain over frequency, with `peak` among the points: even ones on a logarithmic axis, and where poles make a peak those around it.
fn curve(
    response: &FrequencyResponse,
    peak: f64,
    map: Option<Bilinear>,
    y: impl Fn(f64) -> f64,
) -> Result<Vec<(f64, f64)>> {
    let mut poles: Vec<(f64, f64)> = response.rates().map(|(angle, rate)| (angle, rate.clamp(1e-9, 1.0))).collect();
    // The left end stands for frequency 0: it lies well below the nearest pole.
    let low = 0.1 * poles.iter().map(|(angle, rate)| angle.hypot(*rate)).fold(0.1, f64::min).max(1e-9);
    let mut grid: Vec<f64> = (0..POINTS).map(|k| low * (PI / low).powf(k as f64 / (POINTS - 1) as f64)).collect();
    // Of many poles the slowest make the peaks.
    poles.sort_by(|a, b| a.1.total_cmp(&b.1));
    poles.truncate(PEAKS);
    let width = poles.first().map_or(1e-3, |pole| pole.1);
    for (angle, rate) in poles.into_iter().chain([(peak, width)]) {
        let around = [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0];
        grid.extend(around.iter().flat_map(|offset| [angle - offset * rate, angle + offset * rate]));
    }
    grid.retain(|omega| (low..=PI).contains(omega));
    grid.sort_by(f64::total_cmp);
    grid.dedup();
    let mut points = Vec::with_capacity(grid.len());
    for omega in grid {
        let frequency = map.map_or(omega, |map| map.frequency(omega));
        points.push((frequency, y(response.quick_gain(omega)?)));
    }
    // Far beyond all poles the gain of a system in continuous time falls without end.
    let floor = SMALLEST * points.iter().map(|point| point.1).fold(0.0, f64::max);
    points.retain(|point| point.0.is_finite() && point.1 > floor);
    Ok(points)
}

/// Largest singular values of a system before and after, by frequency: a Bode magnitude plot of one with one input and output.
fn response_chart(
    full: &LinearSystem,
    reduced: &LinearSystem,
    facts: &SystemCertificate,
    map: Option<Bilinear>,
    is_part: bool,
) -> Result<XyChart> {
    let of = if is_part { ", the stable parts," } else { "" };
    let mut chart = XyChart::new("Response")
        .subtitle(format!("largest singular value of G, Gᵣ{of} and their difference by frequency"))
        .x(frequency_axis(map))
        .y(Axis::new("gain").scale(Scale::Log10));
    let systems = [("G", full.clone()), ("Gᵣ", reduced.clone()), ("G − Gᵣ", full.difference(reduced)?)];
    for (i, (name, system)) in systems.into_iter().enumerate() {
        let points = curve(&FrequencyResponse::new(&system), facts.hinf_error_frequency, map, |gain| gain)?;
        if !points.is_empty() {
            chart = chart.series(Series::line(name, points).ink(Ink::Slot(i)));
        }
    }
    Ok(chart)
}

fn order_chart(certificate: &Certificate) -> BarChart {
    let names = certificate.layers.iter().map(|l| l.layer.trim_start_matches("layer ").to_string());
    let states = certificate.layers.iter().map(|l| l.facts.states as f64);
    let kept = certificate.layers.iter().map(|l| l.facts.order as f64);
    BarChart::new("States per layer", names)
        .x_label("layer")
        .y(Axis::new("states").integers())
        .inked_bars("before", states, Ink::Muted)
        .inked_bars("kept", kept, Ink::Slot(0))
}

/// Refuses a picture file that exists or has no known kind, before anything is computed.
pub fn check_target(path: &Path) -> Result<()> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("svg" | "png") => {}
        _ => bail!("{} must end in .svg or .png", path.display()),
    }
    check_new_file(path)
}

/// One chart as SVG or PNG, by the extension of the file it is for.
pub fn file(path: &Path, chart: &dyn Chart) -> Result<Vec<u8>> {
    let is_png = path.extension().is_some_and(|extension| extension == "png");
    Ok(if is_png { chart.to_png()? } else { chart.to_svg()?.into_bytes() })
}

/// All charts of a reduction, each as SVG and PNG, in a new folder that is to be committed. `pairs` are the systems before
/// and after, without their gates, in the order of the certificate; `map` took them from continuous time.
pub fn draw_all(
    folder: &Path,
    pairs: &[(LinearSystem, LinearSystem)],
    certificate: &Certificate,
    weights: &LayerWeights,
    map: Option<Bilinear>,
) -> Result<PendingFolder> {
    let decays: Vec<Decay<'_>> = certificate
        .layers
        .iter()
        .map(|l| Decay { label: &l.layer, values: &l.facts.hankel_singular_values, kept: l.facts.order })
        .collect();
    let epsilon = match certificate.orders {
        OrderChoice::PerLayer(OrderRule::Epsilon(epsilon)) if epsilon > 0.0 => Some(epsilon),
        _ => None,
    };
    let decay = decay_chart(&decays, epsilon);
    let error = error_chart(pairs, certificate, map)?;
    // What the last picture is of depends on what there is to compare: a system's response, or the layers' orders.
    let (name, last): (&str, Box<dyn Chart>) = match (pairs, &certificate.layers[..]) {
        ([(full, reduced)], [layer]) if layer.layer == SYSTEM_LABEL => {
            let is_part = certificate.plant.is_some_and(|plant| plant.kept_poles > 0);
            ("response", Box::new(response_chart(full, reduced, &layer.facts, map, is_part)?))
        }
        _ => ("orders", Box::new(order_chart(certificate))),
    };
    let mut charts: Vec<(&str, &dyn Chart)> =
        vec![("hankel_singular_values", &decay), ("error", &error), (name, &*last)];
    let weighted = weighted_error_chart(pairs, certificate, weights, map)?;
    charts.extend(weighted.as_ref().map(|chart| ("weighted_error", chart as &dyn Chart)));
    let folder = PendingFolder::create(folder, Existing::Refuse)?;
    for (name, chart) in charts {
        folder.write(&format!("{name}.svg"), chart.to_svg()?.as_bytes())?;
        folder.write(&format!("{name}.png"), &chart.to_png()?)?;
    }
    Ok(folder)
}
