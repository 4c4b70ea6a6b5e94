//! Tells the program which commit it is built from.

use std::path::Path;
use std::process::Command;

/// What the program is built from, from the root of the repository. Not all of `tools`: what is compiled for Python is in there.
const SOURCES: [&str; 8] =
    ["core", "ops", "models", "tools/Cargo.toml", "tools/src", "tools/plots", "train", "Cargo.lock"];

fn main() {
    println!("cargo::rerun-if-env-changed=HANKEL_COMMIT");
    for source in SOURCES {
        println!("cargo::rerun-if-changed=../../{source}");
    }
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--path-format=absolute", "--git-path", file]);
        if let Some(path) = path.filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    // Whoever packs the sources without their history names the commit in the environment.
    if std::env::var_os("HANKEL_COMMIT").is_none()
        && let Some(head) = git(&["rev-parse", "--short=12", "HEAD"])
    {
        let differs = git(&["status", "--porcelain", "--untracked-files=no"]).is_none_or(|files| !files.is_empty());
        println!("cargo::rustc-env=HANKEL_COMMIT={head}{}", if differs { "-dirty" } else { "" });
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
