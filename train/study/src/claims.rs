//! Claims: what the paper says, how it is measured here, and what the measurement must show for it to stand.
//!
//! They are data (`claims.toml`). No outcome is written down anywhere: verdicts are computed from cells.

mod comparison;
pub(crate) mod convergence;
mod expect;
mod family;

pub(crate) use comparison::still_learning;
pub use expect::Expect;
pub(crate) use expect::Finding;
pub(crate) use family::test_count;
pub use family::{Corrected, evaluate};

use crate::measure::{self, Combine, Group, Measure, Measured};
use crate::{Cell, Plan, SMOKE, rates};
use serde::Deserialize;

/// What a group shows whose interval has the limit in it.
const UNDECIDED: &str = "undecided";
/// Least number of runs of which spreads are compared: distances of three from their mean cannot differ enough, those of two always do.
const RUNS_OF_A_SPREAD: usize = 5;

/// A claim.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its name, unique.
    pub id: String,
    /// The experiment whose cells it is measured on.
    pub experiment: String,
    /// What the paper says; for what it leaves open, the question.
    pub paper: String,
    /// What the code does that the author released, where it differs.
    #[serde(default)]
    pub released: String,
    /// What is compared with what, in words.
    pub ours: String,
    /// Hardware or data that the measurement needs and that is not available everywhere.
    #[serde(default)]
    pub needs: String,
    /// At how many values of the axes in `measure.by` it is claimed, where a scale may have fewer.
    #[serde(default)]
    pub points: usize,
    /// Why no data could speak against it, if that is so.
    #[serde(default)]
    pub by_construction: String,
    /// A control, trained as long: only if it does better than the claimed range does it say anything that the row stays in the range.
    #[serde(default)]
    pub control: Option<String>,
    /// Scales that can tell.
    #[serde(default = "Claim::default_scales")]
    pub scales: Vec<String>,
    /// How it is measured.
    pub measure: Measure,
    /// What the measurement must show.
    pub expect: Expect,
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The measurement shows it, at every point that it is about.
    Confirmed,
    /// The measurement shows it wherever it was made, which is not everywhere.
    InPart(String),
    /// It does not, and what it shows instead.
    NotConfirmed(String),
    /// Neither that nor the contrary is shown, or not among so many tests: more runs could decide it.
    Undecided(String),
    /// No measurement could have spoken against it, and why.
    ByConstruction(String),
    /// The rows that are compared are no better than what they must beat, or there is nothing to tell.
    NoComparison(String),
    /// Rows that are compared were still learning when they were stopped, or nothing tells.
    NotConverged(String),
    /// It cannot be measured here, and why.
    NotTestable(String),
    /// Nothing that could tell was run, and what is missing.
    NotMeasured(String),
}

/// A claim with what was measured of it.
#[derive(Debug, Clone)]
pub struct Outcome<'a> {
    /// The claim.
    pub claim: &'a Claim,
    /// Scale of the cells that were used.
    pub scale: Option<String>,
    /// The figures, by group.
    pub measured: Measured,
    /// Those of the other scales that were run, smoke tests apart.
    pub elsewhere: Vec<(Option<String>, Measured)>,
    /// What they say.
    pub verdict: Verdict,
    /// Its test among those of all claims, once [`evaluate`] has compared them.
    pub test: Option<Corrected>,
    /// The test of what would speak against it, in the same way.
    pub against: Option<Corrected>,
}

/// All claims, in the order of the report.
///
/// # Panics
/// Never: a test reads the file.
pub fn all() -> Vec<Claim> {
    #[derive(Deserialize)]
    struct File {
        claim: Vec<Claim>,
    }
    let file: Result<File, _> = toml::from_str(include_str!("claims.toml"));
    file.unwrap_or_else(|error| panic!("claims.toml, which a test reads: {}", error.message())).claim
}

impl Claim {
    fn default_scales() -> Vec<String> {
        ["full", "paper", "small"].map(str::to_owned).into()
    }

    /// The claim by itself, measured on the cells of its experiment, those of the first of its scales on which it can be evaluated; on
    /// those of another scale, or of one that is not complete by the `plans`, there are figures but no verdict. [`evaluate`] is for claims that
    /// stand together.
    pub(crate) fn evaluate_alone<'a>(&'a self, cells: &[Cell], plans: &[Plan]) -> Outcome<'a> {
        let planned = |cell: &Cell| {
            let of_it = |plan: &&Plan| plan.experiment == cell.id.experiment && plan.scale == cell.id.scale;
            plans.iter().find(of_it).is_none_or(|plan| plan.has(cell))
        };
        let of_it = cells.iter().filter(|cell| cell.id.experiment == self.experiment);
        // Nothing is added after a result is seen.
        let own: Vec<&Cell> = of_it.filter(|cell| planned(cell)).collect();
        let at = |scale: &Option<String>| -> Vec<Cell> {
            let cells: Vec<&Cell> = own.iter().copied().filter(|cell| cell.id.scale == *scale).collect();
            rates::at_their_own(&cells, &self.measure.units)
        };
        let measured_on = |cells: &[Cell]| measure::measure(&self.measure, &cells.iter().collect::<Vec<_>>());
        let mut others: Vec<Option<String>> = Vec::new();
        for cell in own.iter().filter(|cell| cell.id.scale.as_deref() != Some(SMOKE)) {
            if !others.contains(&cell.id.scale) {
                others.push(cell.id.scale.clone());
            }
        }
        let with_others = |mut outcome: Outcome<'a>| {
            let others = others.iter().filter(|scale| **scale != outcome.scale);
            let measured = others.map(|scale| (scale.clone(), measured_on(&at(scale))));
            outcome.elsewhere = measured.filter(|(_, measured)| !measured.groups.is_empty()).collect();
            outcome
        };
        let unfinished = |scale: &Option<String>, own: &[&Cell]| -> Option<String> {
            let plan = plans.iter().find(|plan| plan.experiment == self.experiment && plan.scale == *scale);
            let incomplete = plan.filter(|plan| !plan.is_complete(cells)).and_then(|plan| plan.deviation(cells));
            incomplete.or_else(|| comparison::missing(&self.measure, self.control.as_ref(), own))
        };
        let evaluated = self.scales.iter().map(|scale| Some(scale.clone())).filter(|scale| !at(scale).is_empty());
        let mut outcomes: Vec<(bool, Outcome)> = evaluated
            .map(|scale| {
                let run: Vec<&Cell> = own.iter().copied().filter(|cell| cell.id.scale == scale).collect();
                let unfinished = unfinished(&scale, &run);
                let cells = at(&scale);
                let measured = measured_on(&cells);
                let own: Vec<&Cell> = cells.iter().collect();
                // A scale that has other rows, or not all of its runs yet, leaves the verdict to the next one.
                let decides = unfinished.is_none() && !measured.groups.is_empty();
                let verdict = unfinished.map_or_else(|| self.verdict(&measured, &own), Verdict::NotMeasured);
                let (elsewhere, test, against) = (Vec::new(), None, None);
                (decides, Outcome { claim: self, scale, measured, elsewhere, verdict, test, against })
            })
            .collect();
        if !outcomes.is_empty() {
            let decides = outcomes.iter().position(|(decides, _)| *decides);
            return with_others(outcomes.swap_remove(decides.unwrap_or(0)).1);
        }
        let scale = own.first().and_then(|cell| cell.id.scale.clone());
        let measured = measured_on(&at(&scale));
        let verdict = match &scale {
            _ if !self.needs.is_empty() => Verdict::NotTestable(self.needs.clone()),
            Some(scale) if scale == SMOKE => {
                Verdict::NotMeasured("a smoke test shows that the experiment runs, nothing else".into())
            }
            Some(scale) => Verdict::NotMeasured(format!("the scale `{scale}` cannot tell")),
            None => Verdict::NotMeasured("not run yet".into()),
        };
        with_others(Outcome { claim: self, scale, measured, elsewhere: Vec::new(), verdict, test: None, against: None })
    }

    fn verdict(&self, measured: &Measured, cells: &[&Cell]) -> Verdict {
        let diverged =
            if measured.diverged > 0 { format!(", {} runs diverged", measured.diverged) } else { String::new() };
        if measured.groups.is_empty() {
            let why = match (&self.measure.trend, &self.measure.on) {
                (Some(axis), _) => format!("a slope takes several values of {axis}"),
                (None, Some(predictor)) => format!("a slope on {predictor} takes four units, and several values of it"),
                (None, None) => "the cells have no such rows".to_owned(),
            };
            return Verdict::NotMeasured(why + &diverged);
        }
        let findings: Vec<(&Group, Finding)> =
            measured.groups.iter().map(|group| (group, self.expect.evaluate(group))).collect();
        let against = |finding: Finding| matches!(finding, Finding::Contrary | Finding::Outside);
        let refuted = findings.iter().any(|(_, finding)| against(*finding));
        if !self.by_construction.is_empty() && !refuted {
            return Verdict::ByConstruction(self.by_construction.clone());
        }
        let few = self.measure.combine == Combine::Spread
            && measured.groups.iter().any(|group| group.summary.n < RUNS_OF_A_SPREAD);
        if few {
            return Verdict::NotMeasured(format!("a spread takes {RUNS_OF_A_SPREAD} runs of each kind"));
        }
        if let Some(problem) = comparison::problem(&self.measure, &measured.groups, cells) {
            return problem;
        }
        if !refuted && !measured.missing.is_empty() {
            return Verdict::NotMeasured(format!("no figures at {}{diverged}", measured.missing.join("; ")));
        }
        if !refuted && findings.iter().any(|(_, finding)| *finding == Finding::TooFew) {
            return Verdict::NotMeasured("so few runs have no interval: more seeds are needed".into());
        }
        if let Some(problem) = comparison::unfinished(&self.measure, self.expect, &findings, cells) {
            return problem;
        }
        if !refuted && let Some(control) = &self.control {
            let stays = comparison::control_stays(&self.measure, self.expect, control, cells);
            if let Some(why) = stays {
                return Verdict::NoComparison(why);
            }
        }
        if !refuted && let Some(why) = comparison::any_would_agree(&self.measure, self.expect, cells) {
            return Verdict::Undecided(format!("{UNDECIDED}: {why}"));
        }
        let failed: Vec<String> = findings
            .iter()
            .filter_map(|(group, finding)| {
                let words = match finding {
                    Finding::Shown | Finding::TooFew => return None,
                    Finding::Undecided => UNDECIDED,
                    Finding::Contrary => "the contrary",
                    Finding::Outside => "outside",
                };
                Some(if group.label.is_empty() { words.to_owned() } else { format!("{words} at {}", group.label) })
            })
            .collect();
        let points = measured.groups.len();
        // A run that came to nothing is an outcome, on no side of the limit. One value is enough against a bound.
        let by_one_value = matches!(self.expect, Expect::AtMost(_) | Expect::EachWithin(..));
        let refuted_by_all_runs =
            findings.iter().any(|(group, finding)| against(*finding) && (by_one_value || group.diverged == 0));
        let lost = if self.measure.of == measure::DIVERGED { 0 } else { measured.diverged };
        let but_diverged = |side: &str| {
            Verdict::Undecided(format!("{UNDECIDED}: {side} by the runs with figures, but {lost} diverged"))
        };
        match self.points {
            _ if refuted && !refuted_by_all_runs && lost > 0 => but_diverged("refuted"),
            _ if !refuted && failed.is_empty() && lost > 0 => but_diverged("shown"),
            _ if refuted => Verdict::NotConfirmed(failed.join("; ")),
            _ if !failed.is_empty() => Verdict::Undecided(failed.join("; ")),
            all if all > points => Verdict::InPart(format!("at {points} of {all} points")),
            _ => Verdict::Confirmed,
        }
    }
}

impl Verdict {
    /// The names of all verdicts, in the order of the page.
    pub const NAMES: [&str; 8] = [
        "confirmed",
        "confirmed in part",
        "not confirmed",
        "true by construction",
        "no comparison",
        "not converged",
        "not measured",
        "not testable here",
    ];

    /// Its name.
    pub fn name(&self) -> &'static str {
        Self::NAMES[match self {
            Verdict::Confirmed => 0,
            Verdict::InPart(_) => 1,
            Verdict::NotConfirmed(_) | Verdict::Undecided(_) => 2,
            Verdict::ByConstruction(_) => 3,
            Verdict::NoComparison(_) => 4,
            Verdict::NotConverged(_) => 5,
            Verdict::NotMeasured(_) => 6,
            Verdict::NotTestable(_) => 7,
        }]
    }

    /// Whether figures were held against what was claimed.
    pub fn is_decided(&self) -> bool {
        matches!(self, Verdict::Confirmed | Verdict::InPart(_) | Verdict::NotConfirmed(_) | Verdict::Undecided(_))
    }

    /// The reason, to print after the name.
    pub fn reason(&self) -> &str {
        match self {
            Verdict::Confirmed => "",
            Verdict::InPart(why)
            | Verdict::NotConfirmed(why)
            | Verdict::Undecided(why)
            | Verdict::ByConstruction(why)
            | Verdict::NoComparison(why)
            | Verdict::NotConverged(why)
            | Verdict::NotTestable(why)
            | Verdict::NotMeasured(why) => why,
        }
    }
}

#[cfg(test)]
mod tests;
