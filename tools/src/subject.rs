//! What the commands work on: an adapter directory or a single system in a file.

use anyhow::{Context, Result, bail};
use hankel_files::hrm_file::sha256;
use hankel_files::system_file::{ArrayFormat, parse_arrays, system_from_arrays};
use hankel_files::{AdapterBytes, AdapterHashes, HrmAdapterFile, TRAINED_BACKBONE_FILE};
use hankel_lti::{LinearSystem, LtiError};
use hankel_reduce::{LayerAnalysis, analyse};
use std::path::Path;

/// The label of the only "layer" of a plain system.
pub const SYSTEM_LABEL: &str = "system";

/// An adapter or a system, with the hashes of its files.
pub enum Subject {
    /// An HRM adapter directory.
    Adapter {
        /// Its content.
        adapter: HrmAdapterFile,
        /// Of its files.
        hashes: AdapterHashes,
    },
    /// A file of matrices.
    System {
        /// Its content.
        system: LinearSystem,
        /// Of the file.
        hashes: AdapterHashes,
    },
}

impl Subject {
    /// Reads a directory or a file.
    pub fn load(path: &Path) -> Result<Self> {
        if !path.exists() {
            bail!("{} does not exist", path.display());
        }
        if path.is_dir() {
            let bytes = AdapterBytes::read(path)?;
            let mut hashes = bytes.hashes();
            let trained = path.join(TRAINED_BACKBONE_FILE);
            if trained.is_file() {
                hashes.trained_backbone = Some(sha256(&hankel_io::input::read(&trained)?));
            }
            return Ok(Self::Adapter { adapter: bytes.parse(path)?, hashes });
        }
        if ArrayFormat::of(path).is_none() {
            bail!("{} is neither an adapter directory nor a file of matrices (.safetensors, .npz)", path.display());
        }
        let bytes = hankel_io::input::read(path)?;
        let system = system_from_arrays(path, parse_arrays(path, &bytes)?)?;
        let system = system.with_context(|| path.display().to_string())?;
        Ok(Self::System { system, hashes: AdapterHashes::of_file(&bytes) })
    }

    /// Hashes of the files; a system's are in `weights`.
    pub fn hashes(&self) -> AdapterHashes {
        match self {
            Self::Adapter { hashes, .. } | Self::System { hashes, .. } => hashes.clone(),
        }
    }

    /// Gramians and Hankel singular values of every layer.
    pub fn analyse(&self, path: &Path) -> Result<Vec<LayerAnalysis>> {
        match self {
            Self::Adapter { adapter, .. } => analyse(adapter).with_context(|| path.display().to_string()),
            Self::System { system, .. } => {
                if system.states() == 0 {
                    bail!("{}: {}", path.display(), LtiError::NoStates);
                }
                let layer = LayerAnalysis::new(SYSTEM_LABEL, system.clone(), 1.0);
                Ok(vec![layer.with_context(|| path.display().to_string())?])
            }
        }
    }
}
