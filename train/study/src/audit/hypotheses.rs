//! What became of the hypotheses of our own studies: a table of the first screen.

use super::overview::result;
use crate::claims::{self, Claim, Corrected, Outcome};
use crate::hypotheses::{self, Counted};
use crate::measure::Measured;
use crate::{Plan, Study};
use std::fmt::Write as _;

const HEAD: &str = "
Our own studies, on frozen language models, with the hypotheses of their plans. *Stories* is a llama of 260,000 parameters, *SmolLM2* has 135 million; the first model of a hypothesis has the verdict. Verdicts are by the [rules](#rules) of this page, with Holm's correction over the hypotheses of a file of results;
[language.md](language.md) corrects over more differences, and both it and [state.md](state.md) have tables, controls and what speaks against us. *As trained* (M1, E1, E5) is measured on the validation texts, on which rates were chosen, too. Shares of right answers but for ROUGE-1; forgetting in nats a token.
A seed solves a group when more than 0.99 of the answers over words of 128 elements are right, four times the longest trained on: counts as they were when training ended, one-sided tests of Fisher, Holm's correction over those of a scale. Rows that were still learning by the rule of this page are named; by 2 % of the loss of guessing more were ([state.md](state.md)).
Planned when earlier results were known: `long`, DoRA and AdaLoRA of D2, and all on nf4.

| hypothesis | so far | model, scale | what was measured | result | it stands if |
| --- | --- | --- | --- | --- | --- |
";

/// The table; nothing where there are no studies.
pub(super) fn section(studies: &[Study]) -> String {
    if studies.is_empty() {
        return String::new();
    }
    let (all, cells) = (hypotheses::claims(), hypotheses::cells(studies));
    let plans: Vec<Plan> = studies.iter().flat_map(|study| study.plans.iter().cloned()).collect();
    let mut out = HEAD.to_owned();
    for Counted { id, scale, text, result, verdict } in hypotheses::counted(&cells, &plans) {
        let model = model(&scale);
        let _ = writeln!(out, "| [{id}](state.md): {text} | {verdict} | {model} | seeds that solve it | {result} | |");
    }
    for outcome in families(&all).iter().flat_map(|family| claims::evaluate(family, &cells, &plans)) {
        let Outcome { claim, measured, scale, elsewhere, verdict, test, against } = &outcome;
        let at = |scale: &Option<String>, measured: &Measured| {
            let model = model(scale.as_deref().unwrap_or("none"));
            // A scale that cannot tell has figures that nobody asks for.
            let is_of_it = claim.scales.iter().any(|own| scale.as_ref() == Some(own));
            let result = if is_of_it { result(&measured.groups, claim.expect) } else { String::new() };
            format!("{model} | {} | {result}", claim.ours)
        };
        let why = match verdict.reason() {
            "" => String::new(),
            why => format!(": {why}"),
        };
        let tested = |of: &str, test: Corrected| format!(" ({of}{})", hypotheses::tested(test.p, test.holm));
        let test = match (test, against) {
            _ if !verdict.is_decided() => String::new(),
            (Some(test), Some(against)) if against.p < test.p => tested("of the contrary ", *against),
            (Some(test), _) => tested("", *test),
            (None, _) => String::new(),
        };
        let (name, bar, own) = (verdict.name(), claim.expect.bar(), at(scale, measured));
        let _ =
            writeln!(out, "| [{}](language.md): {} | **{name}**{why}{test} | {own} | {bar} |", claim.id, claim.paper);
        let is_of_it = |scale: &Option<String>| claim.scales.iter().any(|own| scale.as_ref() == Some(own));
        for (scale, measured) in elsewhere.iter().filter(|(scale, _)| is_of_it(scale)) {
            let _ = writeln!(out, "| | | {} | |", at(scale, measured));
        }
    }
    out
}

/// The hypotheses that are tested on the same file of results, which are corrected together.
fn families(all: &[Claim]) -> Vec<Vec<Claim>> {
    let mut families: Vec<Vec<Claim>> = Vec::new();
    for claim in all {
        let of = |other: &Claim| (other.experiment.clone(), other.scales.clone());
        match families.iter_mut().find(|family| of(&family[0]) == of(claim)) {
            Some(family) => family.push(claim.clone()),
            None => families.push(vec![claim.clone()]),
        }
    }
    families
}

/// The frozen model of a scale, and the scale.
fn model(scale: &str) -> String {
    let model = match scale {
        "small" | "long" | "paper" => "stories",
        "nf4" | "qmsum-nf4" => "SmolLM2 in nf4",
        _ => "SmolLM2",
    };
    format!("{model}, `{scale}`")
}
