//! Where the files are that a run names by relative paths.

use std::env::current_dir;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Longest first line of `metrics.jsonl` that is looked at.
const LONGEST: u64 = 1 << 16;

/// The directory in which a run was begun, if its log says it.
pub fn begun_in(run: &Path) -> Option<PathBuf> {
    let file = hankel_io::input::open(&run.join("metrics.jsonl")).ok()?;
    let mut line = String::new();
    BufReader::new(file.take(LONGEST)).read_line(&mut line).ok()?;
    let event: serde_json::Value = serde_json::from_str(&line).ok()?;
    Some(PathBuf::from(event["directory"].as_str()?))
}

/// Finds what a run names: from the directory in which it was begun, from the present one, or from one above the run.
pub struct Finder {
    begun: Option<PathBuf>,
    run: PathBuf,
}

impl Finder {
    /// For the run in a directory.
    pub fn new(run: &Path) -> Self {
        // Begun here, everything is where it was.
        let begun = begun_in(run).filter(|begun| current_dir().map_or(true, |here| here != *begun));
        Finder { begun, run: run.canonicalize().unwrap_or_else(|_| run.to_owned()) }
    }

    /// Where `path` is; itself where it is nowhere.
    pub fn find(&self, path: &Path) -> PathBuf {
        if path.is_absolute() || path.as_os_str().is_empty() {
            return path.to_owned();
        }
        let from = |directory: &Path| Some(directory.join(path)).filter(|found| found.exists());
        let begun = self.begun.as_deref().and_then(from);
        let here = || path.exists().then(|| path.to_owned());
        begun.or_else(here).or_else(|| self.run.ancestors().find_map(from)).unwrap_or_else(|| path.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_are_found_from_the_beginning_and_from_above_the_run() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let (run, other) = (root.join("project/runs/x"), root.join("other"));
        fs::create_dir_all(&run).unwrap();
        fs::create_dir_all(&other).unwrap();
        for file in [root.join("project/book.txt"), other.join("book.txt"), other.join("only.txt")] {
            fs::write(file, "").unwrap();
        }
        let find = |path: &str| Finder::new(&run).find(Path::new(path));
        assert_eq!(find("book.txt"), root.join("project/book.txt"), "a run of before the directory was noted");
        fs::write(
            run.join("metrics.jsonl"),
            format!("{{\"event\":\"start\",\"directory\":{:?}}}\n", other.display().to_string()),
        )
        .unwrap();
        assert_eq!((find("book.txt"), find("only.txt")), (other.join("book.txt"), other.join("only.txt")));
        assert_eq!((find("nowhere.txt"), find("/a/b")), (PathBuf::from("nowhere.txt"), PathBuf::from("/a/b")));
    }
}
