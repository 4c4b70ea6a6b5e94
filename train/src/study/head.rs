//! The heads of the experiment files: below what the paper says, what was measured.

use super::Cell;
use super::audit::{compared, runs};
use super::claims::{Claim, Verdict};
use serde::Deserialize;
use std::fmt::Write as _;

/// What the part of the head begins with that `train audit` writes. It goes on to the first line that is no comment.
const MARK: &str = "# Measured";

/// The text of an experiment file with the measured part of its head as `cells` have it; `None` when it has no such part.
pub fn rewrite(text: &str, claims: &[Claim], cells: &[Cell]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let experiment = toml::from_str::<Named>(text).ok()?.name;
    let lines: Vec<&str> = text.lines().collect();
    let end = lines.iter().position(|line| !line.starts_with('#'))?;
    let start = lines[..end].iter().position(|line| line.starts_with(MARK))?;
    let mut out = lines[..start].join("\n");
    let _ = write!(out, "\n{}", measured(&experiment, claims, cells));
    for line in &lines[end..] {
        let _ = writeln!(out, "{line}");
    }
    Some(out)
}

fn measured(experiment: &str, claims: &[Claim], cells: &[Cell]) -> String {
    let runs = runs(experiment, cells);
    if runs.is_empty() {
        return format!("{MARK}: not yet.\n");
    }
    let mut out = String::new();
    for run in runs {
        let _ = writeln!(out, "{MARK} {run}");
    }
    for claim in claims.iter().filter(|claim| claim.experiment == experiment) {
        let outcome = claim.judge(cells);
        if matches!(outcome.verdict, Verdict::NotTestable(_) | Verdict::NotMeasured(_)) {
            let _ = writeln!(out, "# {}: {}, {}", claim.id, outcome.verdict.name(), outcome.verdict.reason());
            continue;
        }
        let _ = writeln!(out, "# {}: {}. {}", claim.id, outcome.verdict.name(), claim.ours);
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
        assert_eq!(rewrite(text, &[], &[]).as_deref(), Some(expected));
        assert_eq!(rewrite(expected, &[], &[]).as_deref(), Some(expected));
        assert_eq!(rewrite("# Nothing.\nname = \"e\"\n# Measured\n", &[], &[]), None);
        assert_eq!(rewrite("# Measured\nname = 1\n", &[], &[]), None);
    }
}
