//! The first screen: what holds, what does not, and what nobody can say yet.

use super::link;
use crate::claims::{Claim, Expect, Outcome, Verdict};
use crate::computed::Computed;
use crate::measure::Group;
use hankel_trainer::format::significant as number;
use std::fmt::Write as _;

/// A row for each claim that is decided, and for each reason why others are not.
pub(super) fn overview(outcomes: &[Outcome], computed: &[Computed]) -> String {
    let mut out = String::from("| | claim | effect |\n| --- | --- | --- |\n");
    let mut row = |title: &str, claim: &str, effect: &str| {
        let _ = writeln!(out, "| {title} | {claim} | {effect} |");
    };
    let is = |outcome: &&Outcome, kind: fn(&Verdict) -> bool| kind(&outcome.verdict);
    let each = |kind: fn(&Verdict) -> bool| outcomes.iter().filter(move |outcome| is(outcome, kind));
    let what = |claim: &Claim| format!("{}: {}", link(&claim.id), claim.paper);
    for outcome in each(|verdict| matches!(verdict, Verdict::Confirmed)) {
        row("**holds**", &what(outcome.claim), &effect(outcome));
    }
    for claim in computed.iter().filter(|claim| claim.holds()) {
        row("**holds**", &format!("{}: {}", link(claim.id), claim.paper), &interval(&claim.group, claim.expect));
    }
    for outcome in each(|verdict| matches!(verdict, Verdict::InPart(_))) {
        row("holds where it was run", &what(outcome.claim), &effect(outcome));
    }
    for outcome in each(|verdict| matches!(verdict, Verdict::NotConfirmed(_)) && !verdict.is_undecided()) {
        row("**does not hold**", &what(outcome.claim), &effect(outcome));
    }
    for claim in computed.iter().filter(|claim| !claim.holds()) {
        row(
            "**does not hold**",
            &format!("{}: {}", link(claim.id), claim.paper),
            &interval(&claim.group, claim.expect),
        );
    }
    let mut open = |title: &str, why: &str, kind: fn(&Verdict) -> bool| {
        let names: Vec<String> = each(kind).map(|outcome| link(&outcome.claim.id)).collect();
        if !names.is_empty() {
            row(title, &format!("{} {why}: {}", names.len(), names.join(", ")), "");
        }
    };
    let unknown = "nobody can say yet";
    open(unknown, "whose interval includes the limit", Verdict::is_undecided);
    open(unknown, "where a row still learns, or nothing tells", |v| matches!(v, Verdict::NotConverged(_)));
    open(unknown, "where a row is no better than no adapter", |v| matches!(v, Verdict::NoComparison(_)));
    open(unknown, "not measured", |v| matches!(v, Verdict::NotMeasured(_)));
    open("could not fail", "by construction", |v| matches!(v, Verdict::ByConstruction(_)));
    open("takes other hardware", "a GPU, most of them Mistral-7B", |v| matches!(v, Verdict::NotTestable(_)));
    out
}

/// The figures of a claim at all its points.
fn effect(outcome: &Outcome) -> String {
    let expect = outcome.claim.expect;
    let figure = |group: &Group| super::labelled(group, &interval(group, expect));
    outcome.measured.groups.iter().map(figure).collect::<Vec<_>>().join("<br>")
}

/// `0.012 (−0.026 to 0.05), n = 5`: the mean with its interval; for what one value refutes, the range of all values.
pub(super) fn interval(group: &Group, expect: Expect) -> String {
    let (n, mean) = (group.summary.n, number(group.summary.mean));
    if let Expect::AtMost(_) | Expect::EachWithin(..) = expect {
        let least = group.values.iter().copied().fold(f64::INFINITY, f64::min);
        return if least == group.largest() {
            format!("{}, n = {}", number(least), group.values.len())
        } else {
            format!("{} to {}, n = {}", number(least), number(group.largest()), group.values.len())
        };
    }
    match group.estimate(0.0) {
        Some(estimate) => {
            format!("{mean} ({} to {}), n = {n}", number(estimate.interval.0), number(estimate.interval.1))
        }
        None => format!("{mean}, n = {n}"),
    }
}
