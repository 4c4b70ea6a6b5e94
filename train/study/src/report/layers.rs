//! What is known of every layer: gates, and what they let through.

use super::experiment::{Experiment, Group, figures_of};
use super::rows::{Row, Share, share};
use crate::statistics::Summary;
use hankel_plots::{Axis, BarChart, Ink};
use hankel_trainer::report::Figure;
use hankel_trainer::results::LayerResult;

/// Points of the grid that are drawn.
const DRAWN: usize = 9;

/// Something that layers have.
struct Quantity {
    title: &'static str,
    label: &'static str,
    caption: &'static str,
    of: fn(&LayerResult) -> Option<f64>,
}

const QUANTITIES: [Quantity; 2] = [
    Quantity {
        title: "Gates after training",
        label: "gate α",
        caption: "Mean over seeds ± one standard deviation.",
        of: |layer| layer.gate,
    },
    Quantity {
        title: "Contribution of each layer",
        label: "||α y|| / ||h||",
        caption: "||gate y|| / ||h||, root mean squares over the validation tokens. Mean over seeds ± one standard deviation.",
        of: |layer| layer.contribution,
    },
];

pub(super) fn figures(experiment: &Experiment) -> Vec<Figure> {
    let groups = experiment.groups(&[]);
    let of = |quantity| figures_of(&groups, DRAWN, |group| of_group(experiment, group, quantity));
    QUANTITIES.iter().flat_map(of).collect()
}

/// A layer's number and site, and its value in one run.
type Value = ((usize, String), f64);

fn of_group(experiment: &Experiment, group: &Group, quantity: &Quantity) -> Vec<Figure> {
    // A truncated adapter has the gates of the full one; a probe has its own.
    let rows = experiment.rows().into_iter().filter(|row| row.first.truncated_from.is_none());
    let of = |row: &Row| -> Vec<Value> {
        let here = group.runs.iter().flat_map(|run| run.rows()).filter(|own| own.name == row.first.name);
        let layers = here.flat_map(|row| &row.layers);
        layers.filter_map(|layer| Some(((layer.layer, layer.site.clone()), (quantity.of)(layer)?))).collect()
    };
    let known = rows.map(|row| (row, of(&row))).filter(|(_, values)| !values.is_empty());
    // A gate that is held at 0 gives bars that nobody sees.
    let (zero, found): (Vec<_>, Vec<(Row, Vec<Value>)>) =
        known.partition(|(_, values)| values.iter().all(|(_, value)| *value == 0.0));
    if found.is_empty() {
        return Vec::new();
    }
    let names: Vec<&str> = zero.iter().map(|(row, _)| row.first.name.as_str()).collect();
    let note = if names.is_empty() { String::new() } else { format!(" Everywhere 0: {}.", names.join(", ")) };
    let figure = |part: Share| {
        let title = format!("{}{}{}", quantity.title, group.title(), part.title);
        let drawn: Vec<(Ink, &(Row, Vec<Value>))> =
            found.iter().filter_map(|known| Some((part.ink(&known.0)?, known))).collect();
        let name = experiment.figure_name(&[quantity.title, &group.label, &part.file]);
        Figure::bar(name, format!("{}{note}", quantity.caption), bars(title, quantity.label, &drawn))
    };
    share(found.iter().map(|(row, _)| *row).collect()).into_iter().map(figure).collect()
}

fn bars(title: String, label: &str, rows: &[(Ink, &(Row, Vec<Value>))]) -> BarChart {
    let mut positions: Vec<&(usize, String)> =
        rows.iter().flat_map(|(_, (_, values))| values.iter().map(|(position, _)| position)).collect();
    positions.sort();
    positions.dedup();
    let several = positions.iter().any(|(_, site)| *site != positions[0].1);
    let names =
        positions.iter().map(|(layer, site)| if several { format!("{layer} {site}") } else { layer.to_string() });
    let mut chart = BarChart::new(title, names).x_label("layer").y(Axis::new(label));
    for (ink, (row, values)) in rows {
        let at = |position: &&(usize, String)| {
            Summary::of(&values.iter().filter(|(own, _)| own == *position).map(|(_, v)| *v).collect::<Vec<_>>())
        };
        let summaries: Vec<Option<Summary>> = positions.iter().map(at).collect();
        let means = summaries.iter().map(|s| s.map_or(f64::NAN, |s| s.mean));
        chart = chart
            .inked_bars(&row.first.name, means, *ink)
            .deviations(summaries.iter().map(|s| s.and_then(|s| s.sd).unwrap_or(f64::NAN)));
    }
    chart
}
