//! The first screen: what holds, what does not, and what is still open.

use super::{link, quarters};
use crate::Cell;
use crate::claims::{Expect, Outcome, Verdict};
use crate::computed::Computed;
use crate::measure::Group;
use hankel_trainer::format::significant as number;
use std::fmt::Write as _;
use std::slice;

/// The claims that the paper's abstract and conclusion rest on.
const MAIN: [&str; 10] = [
    "dfa-hrm",
    "dfa-bt",
    "dfa-order",
    "parity-superiority",
    "enwik8-lower",
    "maestro-accuracy",
    "quality",
    "gates-mistral",
    "init-bt",
    "ordering-dfa-text",
];

/// What became of the paper's main claims.
fn main_claims(outcomes: &[Outcome]) -> String {
    let mut out =
        String::from("| the paper's main claims | so far | what was measured | result |\n| --- | --- | --- | --- |\n");
    for id in MAIN {
        let Some(outcome) = outcomes.iter().find(|outcome| outcome.claim.id == id) else { continue };
        let Outcome { claim, measured, scale, verdict, .. } = outcome;
        let ours = claim.ours.replace('|', "\\|");
        // What a small model shows is no figure of what takes another one.
        let result = if matches!(verdict, Verdict::NotTestable(_) | Verdict::NotMeasured(_)) {
            "–".to_owned()
        } else {
            result(&measured.groups, claim.expect) + &at_scale(scale.as_deref())
        };
        let _ = writeln!(out, "| {}: {} | **{}** | {ours} | {result} |", link(id), claim.paper, verdict.name());
    }
    out + "\n"
}

/// The paper's main claims, and a row for each claim that is decided, and for each reason why others are not.
pub(super) fn overview(outcomes: &[Outcome], computed: &[Computed], cells: &[Cell]) -> String {
    let mut out = main_claims(outcomes);
    out += "| | claim | what was measured | result | it stands if |\n| --- | --- | --- | --- | --- |\n";
    let each = |kind: fn(&Verdict) -> bool| outcomes.iter().filter(move |outcome| kind(&outcome.verdict));
    let claims = |title: &str, kind: fn(&Verdict) -> bool| -> String {
        let row = |Outcome { claim, measured, scale, .. }: &Outcome| {
            let mut result = result(&measured.groups, claim.expect) + &at_scale(scale.as_deref());
            if let [quarters] = &quarters::of(claim, scale.as_deref(), measured, cells)[..] {
                let _ = write!(result, "; {quarters}");
            }
            row(title, &claim.id, &claim.paper, &claim.ours, &result, claim.expect)
        };
        each(kind).map(row).collect()
    };
    let of_computed = |title: &str, kind: fn(&Verdict) -> bool| -> String {
        let found = computed.iter().filter(|claim| kind(&claim.verdict()));
        let of_one = |it: &Computed| result(slice::from_ref(&it.group), it.expect);
        found.map(|it| row(title, it.id, it.paper, it.ours, &of_one(it), it.expect)).collect()
    };
    let (holds, fails) = ("**holds**", "**does not hold**");
    let (confirmed, refuted): (fn(&Verdict) -> bool, fn(&Verdict) -> bool) =
        (|verdict| matches!(verdict, Verdict::Confirmed), |verdict| matches!(verdict, Verdict::NotConfirmed(_)));
    out += &claims(holds, confirmed);
    out += &of_computed(holds, confirmed);
    out += &claims("holds where it was run", |verdict| matches!(verdict, Verdict::InPart(_)));
    out += &claims(fails, refuted);
    out += &of_computed(fails, refuted);
    let mut open = |title: &str, why: &str, kind: fn(&Verdict) -> bool| {
        let of_computed = computed.iter().filter(|claim| kind(&claim.verdict())).map(|_| "computed");
        let experiments = each(kind).map(|outcome| &outcome.claim.experiment[..]).chain(of_computed);
        // A screen has no room for each of them.
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for experiment in experiments {
            match counts.iter_mut().find(|(own, _)| *own == experiment) {
                Some((_, count)) => *count += 1,
                None => counts.push((experiment, 1)),
            }
        }
        if !counts.is_empty() {
            let all: usize = counts.iter().map(|(_, count)| count).sum();
            let of_each = counts.iter().map(|(experiment, count)| format!("{} {count}", link(experiment)));
            let _ = writeln!(out, "| {title} | {all} {why}: {} | | | |", of_each.collect::<Vec<_>>().join(", "));
        }
    };
    let unknown = "still open";
    open(
        unknown,
        "whose interval includes the limit, or of which chance among so many tests could show as much",
        |v| matches!(v, Verdict::Undecided(_)),
    );
    open(unknown, "where a row still learns, or nothing tells", |v| matches!(v, Verdict::NotConverged(_)));
    open(
        unknown,
        "where a row is no better than no adapter, or than what one symbol tells, or its control does no better than chance either",
        |v| matches!(v, Verdict::NoComparison(_)),
    );
    open(unknown, "not measured", |v| matches!(v, Verdict::NotMeasured(_)));
    open("not testable here", "that take Mistral-7B, hours of a GPU or a program in Python", |v| {
        matches!(v, Verdict::NotTestable(_))
    });
    let by_construction = each(|v| matches!(v, Verdict::ByConstruction(_))).map(|outcome| link(&outcome.claim.id));
    let theorems = computed.iter().filter(|claim| matches!(claim.verdict(), Verdict::ByConstruction(_)));
    let names: Vec<String> = by_construction.chain(theorems.map(|claim| link(claim.id))).collect();
    let _ = writeln!(out, "| could not fail | {} by construction: {} | | | |", names.len(), names.join(", "));
    out
}

fn at_scale(scale: Option<&str>) -> String {
    scale.map_or_else(String::new, |scale| format!(", scale `{scale}`"))
}

fn row(title: &str, id: &str, paper: &str, ours: &str, result: &str, expect: Expect) -> String {
    let (claim, bar) = (link(id), expect.bar());
    // `|gate|` would end the cell.
    let ours = ours.replace('|', "\\|");
    format!("| {title} | {claim}: {paper} | {ours} | {result} | {bar} |\n")
}

/// The figure of one point of the grid with its interval; of several, which the list of all claims has one by one, the range
/// that holds all their intervals.
pub(super) fn result(groups: &[Group], expect: Expect) -> String {
    match groups {
        [] => String::new(),
        [group] => super::labelled(group, &interval(group, expect)) + &super::loss(group),
        several => {
            let ends = several.iter().map(|group| ends(group, expect));
            let (low, high) = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).expect("several");
            let runs = several.iter().map(|group| group.values.len());
            let (least, most) = (runs.clone().min().unwrap_or(0), runs.max().unwrap_or(0));
            let n = if least == most { least.to_string() } else { format!("{least} to {most}") };
            let points = several.len();
            if low == high {
                format!("{} at {points} points, n = {n} each", number(low))
            } else {
                format!("within {} to {} at {points} points, n = {n} each", number(low), number(high))
            }
        }
    }
}

/// The ends of a figure's interval; for what one value refutes, the least and the largest value.
fn ends(group: &Group, expect: Expect) -> (f64, f64) {
    if let Expect::AtMost(_) | Expect::EachWithin(..) = expect {
        let least = group.values.iter().copied().fold(f64::INFINITY, f64::min);
        return (least, group.largest());
    }
    group.estimate(0.0).map_or((group.summary.mean, group.summary.mean), |estimate| estimate.interval)
}

/// `0.012 (−0.026 to 0.05), n = 5`: the mean with its interval; for what one value refutes, the range of all values.
pub(super) fn interval(group: &Group, expect: Expect) -> String {
    let (n, mean, (low, high)) = (group.summary.n, number(group.summary.mean), ends(group, expect));
    let range = format!("{} to {}", number(low), number(high));
    match expect {
        Expect::AtMost(_) | Expect::EachWithin(..) if low == high => {
            format!("{}, n = {}", number(low), group.values.len())
        }
        Expect::AtMost(_) | Expect::EachWithin(..) => format!("{range}, n = {}", group.values.len()),
        _ if group.values.len() > 1 => format!("{mean} ({range}), n = {n}"),
        _ => format!("{mean}, n = {n}"),
    }
}

#[cfg(test)]
mod tests {
    use super::MAIN;
    use crate::claims;

    #[test]
    fn main_claims_are_claims() {
        let all = claims::all();
        for id in MAIN {
            assert!(all.iter().any(|claim| claim.id == id), "{id}");
        }
    }
}
