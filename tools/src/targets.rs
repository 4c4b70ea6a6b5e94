//! Outputs by their names, which are looked at before anything is computed.

use anyhow::{Result, bail};
use hankel_io::check_folder;
use std::path::{Path, PathBuf};

/// Refuses the name of something that is there.
pub fn check_new(path: &Path) -> Result<()> {
    if path.symlink_metadata().is_ok() {
        bail!("{} already exists; remove it or choose another name", path.display());
    }
    Ok(())
}

/// Refuses a path that exists already, or whose folder does not exist.
pub fn check_new_file(path: &Path) -> Result<()> {
    check_new(path)?;
    Ok(check_folder(path)?)
}

/// Refuses two options that name one output: the second would find that of the first.
pub fn check_distinct(options: &[(&str, Option<&Path>)]) -> Result<()> {
    let named: Vec<(&str, &Path)> = options.iter().filter_map(|&(option, path)| Some((option, path?))).collect();
    for (i, &(option, path)) in named.iter().enumerate() {
        if let Some((other, _)) = named[..i].iter().find(|(_, other)| resolved(other) == resolved(path)) {
            bail!("{other} and {option} both name {}; give each an output of its own", path.display());
        }
    }
    Ok(())
}

/// A path by its folder, which can be spelt in several ways.
fn resolved(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (folder.canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}
