//! Gates of the recurrent branches: where training ends and how it gets there.

use hankel_plots::{Axis, BarChart, Ink, Series, XyChart};

use super::Section;
use super::curves::{figure_name, figure_title, ink};
use super::figure::Figure;
use super::html::paragraph;
use super::run::Run;
use crate::format::file_stem;
use crate::results::{AdapterResult, Event};

/// Up to this many layers are named one by one in a legend.
const NAMED: usize = 8;

/// Final gates of each run, and their course during training.
pub(super) fn section(runs: &[Run]) -> Section {
    let mut figures = Vec::new();
    for i in 0..runs.len() {
        figures.extend(final_gates(runs, i));
        figures.extend(courses(runs, i));
    }
    let html = if figures.is_empty() {
        String::new()
    } else {
        paragraph(
            "The gate α scales what the branch adds to the residual stream: at 0 the layer is as it was without it.",
        )
    };
    Section { title: "Gates".into(), html, figures, ..Section::default() }
}

type Place = (usize, String);

fn final_gates(runs: &[Run], index: usize) -> Option<Figure> {
    let run = &runs[index];
    let gated: Vec<&AdapterResult> = run
        .rows()
        .iter()
        .filter(|row| row.derived_from().is_none() && row.layers.iter().any(|layer| layer.gate.is_some()))
        .collect();
    let mut places: Vec<Place> = Vec::new();
    for layer in gated.iter().flat_map(|row| &row.layers).filter(|layer| layer.gate.is_some()) {
        let place = (layer.layer, layer.site.clone());
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places.sort();
    let several_sites = places.iter().any(|p| p.1 != places[0].1);
    let names = places.iter().map(|(n, site)| if several_sites { format!("{n} {site}") } else { n.to_string() });
    let mut chart = BarChart::new(figure_title(runs, index, "Gates after training"), names)
        .x_label("layer")
        .y(Axis::new("gate α"))
        .show_values(3);
    for row in &gated {
        let gate = |place: &Place| {
            let layer = row.layers.iter().find(|l| l.layer == place.0 && l.site == place.1);
            layer.and_then(|l| l.gate).unwrap_or(f64::NAN)
        };
        chart = chart.inked_bars(&row.name, places.iter().map(gate), ink(runs, &row.name));
    }
    (!gated.is_empty()).then(|| Figure::bar(figure_name(runs, index, "gates"), "", chart))
}

/// One chart per stage whose gates were logged more than once.
fn courses(runs: &[Run], index: usize) -> Vec<Figure> {
    let run = &runs[index];
    let mut stages: Vec<&str> = Vec::new();
    for event in &run.events {
        if let Event::Layers { stage, .. } = event
            && !stages.contains(&stage.as_str())
        {
            stages.push(stage);
        }
    }
    stages.into_iter().filter_map(|stage| course(runs, index, stage)).collect()
}

fn course(runs: &[Run], index: usize, stage: &str) -> Option<Figure> {
    let mut curves: Vec<(Place, Vec<(f64, f64)>)> = Vec::new();
    for event in &runs[index].events {
        let Event::Layers { stage: of, step, layers } = event else { continue };
        for layer in layers.iter().filter(|_| of == stage) {
            let (Some(gate), place) = (layer.gate, (layer.layer, layer.site.clone())) else { continue };
            match curves.iter_mut().find(|(p, _)| *p == place) {
                Some((_, points)) => points.push((*step as f64, gate)),
                None => curves.push((place, vec![(*step as f64, gate)])),
            }
        }
    }
    curves.retain(|(_, points)| points.len() > 1);
    curves.sort_by(|a, b| a.0.cmp(&b.0));
    let several_sites = curves.iter().any(|c| c.0.1 != curves[0].0.1);
    let last = curves.len().checked_sub(1)?;
    let title = figure_title(runs, index, &format!("Gates of {stage} during training"));
    let mut chart = XyChart::new(title).x(Axis::new("optimizer step").integers()).y(Axis::new("gate α"));
    for (n, ((layer, site), mut points)) in curves.into_iter().enumerate() {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let name = if several_sites { format!("layer {layer} {site}") } else { format!("layer {layer}") };
        let is_labelled = last < NAMED || n == 0 || n == last;
        let label = if is_labelled { name.clone() } else { String::new() };
        let series = Series::line(label, points).named(name);
        chart = chart.series(series.ink(Ink::Ramp(n as f64 / last.max(1) as f64)));
    }
    let name = figure_name(runs, index, &format!("gates-{}", file_stem(stage)));
    Some(Figure::xy(name, "", chart))
}
