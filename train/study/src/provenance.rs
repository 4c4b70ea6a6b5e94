//! Which commit holds the plan of an experiment, and which its results: what was decided before must be the older one.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Where the plan and the results of an experiment come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provenance {
    /// Name of the experiment, and its scale.
    pub experiment: String,
    /// The newest commit that changed its plan (comments apart) or one of its claims with the results or later; if there is none, the
    /// newest one before them.
    pub plan: String,
    /// The first commit of its results. A later run replaces their lines, but not what was known.
    pub results: String,
    /// Commits that changed its plan or claims with these results or after them.
    pub late: BTreeSet<String>,
}

/// A commit, and when it was made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Origin {
    time: u64,
    commit: String,
}

/// What a commit made of a file: its lines before and after.
struct Change {
    origin: Origin,
    before: Vec<String>,
    after: Vec<String>,
}

/// The commit of what is not committed.
const NOT_COMMITTED: &str = "0000000000";

impl Provenance {
    /// Of the experiment in `file` at a scale, measured in `results`; `None` where git does not know one of them, or not all of its history.
    /// `claims_file` is where all claims are.
    pub fn of(
        (experiment, scale): (&str, Option<&str>),
        file: &Path,
        claims_file: &Path,
        results: &Path,
    ) -> Option<Self> {
        // In a shallow clone the oldest commit seems to have made everything.
        if git(results, &["rev-parse", "--is-shallow-repository"])?.trim() != "false" {
            return None;
        }
        let name = results.file_name()?.to_str()?;
        let first = git(results, &["log", "--format=%H", "--", name])?.lines().next_back()?.to_owned();
        let others = git(results, &["rev-list", "HEAD", &format!("^{first}")])?;
        let since: BTreeSet<&str> = others.lines().chain([first.as_str()]).filter_map(short).collect();

        let of_plan = history(file)?.into_iter();
        let of_plan = of_plan.filter(|change| plan_of(&change.before, scale) != plan_of(&change.after, scale));
        let of_claims = history(claims_file)?.into_iter();
        let of_claims =
            of_claims.filter(|change| claims_of(&change.before, experiment) != claims_of(&change.after, experiment));
        let changes: BTreeSet<Origin> = of_plan.chain(of_claims).map(|change| change.origin).collect();

        let is_late = |origin: &&Origin| origin.commit == NOT_COMMITTED || since.contains(origin.commit.as_str());
        let late: Vec<&Origin> = changes.iter().filter(is_late).collect();
        let plan = late.last().copied().or(changes.last())?;
        Some(Provenance {
            experiment: scale.map_or_else(|| experiment.to_owned(), |scale| format!("{experiment} at scale `{scale}`")),
            plan: plan.commit.clone(),
            results: short(&first)?.to_owned(),
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

/// The digits by which commits are named here.
fn short(commit: &str) -> Option<&str> {
    commit.get(..NOT_COMMITTED.len())
}

/// Whether a line of TOML is more than a comment.
fn is_set(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with('#')
}

/// What an experiment's file says of a scale, without comments: what another scale is like is no plan of this one.
fn plan_of<'a>(lines: &'a [String], scale: Option<&str>) -> Vec<&'a str> {
    let mut elsewhere = false;
    let mut own = Vec::new();
    for line in lines {
        if let Some(section) = line.strip_prefix('[') {
            let named = section.strip_prefix("sweep.scales.").and_then(|rest| rest.split(['.', ']']).next());
            elsewhere = named.is_some_and(|named| Some(named) != scale);
        }
        if !elsewhere && is_set(line) {
            own.push(line.as_str());
        }
    }
    own
}

/// The claims of an experiment, without comments, whatever their order.
fn claims_of<'a>(lines: &'a [String], experiment: &str) -> Vec<Vec<&'a str>> {
    let named = format!("experiment = \"{experiment}\"");
    let mut own = Vec::new();
    for claim in lines.split(|line| line.as_str() == "[[claim]]") {
        let claim: Vec<&str> = claim.iter().map(String::as_str).filter(|line| is_set(line)).collect();
        if claim.contains(&named.as_str()) {
            own.push(claim);
        }
    }
    own.sort_unstable();
    own
}

/// What commits made of a file, wherever it was, and first of all what is not committed; `None` where git does not know the file.
fn history(file: &Path) -> Option<Vec<Change>> {
    let name = file.file_name()?.to_str()?;
    // With so many lines around a change it shows the whole file, before and after.
    let whole = ["--no-color", "--no-ext-diff", "--unified=1000000"];
    let log = ["log", "--follow", "--patch", "--format=commit %H %ct"];
    let committed = git(file, &[&log[..], &whole[..], &["--", name][..]].concat())?;
    if committed.is_empty() {
        return None;
    }
    let open = git(file, &[&["diff", "HEAD"][..], &whole[..], &["--", name][..]].concat())?;
    let printed = format!("commit {NOT_COMMITTED} {}\n{open}{committed}", u64::MAX);

    let mut changes: Vec<Change> = Vec::new();
    // Heads of a difference have lines that begin like its own.
    let mut is_below_head = false;
    for line in printed.lines() {
        if let Some(head) = line.strip_prefix("commit ") {
            let (commit, time) = head.split_once(' ')?;
            let origin = Origin { time: time.parse().ok()?, commit: short(commit)?.to_owned() };
            changes.push(Change { origin, before: Vec::new(), after: Vec::new() });
            is_below_head = false;
        } else if line.starts_with("@@") {
            is_below_head = true;
        } else if is_below_head && let (Some(change), Some(text)) = (changes.last_mut(), line.get(1..)) {
            if line.starts_with([' ', '-']) {
                change.before.push(text.to_owned());
            }
            if line.starts_with([' ', '+']) {
                change.after.push(text.to_owned());
            }
        }
    }
    Some(changes)
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
    use crate::{Plan, changes, plans, read_results};
    use std::fs;
    use std::path::PathBuf;

    /// A repository in a temporary folder.
    struct Repository(tempfile::TempDir);

    impl Repository {
        /// `None` where git is not there.
        fn new() -> Option<Self> {
            let repository = Repository(tempfile::tempdir().unwrap());
            let made = repository.git(&["init", "-q"]);
            if made.is_none() {
                eprintln!("git is not there: skipped");
            }
            made.map(|_| repository)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn git(&self, arguments: &[&str]) -> Option<String> {
            git(&self.path("x"), arguments)
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.path(name), text).unwrap();
        }

        /// Commits all files, and says as what.
        fn commit(&self) -> String {
            let settings = ["-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false"];
            self.git(&["add", "--all"]).unwrap();
            self.git(&[&settings[..], &["commit", "-q", "-m", "m"][..]].concat()).unwrap();
            let commit = self.git(&["rev-parse", "HEAD"]).unwrap();
            short(&commit).unwrap().to_owned()
        }

        /// Of the experiment `e`, whose claims are in a file.
        fn of(&self, claims: &str) -> Provenance {
            let [plan, claims, results] = ["e.toml", claims, "e.jsonl"].map(|name| self.path(name));
            Provenance::of(("e", Some("small")), &plan, &claims, &results).unwrap()
        }
    }

    fn claim(id: &str, experiment: &str) -> String {
        format!(
            "[[claim]]\nid = \"{id}\"\nexperiment = \"{experiment}\"\npaper = \"p\"\nours = \"o\"\nmeasure = {{ of = \"order\", row = \"h\" }}\nexpect = {{ above = 0.0 }}\n"
        )
    }

    /// Every commit that changed a plan or a claim with its results, or after them, is on the page. Without the whole history nothing tells.
    #[test]
    fn changes_after_results_are_told() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let claims = root.join("train/study/src/claims.toml");
        for (experiments, results) in [("paper", ""), ("language", "language"), ("state", "state")] {
            let experiments = root.join("train/experiments").join(experiments);
            let results = root.join("docs/results").join(results);
            let cells = read_results(&results).unwrap();
            for Plan { experiment, scale, .. } in plans(&experiments, &cells).unwrap() {
                let named = scale.as_ref().map_or_else(|| experiment.clone(), |scale| format!("{experiment}-{scale}"));
                let results = results.join(format!("{named}.jsonl"));
                let file = experiments.join(format!("{experiment}.toml"));
                let Some(of) = Provenance::of((&experiment, scale.as_deref()), &file, &claims, &results) else {
                    eprintln!("git does not tell the commits of {named}: skipped");
                    continue;
                };
                let told = changes::commits(&experiment, scale.as_deref());
                let untold: Vec<_> = of.late.difference(&told).filter(|commit| *commit != NOT_COMMITTED).collect();
                assert!(untold.is_empty(), "{named}: say in changes.toml what {untold:?} changed");
            }
        }
    }

    #[test]
    fn a_plan_is_older_than_its_results() {
        let Some(repository) = Repository::new() else { return };
        let write = |name: &str, text: &str| repository.write(name, text);
        let of = || repository.of("claims.toml");
        write("e.toml", "# Measured: not yet.\nname = \"e\"\n");
        write("claims.toml", &claim("a", "e"));
        let planned = repository.commit();
        write("e.jsonl", "{}\n");
        let results = repository.commit();
        let told = |commits: &[&str]| of().describe(&commits.iter().map(|commit| (*commit).to_owned()).collect());
        assert!(of().late.is_empty() && !told(&[]).contains("after"), "{:?}", of());
        assert!(told(&[]).starts_with("e at scale `small`: plan "), "{}", told(&[]));
        assert_eq!([of().plan, of().results], [planned, results]);
        // What was measured, and the claims of another experiment, are no plan.
        write("e.toml", "# Measured at scale small.\nname = \"e\"\n");
        write("claims.toml", &(claim("a", "e") + &claim("b", "f")));
        assert!(of().late.is_empty(), "{:?}", of());
        // Nor is another scale.
        let scales = |small: u32| {
            format!(
                "# Measured.\nname = \"e\"\n[sweep.scales.full]\nseed = [1]\n[sweep.scales.small]\nseed = [{small}]\n"
            )
        };
        write("e.toml", "# Measured.\nname = \"e\"\n[sweep.scales.full]\nseed = [1]\n");
        assert!(of().late.is_empty(), "{:?}", of());
        write("e.toml", &scales(2));
        assert!(!of().late.is_empty(), "{:?}", of());
        write("e.toml", "# Measured at scale small.\nname = \"e\"\n");
        write("claims.toml", &claim("a", "e").replace("0.0", "-9.0"));
        assert!(!of().late.is_empty() && told(&[]).contains("not committed"), "{:?}", of());
        repository.commit();
        assert!(told(&[]).contains("changed after"), "{:?}", of());
        assert!(told(&[&of().plan]).contains("as the page says"), "{:?}", of());
        let [none, claims, results] = ["none", "claims.toml", "e.jsonl"].map(|name| repository.path(name));
        assert_eq!(Provenance::of(("e", None), &none, &claims, &results), None);
    }

    #[test]
    fn a_later_run_does_not_erase_when_results_were_known() {
        let Some(repository) = Repository::new() else { return };
        repository.write("e.toml", "name = \"e\"\n");
        repository.write("claims.toml", &claim("a", "e"));
        repository.commit();
        repository.write("e.jsonl", "{\"run\":1}\n");
        let first = repository.commit();
        repository.write("claims.toml", &claim("a", "e").replace("above = 0.0", "below = 1.1"));
        let moved = repository.commit();
        // No line of the first run is left.
        repository.write("e.jsonl", "{\"run\":2}\n");
        repository.commit();
        let of = repository.of("claims.toml");
        assert_eq!(of.results, first);
        assert_eq!(of.late, BTreeSet::from([moved]));
    }

    #[test]
    fn what_was_removed_counts_and_what_was_moved_does_not() {
        let Some(repository) = Repository::new() else { return };
        let (first, second) = (claim("a", "e") + "by_construction = \"why\"\n", claim("b", "e"));
        repository.write("e.toml", "name = \"e\"\n[train]\nsteps = 5\nlr = 1\n");
        repository.write("claims.toml", &(first.clone() + &second));
        repository.commit();
        repository.write("e.jsonl", "{}\n");
        repository.commit();
        repository.write("claims.toml", &format!("# Another order.\n{second}\n{first}"));
        repository.commit();
        fs::create_dir(repository.path("moved")).unwrap();
        fs::rename(repository.path("claims.toml"), repository.path("moved/claims.toml")).unwrap();
        repository.commit();
        let late = || repository.of("moved/claims.toml").late;
        assert_eq!(late(), BTreeSet::new());
        repository.write("moved/claims.toml", &(second + &claim("a", "e")));
        let without_line = repository.commit();
        repository.write("moved/claims.toml", &claim("a", "e"));
        let without_claim = repository.commit();
        repository.write("e.toml", "name = \"e\"\n[train]\nsteps = 5\n");
        let without_rate = repository.commit();
        assert_eq!(late(), BTreeSet::from([without_line, without_claim, without_rate]));
    }
}
