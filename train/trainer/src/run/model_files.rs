//! The files of models, tokenizers and adapters that a run is of.

use crate::config::{Config, model_directory};
use crate::format::hexadecimal;
use crate::results::DataFile;
use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Files of a directory that decide what a model or adapter computes.
const OF_A_MODEL: [&str; 7] = ["json", "safetensors", "gguf", "model", "txt", "toml", "jinja"];
/// Pieces of a file that [`sampled`] reads, and bytes of each. A file that is not longer than all of them is read whole.
const PIECES: u64 = 64;
const PIECE: u64 = 64 << 10;

/// What a file of the backbone is.
pub(crate) const MODEL: &str = "model file";

/// What each file is, and where, of the model, its tokenizers and the adapters that are gone on with.
///
/// # Errors
/// A directory that cannot be read.
pub(crate) fn model_files(config: &Config) -> Result<Vec<(String, PathBuf)>> {
    let mut found = backbone_files(config)?;
    for adapter in &config.adapter {
        if let Some(path) = &adapter.path {
            found.extend(named(&format!("file of adapter `{}`,", adapter.name), path)?);
        }
    }
    Ok(found)
}

/// The same without adapters.
///
/// # Errors
/// A directory that cannot be read.
pub(crate) fn backbone_files(config: &Config) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    if let Some(path) = config.backbone.path() {
        found.extend(named(MODEL, &model_directory(path))?);
    }
    let pretraining = config.pretrain.as_ref().and_then(|pretrain| pretrain.task.as_ref());
    for tokenizer in [Some(&config.task), pretraining, config.forgetting.as_ref()]
        .into_iter()
        .flatten()
        .filter_map(|task| task.tokenizer())
    {
        found.extend(named("tokenizer file", tokenizer)?);
    }
    Ok(found)
}

/// The file itself, or the files of a model in a directory, with what they are.
pub(crate) fn named(what: &str, path: &Path) -> Result<Vec<(String, PathBuf)>> {
    let files = if path.is_file() {
        vec![path.to_owned()]
    } else {
        let entries = fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
        let is_of_a_model = |path: &PathBuf| {
            let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
            path.is_file() && OF_A_MODEL.contains(&&extension[..])
        };
        let entries = entries.filter_map(|entry| Some(entry.ok()?.path()));
        // The template for conversations with tools, of models that have two.
        let for_tools = path.join("additional_chat_templates/tool_use.jinja");
        let mut files: Vec<PathBuf> = entries.chain([for_tools]).filter(is_of_a_model).collect();
        files.sort();
        files
    };
    let with_name = |file: PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (format!("{what} {name}"), file)
    };
    Ok(files.into_iter().map(with_name).collect())
}

/// The file, called by what it is, since a run may be moved with its model, with its size and the SHA-256 of 64 pieces of 64 KiB, spread from its first byte to its last: models have gigabytes.
///
/// # Errors
/// A file that cannot be read.
pub(crate) fn sampled(what: &str, path: &Path) -> Result<DataFile> {
    let sample = || -> std::io::Result<(u64, String)> {
        let mut file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let mut hash = Sha256::new();
        if bytes <= PIECES * PIECE {
            let mut whole = Vec::new();
            file.read_to_end(&mut whole)?;
            hash.update(&whole);
        } else {
            let mut piece = vec![0; PIECE as usize];
            for i in 0..PIECES {
                let first = u128::from(bytes - PIECE) * u128::from(i) / u128::from(PIECES - 1);
                file.seek(SeekFrom::Start(first as u64))?;
                file.read_exact(&mut piece)?;
                hash.update(&piece);
            }
        }
        Ok((bytes, hexadecimal(&hash.finalize())))
    };
    let (bytes, sha256) = sample().with_context(|| format!("cannot read {}", path.display()))?;
    Ok(DataFile { path: what.to_owned(), bytes, sha256 })
}

/// One SHA-256 of all files of a model or an adapter, a directory or a file, by samples of each.
///
/// # Errors
/// What cannot be read.
pub fn fingerprint(path: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    for (name, file) in named("", path)? {
        let file = sampled(&name, &file)?;
        hash.update(format!("{} {} {}\n", file.path, file.bytes, file.sha256));
    }
    Ok(hexadecimal(&hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_reach_from_the_first_byte_to_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let of = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            sampled("model file", &path).unwrap()
        };
        for size in [0, 1000, (PIECES * PIECE) as usize, (2 * PIECES * PIECE) as usize + 17] {
            let mut bytes: Vec<u8> = (0..size).map(|i| (i * 7 % 251) as u8).collect();
            let before = of(&bytes);
            assert_eq!((before.bytes, before.sha256.len()), (size as u64, 64));
            assert_eq!(of(&bytes), before);
            if size > 0 {
                for changed in [0, size - 1] {
                    bytes[changed] ^= 1;
                    assert_ne!(of(&bytes).sha256, before.sha256, "byte {changed} of {size}");
                    bytes[changed] ^= 1;
                }
            }
        }
        assert!(sampled("model file", &folder.path().join("none")).unwrap_err().to_string().contains("none"));
    }

    #[test]
    fn the_template_for_tools_is_a_file_of_its_model() {
        let folder = tempfile::tempdir().unwrap();
        let templates = folder.path().join("additional_chat_templates");
        fs::create_dir(&templates).unwrap();
        fs::write(folder.path().join("config.json"), "{}").unwrap();
        let without = fingerprint(folder.path()).unwrap();
        fs::write(templates.join("tool_use.jinja"), "{{ tools }}").unwrap();
        assert_ne!(fingerprint(folder.path()).unwrap(), without);
    }
}
