//! The table of all rows: what each adapter costs and what it reaches.

use hankel_plots::{Align, Table};

use super::Section;
use super::html::{Cell, paragraph, table};
use super::run::Run;
use crate::format::{difference, duration, metric_name, orders, score, thousands};
use crate::metrics::TextMetric;
use crate::results::{AdapterResult, RunResult, Scores, metric};
use crate::tasks::text::LONGBENCH_SCORE;

/// Whether a metric is in the table; others have their own section.
fn in_table(name: &str) -> bool {
    !name.starts_with(metric::ACCURACY_QUARTER)
}

/// Names of the metrics of all rows, the primary ones first, then those of texts, accuracy, bits and loss.
fn metrics(runs: &[Run]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut add = |name: &str| {
        if !names.iter().any(|n| n == name) && in_table(name) {
            names.push(name.to_owned());
        }
    };
    let scores: Vec<&Scores> =
        runs.iter().flat_map(Run::rows).flat_map(|row| row.test.iter().chain([&row.validation])).collect();
    for run in runs {
        if let Some(result) = &run.result {
            add(&result.task.primary_metric);
        }
    }
    let texts = TextMetric::ALL.into_iter().filter(|metric| !metric.is_of_other_software()).map(TextMetric::name);
    for name in texts.chain([metric::ACCURACY, metric::BITS_PER_CHARACTER, metric::BITS_PER_EVENT, metric::LOSS]) {
        if scores.iter().any(|s| s.get(name).is_some()) {
            add(name);
        }
    }
    for name in scores.iter().flat_map(|s| s.metrics.keys()) {
        add(name);
    }
    names
}

/// The best value of a metric among the rows of a run, if there is a choice.
fn best(rows: &[AdapterResult], scores: impl Fn(&AdapterResult) -> Option<&Scores>, name: &str) -> Option<f64> {
    let values: Vec<f64> =
        rows.iter().filter_map(|row| scores(row)?.get(name)).filter(|value| value.is_finite()).collect();
    if values.len() < 2 {
        return None;
    }
    let pick = if metric::larger_is_better(name) { f64::max } else { f64::min };
    values.into_iter().reduce(pick)
}

/// Difference of a row to the row without adapter, in the primary metric.
fn to_none(run: &Run, result: &RunResult, row: &AdapterResult) -> Option<f64> {
    let none = run.baseline().filter(|none| none.name != row.name)?;
    let primary = &result.task.primary_metric;
    Some(row.validation.get(primary)? - none.validation.get(primary)?)
}

/// Orders of a truncated row out of those it came from, or the state sizes and ranks of a full one.
fn order_cell(run: &Run, row: &AdapterResult) -> String {
    let of = |row: &AdapterResult| row.layers.iter().map(|layer| layer.order).collect::<Vec<_>>();
    let own = orders(&of(row));
    match row.truncated_from.as_ref().and_then(|name| run.rows().iter().find(|r| r.name == *name)) {
        Some(full) if !full.layers.is_empty() => format!("{own} of {}", orders(&of(full))),
        _ => own,
    }
}

/// What the sizes of rows are called: adapters on the stream have states, those at projections a rank.
fn size_name<'a>(rows: impl IntoIterator<Item = &'a AdapterResult>) -> &'static str {
    let (mut states, mut ranks) = (false, false);
    for row in rows.into_iter().filter(|row| !row.layers.is_empty()) {
        let is_stream = row.layers.iter().any(|layer| layer.gate.is_some());
        states |= is_stream;
        ranks |= !is_stream;
    }
    match (states, ranks) {
        (true, true) => "states or rank",
        (false, true) => "rank",
        _ => "states",
    }
}

fn extra_parameters(row: &AdapterResult) -> String {
    let counts = &row.parameters;
    [("head", counts.head), ("embeddings", counts.embeddings), ("backbone", counts.backbone)]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("+ {} {name}", thousands(count)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The step whose parameters a row has, of how many, where evaluations decided.
fn kept(row: &AdapterResult) -> Option<String> {
    let training = row.training.as_ref()?;
    let kept = training.kept.as_ref()?;
    Some(format!("{} of {}", thousands(kept.step), thousands(training.steps)))
}

/// Which adapters have no row, and what the evaluations during training decided, a sentence each.
fn decisions(result: &RunResult) -> Vec<String> {
    let mut all: Vec<String> =
        result.diverged.iter().map(|lost| format!("{} has no row: {}.", lost.name, lost.error)).collect();
    for (name, training) in result.rows.iter().filter_map(|row| Some((&row.name, row.training.as_ref()?))) {
        if let Some(kept) = training.kept.as_ref().filter(|kept| kept.step < training.steps) {
            all.push(format!(
                "{name} is as it was after step {}, the best of {} evaluations: {} {}, and {} after step {}.",
                thousands(kept.step),
                kept.evaluations,
                metric_name(&kept.metric),
                score(kept.value),
                score(kept.last),
                thousands(training.steps)
            ));
        }
        if let Some(planned) = training.planned_steps {
            let [done, planned] = [training.steps, planned].map(thousands);
            all.push(format!("{name} stopped after {done} of {planned} steps: evaluations became no better."));
        }
    }
    all
}

/// The section with the table.
pub(super) fn section(runs: &[Run]) -> Section {
    let names = metrics(runs);
    let any_test = runs.iter().flat_map(Run::rows).any(|row| row.test.is_some());
    let mut headers = Vec::new();
    if runs.len() > 1 {
        headers.push(Cell::text("run"));
    }
    headers.extend([Cell::text("adapter"), Cell::number("adapter parameters").with_note("+ other trained")]);
    for (i, name) in names.iter().enumerate() {
        headers.push(Cell::number(metric_name(name)).with_note(if any_test { "validation" } else { "" }));
        if i == 0 {
            headers.push(Cell::number("difference to none"));
        }
        if any_test {
            headers.push(Cell::number(metric_name(name)).with_note("test"));
        }
    }
    headers.extend([
        Cell::number(size_name(runs.iter().flat_map(Run::rows))).with_note("per layer"),
        Cell::number("training time"),
    ]);

    let mut rows = Vec::new();
    for run in runs {
        let Some(result) = &run.result else { continue };
        for row in run.rows() {
            let mut cells = Vec::new();
            if runs.len() > 1 {
                cells.push(Cell::text(&run.name));
            }
            let settings = row.truncation_rule.as_ref().unwrap_or(&row.settings);
            cells.push(Cell::text(&row.name).with_note(settings));
            cells.push(Cell::number(thousands(row.parameters.adapter)).with_note(&extra_parameters(row)));
            for (i, name) in names.iter().enumerate() {
                let figure = |scores: Option<&Scores>, best: Option<f64>| match scores.and_then(|s| s.get(name)) {
                    Some(value) => Cell::number(score(value)).best(best == Some(value)),
                    None => Cell::number("–"),
                };
                cells.push(figure(Some(&row.validation), best(run.rows(), |r| Some(&r.validation), name)));
                if i == 0 {
                    let difference = to_none(run, result, row).map_or("–".to_owned(), difference);
                    // Beside the metric of another run.
                    let primary = &result.task.primary_metric;
                    let note = if primary == name { String::new() } else { metric_name(primary) };
                    cells.push(Cell::number(difference).with_note(&note));
                }
                if any_test {
                    cells.push(figure(row.test.as_ref(), best(run.rows(), |r| r.test.as_ref(), name)));
                }
            }
            cells.push(Cell::number(order_cell(run, row)));
            let time = row.training.as_ref().map_or("–".to_owned(), |t| duration(t.seconds));
            let steps = match (kept(row), &row.training) {
                (Some(kept), _) => format!("step {kept} kept"),
                (None, Some(training)) => format!("{} steps", thousands(training.steps)),
                (None, None) => String::new(),
            };
            cells.push(Cell::number(time).with_note(&steps));
            rows.push(cells);
        }
    }
    if rows.is_empty() {
        return Section::default();
    }
    let lower: Vec<String> =
        names.iter().filter(|name| !metric::larger_is_better(name)).map(|name| metric_name(name)).collect();
    let mut note = "Bold: best of its column in its run. Each row is a single training run: \
                    small differences may be noise between seeds."
        .to_owned();
    if !lower.is_empty() {
        note = format!("{note} Smaller is better for {}.", lower.join(", "));
    }
    let of_run = |run: &Run| -> Vec<String> {
        let place = if runs.len() > 1 { format!("{}: ", run.name) } else { String::new() };
        let decided = run.result.as_ref().map(decisions).unwrap_or_default();
        decided.into_iter().map(|sentence| format!("{place}{sentence}")).collect()
    };
    let decisions: Vec<String> = runs.iter().flat_map(of_run).collect();
    if !decisions.is_empty() {
        note = format!("{note} {}", decisions.join(" "));
    }
    Section { title: "Comparison".into(), html: table(&headers, &rows) + &paragraph(note), ..Section::default() }
}

/// The comparison of a finished run as lines of text, for the end of a run in the terminal. Which step was kept is told behind
/// the table where it is not the last.
pub fn text_table(result: &RunResult) -> String {
    let run = Run { name: result.name.clone(), result: Some(result.clone()), ..Run::default() };
    let runs = [run];
    let of_other_software = |name: &str| name.parse().is_ok_and(TextMetric::is_of_other_software);
    let of_one_data_set = |name: &str| name.strip_prefix(LONGBENCH_SCORE).is_some_and(|rest| !rest.is_empty());
    let mut names = metrics(&runs);
    // A terminal is narrow: these are in the report.
    let in_report = |name: &str| of_other_software(name) || of_one_data_set(name);
    names.retain(|name| *name == result.task.primary_metric || !in_report(name));
    let compared = result.rows.iter().any(|row| to_none(&runs[0], result, row).is_some());
    let mut headers = vec!["adapter".to_owned(), "adapter parameters".to_owned()];
    for (i, name) in names.iter().enumerate() {
        headers.push(metric_name(name));
        if i == 0 && compared {
            headers.push("to none".to_owned());
        }
    }
    headers.extend([size_name(&result.rows), "time"].map(str::to_owned));
    let mut rows = Vec::new();
    for row in &result.rows {
        let mut cells = vec![row.name.clone(), thousands(row.parameters.adapter)];
        for (i, name) in names.iter().enumerate() {
            cells.push(row.validation.get(name).map_or("–".to_owned(), score));
            if i == 0 && compared {
                cells.push(to_none(&runs[0], result, row).map_or("–".to_owned(), difference));
            }
        }
        let sizes: Vec<usize> = row.layers.iter().map(|layer| layer.order).collect();
        cells.push(range(&sizes));
        cells.push(row.training.as_ref().map_or("–".to_owned(), |t| duration(t.seconds)));
        rows.push(cells);
    }
    let table = narrow_table(&headers, rows);
    let told = trained_besides(result).into_iter().chain(states_kept(&runs[0])).chain(decisions(result));
    told.fold(table, |text, line| text + "\n" + &line)
}

/// The least and the most of `sizes`.
fn range(sizes: &[usize]) -> String {
    match (sizes.iter().min(), sizes.iter().max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (least, _) => least.map_or_else(String::new, usize::to_string),
    }
}

/// The states that truncated rows have in each layer, a sentence for each where they are not the same everywhere.
fn states_kept(run: &Run) -> Vec<String> {
    let varies = |row: &&AdapterResult| row.layers.windows(2).any(|pair| pair[0].order != pair[1].order);
    let truncated = run.rows().iter().filter(|row| row.truncated_from.is_some()).filter(varies);
    truncated.map(|row| format!("{} has kept {} states.", row.name, order_cell(run, row))).collect()
}

/// A table for a terminal, the first column of text and the others of numbers, whose headers take two lines.
fn narrow_table(headers: &[String], rows: Vec<Vec<String>>) -> String {
    let halves: Vec<(&str, &str)> =
        headers.iter().map(|header| header.split_once(' ').unwrap_or(("", header))).collect();
    let aligns = (0..).map(|column| if column == 0 { Align::Left } else { Align::Right });
    let lower = halves.iter().map(|(upper, lower)| format!("{lower:>0$}", upper.chars().count()));
    let mut table = Table::new(lower.zip(aligns));
    rows.into_iter().for_each(|row| table.row(row));
    let table = table.to_string();
    // The rule has the widths of the columns.
    let rule = table.lines().nth(1).unwrap_or_default();
    let upper = rule.split("  ").zip(&halves).map(|(rule, (upper, _))| format!("{upper:>0$}", rule.chars().count()));
    format!("{}\n{table}", upper.collect::<Vec<_>>().join("  ").trim_end())
}

/// What was trained that is not of an adapter, a sentence for all rows, or for each.
fn trained_besides(result: &RunResult) -> Vec<String> {
    let of = |row: &AdapterResult| extra_parameters(row).replace("+ ", "");
    match &result.rows[..] {
        [first, others @ ..] if others.iter().all(|row| of(row) == of(first)) => match of(first) {
            none if none.is_empty() => Vec::new(),
            more => vec![format!("Every row also trained parameters of the backbone: {more}.")],
        },
        rows => {
            let each = rows.iter().filter(|row| !of(row).is_empty());
            each.map(|row| format!("{} also trained parameters of the backbone: {}.", row.name, of(row))).collect()
        }
    }
}
