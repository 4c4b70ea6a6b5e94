//! The directory of an HRM adapter: `adapter_config.json` and `adapter_model.safetensors` (R2, "on disk").

use super::arrays::{Array, NamedArrays, Precision, parse, serialize};
use super::error::{Result, WeightsError};
use super::hrm_config::{Discretization, HrmConfigFile, HrmForm, HrmMode, StreamSite};
use hankel_io::{Existing, write_folder};
use hankel_lti::{Mode, Shared};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// File name of the configuration.
pub const CONFIG_FILE: &str = "adapter_config.json";
/// File name of the tensors.
pub const WEIGHTS_FILE: &str = "adapter_model.safetensors";

const PREFIX: &str = "base_model.model.model.layers.";

/// What a layer stores about its state matrix.
#[derive(Debug, Clone, PartialEq)]
pub enum HrmDynamics {
    /// Trained parameters; the poles follow from them by the configured discretization.
    Diagonal {
        /// Logarithm of the rates, `[d]`.
        log_a: Vec<f64>,
        /// Logarithm (or, before the softplus, the raw value) of the steps, `[d]`.
        log_dt: Vec<f64>,
    },
    /// The same with poles of both signs: that of state i is `(-1)^i exp(-rate_i)`.
    Signed {
        /// Logarithm of the rates, `[d]`.
        log_a: Vec<f64>,
        /// Logarithm of the steps, `[d]`.
        log_dt: Vec<f64>,
    },
    /// Trained parameters of complex pairs, two states each: `exp(-rate_i) exp(+-i angle_i)`.
    Complex {
        /// Logarithm of the rates, `[d / 2]`.
        log_a: Vec<f64>,
        /// Logarithm of the steps, `[d / 2]`.
        log_dt: Vec<f64>,
        /// Angles strictly between 0 and pi, `[d / 2]`.
        angle: Vec<f64>,
    },
    /// Poles of a reduced layer, in the order of its states.
    Modal(Vec<Mode>),
    /// State matrix of a reduced layer, row-major [d, d].
    Dense(Vec<f64>),
}

impl HrmDynamics {
    /// The form as named in the configuration.
    pub fn form(&self) -> HrmForm {
        match self {
            Self::Diagonal { .. } | Self::Signed { .. } | Self::Complex { .. } => HrmForm::Diagonal,
            Self::Modal(_) => HrmForm::Modal,
            Self::Dense(_) => HrmForm::Dense,
        }
    }
}

/// One adapter of one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct HrmLayerFile {
    /// Index of the layer in the backbone.
    pub layer: usize,
    /// Sub-layer the adapter sits at.
    pub site: StreamSite,
    /// Number of states d.
    pub state_dim: usize,
    /// Width D of the residual stream.
    pub width: usize,
    /// Input matrix B, row-major [d, D]; shared with the systems that are made of it.
    pub b: Shared,
    /// Output matrix C without the gate, row-major [D, d].
    pub c: Shared,
    /// The gate.
    pub gate: f64,
    /// The state matrix.
    pub dynamics: HrmDynamics,
}

/// An HRM adapter as it lies on disk.
#[derive(Debug, Clone, PartialEq)]
pub struct HrmAdapterFile {
    /// Contents of `adapter_config.json`.
    pub config: HrmConfigFile,
    /// The layers, ascending by layer and site.
    pub layers: Vec<HrmLayerFile>,
    /// Element type of trained parameters: it holds all of them exactly as they were read. Reduced layers are stored in f64, but B and C in
    /// f32 where that holds all of their numbers exactly.
    pub precision: Precision,
}

/// SHA-256 of the files of an adapter directory, in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AdapterHashes {
    /// Of `adapter_config.json`.
    pub config: String,
    /// Of `adapter_model.safetensors`.
    pub weights: String,
    /// Of [`TRAINED_BACKBONE_FILE`](crate::TRAINED_BACKBONE_FILE), where there is one and whoever took the hashes looked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trained_backbone: Option<String>,
}

impl AdapterHashes {
    /// The hash of a system's only file, in `weights`.
    pub fn of_file(bytes: &[u8]) -> Self {
        Self { config: String::new(), weights: sha256(bytes), trained_backbone: None }
    }

    /// Whether files with the hashes `found` are those that these hashes were taken of. A hash that was not taken is not compared.
    pub fn match_files(&self, found: &Self) -> bool {
        let trained = self.trained_backbone.is_none() || self.trained_backbone == found.trained_backbone;
        trained && (&self.config, &self.weights) == (&found.config, &found.weights)
    }
}

/// The two files of an adapter directory in memory.
pub struct AdapterBytes {
    /// `adapter_config.json`.
    pub config: Vec<u8>,
    /// `adapter_model.safetensors`.
    pub weights: Vec<u8>,
}

impl AdapterBytes {
    /// Reads both files of a directory.
    pub fn read(directory: &Path) -> Result<Self> {
        if !directory.is_dir() {
            return Err(WeightsError::content(
                directory,
                format!("not an adapter directory (a folder with {CONFIG_FILE} and {WEIGHTS_FILE})"),
            ));
        }
        let read = |name: &str| hankel_io::input::read(&directory.join(name));
        Ok(Self { config: read(CONFIG_FILE)?, weights: read(WEIGHTS_FILE)? })
    }

    /// Hashes of both.
    pub fn hashes(&self) -> AdapterHashes {
        AdapterHashes { config: sha256(&self.config), weights: sha256(&self.weights), trained_backbone: None }
    }

    /// Parses both; `directory` is for messages.
    pub fn parse(&self, directory: &Path) -> Result<HrmAdapterFile> {
        let config = parse_config(&directory.join(CONFIG_FILE), &self.config)?;
        let path = directory.join(WEIGHTS_FILE);
        read_layers(&path, config, parse(&path, &self.weights)?)
    }
}

impl HrmAdapterFile {
    /// Reads an adapter directory. Every tensor must be expected and every expected tensor there, with the right shape.
    pub fn load(directory: &Path) -> Result<Self> {
        AdapterBytes::read(directory)?.parse(directory)
    }

    /// Writes an adapter directory, replacing one that is there; a failure leaves that one as it was.
    pub fn save(&self, directory: &Path) -> Result<()> {
        self.save_with(directory, &[], Existing::Replace)
    }

    /// As [`HrmAdapterFile::save`], with further files (name, content) in the directory and a choice of what to do with one
    /// that exists.
    pub fn save_with(&self, directory: &Path, files: &[(&str, &[u8])], existing: Existing) -> Result<()> {
        let bytes = self.to_bytes();
        let mut all: Vec<(&str, &[u8])> = vec![(CONFIG_FILE, &bytes.config), (WEIGHTS_FILE, &bytes.weights)];
        all.extend_from_slice(files);
        Ok(write_folder(directory, &all, existing)?)
    }

    /// The files that [`HrmAdapterFile::save`] writes; equal adapters give equal bytes.
    pub fn to_bytes(&self) -> AdapterBytes {
        let mut config = self.config.clone();
        config.layers = Some(self.layers.iter().map(|l| l.layer).collect());
        if let Some(layers) = &mut config.layers {
            layers.dedup();
        }
        let reduced =
            self.layers.iter().any(|l| l.state_dim != config.state_dim || l.dynamics.form() != HrmForm::Diagonal);
        config.state_dims = reduced.then(|| self.layers.iter().map(|l| l.state_dim).collect());
        config.form = reduced.then(|| self.layers.iter().map(|l| l.dynamics.form()).collect());
        let mut arrays = NamedArrays::new();
        for layer in &self.layers {
            layer.store(self.precision, &mut arrays);
        }
        let mut config = serde_json::to_vec_pretty(&config).expect("a configuration is valid JSON");
        config.push(b'\n');
        AdapterBytes { config, weights: serialize(&arrays) }
    }
}

impl HrmLayerFile {
    /// The tensor name of one of the layer's entries.
    pub fn tensor_name(&self, entry: &str) -> String {
        format!("{PREFIX}{}.{}.hrm.{entry}", self.layer, self.site.module())
    }

    /// A name for messages and tables: `layer 3` or `layer 3 (attention)`.
    pub fn label(&self) -> String {
        layer_label(self.layer, self.site)
    }

    fn store(&self, precision: Precision, arrays: &mut NamedArrays) {
        let (d, width) = (self.state_dim, self.width);
        let reduced = self.dynamics.form() != HrmForm::Diagonal;
        let precision = if reduced { Precision::F64 } else { precision };
        let mut put_in = |entry: &str, shape: Vec<usize>, data: Vec<f64>, precision| {
            arrays.insert(self.tensor_name(entry), Array::new(shape, data, precision));
        };
        // Numbers of a reduced layer that were rounded to f32 take no more than that.
        let is_single = |values: &[f64]| values.iter().all(|&v| f64::from(v as f32) == v);
        let of_maps = if reduced && is_single(&self.b) && is_single(&self.c) { Precision::F32 } else { precision };
        put_in("b", vec![d, width], self.b.to_vec(), of_maps);
        put_in("c", vec![width, d], self.c.to_vec(), of_maps);
        let mut put = |entry: &str, shape, data| put_in(entry, shape, data, precision);
        put("gate", vec![1], vec![self.gate]);
        match &self.dynamics {
            HrmDynamics::Diagonal { log_a, log_dt } | HrmDynamics::Signed { log_a, log_dt } => {
                put("log_a", vec![d], log_a.clone());
                put("log_dt", vec![d], log_dt.clone());
            }
            HrmDynamics::Complex { log_a, log_dt, angle } => {
                for (entry, values) in [("log_a", log_a), ("log_dt", log_dt), ("angle", angle)] {
                    put(entry, vec![values.len()], values.clone());
                }
            }
            HrmDynamics::Modal(modes) => {
                let (radius, angle): (Vec<f64>, Vec<f64>) = modes.iter().map(|m| m.polar()).unzip();
                put("pole_radius", vec![modes.len()], radius);
                put("pole_angle", vec![modes.len()], angle);
            }
            HrmDynamics::Dense(a) => put("a", vec![d, d], a.clone()),
        }
    }
}

/// A layer's name in messages, tables and certificates.
pub fn layer_label(layer: usize, site: StreamSite) -> String {
    match site {
        StreamSite::Mlp => format!("layer {layer}"),
        StreamSite::Attention => format!("layer {layer} (attention)"),
    }
}

fn parse_config(path: &Path, bytes: &[u8]) -> Result<HrmConfigFile> {
    let malformed =
        |reason: String| WeightsError::Malformed { path: path.to_path_buf(), kind: "adapter configuration", reason };
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|e| malformed(e.to_string()))?;
    match value.get("peft_type").and_then(|t| t.as_str()) {
        Some("HRM") => {}
        Some(other) => {
            return Err(WeightsError::content(
                path,
                format!(
                    "this is a {other} adapter; only HRM adapters are linear systems that can be truncated{}",
                    if other == "STREAM" {
                        " and certified here (selective ones by `truncate` of a configuration, whose certificates are records of what was measured)"
                    } else {
                        ""
                    }
                ),
            ));
        }
        None => return Err(WeightsError::content(path, "there is no peft_type; expected \"HRM\"")),
    }
    let config: HrmConfigFile = serde_path_to_error::deserialize(value).map_err(|error| {
        let is_known = error.path().iter().len() > 0;
        malformed(if is_known { error.to_string() } else { error.into_inner().to_string() })
    })?;
    // A hold of real decay rates has positive poles.
    if config.mode != HrmMode::Positive && config.discretization != Discretization::Free {
        let reason = format!("mode {:?} goes with the discretization \"free\" only", config.mode.name());
        return Err(WeightsError::content(path, reason));
    }
    Ok(config)
}

fn read_layers(path: &Path, config: HrmConfigFile, arrays: NamedArrays) -> Result<HrmAdapterFile> {
    let fail = |reason: String| WeightsError::content(path, reason);
    let mut groups: BTreeMap<(usize, StreamSite), BTreeMap<String, Array>> = BTreeMap::new();
    for (name, array) in arrays {
        let (layer, site, entry) = split_name(&name)
            .ok_or_else(|| fail(format!("unexpected tensor {name}; expected names like {PREFIX}0.mlp.hrm.b")))?;
        if !config.site.contains(site) {
            return Err(fail(format!("unexpected tensor {name}: the configuration's site is {:?}", config.site)));
        }
        groups.entry((layer, site)).or_default().insert(entry, array);
    }
    if groups.is_empty() {
        return Err(fail("it holds no tensors".into()));
    }
    let count = |what: &str, len: Option<usize>| match len {
        Some(n) if n != groups.len() => {
            Err(fail(format!("the configuration lists {n} layers in `{what}`, the file has {}", groups.len())))
        }
        _ => Ok(()),
    };
    count("state_dims", config.state_dims.as_ref().map(Vec::len))?;
    count("form", config.form.as_ref().map(Vec::len))?;
    if let Some(listed) = &config.layers {
        let mut found: Vec<usize> = groups.keys().map(|k| k.0).collect();
        found.dedup();
        if *listed != found {
            return Err(fail(format!("the configuration lists the layers {listed:?}, the file has {found:?}")));
        }
    }
    let mut layers = Vec::with_capacity(groups.len());
    let mut precision: Option<Precision> = None;
    for (i, ((layer, site), group)) in groups.into_iter().enumerate() {
        let form = config.form.as_ref().map_or(HrmForm::Diagonal, |f| f[i]);
        let states = config.state_dims.as_ref().map_or(config.state_dim, |s| s[i]);
        let reader = LayerReader { path, prefix: format!("{PREFIX}{layer}.{}.hrm.", site.module()), group };
        let (read, stored) = reader.read(layer, site, (form, config.mode), states)?;
        if form == HrmForm::Diagonal {
            precision = Some(precision.map_or(stored, |others| others.join(stored)));
        }
        if let Some(first) = layers.first().filter(|f: &&HrmLayerFile| f.width != read.width) {
            return Err(fail(format!(
                "{} has width {}, {} has {}",
                first.label(),
                first.width,
                read.label(),
                read.width
            )));
        }
        layers.push(read);
    }
    Ok(HrmAdapterFile { config, layers, precision: precision.unwrap_or(Precision::F64) })
}

/// `base_model.model.model.layers.N.mlp.hrm.b` as (N, site, "b").
fn split_name(name: &str) -> Option<(usize, StreamSite, String)> {
    let (layer, site, rest) = split_layer(name.strip_prefix(PREFIX)?)?;
    Some((layer, site, rest.strip_prefix("hrm.")?.to_owned()))
}

/// `3.mlp.REST` as (3, site, "REST").
pub(crate) fn split_layer(name: &str) -> Option<(usize, StreamSite, &str)> {
    let (layer, rest) = name.split_once('.')?;
    let (module, rest) = rest.split_once('.')?;
    let site = [StreamSite::Mlp, StreamSite::Attention].into_iter().find(|site| site.module() == module)?;
    // Only the canonical spelling of the number: "007" would be a second name for layer 7.
    let number: usize = layer.parse().ok()?;
    (number.to_string() == layer).then_some((number, site, rest))
}

struct LayerReader<'a> {
    path: &'a Path,
    prefix: String,
    group: BTreeMap<String, Array>,
}

impl LayerReader<'_> {
    /// The layer, and a type that holds all of its values.
    fn read(
        mut self,
        layer: usize,
        site: StreamSite,
        (form, mode): (HrmForm, HrmMode),
        states: usize,
    ) -> Result<(HrmLayerFile, Precision)> {
        let expected: &[&str] = match form {
            HrmForm::Diagonal if mode == HrmMode::Complex => &["b", "c", "gate", "log_a", "log_dt", "angle"],
            HrmForm::Diagonal => &["b", "c", "gate", "log_a", "log_dt"],
            HrmForm::Modal => &["b", "c", "gate", "pole_radius", "pole_angle"],
            HrmForm::Dense => &["b", "c", "gate", "a"],
        };
        if let Some(extra) = self.group.keys().find(|k| !expected.contains(&k.as_str())) {
            return Err(self.fail(format!(
                "unexpected tensor {}{extra}; a layer in {} form has {}",
                self.prefix,
                format!("{form:?}").to_lowercase(),
                expected.join(", ")
            )));
        }
        let precision = self.group.values().map(|array| array.precision).reduce(Precision::join).unwrap_or_default();
        let b = self.take("b", &[Some(states), None])?;
        let width = b.shape[1];
        let c = self.take("c", &[Some(width), Some(states)])?.data;
        let gate = self.take("gate", &[Some(1)])?.data[0];
        let dynamics = match form {
            HrmForm::Diagonal => self.trained(mode, states)?,
            HrmForm::Modal => HrmDynamics::Modal(self.modes(states)?),
            HrmForm::Dense => {
                let a = self.take("a", &[Some(states), Some(states)])?;
                self.require_f64("a", a.precision)?;
                HrmDynamics::Dense(a.data)
            }
        };
        Ok((
            HrmLayerFile { layer, site, state_dim: states, width, b: b.data.into(), c: c.into(), gate, dynamics },
            precision,
        ))
    }

    fn trained(&mut self, mode: HrmMode, states: usize) -> Result<HrmDynamics> {
        let poles = if mode == HrmMode::Complex { states / 2 } else { states };
        let log_a = self.take("log_a", &[Some(poles)])?.data;
        let log_dt = self.take("log_dt", &[Some(poles)])?.data;
        Ok(match mode {
            HrmMode::Positive => HrmDynamics::Diagonal { log_a, log_dt },
            HrmMode::Signed => HrmDynamics::Signed { log_a, log_dt },
            HrmMode::Complex => {
                let angle = self.take("angle", &[Some(poles)])?.data;
                let name = &self.prefix;
                if !states.is_multiple_of(2) {
                    return Err(self.fail(format!("{name}b has {states} states, which are not complex pairs")));
                }
                if let Some(bad) = angle.iter().find(|angle| !(**angle > 0.0 && **angle < std::f64::consts::PI)) {
                    return Err(self.fail(format!("{name}angle holds {bad}; it must lie between 0 and pi")));
                }
                HrmDynamics::Complex { log_a, log_dt, angle }
            }
        })
    }

    fn modes(&mut self, states: usize) -> Result<Vec<Mode>> {
        let radius = self.take("pole_radius", &[None])?;
        let angle = self.take("pole_angle", &[Some(radius.shape[0])])?;
        self.require_f64("pole_radius", radius.precision)?;
        self.require_f64("pole_angle", angle.precision)?;
        for (i, r) in radius.data.iter().enumerate() {
            if !(0.0..1.0).contains(r) {
                let name = &self.prefix;
                return Err(
                    self.fail(format!("{name}pole_radius holds {r} at [{i}]; a stable pole has a radius in [0, 1)"))
                );
            }
        }
        for (i, t) in angle.data.iter().enumerate() {
            if !(0.0..=std::f64::consts::PI).contains(t) {
                let name = &self.prefix;
                return Err(self.fail(format!("{name}pole_angle holds {t} at [{i}]; it must lie in [0, pi]")));
            }
        }
        let modes: Vec<Mode> = radius.data.iter().zip(&angle.data).map(|(&r, &t)| Mode::from_polar(r, t)).collect();
        let held: usize = modes.iter().map(|m| m.states()).sum();
        if held != states {
            return Err(self.fail(format!(
                "{}pole_angle describes {held} states (one per angle 0 or pi, two per other angle), expected {states}",
                self.prefix
            )));
        }
        Ok(modes)
    }

    /// Removes and returns an entry of the given shape; `None` stands for any extent.
    fn take(&mut self, entry: &str, shape: &[Option<usize>]) -> Result<Array> {
        let name = format!("{}{entry}", self.prefix);
        let array = self.group.remove(entry).ok_or_else(|| self.fail(format!("the tensor {name} is missing")))?;
        let fits = array.shape.len() == shape.len()
            && array.shape.iter().zip(shape).all(|(got, want)| want.is_none_or(|w| w == *got));
        if fits {
            return Ok(array);
        }
        let expected: Vec<String> = shape.iter().map(|s| s.map_or("any".into(), |n| n.to_string())).collect();
        Err(self.fail(format!("{name} has shape {:?}, expected [{}]", array.shape, expected.join(", "))))
    }

    fn require_f64(&self, entry: &str, precision: Precision) -> Result<()> {
        if precision == Precision::F64 {
            return Ok(());
        }
        Err(self.fail(format!(
            "{}{entry} is stored as {}; poles need f64 (rounding one near 1 changes its gain)",
            self.prefix,
            precision.name()
        )))
    }

    fn fail(&self, reason: String) -> WeightsError {
        WeightsError::Content { path: PathBuf::from(self.path), reason }
    }
}

/// SHA-256 of some bytes, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    use std::fmt::Write;
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String does not fail
        text
    })
}
