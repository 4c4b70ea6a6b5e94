//! The table of claims: paper, ours, verdict.

use super::CellRun;
use crate::Cell;
use crate::audit::brief;
use crate::claims::{self, Verdict};
use hankel_trainer::report::Section;
use hankel_trainer::report::html::{Cell as Html, Text, paragraph, table, unbroken};

/// Every claim on an experiment that is among the runs. The paper's have scales; others may have their names.
pub(super) fn section(runs: &[CellRun]) -> Section {
    let cells: Vec<Cell> = runs.iter().map(|run| run.cell.clone()).collect();
    let mut all = claims::all();
    all.retain(|claim| cells.iter().any(|cell| cell.id.scale.is_some() && cell.id.experiment == claim.experiment));
    let mut rows = Vec::new();
    for outcome in claims::evaluate(&all, &cells, &[]) {
        let claim = outcome.claim;
        let groups = outcome.measured.groups.iter();
        let figures =
            groups.map(|group| format!("<div>{}</div>", Text(unbroken(&brief(group))))).collect::<Vec<_>>().concat();
        let figures = format!("<small>{}</small>{figures}", Text(&claim.ours));
        let class = match outcome.verdict {
            Verdict::Confirmed => "good",
            Verdict::NotConfirmed(_) => "bad",
            _ => "open",
        };
        let name = format!("<span class=\"verdict {class}\">{}</span>", Text(outcome.verdict.name()));
        let experiment = match &outcome.scale {
            Some(scale) => format!("{}, {scale}", claim.experiment),
            None => claim.experiment.clone(),
        };
        rows.push(vec![
            Html::text(&claim.id).with_note(&experiment),
            Html::text(unbroken(&claim.paper)),
            Html::html(figures),
            Html::html(name).with_note(outcome.verdict.reason()),
        ]);
    }
    if rows.is_empty() {
        return Section::default();
    }
    let headers = ["claim", "paper", "ours: mean ± standard deviation", "verdict"].map(Html::text);
    let note = "A claimed difference is confirmed when the 95 % interval of Student's t for the mean of paired differences is on the claimed \
                side at every point of the grid, after Holm's correction over these claims; pairs share seed, data and backbone. Rows that \
                are compared must beat `none` and have converged. Figures are of the test split where there is one.";
    let html = paragraph(note) + &table(&headers, &rows).replacen("<table>", "<table class=\"claims\">", 1);
    Section { title: "Claims".into(), html, ..Section::default() }
}
