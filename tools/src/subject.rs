//! What the commands work on: an adapter directory or a single system in a file.

use anyhow::{Context, Result, bail};
use hankel_files::hrm_file::{CONFIG_FILE, sha256};
use hankel_files::system_file::{ArrayFormat, StoredSystem, Time, parse_arrays};
use hankel_files::{AdapterBytes, AdapterHashes, HrmAdapterFile, TRAINED_BACKBONE_FILE};
use hankel_lti::weighted::Band;
use hankel_lti::{LinearSystem, LtiError};
use hankel_reduce::{LayerAnalysis, Plant, PlantFacts, analyse};
use std::fmt::Write as _;
use std::path::Path;

/// The label of the only "layer" of a plain system.
pub const SYSTEM_LABEL: &str = "system";

/// An adapter or a system, with the hashes of its files.
// There are two in a command, at most.
#[allow(clippy::large_enum_variant)]
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
        /// Its content, ready to be reduced.
        plant: Box<Plant>,
        /// Of the file.
        hashes: AdapterHashes,
    },
}

impl Subject {
    /// Reads a directory or a file. `continuous` says that matrices without `dt` are those of a system in continuous time.
    pub fn load(path: &Path, continuous: bool) -> Result<Self> {
        Self::load_beside(path, continuous, None)
    }

    /// As [`Subject::load`] for what is compared with another system.
    pub fn load_beside(path: &Path, continuous: bool, other: Option<&Plant>) -> Result<Self> {
        if !path.exists() {
            bail!("{} does not exist", path.display());
        }
        if path.is_dir() {
            if continuous {
                bail!("{} is an adapter, which runs in discrete time", path.display());
            }
            let inside = adapters_of_run(path);
            if !inside.is_empty() {
                bail!(
                    "{} is a run directory; give one of the adapters in {}: {}",
                    path.display(),
                    path.join("adapters").display(),
                    inside.join(", ")
                );
            }
            let bytes = AdapterBytes::read(path)?;
            let mut hashes = bytes.hashes();
            let trained = path.join(TRAINED_BACKBONE_FILE);
            if trained.is_file() {
                hashes.trained_backbone = Some(sha256(&hankel_io::input::read(&trained)?));
            }
            return Ok(Self::Adapter { adapter: bytes.parse(path)?, hashes });
        }
        if ArrayFormat::of(path).is_none()
            && path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("mat"))
        {
            bail!("{} is neither an adapter directory nor a file of matrices (.safetensors, .npz)", path.display());
        }
        let bytes = hankel_io::input::read(path)?;
        let mut stored = StoredSystem::parse(path, parse_arrays(path, &bytes)?)?;
        if continuous {
            stored = in_continuous_time(stored).with_context(|| path.display().to_string())?;
        }
        if let Some(other) = other {
            if stored.time == Time::Unstated && other.map.is_some() {
                stored.time = Time::Continuous;
            }
            if other.time == Time::Unstated && stored.time == Time::Continuous {
                bail!(
                    "{} runs in continuous time (dt = 0), and the full system's file has no dt: add --continuous, or dt to that file",
                    path.display()
                );
            }
        }
        let plant = other
            .map_or_else(|| Plant::new(&stored), |other| other.beside(&stored))
            .with_context(|| path.display().to_string())?;
        Ok(Self::System { plant: Box::new(plant), hashes: AdapterHashes::of_file(&bytes) })
    }

    /// Hashes of the files; a system's are in `weights`.
    pub fn hashes(&self) -> AdapterHashes {
        match self {
            Self::Adapter { hashes, .. } | Self::System { hashes, .. } => hashes.clone(),
        }
    }

    /// A weight in discrete time, as what it weighs is; `continuous` is that of [`Subject::load`].
    ///
    /// # Errors
    /// A weight that is not stable, or in another time.
    pub fn weight(&self, stored: &StoredSystem, continuous: bool) -> hankel_lti::Result<LinearSystem> {
        match self {
            Self::Adapter { .. } => stored.system(),
            Self::System { plant, .. } if continuous => plant.weight(&in_continuous_time(stored.clone())?),
            Self::System { plant, .. } => plant.weight(stored),
        }
    }

    /// The band between two frequencies, which are angles per step or, in continuous time, per unit of time.
    ///
    /// # Errors
    /// Ends out of range.
    pub fn band(&self, ends: (f64, f64)) -> hankel_lti::Result<Band> {
        match self {
            Self::Adapter { .. } => Band::new(ends.0, ends.1),
            Self::System { plant, .. } => plant.band(ends),
        }
    }

    /// Whether it runs in continuous time.
    pub fn is_continuous(&self) -> bool {
        matches!(self, Self::System { plant, .. } if plant.map.is_some())
    }

    /// Gramians and Hankel singular values of every layer.
    pub fn analyse(&self, path: &Path) -> Result<Vec<LayerAnalysis>> {
        match self {
            Self::Adapter { adapter, .. } => analyse(adapter).with_context(|| path.display().to_string()),
            Self::System { plant, .. } => {
                let kept = plant.kept.a.states();
                if plant.system.states() == 0 && kept > 0 {
                    bail!(
                        "{}: none of its {kept} poles lies inside the stability boundary, so there is nothing to reduce{}",
                        path.display(),
                        assumed_time(plant)
                    );
                }
                if plant.system.states() == 0 {
                    bail!("{}: {}", path.display(), LtiError::NoStates);
                }
                Ok(vec![plant.analyse(SYSTEM_LABEL).with_context(|| path.display().to_string())?])
            }
        }
    }
}

/// The names of the adapters in a run directory of `train`; none of a folder that is an adapter itself.
fn adapters_of_run(path: &Path) -> Vec<String> {
    if path.join(CONFIG_FILE).exists() {
        return Vec::new();
    }
    let entries = std::fs::read_dir(path.join("adapters")).into_iter().flatten().flatten();
    let adapters = entries.map(|entry| entry.path()).filter(|folder| folder.join(CONFIG_FILE).is_file());
    let names = adapters.filter_map(|folder| Some(folder.file_name()?.to_string_lossy().into_owned()));
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// What `--continuous` says of a file.
fn in_continuous_time(stored: StoredSystem) -> hankel_lti::Result<StoredSystem> {
    match stored.time {
        Time::Discrete { step } => Err(LtiError::Unsupported(format!(
            "its sampling time dt is {}: it runs in discrete time, not in continuous time",
            step.map_or("True".to_owned(), |step| step.to_string())
        ))),
        Time::Unstated | Time::Continuous => Ok(StoredSystem { time: Time::Continuous, ..stored }),
    }
}

/// What to say beside poles outside the stability boundary of a system whose file does not give its time.
pub fn assumed_time(plant: &Plant) -> &'static str {
    match plant.time {
        Time::Unstated => {
            "; without dt it is read as a system in discrete time: if it runs in continuous time, add --continuous, or dt = 0 to the file"
        }
        _ => "",
    }
}

/// What there is to say about a system whose file holds more than a stable part in discrete time.
pub fn note_on_plant(facts: &PlantFacts) -> String {
    let mut out = String::new();
    if facts.continuous {
        out +=
            "continuous time: by the bilinear map, which keeps Hankel singular values, H-infinity errors and bounds\n";
    }
    match facts.kept_poles {
        0 => {}
        n => {
            let poles = if n == 1 { "1 pole is".to_owned() } else { format!("{n} poles are") };
            let _ = writeln!(
                out,
                "{poles} on, outside or next to the stability boundary and kept: all numbers are those of the rest, and rounding of what \
                 is kept is in none"
            );
        }
    }
    out
}
