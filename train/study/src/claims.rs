//! Claims: what the paper says, how it is measured here, and what the measurement must show for it to stand.
//!
//! They are data (`claims.toml`). No outcome is written down anywhere: verdicts are computed from cells.

use crate::measure::{self, Group, Measure, Measured};
use crate::statistics::CONFIDENCE;
use crate::{Cell, SMOKE};
use serde::Deserialize;

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
    /// Scales that can tell.
    #[serde(default = "Claim::default_scales")]
    pub scales: Vec<String>,
    /// How it is measured.
    pub measure: Measure,
    /// What the measurement must show.
    pub expect: Expect,
}

/// What a measurement must show.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// The whole interval of the mean is above this.
    Above(f64),
    /// The whole interval of the mean is below this.
    Below(f64),
    /// The whole interval of the mean is between these.
    Within(f64, f64),
    /// The mean is between these.
    MeanWithin(f64, f64),
    /// No value is above this.
    AtMost(f64),
}

/// What a group shows whose interval has the limit in it.
const UNDECIDED: &str = "undecided";

/// What became of a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The measurement shows it; at how many of its points, when not at all.
    Confirmed(String),
    /// It does not, and what it shows instead.
    NotConfirmed(String),
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
    /// What they say.
    pub verdict: Verdict,
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
    let file: File = toml::from_str(include_str!("claims.toml")).expect("claims.toml is read by a test");
    file.claim
}

impl Claim {
    fn default_scales() -> Vec<String> {
        vec!["full".to_owned(), "small".to_owned()]
    }

    /// The claim measured on the cells of its experiment, those of the first of its scales on which it can be evaluated; on those of
    /// another scale there are figures but no verdict.
    pub fn evaluate<'a>(&'a self, cells: &[Cell]) -> Outcome<'a> {
        let own: Vec<&Cell> = cells.iter().filter(|cell| cell.id.experiment == self.experiment).collect();
        let at = |scale: &Option<String>| -> Vec<&Cell> {
            own.iter().copied().filter(|cell| cell.id.scale == *scale).collect()
        };
        let evaluated = self.scales.iter().map(|scale| Some(scale.clone())).filter(|scale| !at(scale).is_empty());
        let mut outcomes: Vec<Outcome> = evaluated
            .map(|scale| {
                let measured = measure::measure(&self.measure, &at(&scale));
                let verdict = self.verdict(&measured);
                Outcome { claim: self, scale, measured, verdict }
            })
            .collect();
        let decided = outcomes.iter().position(|outcome| !matches!(outcome.verdict, Verdict::NotMeasured(_)));
        if !outcomes.is_empty() {
            return outcomes.swap_remove(decided.unwrap_or(0));
        }
        let scale = own.first().and_then(|cell| cell.id.scale.clone());
        let measured = measure::measure(&self.measure, &at(&scale));
        let verdict = match &scale {
            _ if !self.needs.is_empty() => Verdict::NotTestable(self.needs.clone()),
            Some(scale) if scale == SMOKE => {
                Verdict::NotMeasured("a smoke test shows that the experiment runs, nothing else".into())
            }
            Some(scale) => Verdict::NotMeasured(format!("the scale `{scale}` cannot tell")),
            None => Verdict::NotMeasured("not run yet".into()),
        };
        Outcome { claim: self, scale, measured, verdict }
    }

    fn verdict(&self, measured: &Measured) -> Verdict {
        let diverged =
            if measured.diverged > 0 { format!(", {} runs diverged", measured.diverged) } else { String::new() };
        if measured.groups.is_empty() {
            let why = match &self.measure.trend {
                Some(axis) => format!("a slope takes several values of {axis}"),
                None => "the cells have no such rows".to_owned(),
            };
            return Verdict::NotMeasured(why + &diverged);
        }
        if !measured.missing.is_empty() {
            return Verdict::NotMeasured(format!("no figures at {}{diverged}", measured.missing.join("; ")));
        }
        let findings: Vec<(&Group, Finding)> =
            measured.groups.iter().map(|group| (group, self.expect.evaluate(group))).collect();
        if findings.iter().any(|(_, finding)| *finding == Finding::TooFew) {
            return Verdict::NotMeasured("one run of each kind has no interval: more seeds are needed".into());
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
        if !failed.is_empty() {
            return Verdict::NotConfirmed(failed.join("; "));
        }
        let points = measured.groups.len();
        Verdict::Confirmed(match self.points {
            all if all > points => format!("at {points} of {all} points"),
            _ => String::new(),
        })
    }
}

/// What a group of cells says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finding {
    Shown,
    Contrary,
    Outside,
    Undecided,
    TooFew,
}

impl Expect {
    fn evaluate(self, group: &Group) -> Finding {
        let mean = group.summary.mean;
        let decide = |shown: bool| if shown { Finding::Shown } else { Finding::Outside };
        match self {
            Expect::MeanWithin(low, high) => return decide((low..=high).contains(&mean)),
            Expect::AtMost(limit) => return decide(group.largest() <= limit),
            _ => {}
        }
        let Some(estimate) = group.estimate(0.0) else { return Finding::TooFew };
        let (low, high) = estimate.interval;
        let (shown, contrary) = match self {
            Expect::Above(limit) => (low > limit, high < limit),
            Expect::Below(limit) => (high < limit, low > limit),
            Expect::Within(least, most) => (low >= least && high <= most, high < least || low > most),
            Expect::MeanWithin(..) | Expect::AtMost(_) => unreachable!("decided above"),
        };
        match (shown, contrary) {
            (true, _) => Finding::Shown,
            (_, true) => Finding::Contrary,
            _ => Finding::Undecided,
        }
    }

    /// What the mean is tested against, where a side of something is claimed.
    pub fn limit(self) -> Option<f64> {
        match self {
            Expect::Above(limit) | Expect::Below(limit) => Some(limit),
            Expect::Within(..) | Expect::MeanWithin(..) | Expect::AtMost(_) => None,
        }
    }

    /// In words.
    pub fn describe(self) -> String {
        let interval = format!("the {:.0} % interval of the mean", 100.0 * CONFIDENCE);
        let words = match self {
            Expect::Above(limit) => format!("{interval} is above {limit}"),
            Expect::Below(limit) => format!("{interval} is below {limit}"),
            Expect::Within(low, high) => format!("{interval} is within {low} to {high}"),
            Expect::MeanWithin(low, high) if low == high => format!("the mean is {low}"),
            Expect::MeanWithin(low, high) => format!("the mean is within {low} to {high}"),
            Expect::AtMost(limit) if limit < 1e-3 => format!("no value is above {limit:e}"),
            Expect::AtMost(limit) => format!("no value is above {limit}"),
        };
        words.replace('-', "−")
    }
}

impl Verdict {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Verdict::Confirmed(_) => "confirmed",
            Verdict::NotConfirmed(_) => "not confirmed",
            Verdict::NotTestable(_) => "not testable here",
            Verdict::NotMeasured(_) => "not measured",
        }
    }

    /// Whether more runs could still confirm it: nothing is against it but the width of intervals.
    pub fn is_undecided(&self) -> bool {
        matches!(self, Verdict::NotConfirmed(why) if why.split("; ").all(|group| group.starts_with(UNDECIDED)))
    }

    /// The reason, to print after the name.
    pub fn reason(&self) -> &str {
        match self {
            Verdict::Confirmed(at) => at,
            Verdict::NotConfirmed(why) | Verdict::NotTestable(why) | Verdict::NotMeasured(why) => why,
        }
    }
}

#[cfg(test)]
mod tests;
