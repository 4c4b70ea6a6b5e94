//! Which commit holds the plan of an experiment, and which its results: what was decided before must be the older one.

use crate::claims::Claim;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Where the plan and the results of an experiment come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provenance {
    /// Name of the experiment.
    pub experiment: String,
    /// The newest commit of a line of its file, comments apart, or of one of its claims; of those that came after the results, if any.
    pub plan: String,
    /// The oldest commit of a line of its results.
    pub results: String,
    /// Commits of its plan and claims that came with the results or after them.
    pub late: BTreeSet<String>,
}

/// A commit that a line of a file comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Origin {
    time: u64,
    commit: String,
}

/// What git prints for a line that is not committed.
const NOT_COMMITTED: &str = "0000000000";

impl Provenance {
    /// Of the experiment in `file` at a scale, measured in `results`; `None` where git does not know one of them. `claims_file` is where all claims are.
    pub fn of(
        (experiment, scale): (&str, Option<&str>),
        file: &Path,
        claims: &[Claim],
        claims_file: &Path,
        results: &Path,
    ) -> Option<Self> {
        let own = |text: &str| !text.starts_with('#') && !text.trim().is_empty();
        // What another scale is like is no plan of this one.
        let mut elsewhere = false;
        let mut of_scale = |text: &str| {
            if let Some(section) = text.strip_prefix('[') {
                let named = section.strip_prefix("sweep.scales.").and_then(|rest| rest.split(['.', ']']).next());
                elsewhere = named.is_some_and(|named| Some(named) != scale);
            }
            !elsewhere
        };
        let lines = blame(file)?;
        let mut plan: Vec<Origin> =
            lines.into_iter().filter(|(_, text)| of_scale(text) && own(text)).map(|(at, _)| at).collect();
        let names: Vec<String> = claims
            .iter()
            .filter(|claim| claim.experiment == experiment)
            .map(|claim| format!("id = \"{}\"", claim.id))
            .collect();
        let mut of_it = false;
        for (origin, text) in blame(claims_file)? {
            // A claim goes from its name to the next one's head.
            of_it = if text.starts_with("id = ") { names.contains(&text) } else { of_it && text != "[[claim]]" };
            if of_it && own(&text) {
                plan.push(origin);
            }
        }
        let results = blame(results)?.into_iter().map(|(origin, _)| origin).min()?;
        // Times are in seconds: of commits of one second the ancestry alone says which is the older.
        let plan: BTreeSet<Origin> = plan.into_iter().collect();
        let before = |plan: &Origin| {
            plan.commit != results.commit
                && plan.commit != NOT_COMMITTED
                && git(file, &["merge-base", "--is-ancestor", &plan.commit, &results.commit]).is_some()
        };
        let late: Vec<&Origin> = plan.iter().filter(|plan| !before(plan)).collect();
        let plan = late.last().copied().or(plan.last())?;
        Some(Provenance {
            experiment: experiment.to_owned(),
            plan: plan.commit.clone(),
            results: results.commit,
            late: late.iter().map(|origin| origin.commit.clone()).collect(),
        })
    }

    /// In a line; `told` are the commits of which the page says what they changed.
    pub fn describe(&self, told: &BTreeSet<String>) -> String {
        let name = |commit: &str| if commit == NOT_COMMITTED { "not committed".to_owned() } else { commit.to_owned() };
        let untold: Vec<&str> = self.late.difference(told).map(String::as_str).collect();
        let warning = match &untold[..] {
            [] if self.late.is_empty() => String::new(),
            [] => "; changed with the results or after them, as the page says".to_owned(),
            several => format!(
                "; the plan or a claim was committed with the results, or changed after them ({}): say what in changes.toml",
                several.iter().map(|commit| name(commit)).collect::<Vec<_>>().join(", ")
            ),
        };
        format!("{}: plan {}, results {}{warning}", self.experiment, name(&self.plan), name(&self.results))
    }
}

/// The commit and the text of every line of a file. A line that is not committed is newer than all others.
fn blame(file: &Path) -> Option<Vec<(Origin, String)>> {
    let name = file.file_name()?.to_str()?;
    let printed = git(file, &["blame", "--porcelain", "--", name])?;
    let (mut times, mut lines): (BTreeMap<String, u64>, Vec<_>) = (BTreeMap::new(), Vec::new());
    let mut commit = String::new();
    for line in printed.lines() {
        if let Some(text) = line.strip_prefix('\t') {
            let time = times.get(&commit).copied().unwrap_or(0);
            lines.push((Origin { time, commit: commit.clone() }, text.to_owned()));
        } else if let Some(time) = line.strip_prefix("committer-time ") {
            let time = if commit == NOT_COMMITTED { u64::MAX } else { time.parse().ok()? };
            times.insert(commit.clone(), time);
        } else if line
            .split(' ')
            .next()
            .is_some_and(|word| word.len() == 40 && word.bytes().all(|b| b.is_ascii_hexdigit()))
        {
            line[..NOT_COMMITTED.len()].clone_into(&mut commit);
        }
    }
    Some(lines)
}

/// What git prints beside a file; `None` when it fails or is not there.
fn git(file: &Path, arguments: &[&str]) -> Option<String> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_plan_is_older_than_its_results() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let run = |arguments: &[&str]| git(&path("x"), arguments);
        let settings = ["-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false"];
        let Some(_) = run(&["init", "-q"]) else {
            eprintln!("git is not there: skipped");
            return;
        };
        let commit = |names: &[&str]| {
            run(&[&["add"], names].concat()).unwrap();
            run(&[&settings[..], &["commit", "-q", "-m", "m"]].concat()).unwrap();
        };
        let claim = |id: &str, experiment: &str| {
            format!(
                "[[claim]]\nid = \"{id}\"\nexperiment = \"{experiment}\"\npaper = \"p\"\nours = \"o\"\nmeasure = {{ of = \"order\", row = \"h\" }}\nexpect = {{ above = 0.0 }}\n"
            )
        };
        let of = || {
            #[derive(serde::Deserialize)]
            struct File {
                claim: Vec<Claim>,
            }
            let file: File = toml::from_str(&fs::read_to_string(path("claims.toml")).unwrap()).unwrap();
            Provenance::of(("e", Some("small")), &path("e.toml"), &file.claim, &path("claims.toml"), &path("e.jsonl"))
                .unwrap()
        };
        fs::write(path("e.toml"), "# Measured: not yet.\nname = \"e\"\n").unwrap();
        fs::write(path("claims.toml"), claim("a", "e")).unwrap();
        commit(&["e.toml", "claims.toml"]);
        fs::write(path("e.jsonl"), "{}\n").unwrap();
        commit(&["e.jsonl"]);
        let told = |commits: &[&str]| of().describe(&commits.iter().map(|commit| (*commit).to_owned()).collect());
        assert!(of().late.is_empty() && !told(&[]).contains("after"), "{:?}", of());
        // What was measured, and the claims of another experiment, are no plan.
        fs::write(path("e.toml"), "# Measured at scale small.\nname = \"e\"\n").unwrap();
        fs::write(path("claims.toml"), claim("a", "e") + &claim("b", "f")).unwrap();
        assert!(of().late.is_empty(), "{:?}", of());
        // Nor is another scale.
        let scales = |small: u32| {
            format!(
                "# Measured.\nname = \"e\"\n[sweep.scales.full]\nseed = [1]\n[sweep.scales.small]\nseed = [{small}]\n"
            )
        };
        fs::write(path("e.toml"), "# Measured.\nname = \"e\"\n[sweep.scales.full]\nseed = [1]\n").unwrap();
        assert!(of().late.is_empty(), "{:?}", of());
        fs::write(path("e.toml"), scales(2)).unwrap();
        assert!(!of().late.is_empty(), "{:?}", of());
        fs::write(path("e.toml"), "# Measured at scale small.\nname = \"e\"\n").unwrap();
        fs::write(path("claims.toml"), claim("a", "e").replace("0.0", "-9.0")).unwrap();
        assert!(!of().late.is_empty() && told(&[]).contains("not committed"), "{:?}", of());
        commit(&["e.toml", "claims.toml"]);
        assert!(told(&[]).contains("changed after"), "{:?}", of());
        assert!(told(&[&of().plan]).contains("as the page says"), "{:?}", of());
        assert_eq!(Provenance::of(("e", None), &path("none"), &[], &path("claims.toml"), &path("e.jsonl")), None);
    }
}
