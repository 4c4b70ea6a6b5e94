//! What can be had without a memory: predictors of a finite window, and the accuracy along the sequence.

use hankel_plots::{Axis, BarChart};
use std::fmt::Write as _;

use super::Section;
use super::curves::{figure_name, figure_title, ink};
use super::figure::Figure;
use super::html::{Text, paragraph, subheading};
use super::run::Run;
use crate::format::metric_name;
use crate::results::{TaskResult, metric};

/// Baselines and accuracy by position of every run that has them.
pub(super) fn section(runs: &[Run]) -> Section {
    let mut figures = Vec::new();
    let mut details = String::new();
    for (i, run) in runs.iter().enumerate() {
        let Some(result) = &run.result else { continue };
        figures.extend(baselines(runs, i, &result.task));
        figures.extend(quarters(runs, i));
        if let Some(rows) = &result.task.transition_table {
            if runs.len() > 1 {
                details += &subheading(&run.name);
            }
            details += &transition_table(rows);
        }
    }
    if !details.is_empty() {
        let note = "The transition table decides how far a short window reaches, so accuracies mean little without it.";
        details = paragraph(note) + &details;
    }
    Section { title: "What a window of symbols can know".into(), details, figures, ..Section::default() }
}

/// Bars of the predictors with the accuracy of every row as a line.
fn baselines(runs: &[Run], index: usize, task: &TaskResult) -> Option<Figure> {
    let primary = &task.primary_metric;
    let window = |name: &str| {
        let length = name.strip_prefix("window_").or_else(|| name.strip_prefix("order_"));
        length.and_then(|w| w.parse::<u64>().ok())
    };
    let mut bars: Vec<(Option<u64>, &str, f64)> =
        task.baselines.iter().map(|(name, value)| (window(name), name.as_str(), *value)).collect();
    if bars.is_empty() {
        return None;
    }
    // Those without a window first, then by its length.
    bars.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.cmp(b.1)));
    let names = bars.iter().map(|(w, name, _)| w.map_or_else(|| name.replace('_', " "), |w| w.to_string()));
    let mut chart = BarChart::new(figure_title(runs, index, "Predictors that see the last w symbols"), names)
        .x_label("window w (symbols)")
        .y(Axis::new(metric_name(primary)))
        .bars("", bars.iter().map(|b| b.2))
        .show_values(3);
    for row in runs[index].rows() {
        if let Some(value) = row.validation.get(primary).filter(|value| value.is_finite()) {
            chart = chart.horizontal_line(value, format!("{value:.3} {}", row.name));
        }
    }
    let caption = if bars.iter().any(|(_, name, _)| name.starts_with("order_")) {
        "Bars: what counting reaches on validation, by models of the training part that see up to w symbols. Lines: what the \
         adapters reach there."
    } else if primary == metric::LOSS {
        "Bars: the loss on validation of a predictor that knows how often each answer followed the last w symbols in the training part. \
         Lines: what the adapters reach there."
    } else {
        "Bars: the best accuracy that any predictor can have that sees the position and the last w symbols, exact for this \
         task. Lines: what the adapters reach on validation."
    };
    Some(Figure::bar(figure_name(runs, index, "window-predictors"), caption, chart))
}

/// Accuracy by quarter of the sequence.
fn quarters(runs: &[Run], index: usize) -> Option<Figure> {
    let names = (1..=4).map(|q| format!("{}{q}", metric::ACCURACY_QUARTER)).collect::<Vec<_>>();
    let mut chart =
        BarChart::new(figure_title(runs, index, "Accuracy along the sequence"), ["first", "second", "third", "last"])
            .x_label("quarter of the positions")
            .y(Axis::new("accuracy"))
            .show_values(2);
    let mut any = false;
    for row in runs[index].rows().iter().filter(|row| row.derived_from().is_none()) {
        let values: Vec<f64> = names.iter().map(|n| row.validation.get(n).unwrap_or(f64::NAN)).collect();
        if values.iter().any(|v| v.is_finite()) {
            chart = chart.inked_bars(&row.name, values, ink(runs, &row.name));
            any = true;
        }
    }
    any.then(|| Figure::bar(figure_name(runs, index, "accuracy-by-quarter"), "", chart))
}

fn transition_table(rows: &[Vec<u32>]) -> String {
    let symbols = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut out = String::from(
        "<div class=\"scroll\" tabindex=\"0\"><table class=\"small\">\n<caption>next state</caption><thead><tr><th scope=\"col\">state</th>",
    );
    for symbol in 0..symbols {
        write!(out, "<th scope=\"col\" class=\"number\">symbol {symbol}</th>").expect("writing to a string");
    }
    out += "</tr></thead>\n<tbody>\n";
    for (state, next) in rows.iter().enumerate() {
        write!(out, "<tr><th scope=\"row\">{state}</th>").expect("writing to a string");
        for value in next {
            write!(out, "<td class=\"number\">{}</td>", Text(value)).expect("writing to a string");
        }
        out += "</tr>\n";
    }
    out + "</tbody></table></div>\n"
}
