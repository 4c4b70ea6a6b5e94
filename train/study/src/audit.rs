//! `docs/reproduction.md`: the claims one by one, written from the files of results.

mod figures;
mod overview;

use crate::claims::{Claim, Expect, Outcome, Verdict};
use crate::measure::{Group, Measured};
use crate::statistics::{Estimate, Summary};
use crate::{Cell, Plan, changes, computed, files, measure};
use hankel_plots::{Chart, PlotError};
use hankel_trainer::format::{capitalised, counted, significant as number};
use statrs::distribution::{ContinuousCDF, StudentsT};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The pictures of the page as SVG, by the names of their files in `images` beside it.
///
/// # Errors
/// When one has more rows than a picture can hold.
pub fn pictures(outcomes: &[Outcome]) -> Result<Vec<(String, String)>, PlotError> {
    figures::charts(outcomes).into_iter().map(|(name, chart)| Ok((name, chart.to_svg()?))).collect()
}

/// The audit, as Markdown: what became of claims on `cells`, and where there are more or fewer of them than in `plans`.
pub fn audit(outcomes: &[Outcome], cells: &[Cell], plans: &[Plan]) -> String {
    let computed = computed::all();
    let mut out = format!("{TITLE}\n{HEAD}");
    out += &overview::overview(outcomes, &computed);
    out += &figures::section(outcomes);
    let count = |name: &str| outcomes.iter().filter(|outcome| outcome.verdict.name() == name).count();
    let counts: Vec<String> = Verdict::NAMES.iter().map(|name| format!("{} {name}", count(name))).collect();
    let undecided = outcomes.iter().filter(|outcome| matches!(outcome.verdict, Verdict::Undecided(_))).count();
    out += RULES;
    out += &many_tests(outcomes);
    out += &changes::section();
    let _ = write!(
        out,
        "\n## All claims\n\nOf {} claims: {}. Of those not confirmed {undecided} are undecided: more runs might decide them.\n{} further ones need no \
         training: [computed](#computed).\n\n",
        outcomes.len(),
        counts.join(", "),
        computed.len()
    );
    out += "| claim | paper | ours (mean and its 95 % interval, n) | verdict |\n| --- | --- | --- | --- |\n";
    for outcome in outcomes {
        let claim = outcome.claim;
        let verdict = match outcome.verdict.reason() {
            "" => outcome.verdict.name().to_owned(),
            why => format!("{}: {why}", outcome.verdict.name()),
        };
        let of = |measured: &Measured| -> Vec<String> {
            let groups = measured.groups.iter();
            groups.map(|group| labelled(group, &overview::interval(group, claim.expect))).collect()
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
        out += &one(outcome);
    }
    out += "\n## Computed\n\nThese need no training; they are computed whenever this page is written (`train/study/src/computed.rs`).\n";
    for claim in &computed {
        let verdict = match (claim.holds(), claim.by_construction) {
            (false, _) => "**Not confirmed**".to_owned(),
            (true, "") => "**Confirmed**".to_owned(),
            (true, why) => format!("**True by construction**: {why}"),
        };
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
    out
}

/// What the page begins with.
pub const TITLE: &str = "# Reproduction of the paper's claims";

const HEAD: &str = "
Written by `train audit` from the figures in [results](results) and the list of claims in `train/study/src/claims.toml`; no number or verdict here is
typed by hand. Effects have their 95 % intervals, over runs. [Rules](#rules) say when a claim stands, [all claims](#all-claims) lists them in the paper's order,
[data.md](data.md) says which parts of the data were used. Where an experiment was run at several scales, the largest decides.
A result at several points of a grid is the range that holds all their intervals; the list has them one by one, at every scale.

";

const RULES: &str = "
## Rules

A figure is the mean over runs, of the test split where an experiment has one, else of the validation split. Differences are taken between rows of the same run: same seed, data, table and backbone.
Runs that repeat each other are units, seeds unless a claim names others; figures of one unit are averaged, and the interval of Student's t is over units. Beside it stands a hierarchical
bootstrap, which draws units at every level. Units that do not differ at all are judged by a sign test; spreads take five of them.

A claim stands at a point when the 95 % interval is on the claimed side, or within the claimed range for a size and for the equality of two rows (two one-sided tests, each at 2.5 %). It has to
stand at every point of the grid that it is about; it is refuted where the interval of one point lies on the other side. Both have to hold after Holm's correction over all claims that figures
are held against, whatever else keeps them from a verdict; figures that are each held against a bound, and counts, are no tests. A scale that is not complete by its plan, or where a run lacks a row
that a claim names, has figures and no verdict, and runs beside those planned do not count. Figures of which any two would agree, of other runs too, do not confirm an agreement.

Where an experiment has several learning rates, every row is taken at the one of its least validation loss, the mean over units, and its figures are of the test split, or there are none. What is
compared has to beat no adapter, and the predictor that sees one symbol where one is on record (`window_1`, `order_1`, on the validation split), and to have converged, at every point of the grid,
on average over its units; where what truncation leaves of one row is compared, the row has to. Of several rivals the chosen one has to beat no adapter, and all have to have converged, since any
might come to be chosen. One row by itself, too, is judged when it has converged, unless more training could only move it further to the side on which it is, at every point or at one that refutes the claim: stopping early does not show that a
row cannot learn, or that it does not diverge. What training makes of a row (order, gate, contribution, poles) is judged when its training has converged and gained something. The best of several rivals is the one of the least
validation loss where figures are of the test split; else it is chosen on the figures themselves, and its p counts once for each rival. A run that diverged is an outcome: neither side is shown by
what is left. Beside another metric stands the paired difference of the losses, which training lowers.

| verdict | |
| --- | --- |
| confirmed | shown at every point, after the correction |
| confirmed in part | shown at every point that was run; the claim is about more |
| not confirmed | *undecided*: the interval includes the limit, or chance among so many tests could show it, or refute it; *the contrary*: it lies on the other side; *outside* the claimed range |
| true by construction | no data could have spoken against it |
| no comparison | a compared row is no better than the model without an adapter, or than a predictor that sees one symbol |
| not converged | a row was still learning when it was stopped: the line through the validation losses of the last fifth, continued for as long, falls by 2 % of the gain over no adapter, or more, all on the validation split and on average over the runs of a point (of the loss itself where there is no gain, or, for a score that is judged alone, one of less than 2 % of it); a loss that rises in one run makes up for none that falls in another; or no curve is on record (results of before curves were kept). Rates fall to 0 by a cosine unless an experiment says otherwise, which makes the ends of curves level: a longer schedule may gain more than the line says. Where no loss of the last step is on record, the line ends at the evaluation before it (at scale `small`, and at `paper` in `parity`, `svd`, `orders`, `threshold`, `initialisation`, `selective` and `dfa_released`, it mostly has two points, at 80 and 90 % of the steps), and a part of what it continues was trained: such a row is called still learning rather too often |
| not measured, not testable here | what is missing |
";

/// How large an effect has to be for the first step of Holm's correction over all tests.
fn many_tests(outcomes: &[Outcome]) -> String {
    let tests = outcomes.iter().filter_map(|outcome| outcome.test).map(|test| test.tests).max().unwrap_or(1);
    let least = |n: usize| {
        let student = StudentsT::new(0.0, 1.0, (n - 1) as f64).expect("some degrees of freedom");
        number(student.inverse_cdf(1.0 - 0.025 / tests as f64) / (n as f64).sqrt())
    };
    format!(
        "\nThe power in plans is that of a test by itself. Among {tests} tests the smallest p has to be below {}, for which the mean over three units has to be {} times\n\
         their standard deviation, over five {} times and over ten {} times: three units of the size of the paper's own effects cannot confirm them.\n",
        number(0.05 / tests as f64),
        least(3),
        least(5),
        least(10)
    )
}

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
    let own = || plans.iter().filter(|plan| plan.experiment == experiment);
    let shared: Vec<String> = own()
        .filter(|plan| plan.shares_rate)
        .map(|plan| format!("`{}`", plan.scale.as_deref().unwrap_or("none")))
        .collect();
    if !shared.is_empty() && !runs.is_empty() {
        let _ = write!(
            out,
            "\nAt scale {} all rows of a cell are trained at one learning rate: one that is behind may do better at another.\n",
            shared.join(" and ")
        );
    }
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

fn one(outcome: &Outcome) -> String {
    let claim = outcome.claim;
    let mut out = format!("\n### {}\n\n- {}\n", claim.id, source(claim));
    if !claim.released.is_empty() {
        let _ = writeln!(out, "- Its released code: {}.", claim.released);
    }
    let _ = writeln!(out, "- Ours: {}. It stands if {}.", claim.ours, claim.expect.describe());
    let mut at = |scale: &Option<String>, measured: &Measured, decides: &str| {
        if measured.groups.is_empty() {
            return;
        }
        let scale = scale.as_ref().map_or_else(|| "Measured".to_owned(), |scale| format!("At scale `{scale}`"));
        let _ = writeln!(out, "- {scale}{decides}:");
        for group in &measured.groups {
            let _ = writeln!(out, "  - {}", detail(group, claim.expect));
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
    if let Some(e) = group.losses.as_ref().and_then(|losses| Estimate::of_units(losses, 0.0)) {
        let (low, high) = e.interval;
        let _ = write!(out, "; loss {} ({} to {})", number(e.summary.mean), number(low), number(high));
    }
    out
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
        let page = audit(&claims::evaluate(&claims, &[], &[]), &[], &[]);
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
