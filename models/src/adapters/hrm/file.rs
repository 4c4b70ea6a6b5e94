//! Directories of recurrent adapters: the PEFT envelope with `"peft_type": "HRM"` (R2, "on disk").

use super::dynamics::Dynamics;
use super::{Hrm, HrmConfig};
use crate::adapters::config::AdapterConfig;
use crate::adapters::stream::initial::alternating;
use crate::adapters::stream::{SiteSettings, Stream, StreamAdapter};
use crate::adapters::{AdapterSet, Placement, StreamSite};
use crate::lti::Mode;
use crate::parameter::{Parameter, Role};
use crate::weights::arrays::Precision;
use crate::weights::hrm_file::layer_label;
use crate::weights::{
    HrmAdapterFile, HrmConfigFile, HrmDynamics, HrmForm, HrmLayerFile, HrmSites, Result, StreamInput, WeightsError,
};
use hankel_core::{DType, Tensor};
use hankel_ops::ScanPath;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// Fastest decay rate that is kept: a pole at 0 becomes one of radius `exp(-100)`, so that the logarithm of its rate is finite.
const MAX_RATE: f64 = 100.0;

pub(super) fn save(
    set: &AdapterSet,
    _config: &AdapterConfig,
    directory: &Path,
    base_model: Option<&str>,
) -> Result<()> {
    let fail = |reason: String| WeightsError::content(directory, reason);
    let file = set.to_hrm_file(base_model).map_err(fail)?;
    // What was read from a device that has failed is worth nothing.
    set.device().check().map_err(|e| fail(e.to_string()))?;
    file.save(directory)
}

pub(super) fn load(directory: &Path, placement: &Placement, length: usize) -> Result<AdapterSet> {
    let file = HrmAdapterFile::load(directory)?;
    AdapterSet::of_hrm_file(&file, placement, length).map_err(|reason| WeightsError::content(directory, reason))
}

impl AdapterSet {
    /// The recurrent adapters as a file holds them: what truncation works on.
    ///
    /// # Errors
    /// When there are no adapters, or they are not of kind `hrm`.
    pub fn to_hrm_file(&self, base_model: Option<&str>) -> std::result::Result<HrmAdapterFile, String> {
        let config = self.config().ok_or("there are no adapters")?;
        let own: HrmConfig = config.read().map_err(|_| "only an HRM can be truncated".to_owned())?;
        let common: SiteSettings = config.read().map_err(|error| error.to_string())?;
        let mut file = HrmConfigFile::new(own.preset, own.state_dim);
        file.mode = own.mode;
        file.input = common.input;
        file.discretization = own.discretization;
        file.site = match common.sites[..] {
            [StreamSite::Attention] => HrmSites::Attention,
            [StreamSite::Mlp] => HrmSites::Mlp,
            _ => HrmSites::Both,
        };
        file.base_model_name_or_path = base_model.map(str::to_owned);
        let settings = [
            ("scan", json!(own.scan)),
            ("train_gate", json!(common.train_gate)),
            ("train_log_dt", json!(own.train_log_dt)),
        ];
        file.other = settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let double = self.parameters().iter().any(|p| p.tensor().dtype() == DType::F64);
        let mut layers = Vec::new();
        for (layer, adapters) in self.layers().iter().enumerate() {
            for (site, stream) in adapters.streams() {
                let hrm: &Hrm = stream.downcast_ref().ok_or("only an HRM can be truncated")?;
                layers.push(hrm.to_layer_file(layer, site, stream.gate()));
            }
        }
        Ok(HrmAdapterFile { config: file, layers, precision: if double { Precision::F64 } else { Precision::F32 } })
    }

    /// The adapters of a file in memory, trainable; see [`AdapterSet::load`].
    ///
    /// # Errors
    /// Says in which way the file does not fit the backbone.
    pub fn of_hrm_file(
        file: &HrmAdapterFile,
        placement: &Placement,
        steps: usize,
    ) -> std::result::Result<Self, String> {
        let other = |key: &str| file.config.other.get(key).cloned();
        let flag = |key: &str| other(key).and_then(|value| value.as_bool()).unwrap_or(true);
        let mut config = HrmConfig::new(file.config.preset, file.config.state_dim, placement.d_model, steps);
        config.mode = file.config.mode;
        config.discretization = file.config.discretization;
        let sites = [StreamSite::Attention, StreamSite::Mlp].into_iter().filter(|s| file.config.site.contains(*s));
        let (input, train_gate) = (file.config.input, flag("train_gate"));
        config.train_log_dt = flag("train_log_dt");
        if let Some(scan) = other("scan") {
            config.scan = serde_json::from_value::<ScanPath>(scan).map_err(|e| format!("scan: {e}"))?;
        }
        let reduced = file.layers.iter().any(|layer| layer.dynamics.form() != HrmForm::Diagonal);
        let dtype = if reduced || file.precision == Precision::F64 { DType::F64 } else { DType::F32 };
        let mut set = Self::none(placement);
        for layer in &file.layers {
            let adapters = set.layers.get_mut(layer.layer).ok_or_else(|| {
                format!("{} does not exist in a backbone of {} layers", layer.label(), placement.layers)
            })?;
            if layer.width != placement.d_model {
                return Err(format!("the adapter has width {}, the backbone {}", layer.width, placement.d_model));
            }
            let stream = of_layer_file(&config, layer, dtype, (input, train_gate))
                .map_err(|e| format!("{}: {e}", layer.label()))?;
            adapters.stream.insert(layer.site, stream);
        }
        for (layer, adapters) in set.layers.iter().enumerate().filter(|(_, adapters)| !adapters.stream.is_empty()) {
            if let Some(site) = sites.clone().find(|site| !adapters.stream.contains_key(site)) {
                return Err(format!("{} is missing: `site` is {:?}", layer_label(layer, site), file.config.site));
            }
        }
        // One of a model of fewer layers would adapt the first of them only.
        let count = file.layers.iter().map(|layer| layer.layer + 1).max().unwrap_or(0);
        if count != placement.layers {
            return Err(format!("the adapter is for {count} layers, the backbone has {}", placement.layers));
        }
        let config = AdapterConfig::stream::<Hrm>(&config).with("sites", json!(sites.collect::<Vec<_>>()));
        set.config = Some(config.with("input", json!(input)).with("train_gate", train_gate));
        Ok(set)
    }
}

impl Hrm {
    fn to_layer_file(&self, layer: usize, site: StreamSite, gate: f64) -> HrmLayerFile {
        let (dynamics, [b, c]) = self.numbers();
        let (d, width) = (self.state_dim(), self.b.tensor().shape().last());
        HrmLayerFile { layer, site, state_dim: d, width, b: b.into(), c: c.into(), gate, dynamics }
    }
}

fn of_layer_file(
    config: &HrmConfig,
    file: &HrmLayerFile,
    dtype: DType,
    (input, train_gate): (StreamInput, bool),
) -> hankel_core::Result<Stream> {
    let (d, width) = (file.state_dim, file.width);
    let name = |entry: &str| format!("model.layers.{}.{}.hrm.{entry}", file.layer, file.site.module());
    // Reduced layers are stored in the order of their modes; the scan wants real poles first.
    let order = state_order(&file.dynamics, d);
    let b: Vec<f64> = order.iter().flat_map(|&i| file.b[i * width..(i + 1) * width].to_vec()).collect();
    let c: Vec<f64> = file.c.chunks(d.max(1)).flat_map(|row| order.iter().map(|&i| row[i])).collect();
    let parameter = |entry: &str, role, data: Vec<f64>, shape: &[usize]| -> hankel_core::Result<Parameter> {
        let parameter = Parameter::new(name(entry), role, &Tensor::from_vec(data, shape)?.to_dtype(dtype)?);
        parameter.set_trainable(true)?;
        Ok(parameter)
    };
    let b = parameter("b", Role::Matrix, b, &[d, width])?;
    let c = parameter("c", Role::Matrix, c, &[width, d])?;
    let gate = parameter("gate", Role::Gate, vec![file.gate], &[1])?;
    gate.set_trainable(train_gate)?;
    let dynamics = match &file.dynamics {
        HrmDynamics::Diagonal { log_a, log_dt } => Dynamics::Diagonal {
            log_a: parameter("log_a", Role::Rate, log_a.clone(), &[d])?,
            log_dt: parameter("log_dt", Role::Rate, log_dt.clone(), &[d])?,
            discretization: config.discretization,
        },
        HrmDynamics::Signed { log_a, log_dt } => Dynamics::Signed {
            log_a: parameter("log_a", Role::Rate, log_a.clone(), &[d])?,
            log_dt: parameter("log_dt", Role::Rate, log_dt.clone(), &[d])?,
            sign: alternating(d)?,
        },
        HrmDynamics::Complex { log_a, log_dt, angle } => Dynamics::Complex {
            log_a: parameter("log_a", Role::Rate, log_a.clone(), &[d / 2])?,
            log_dt: parameter("log_dt", Role::Rate, log_dt.clone(), &[d / 2])?,
            angle: parameter("angle", Role::Rate, angle.clone(), &[d / 2])?,
        },
        HrmDynamics::Modal(modes) => {
            let real: Vec<f64> =
                modes.iter().filter_map(|m| if let Mode::Real(a) = m { Some(*a) } else { None }).collect();
            let pairs: Vec<(f64, f64)> = modes
                .iter()
                .filter_map(|m| if let Mode::Pair { radius, angle } = m { Some((*radius, *angle)) } else { None })
                .collect();
            let radii = real.iter().map(|a| a.abs()).chain(pairs.iter().map(|p| p.0));
            let log_decay = radii.map(|r| (-r.ln()).min(MAX_RATE).ln()).collect();
            let sign: Vec<f32> = real.iter().map(|a| if *a < 0.0 { -1.0 } else { 1.0 }).collect();
            Dynamics::Modal {
                log_decay: parameter("log_decay", Role::Rate, log_decay, &[modes.len()])?,
                angle: parameter("angle", Role::Rate, pairs.iter().map(|p| p.1).collect(), &[pairs.len()])?,
                sign: Tensor::from_vec(sign, [real.len()])?,
            }
        }
        HrmDynamics::Dense(a) => {
            let a = parameter("a", Role::Rate, a.clone(), &[d, d])?;
            a.set_trainable(false)?;
            Dynamics::Dense { a }
        }
    };
    dynamics.check_stable()?;
    dynamics.set_trainable_log_dt(config.train_log_dt)?;
    let adapter = Arc::new(Hrm::from_parts(config.scan, [b, c], dynamics));
    Ok(Stream::from_parts(adapter, file.site, input, gate, width))
}

/// Indices of the states: those of real modes, then those of pairs.
fn state_order(dynamics: &HrmDynamics, d: usize) -> Vec<usize> {
    let HrmDynamics::Modal(modes) = dynamics else { return (0..d).collect() };
    let (mut real, mut pairs, mut next) = (Vec::new(), Vec::new(), 0);
    for mode in modes {
        match mode {
            Mode::Real(_) => real.push(next),
            Mode::Pair { .. } => pairs.extend([next, next + 1]),
        }
        next += mode.states();
    }
    real.extend(pairs);
    real
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::HrmPreset;
    use crate::reduce::hrm::linear_system;

    /// A layer of a positive and a negative pole and a pair.
    fn reduced() -> (HrmAdapterFile, Placement) {
        let modes = vec![Mode::Real(0.9), Mode::Real(-0.3), Mode::Pair { radius: 0.999, angle: 1.1 }];
        let values = |k: usize| (0..4 * 3).map(|i| ((i + k) as f64).sin()).collect::<Vec<f64>>().into();
        let (layer, site, dynamics) = (0, StreamSite::Mlp, HrmDynamics::Modal(modes));
        let layer =
            HrmLayerFile { layer, site, state_dim: 4, width: 3, b: values(1), c: values(2), gate: 0.3, dynamics };
        let config = HrmConfigFile::new(HrmPreset::Paper, 4);
        let placement = Placement { layers: 1, d_model: 3, linear: Vec::new(), stream: vec![site] };
        (HrmAdapterFile { config, layers: vec![layer], precision: Precision::F64 }, placement)
    }

    /// Truncated, saved and read again in doubles, nothing is rounded to singles on the way.
    #[test]
    fn doubles_stay_doubles() {
        let (file, placement) = reduced();
        let set = AdapterSet::of_hrm_file(&file, &placement, 16).unwrap();
        let kept = set.to_hrm_file(None).unwrap();
        assert_eq!(kept.precision, Precision::F64);
        assert_eq!((&kept.layers[0].b, &kept.layers[0].c), (&file.layers[0].b, &file.layers[0].c));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("adapter");
        set.save(&path, None).unwrap();
        let read = AdapterSet::load(&path, &placement, 16).unwrap();
        for (one, other) in set.parameters().iter().zip(read.parameters()) {
            assert_eq!(other.tensor().dtype(), DType::F64);
            let (one, other) = (one.tensor().to_f64_vec(), other.tensor().to_f64_vec());
            // A radius is stored, not its logarithm: a pole of 0.3 comes back within some roundings.
            assert!(one.iter().zip(&other).all(|(a, b)| (a - b).abs() <= 1e-12 * a.abs()), "{one:?} {other:?}");
        }
        // Singles are asked for by name, and come from one rounding.
        read.to_dtype(DType::F32).unwrap();
        let single = |x: &f64| f64::from(*x as f32);
        let stream = read.layer(0).stream(StreamSite::Mlp).unwrap();
        let b = stream.downcast_ref::<Hrm>().unwrap().b.tensor();
        assert_eq!(b.to_f64_vec(), file.layers[0].b.iter().map(single).collect::<Vec<_>>());
    }

    #[test]
    fn a_dense_matrix_is_not_trained_and_stays_stable() {
        let (mut file, placement) = reduced();
        let layer = &mut file.layers[0];
        (layer.state_dim, layer.b, layer.c) = (2, vec![0.5; 6].into(), vec![0.5; 6].into());
        // A double pole with a coupling of 1, turned: rounding moves its poles by the root of what it moves the entries.
        let with = |pole: f64| {
            let (sin, cos) = 1.1_f64.sin_cos();
            vec![pole - sin * cos, cos * cos, -sin * sin, pole + sin * cos]
        };
        layer.dynamics = HrmDynamics::Dense(with(0.9));
        let set = AdapterSet::of_hrm_file(&file, &placement, 16).unwrap();
        set.to_dtype(DType::F32).unwrap();
        let frozen = set.parameters().into_iter().filter(|parameter| !parameter.is_trainable());
        assert_eq!(frozen.map(|p| p.name().to_owned()).collect::<Vec<_>>(), ["model.layers.0.mlp.hrm.a"]);
        file.layers[0].dynamics = HrmDynamics::Dense(with(0.9999));
        let set = AdapterSet::of_hrm_file(&file, &placement, 16).unwrap();
        let refused = set.to_dtype(DType::F32).unwrap_err().to_string();
        assert!(refused.contains("layers.0.mlp.hrm.a in f32") && refused.contains("modulus 1.0"), "{refused}");
    }

    #[test]
    fn trained_poles_that_round_to_1_are_read_again() {
        let (file, placement) = reduced();
        let set = AdapterSet::of_hrm_file(&file, &placement, 16).unwrap();
        for parameter in set.parameters().iter().filter(|parameter| parameter.name().ends_with("log_decay")) {
            parameter.set(&Tensor::full([3], -60.0_f64)).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("adapter");
        set.save(&path, None).unwrap();
        let saved = HrmAdapterFile::load(&path).unwrap();
        assert!(linear_system(&saved.layers[0], saved.config.discretization).unwrap().spectral_radius() < 1.0);
        AdapterSet::load(&path, &placement, 16).unwrap();
    }
}
