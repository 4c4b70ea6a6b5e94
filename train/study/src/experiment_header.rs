//! The heads of the experiment files: below what the paper says, what was measured.

use crate::Cell;
use crate::audit::{compared, runs};
use crate::claims::{Outcome, Verdict};
use serde::Deserialize;
use std::fmt::Write as _;

/// What the part of the head begins with that `train audit` writes. It ends before the first line that is not a comment.
const MARK: &str = "# Measured";

/// The text of an experiment file with the measured part of its head as `cells` have it and what became of claims on them; `None` when it has no such part.
///
/// # Errors
/// When the file has no name of an experiment.
pub fn rewrite(text: &str, outcomes: &[Outcome], cells: &[Cell]) -> Result<Option<String>, toml::de::Error> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let lines: Vec<&str> = text.lines().collect();
    let end = lines.iter().position(|line| !line.starts_with('#')).unwrap_or(lines.len());
    let Some(start) = lines[..end].iter().position(|line| line.starts_with(MARK)) else { return Ok(None) };
    let experiment = toml::from_str::<Named>(text)?.name;
    let whole = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<Vec<_>>().concat();
    Ok(Some(whole(&lines[..start]) + &measured(&experiment, outcomes, cells) + &whole(&lines[end..])))
}

fn measured(experiment: &str, outcomes: &[Outcome], cells: &[Cell]) -> String {
    let runs = runs(experiment, cells);
    if runs.is_empty() {
        return format!("{MARK}: not yet.\n");
    }
    let mut out = String::new();
    for run in runs {
        let _ = writeln!(out, "{MARK} {run}");
    }
    for outcome in outcomes.iter().filter(|outcome| outcome.claim.experiment == experiment) {
        let (claim, verdict) = (outcome.claim, &outcome.verdict);
        if !verdict.is_decided() {
            let _ = writeln!(out, "# {}: {}, {}", claim.id, verdict.name(), verdict.reason());
            continue;
        }
        let more = if matches!(verdict, Verdict::Undecided(_)) { ", undecided" } else { "" };
        let _ = writeln!(out, "# {}: {}{more}. {}", claim.id, verdict.name(), claim.ours);
        for group in &outcome.measured.groups {
            let _ = writeln!(out, "#   {}", compared(group));
        }
    }
    out + "# Written by `train audit`. Intervals, tests and what the released code does: docs/reproduction.md.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_measured_part_changes() {
        let text = "# What the paper says.\n#\n# Measured: years ago\n#   all of it\nname = \"e\"\n\n# Measured by hand.\n[task]\n";
        let expected = "# What the paper says.\n#\n# Measured: not yet.\nname = \"e\"\n\n# Measured by hand.\n[task]\n";
        let rewritten = |text: &str| rewrite(text, &[], &[]).unwrap();
        assert_eq!(rewritten(text).as_deref(), Some(expected));
        assert_eq!(rewritten(expected).as_deref(), Some(expected));
        assert_eq!(rewritten("# Nothing.\nname = \"e\"\n# Measured\n"), None);
        assert_eq!(rewritten("# Measured\nname = \"e\"\n").as_deref(), Some("# Measured: not yet.\nname = \"e\"\n"));
        assert!(rewrite("# Measured\nname = 1\n", &[], &[]).is_err());
    }
}
