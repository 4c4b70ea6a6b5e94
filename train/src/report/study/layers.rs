//! What is known of every layer: gates, and what they let through.

use super::{Experiment, Group};
use crate::report::figure::Figure;
use crate::report::format::file_stem;
use crate::results::LayerResult;
use crate::statistics::Summary;
use hankel_plots::{Axis, BarChart, Ink};

/// Rows that are told apart in one figure.
const ROWS: usize = 6;

/// Gates, for the first point of the grid.
pub(super) fn figures(experiment: &Experiment) -> Vec<Figure> {
    let groups = experiment.groups(&[]);
    let Some(group) = groups.first() else { return Vec::new() };
    let mut out = Vec::new();
    out.extend(bars(experiment, group, "Gates after training", "gate α", |layer| layer.gate));
    let caption = "||gate y|| / ||h||, root mean squares over the validation tokens.";
    out.extend(bars(experiment, group, "Contribution of each layer", "||α y|| / ||h||", |layer| layer.contribution));
    if let Some(figure) = out.last_mut().filter(|figure| figure.name.ends_with("contribution-of-each-layer")) {
        figure.caption = format!("{caption} {}", figure.caption);
    }
    out
}

fn bars(
    experiment: &Experiment,
    group: &Group,
    title: &str,
    label: &str,
    value: fn(&LayerResult) -> Option<f64>,
) -> Option<Figure> {
    // Probes are rows of their own here.
    let rows: Vec<&str> = experiment.rows(true).into_iter().filter(|row| !row.contains("-epsilon-")).collect();
    let of = |name: &str| {
        let rows = group.runs.iter().flat_map(|run| run.rows()).filter(move |row| row.name == name);
        rows.flat_map(|row| &row.layers)
            .filter_map(|layer| Some(((layer.layer, layer.site.clone()), value(layer)?)))
            .collect::<Vec<_>>()
    };
    let found: Vec<(&str, Vec<((usize, String), f64)>)> =
        rows.into_iter().map(|name| (name, of(name))).filter(|(_, values)| !values.is_empty()).take(ROWS).collect();
    let mut places: Vec<(usize, String)> =
        found.iter().flat_map(|(_, values)| values.iter().map(|(place, _)| place.clone())).collect();
    places.sort();
    places.dedup();
    let several = places.iter().any(|(_, site)| *site != places[0].1);
    let names = places.iter().map(|(layer, site)| if several { format!("{layer} {site}") } else { layer.to_string() });
    let at = if group.label.is_empty() { String::new() } else { format!(" · {}", group.label) };
    let mut chart = BarChart::new(format!("{title}{at}"), names).x_label("layer").y(Axis::new(label));
    for (slot, (name, values)) in found.iter().enumerate() {
        let summaries: Vec<Option<Summary>> = places
            .iter()
            .map(|place| {
                Summary::of(&values.iter().filter(|(own, _)| own == place).map(|(_, v)| *v).collect::<Vec<_>>())
            })
            .collect();
        let means = summaries.iter().map(|s| s.map_or(f64::NAN, |s| s.mean));
        chart = chart
            .inked_bars(*name, means, Ink::Slot(slot))
            .deviations(summaries.iter().map(|s| s.and_then(|s| s.sd).unwrap_or(0.0)));
    }
    let name = format!("{}-{}", experiment.stem(), file_stem(title));
    (!found.is_empty()).then(|| Figure::bar(name, "Mean over seeds ± one standard deviation.", chart))
}
