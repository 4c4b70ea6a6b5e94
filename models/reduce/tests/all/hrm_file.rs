//! Adapter directories: round trips, strictness, and the systems they stand for.

use crate::common::{Golden, row_major};
use hankel_files::arrays::{Precision, parse, serialize};
use hankel_files::hrm_file::{CONFIG_FILE, WEIGHTS_FILE};
use hankel_files::{
    Discretization, HrmAdapterFile, HrmConfigFile, HrmDynamics, HrmForm, HrmLayerFile, HrmMode, HrmPreset, HrmSites,
    StreamInput, StreamSite,
};
use hankel_lti::{Mode, StateMatrix};
use hankel_reduce::hrm::linear_system;
use std::f64::consts::PI;
use std::fs;

fn layer(layer: usize, site: StreamSite, dynamics: HrmDynamics, states: usize) -> HrmLayerFile {
    let width = 3;
    let values = |k: usize| (0..states * width).map(|i| (i as f64 + k as f64) / 7.0).collect();
    HrmLayerFile { layer, site, state_dim: states, width, b: values(1), c: values(2), gate: 0.1, dynamics }
}

fn mixed() -> HrmAdapterFile {
    let mut config = HrmConfigFile::new(HrmPreset::Released, 4);
    config.site = HrmSites::Both;
    config.base_model_name_or_path = Some("runs/x/backbone".into());
    config.other.insert("task_type".into(), "CAUSAL_LM".into());
    let modes = vec![Mode::Real(0.5), Mode::Real(-0.25), Mode::Pair { radius: 0.999_999_9, angle: 1.0 }];
    HrmAdapterFile {
        config,
        precision: Precision::F64,
        layers: vec![
            layer(0, StreamSite::Mlp, HrmDynamics::Diagonal { log_a: vec![0.1; 4], log_dt: vec![-0.3; 4] }, 4),
            layer(2, StreamSite::Attention, HrmDynamics::Modal(modes), 4),
            layer(2, StreamSite::Mlp, HrmDynamics::Dense(vec![0.1, 0.2, -0.3, 0.4]), 2),
            layer(3, StreamSite::Mlp, HrmDynamics::Modal(vec![]), 0),
        ],
    }
}

#[test]
fn every_form_survives_a_round_trip() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("adapter");
    let saved = mixed();
    saved.save(&path).unwrap();
    let loaded = HrmAdapterFile::load(&path).unwrap();
    assert_eq!(loaded.layers, saved.layers);
    assert_eq!(loaded.config.layers, Some(vec![0, 2, 3]));
    assert_eq!(loaded.config.state_dims, Some(vec![4, 4, 2, 0]));
    assert_eq!(loaded.config.form, Some(vec![HrmForm::Diagonal, HrmForm::Modal, HrmForm::Dense, HrmForm::Modal]));
    assert_eq!(loaded.config.input, StreamInput::Norm);
    assert_eq!(loaded.config.other["task_type"], "CAUSAL_LM");
    // Saving again what was loaded changes nothing, and replaces the directory.
    loaded.save(&path).unwrap();
    assert_eq!(HrmAdapterFile::load(&path).unwrap(), loaded);
    assert_eq!(loaded.to_bytes().hashes(), HrmAdapterFile::load(&path).unwrap().to_bytes().hashes());
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);

    let (log_a, log_dt) = (vec![0.5, -2.0], vec![0.25, 0.0]);
    let signed = HrmDynamics::Signed { log_a: log_a.clone(), log_dt: log_dt.clone() };
    let complex = HrmDynamics::Complex { log_a, log_dt, angle: vec![0.5, 3.0] };
    for (mode, dynamics, states) in [(HrmMode::Signed, signed, 2), (HrmMode::Complex, complex, 4)] {
        let modal = HrmDynamics::Modal(vec![Mode::Real(-0.25)]);
        let layers = vec![layer(0, StreamSite::Mlp, dynamics, states), layer(1, StreamSite::Mlp, modal, 1)];
        let config = HrmConfigFile { mode, ..HrmConfigFile::new(HrmPreset::Paper, states) };
        let saved = HrmAdapterFile { config, precision: Precision::F64, layers };
        saved.save(&path).unwrap();
        let loaded = HrmAdapterFile::load(&path).unwrap();
        assert_eq!((&loaded.layers, loaded.config.mode), (&saved.layers, mode));
        let a = linear_system(&loaded.layers[0], Discretization::Free).unwrap().a().to_dense();
        let radius = (-0.75_f64.exp()).exp();
        let expected = if states == 2 { radius } else { radius * 0.5_f64.cos() };
        assert!((a[(0, 0)] - expected).abs() < 1e-15 && (states == 4 || a[(1, 1)] == -(-(-2.0_f64).exp()).exp()));
    }
    let mut broken = HrmAdapterFile::load(&path).unwrap();
    if let HrmDynamics::Complex { angle, .. } = &mut broken.layers[0].dynamics {
        angle[1] = 3.2;
    }
    broken.save(&path).unwrap();
    let message = HrmAdapterFile::load(&path).unwrap_err().to_string();
    assert!(message.contains("angle holds 3.2; it must lie between 0 and pi"), "{message}");
}

#[test]
fn an_unreduced_adapter_in_f32_keeps_its_bits_and_lists_no_forms() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("adapter");
    let mut file = mixed();
    file.precision = Precision::F32;
    file.layers.truncate(1);
    let layer = &mut file.layers[0];
    for values in [&mut layer.b, &mut layer.c] {
        values.iter_mut().for_each(|value| *value = f64::from(*value as f32));
    }
    file.layers[0].gate = f64::from(0.1f32);
    file.layers[0].dynamics = HrmDynamics::Diagonal { log_a: vec![0.5; 4], log_dt: vec![-0.25; 4] };
    file.save(&path).unwrap();
    let loaded = HrmAdapterFile::load(&path).unwrap();
    assert_eq!((loaded.layers, loaded.precision), (file.layers, Precision::F32));
    let config = fs::read_to_string(path.join(CONFIG_FILE)).unwrap();
    assert!(!config.contains("state_dims") && !config.contains("form"), "{config}");
}

#[test]
fn an_adapter_of_several_precisions_keeps_every_value() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("adapter");
    let mut file = mixed();
    file.layers.truncate(1);
    file.config.site = HrmSites::Mlp;
    file.save(&path).unwrap();
    let weights = path.join(WEIGHTS_FILE);
    let original = parse(&weights, &fs::read(&weights).unwrap()).unwrap();
    let with = |types: &[(&str, Precision)]| {
        let mut arrays = original.clone();
        for (name, array) in &mut arrays {
            let own = types.iter().find(|(entry, _)| name.ends_with(&format!(".{entry}")));
            array.precision = own.map_or(Precision::Bf16, |(_, precision)| *precision);
        }
        fs::write(&weights, serialize(&arrays)).unwrap();
        HrmAdapterFile::load(&path).unwrap()
    };
    for (types, precision) in [
        (vec![], Precision::Bf16),
        (vec![("log_a", Precision::F32)], Precision::F32),
        (vec![("log_dt", Precision::F16)], Precision::F32),
        (vec![("c", Precision::F32), ("log_a", Precision::F64)], Precision::F64),
        (vec![("gate", Precision::F64)], Precision::F64),
    ] {
        let read = with(&types);
        assert_eq!(read.precision, precision, "{types:?}");
        read.save(&path).unwrap();
        assert_eq!(HrmAdapterFile::load(&path).unwrap().layers, read.layers, "{types:?}");
    }
    // The type of one layer is not that of the next.
    let mut file = mixed();
    file.config.site = HrmSites::Mlp;
    file.layers = [0, 1].map(|i| HrmLayerFile { layer: i, ..file.layers[0].clone() }).to_vec();
    file.save(&path).unwrap();
    let mut arrays = parse(&weights, &fs::read(&weights).unwrap()).unwrap();
    let last = arrays.iter_mut().filter(|(name, _)| name.contains("layers.1."));
    last.for_each(|(_, array)| array.precision = Precision::F32);
    fs::write(&weights, serialize(&arrays)).unwrap();
    assert_eq!(HrmAdapterFile::load(&path).unwrap().precision, Precision::F64);
}

#[test]
fn defaults_follow_the_preset_and_one_form_may_stand_for_all() {
    let parse = |text: &str| serde_json::from_str::<HrmConfigFile>(text);
    let config = parse(r#"{"peft_type": "HRM", "state_dim": 8, "preset": "released"}"#).unwrap();
    assert_eq!((config.input, config.discretization), (StreamInput::Norm, Discretization::ZohClamped));
    let config = parse(r#"{"peft_type": "HRM", "state_dim": 8, "state_dims": [3, 2], "form": "modal"}"#).unwrap();
    assert_eq!(config.form, Some(vec![HrmForm::Modal; 2]));
    assert_eq!((config.input, config.discretization), (StreamInput::Residual, Discretization::Free));
    assert!(parse(r#"{"peft_type": "HRM"}"#).unwrap_err().to_string().contains("state_dim"));
}

#[test]
fn poles_outside_the_disc_and_miscounted_states_are_named() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("adapter");
    let message = |modes: Vec<Mode>| {
        let mut file = mixed();
        file.config.site = HrmSites::Mlp;
        file.layers = vec![layer(5, StreamSite::Mlp, HrmDynamics::Modal(modes), 2)];
        file.save(&path).unwrap();
        HrmAdapterFile::load(&path).unwrap_err().to_string()
    };
    let error = message(vec![Mode::Real(0.5), Mode::Real(1.0)]);
    assert!(error.contains("layers.5.mlp.hrm.pole_radius holds 1 at [1]"), "{error}");
    let error = message(vec![Mode::Pair { radius: 0.5, angle: 4.0 }]);
    assert!(error.contains("pole_angle holds 4 at [0]"), "{error}");
    let error = message(vec![Mode::Real(0.5), Mode::Real(0.5), Mode::Real(0.5)]);
    assert!(error.contains("describes 3 states") && error.contains("expected 2"), "{error}");
}

#[test]
fn poles_are_stable_for_every_value_of_the_parameters() {
    for log_a in [-800.0, -60.0, -38.0, 0.0, 800.0] {
        let (log_a, log_dt) = (vec![log_a; 2], vec![0.0; 2]);
        let diagonal = HrmDynamics::Diagonal { log_a: log_a.clone(), log_dt: log_dt.clone() };
        let signed = HrmDynamics::Signed { log_a: log_a.clone(), log_dt: log_dt.clone() };
        let complex =
            HrmDynamics::Complex { log_a: log_a[..1].to_vec(), log_dt: log_dt[..1].to_vec(), angle: vec![0.5] };
        for dynamics in [diagonal, signed, complex] {
            let layer = layer(0, StreamSite::Mlp, dynamics, 2);
            for discretization in [Discretization::Free, Discretization::Zoh, Discretization::ZohClamped] {
                let system = linear_system(&layer, discretization).unwrap();
                assert!(system.spectral_radius() < 1.0);
            }
        }
    }
}

#[test]
fn systems_follow_the_discretization() {
    for (name, discretization) in [
        ("param_log_a_dt", Discretization::Free),
        ("param_zoh", Discretization::Zoh),
        ("param_zoh_clamped", Discretization::ZohClamped),
    ] {
        let case = Golden::load("hrm", name);
        let (states, width) = (case.shape("b")[0], case.shape("b")[1]);
        let layer = HrmLayerFile {
            layer: 0,
            site: StreamSite::Mlp,
            state_dim: states,
            width,
            b: case.values("b").into(),
            c: case.values("c").into(),
            gate: case.values("alpha")[0],
            dynamics: HrmDynamics::Diagonal { log_a: case.values("log_a"), log_dt: case.values("log_dt") },
        };
        let system = linear_system(&layer, discretization).unwrap();
        let StateMatrix::Diagonal(a) = system.a() else { panic!("a diagonal layer gives a diagonal system") };
        case.check("a_bar", a);
        if discretization != Discretization::Free {
            case.check("b_bar", &row_major(&system.b().to_owned()));
        }
    }
    let negative = layer(0, StreamSite::Mlp, HrmDynamics::Modal(vec![Mode::from_polar(0.5, PI)]), 1);
    assert_eq!(
        linear_system(&negative, Discretization::Free).unwrap().a(),
        &StateMatrix::Modal(vec![Mode::Real(-0.5)])
    );
}
