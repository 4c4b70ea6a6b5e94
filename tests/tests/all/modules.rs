//! Modules of the crates of `train` import each other in one direction.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{read_dir, read_to_string};
use std::path::Path;

type Graph = BTreeMap<String, BTreeSet<String>>;

/// Sources at or below `path` without their tests; `root` is the way from there to the crate.
fn sources(path: &Path, root: &str, into: &mut String) {
    if path.is_dir() {
        for entry in read_dir(path).unwrap() {
            let inside = entry.unwrap().path();
            let root = if inside.ends_with("mod.rs") { root.to_owned() } else { format!("super::{root}") };
            sources(&inside, &root, into);
        }
    } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs") {
        let text = read_to_string(path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        lines.for_each(|line| into.extend([&line.replace(root, "crate::"), "\n"]));
    }
}

/// What follows each `crate::`: one name, or the first names of a group.
fn imported(code: &str) -> impl Iterator<Item = &str> {
    code.split("crate::").skip(1).flat_map(|rest| {
        let group = rest.strip_prefix('{').and_then(|rest| rest.split('}').next());
        let names = group.map_or_else(|| vec![rest], |group| group.split(',').collect());
        names.into_iter().map(|name| {
            let name = name.trim_start();
            name.split(|c: char| c != '_' && !c.is_alphanumeric()).next().unwrap_or_default()
        })
    })
}

fn graph(source: &Path) -> Graph {
    let modules: BTreeMap<String, String> = read_dir(source)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| !path.ends_with("lib.rs") && !path.ends_with("main.rs"))
        .fold(BTreeMap::new(), |mut modules, path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            sources(&path, "super::", modules.entry(name).or_default());
            modules
        });
    let edges = |(name, code): (&String, &String)| {
        let others = imported(code).filter(|other| other != name && modules.contains_key(*other));
        (name.clone(), others.map(str::to_owned).collect())
    };
    modules.iter().map(edges).collect()
}

/// The modules that are left when those that import none of the others are taken away, again and again.
fn in_circles(mut graph: Graph) -> Vec<String> {
    loop {
        let leaves: Vec<String> =
            graph.iter().filter(|(_, imports)| imports.is_empty()).map(|(name, _)| name.clone()).collect();
        if leaves.is_empty() {
            return graph.into_keys().collect();
        }
        graph.retain(|name, _| !leaves.contains(name));
        graph.values_mut().for_each(|imports| imports.retain(|name| !leaves.contains(name)));
    }
}

#[test]
fn modules_import_in_one_direction() {
    for source in ["train/src", "train/trainer/src", "train/study/src"] {
        let graph = graph(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(source));
        assert!(graph.values().any(|imports| !imports.is_empty()), "{source}: {graph:?}");
        assert_eq!(in_circles(graph), Vec::<String>::new(), "{source}");
    }
}

#[test]
fn a_circle_is_found() {
    let edge = |from: &str, to: &[&str]| (from.to_owned(), to.iter().map(|&name| name.to_owned()).collect());
    let graph = Graph::from([edge("a", &["b"]), edge("b", &["c"]), edge("c", &["b"]), edge("d", &[])]);
    assert_eq!(in_circles(graph), ["a", "b", "c"]);
    assert_eq!(imported("use crate::{a, b::C};\nuse crate::d_e::f;").collect::<Vec<_>>(), ["a", "b", "d_e"]);
}
