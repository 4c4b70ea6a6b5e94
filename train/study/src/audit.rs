//! `docs/reproduction.md`: the claims one by one, written from the files of results.

mod alike;
mod figures;
mod hypotheses;
mod overview;
mod quarters;
mod references;
mod rules;
mod shared;

use crate::claims::{Claim, Expect, Outcome, Verdict};
use crate::measure::{Group, Measured};
use crate::statistics::{Estimate, Summary};
use crate::{Cell, Plan, Study, changes, computed, files, measure};
use hankel_plots::{Chart, PlotError};
use hankel_trainer::format::{capitalised, counted, significant as number};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The pictures of the page as SVG, by the names of their files in `images` beside it.
///
/// # Errors
/// When one has more rows than a picture can hold.
pub fn pictures(outcomes: &[Outcome]) -> Result<Vec<(String, String)>, PlotError> {
    figures::charts(outcomes).into_iter().map(|(name, chart)| Ok((name, chart.to_svg()?))).collect()
}

/// The audit, as Markdown: what became of claims on `cells`, and where there are more or fewer of them than in `plans`; and of the hypotheses of
/// our own `studies`.
pub fn audit(outcomes: &[Outcome], cells: &[Cell], plans: &[Plan], studies: &[Study]) -> String {
    let computed = computed::all();
    let mut out = format!("{TITLE}\n{HEAD}");
    let count = |name: &str| outcomes.iter().filter(|outcome| outcome.verdict.name() == name).count();
    let counts: Vec<String> = Verdict::NAMES.iter().map(|name| format!("{} {name}", count(name))).collect();
    let undecided = outcomes.iter().filter(|outcome| matches!(outcome.verdict, Verdict::Undecided(_))).count();
    let _ = write!(
        out,
        "Of {} claims: {}. Of those not confirmed {undecided} are undecided: more runs might decide them.\n{} further ones need no \
         training: [computed](#computed).\n\n",
        outcomes.len(),
        counts.join(", "),
        computed.len()
    );
    out += &overview::overview(outcomes, &computed, cells);
    out += &hypotheses::section(studies);
    out += &figures::section(outcomes);
    out += &rules::section(outcomes, cells);
    out += "\n## All claims\n\n";
    out += "| claim | paper | ours (mean and its 95 % interval, n) | verdict |\n| --- | --- | --- | --- |\n";
    for outcome in outcomes {
        let claim = outcome.claim;
        let verdict = match outcome.verdict.reason() {
            "" => outcome.verdict.name().to_owned(),
            why => format!("{}: {why}", outcome.verdict.name()),
        };
        let of = |measured: &Measured| -> Vec<String> {
            let groups = measured.groups.iter();
            groups.map(|group| labelled(group, &overview::interval(group, claim.expect)) + &loss(group)).collect()
        };
        let mut figures = of(&outcome.measured);
        for (scale, measured) in &outcome.elsewhere {
            let scale = scale.as_deref().unwrap_or("elsewhere");
            figures.extend(of(measured).into_iter().map(|figure| format!("*{scale}*: {figure}")));
        }
        let figures = if figures.is_empty() { "–".to_owned() } else { figures.join("<br>") };
        let _ = writeln!(out, "| {} | {} | {figures} | {verdict} |", link(&claim.id), claim.paper);
    }
    let mut experiment = "";
    for outcome in outcomes {
        if outcome.claim.experiment != experiment {
            experiment = &outcome.claim.experiment;
            let _ = write!(out, "\n## {experiment}\n\n{}", section(experiment, cells, plans));
        }
        out += &one(outcome, cells);
    }
    out += "\n## Computed\n\nThese need no training; they are computed whenever this page is written (`train/study/src/computed.rs`).\n";
    for claim in &computed {
        let verdict = claim.verdict();
        let why = if verdict.reason().is_empty() { String::new() } else { format!(": {}", verdict.reason()) };
        let verdict = format!("**{}**{why}", capitalised(verdict.name()));
        let _ = write!(
            out,
            "\n### {}\n\n- Paper: {}.\n- Ours: {}. It stands if {}.\n  - {}\n- {verdict}.\n",
            claim.id,
            claim.paper,
            claim.ours,
            claim.expect.describe(),
            detail(&claim.group, claim.expect)
        );
    }
    out + &changes::section()
}

/// What the page begins with.
pub const TITLE: &str = "# Reproduction of the paper's claims";

const HEAD: &str = "
Written by `train audit` from the figures in [results](results) and the list of claims in `train/study/src/claims.toml`; no number or verdict here is
typed by hand. Effects have their 95 % intervals, over runs. [Rules](#rules) say when a claim stands, [all claims](#all-claims) lists them in the paper's order,
[changes](#changed-after-results) tells what was changed when results were known, [data.md](data.md) says which parts of the data were used. Where an experiment was run at several scales, the largest that is complete decides.
A result at several points of a grid is the range that holds all their intervals; the list has them one by one, at every scale.

";

/// A link to the section of a claim: renderers of Markdown leave dots out of the anchors of headings.
fn link(id: &str) -> String {
    format!("[{id}](#{})", id.replace('.', ""))
}

/// Which cells there are of an experiment, as a section of the page.
fn section(experiment: &str, cells: &[Cell], plans: &[Plan]) -> String {
    let file = format!("`train/experiments/paper/{experiment}.toml`");
    let runs = runs(experiment, cells);
    let mut out = if runs.is_empty() {
        format!("{file} has not been run.\n")
    } else {
        runs.iter().map(|run| format!("{file} {run}\n")).collect::<Vec<_>>().join("\n")
    };
    out += &references::section(experiment, cells);
    let own = || plans.iter().filter(|plan| plan.experiment == experiment);
    let shared: Vec<String> = own()
        .filter(|plan| plan.shares_rate)
        .map(|plan| format!("`{}`", plan.scale.as_deref().unwrap_or("none")))
        .collect();
    if !shared.is_empty() && !runs.is_empty() {
        let _ = write!(
            out,
            "\nAt scale {} all adapters of a cell are trained at one learning rate: one that is behind may do better at another.\n",
            shared.join(" and ")
        );
    }
    out += &alike::section(experiment, cells);
    out += &shared::section(experiment, cells);
    if let Some(plan) = own().find_map(|plan| plan.text.as_ref()) {
        let _ = write!(out, "\nWhat was planned:\n\n");
        for hypothesis in &plan.hypotheses {
            let _ = writeln!(out, "- {hypothesis}");
        }
        let parts = [
            ("Units", &plan.units),
            ("Controls", &plan.controls),
            ("Test", &plan.test),
            ("Stopping", &plan.stopping),
            ("Power", &plan.power),
        ];
        for (name, words) in parts {
            let _ = writeln!(out, "- {name}: {words}.");
        }
    }
    for deviation in own().filter_map(|plan| plan.deviation(cells)) {
        let _ = write!(out, "\n**Not as planned:** {deviation}.\n");
    }
    out
}

/// Which cells there are of an experiment, a sentence for each scale: how many, of what, where and how long.
pub(super) fn runs(experiment: &str, cells: &[Cell]) -> Vec<String> {
    let own: Vec<&Cell> = cells.iter().filter(|cell| cell.id.experiment == experiment).collect();
    let scales: BTreeSet<&Option<String>> = own.iter().map(|cell| &cell.id.scale).collect();
    let run = |scale: &Option<String>| {
        let here: Vec<&Cell> = own.iter().copied().filter(|cell| cell.id.scale == *scale).collect();
        let results: Vec<_> = here.iter().filter_map(|cell| cell.result.as_ref()).collect();
        let seconds = results.iter().map(|result| result.wall_time_seconds).sum::<f64>();
        let mut facts = BTreeSet::new();
        for result in &results {
            let e = &result.environment;
            let commit = e.commit.as_ref().map_or_else(String::new, |commit| format!(", commit {commit}"));
            facts.insert(format!(
                "{} with {} threads, device {}, hankel {}{commit}",
                e.cpu, e.threads, e.device, e.hankel
            ));
        }
        let mut out = scale.as_deref().map_or_else(|| "whole".to_owned(), |scale| format!("at scale `{scale}`"));
        let _ = write!(out, ": {}, {}", counted(here.len(), "cell"), counted(files::seeds(&here).max(1), "seed"));
        for (axis, values) in measure::axes(&here) {
            let _ = write!(out, ", {} {}", axis.replace('-', " "), values.join("/"));
        }
        let _ = write!(out, "; {seconds:.0} s in all. {}.", facts.into_iter().collect::<Vec<_>>().join("; "));
        out
    };
    scales.into_iter().map(run).collect()
}

/// Who says it, and what.
fn source(claim: &Claim) -> String {
    let kinds = [("(open) ", "Question"), ("(left out) ", "Left out by the paper"), ("(control) ", "Control")];
    let own = kinds.iter().find_map(|(mark, kind)| Some((*kind, claim.paper.strip_prefix(mark)?)));
    let (kind, words) = own.unwrap_or(("Paper", &claim.paper));
    format!("{kind}: {words}{}", if words.ends_with('?') { "" } else { "." })
}

fn one(outcome: &Outcome, cells: &[Cell]) -> String {
    let claim = outcome.claim;
    let mut out = format!("\n### {}\n\n- {}\n", claim.id, source(claim));
    if !claim.released.is_empty() {
        let _ = writeln!(out, "- Its released code: {}.", claim.released);
    }
    let control = claim
        .control
        .as_ref()
        .map_or_else(String::new, |row| format!(", and `{row}`, trained as long, is shown to do better"));
    let _ = writeln!(out, "- Ours: {}. It stands if {}{control}.", claim.ours, claim.expect.describe());
    let mut at = |scale: &Option<String>, measured: &Measured, decides: &str| {
        if measured.groups.is_empty() {
            return;
        }
        let title = scale.as_ref().map_or_else(|| "Measured".to_owned(), |scale| format!("At scale `{scale}`"));
        let _ = writeln!(out, "- {title}{decides}:");
        let quarters = quarters::of(claim, scale.as_deref(), measured, cells);
        for (index, group) in measured.groups.iter().enumerate() {
            let by_quarters = quarters.get(index).map_or_else(String::new, |quarters| format!("; {quarters}"));
            let _ = writeln!(out, "  - {}{by_quarters}", detail(group, claim.expect));
        }
    };
    let undecided = matches!(outcome.verdict, Verdict::NotTestable(_) | Verdict::NotMeasured(_));
    let decides = if outcome.elsewhere.is_empty() || undecided { "" } else { ", which decides" };
    at(&outcome.scale, &outcome.measured, decides);
    outcome.elsewhere.iter().for_each(|(scale, measured)| at(scale, measured, ""));
    if outcome.measured.diverged > 0 && claim.measure.of != measure::DIVERGED {
        let _ = writeln!(
            out,
            "  - {} came to values that are not finite and left out of these figures.",
            counted(outcome.measured.diverged, "run")
        );
    }
    for (of, test) in [("the claim", outcome.test), ("what speaks against it", outcome.against)] {
        let Some(test) = test else { continue };
        let _ = writeln!(
            out,
            "- Test of {of}: p = {}; after Holm's correction over {} tests {}.",
            number(test.p),
            test.tests,
            number(test.holm)
        );
    }
    let scale = outcome.scale.as_ref().filter(|_| outcome.verdict.is_decided());
    let scale = scale.map_or_else(String::new, |scale| format!(" (at scale `{scale}`)"));
    let why = match outcome.verdict.reason() {
        "" => String::new(),
        why => format!(": {why}"),
    };
    let _ = writeln!(out, "- **{}**{why}{scale}.", capitalised(outcome.verdict.name()));
    out
}

/// `0.5123 ± 0.0040 (n = 3)`.
fn summary(summary: &Summary) -> String {
    let sd = summary.sd.map_or_else(String::new, |sd| format!(" ± {}", number(sd)));
    format!("{}{sd} (n = {})", number(summary.mean), summary.n)
}

/// A group in a cell of a table.
pub(crate) fn brief(group: &Group) -> String {
    labelled(group, &summary(&group.summary))
}

fn labelled(group: &Group, figures: &str) -> String {
    if group.label.is_empty() { figures.to_owned() } else { format!("{}: {figures}", group.label) }
}

/// A group with both sides of its comparison.
pub(super) fn compared(group: &Group) -> String {
    let mut out = brief(group);
    if let Some([own, other]) = &group.sides {
        let side = |(name, s): &(String, Summary)| {
            let sd = s.sd.map_or_else(String::new, |sd| format!(" ± {}", number(sd)));
            format!("{name} {}{sd}", number(s.mean))
        };
        let _ = write!(out, "; {}, {}", side(own), side(other));
    }
    out
}

/// A group in a line: both sides, interval, test and size of the effect.
fn detail(group: &Group, expect: Expect) -> String {
    let mut out = compared(group);
    if let Expect::AtMost(_) | Expect::EachWithin(..) = expect {
        let _ = write!(out, "; largest {}", number(group.largest()));
    } else if let Some(e) = group.estimate(expect.limit().unwrap_or(0.0)) {
        let ((low, high), (least, most)) = (e.interval, group.bootstrap());
        let _ = write!(out, "; 95 % {} to {}", number(low), number(high));
        let _ = write!(out, ", bootstrap {} to {}", number(least), number(most));
        if group.sides.is_some() && expect.limit().is_some() {
            let _ = write!(out, "; t = {}, p = {}", number(e.t), number(e.p));
            let _ = e.hedges_g.map(|g| write!(out, ", Hedges' g = {}", number(g)));
        }
    }
    out + &loss(group)
}

/// What is said beside another metric: the paired difference of the losses, with its interval.
fn loss(group: &Group) -> String {
    let Some(e) = group.losses.as_ref().and_then(|losses| Estimate::of_units(losses, 0.0)) else {
        return String::new();
    };
    let (low, high) = e.interval;
    format!("; loss {} ({} to {})", number(e.summary.mean), number(low), number(high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims;
    use crate::documents::links::anchor;

    #[test]
    fn links_lead_to_sections() {
        assert_eq!(link("cost-at-0.01"), "[cost-at-0.01](#cost-at-001)");
        assert_eq!(anchor(" cost-at-0.01"), "cost-at-001");
        let claims = claims::all();
        let page = audit(&claims::evaluate(&claims, &[], &[]), &[], &[], &[]);
        let anchors: BTreeSet<String> = page
            .lines()
            .filter(|line| line.starts_with('#'))
            .map(|line| anchor(line.trim_start_matches('#')))
            .collect();
        let links: Vec<&str> = page.split("](#").skip(1).filter_map(|rest| rest.split(')').next()).collect();
        assert!(links.len() > 100);
        assert_eq!(links.iter().find(|link| !anchors.contains(**link)), None);
    }
}
