//! Hankel singular values of recurrent adapters, what truncation keeps of them, and what it certifies.

use hankel_plots::{Axis, Ink, Scale, Series, XyChart};

use super::Section;
use super::curves::{figure_name, figure_title};
use super::figure::Figure;
use super::html::{Cell, paragraph, subheading, table};
use super::run::Run;
use crate::format::{file_stem, significant};
use crate::results::{AdapterResult, LayerResult};

/// Up to this many layers are named one by one in a legend.
const NAMED: usize = 8;
/// Values below this share of the largest are rounding noise of f64 and are not drawn.
const FLOOR: f64 = 1e-17;

/// Charts of the decay and tables of the certificates.
pub(super) fn section(runs: &[Run]) -> Section {
    let mut figures = Vec::new();
    let mut details = String::new();
    for (i, run) in runs.iter().enumerate() {
        let full = run.rows().iter().filter(|row| row.derived_from().is_none());
        for row in full.filter(|row| row.layers.iter().any(|layer| !layer.hankel_singular_values.is_empty())) {
            let title = figure_title(runs, i, &format!("Hankel singular values of {}", row.name));
            let truncated = run.truncated(&row.name);
            let name = figure_name(runs, i, &format!("singular-values-{}", file_stem(&row.name)));
            figures.push(Figure::xy(name, caption(truncated), chart(title, row, truncated)));
        }
        let certified: Vec<&AdapterResult> = run
            .rows()
            .iter()
            .filter(|row| row.truncated_from.is_some() && row.layers.iter().any(|layer| layer.error_bound.is_some()))
            .collect();
        for row in certified {
            let heading = if runs.len() > 1 { format!("{} · {}", row.name, run.name) } else { row.name.clone() };
            details += &subheading(heading);
            details += &certificate(row);
        }
    }
    if !details.is_empty() {
        details += &paragraph(
            "The measured H-infinity error of each truncated layer must not exceed its bound, twice the sum of the \
             discarded Hankel singular values. The totals are sums over layers, no guarantee for the network's output.",
        );
    }
    Section { title: "Hankel singular values and truncation".into(), figures, details, ..Section::default() }
}

fn caption(truncated: Option<&AdapterResult>) -> String {
    let rule = truncated.and_then(|row| row.truncation_rule.as_deref());
    let kept = match rule {
        Some(rule) => format!(" Filled: kept by the rule {rule}; hollow: discarded."),
        None => String::new(),
    };
    format!("Of gate · C, relative to the largest of each layer.{kept}")
}

/// The relative threshold, when the rule is one (`epsilon = 0.01`).
fn threshold(rule: &str) -> Option<f64> {
    let (name, value) = rule.split_once('=')?;
    let value: f64 = value.trim().parse().ok()?;
    (name.trim() == "epsilon" && value > 0.0 && value < 1.0).then_some(value)
}

fn layer_name(layer: &LayerResult, several_sites: bool) -> String {
    if several_sites { format!("layer {} {}", layer.layer, layer.site) } else { format!("layer {}", layer.layer) }
}

fn chart(title: String, row: &AdapterResult, truncated: Option<&AdapterResult>) -> XyChart {
    let layers: Vec<&LayerResult> = row.layers.iter().filter(|l| !l.hankel_singular_values.is_empty()).collect();
    let several_sites = layers.iter().any(|l| l.site != layers[0].site);
    let relative = |layer: &LayerResult| -> Vec<(f64, f64)> {
        let largest = layer.hankel_singular_values.iter().copied().fold(0.0, f64::max);
        let values = layer.hankel_singular_values.iter().enumerate();
        values.map(|(i, s)| (i as f64 + 1.0, s / largest)).filter(|(_, s)| *s >= FLOOR).collect()
    };
    let mut chart = XyChart::new(title).x(Axis::new("index i").integers()).y(Axis::new("σᵢ / σ₁").scale(Scale::Log10));
    for (n, layer) in layers.iter().enumerate() {
        let ink = Ink::Ramp(n as f64 / (layers.len() - 1).max(1) as f64);
        let points = relative(layer);
        let order = truncated.and_then(|row| {
            row.layers.iter().find(|l| l.layer == layer.layer && l.site == layer.site).map(|l| l.order)
        });
        let kept = order.unwrap_or(points.len()).min(points.len());
        let is_labelled = layers.len() <= NAMED || n == 0 || n + 1 == layers.len();
        let name = layer_name(layer, several_sites);
        let label = match order {
            _ if !is_labelled => String::new(),
            Some(order) => format!("{name}: {order} of {}", layer.hankel_singular_values.len()),
            None => name.clone(),
        };
        let (kept, discarded) = points.split_at(kept);
        if !discarded.is_empty() {
            let from_last_kept = kept.last().into_iter().chain(discarded).copied();
            chart = chart
                .series(Series::line("", from_last_kept).ink(ink).faint().drawn_only())
                .series(Series::points("", discarded.to_vec()).named(format!("{name}, discarded")).ink(ink).hollow());
        }
        let kept = kept.to_vec();
        // Markers of long spectra would merge into a thick line.
        let series = if points.len() <= 64 { Series::line_and_points(label, kept) } else { Series::line(label, kept) };
        chart = chart.series(series.named(name).ink(ink));
    }
    if let Some(value) = truncated.and_then(|row| threshold(row.truncation_rule.as_deref()?)) {
        chart = chart.horizontal_line(value, format!("ε = {value}"));
    }
    chart
}

/// Bound and measured error of each layer of a truncated row.
fn certificate(row: &AdapterResult) -> String {
    let several_sites = row.layers.iter().any(|l| l.site != row.layers[0].site);
    let scientific = |value: Option<f64>| value.map_or("–".to_owned(), significant);
    let headers = ["layer", "order", "H-infinity norm", "bound", "measured error", "error / bound", "H2 error"];
    let headers: Vec<Cell> =
        headers.iter().enumerate().map(|(i, h)| if i == 0 { Cell::text(h) } else { Cell::number(h) }).collect();
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for layer in &row.layers {
        let share = layer.hinf_error.zip(layer.error_bound).filter(|(_, bound)| *bound > 0.0).map(|(e, b)| e / b);
        rows.push(vec![
            Cell::text(layer_name(layer, several_sites)),
            Cell::number(layer.order),
            Cell::number(scientific(layer.hinf_norm)),
            Cell::number(scientific(layer.error_bound)),
            Cell::number(scientific(layer.hinf_error)),
            Cell::number(share.map_or("–".to_owned(), |s| format!("{s:.2}"))),
            Cell::number(scientific(layer.h2_error)),
        ]);
    }
    let total = |field: fn(&LayerResult) -> Option<f64>| row.layers.iter().map(field).sum::<Option<f64>>();
    rows.push(vec![
        Cell::text("sum over layers"),
        Cell::number(row.layers.iter().fold(0, |sum: usize, layer| sum.saturating_add(layer.order))),
        Cell::number(""),
        Cell::number(scientific(total(|l| l.error_bound))),
        Cell::number(scientific(total(|l| l.hinf_error))),
        Cell::number(""),
        Cell::number(""),
    ]);
    table(&headers, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_relative_thresholds_are_drawn() {
        assert_eq!(threshold("epsilon = 0.01"), Some(0.01));
        assert_eq!(threshold("order = 6"), None);
        assert_eq!(threshold("epsilon = nan"), None);
        assert_eq!(threshold("by hand"), None);
    }
}
