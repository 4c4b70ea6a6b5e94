//! Links within the documentation lead somewhere.

use super::root;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The anchor that a heading gets: lower case, letters, digits, hyphens and underscores alone, spaces as hyphens.
pub(crate) fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
}

/// The anchors of a page: those of its headings, except in blocks of code.
fn anchors(text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut found = Vec::new();
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        if !is_code && line.starts_with('#') {
            found.push(anchor(line.trim_start_matches('#')));
        }
    }
    found
}

#[test]
fn links_lead_to_files_and_headings() {
    let root = root();
    let in_docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = in_docs.filter(|path| path.extension().is_some_and(|of| of == "md")).collect();
    pages.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root.join(name)));
    let canonical = |path: &Path| path.canonicalize().ok();
    let texts: HashMap<PathBuf, String> =
        pages.iter().map(|page| (canonical(page).unwrap(), fs::read_to_string(page).unwrap())).collect();
    let headings: HashMap<&PathBuf, Vec<String>> = texts.iter().map(|(path, text)| (path, anchors(text))).collect();
    let mut broken = Vec::new();
    let mut count = 0;
    for page in &pages {
        let here = canonical(page).unwrap();
        let targets = texts[&here].split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        for target in targets.filter(|target| !target.starts_with("http")) {
            count += 1;
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { Some(here.clone()) } else { canonical(&page.with_file_name(file)) };
            let leads = path.is_some_and(|path| {
                heading.is_empty() || headings.get(&path).is_some_and(|all| all.iter().any(|one| one == heading))
            });
            if !leads {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(count > 100, "{count}");
    assert!(broken.is_empty(), "{broken:#?}");
}
