//! Readers of linear systems, adapters and certificates.

use super::{two, with_files};
use hankel_models::lti::{LinearSystem, OrderRule};
use hankel_models::reduce::{
    Certificate, LayerAnalysis, OrderChoice, Plant, Purpose, ReduceOptions, Verification, analyse, reduce_systems,
    verify_layer,
};
use hankel_models::weights::HrmAdapterFile;
use hankel_models::weights::arrays::{Array, NamedArrays, Precision};
use hankel_models::weights::system_file::{StoredSystem, parse_arrays};
use std::path::Path;
use std::sync::OnceLock;

/// A system in a safetensors file.
pub(super) fn safetensors(bytes: &[u8]) -> bool {
    system("x.safetensors", bytes)
}

/// A system in numpy's npz.
pub(super) fn npz(bytes: &[u8]) -> bool {
    system("x.npz", bytes)
}

fn system(name: &str, bytes: &[u8]) -> bool {
    let path = Path::new(name);
    let stored = parse_arrays(path, bytes).and_then(|arrays| StoredSystem::parse(path, arrays));
    let Ok(stored) = stored else { return false };
    Plant::new(&stored).is_ok_and(|plant| plant.analyse("system").is_ok())
}

/// `adapter_config.json` and `adapter_model.safetensors` of an adapter of kind hrm.
pub(super) fn adapter(bytes: &[u8]) -> bool {
    let (config, weights) = two(bytes);
    with_files(&[("adapter_config.json", config), ("adapter_model.safetensors", weights)], |folder| {
        HrmAdapterFile::load(folder).is_ok_and(|adapter| analyse(&adapter).is_ok())
    })
}

/// A system, its reduction, and what is true of them.
struct Pair {
    full: LayerAnalysis,
    reduced: LinearSystem,
    honest: Certificate,
}

/// A system of four states, reduced to two.
fn pair() -> &'static Pair {
    static PAIR: OnceLock<Pair> = OnceLock::new();
    PAIR.get_or_init(|| {
        let array = |name: &str, shape: &[usize], data: &[f64]| {
            (name.to_owned(), Array::new(shape.to_vec(), data.to_vec(), Precision::F64))
        };
        let arrays = NamedArrays::from([
            array("A", &[4], &[0.9, 0.5, -0.3, 0.1]),
            array("B", &[4, 1], &[1.0, -0.5, 0.25, 1.0]),
            array("C", &[1, 4], &[0.5, 1.0, 1.0, -0.25]),
        ]);
        let stored = StoredSystem::parse(Path::new("x.npz"), arrays).expect("a system");
        let full = Plant::new(&stored).and_then(|plant| plant.analyse("system")).expect("a stable system");
        let orders = OrderChoice::PerLayer(OrderRule::Order(2));
        let options = ReduceOptions { orders, ..ReduceOptions::default() };
        let (layers, honest) =
            reduce_systems(std::slice::from_ref(&full), &options, Purpose::default()).expect("a reduction");
        let reduced = layers.into_iter().next().expect("one system").system;
        Pair { full, reduced, honest }
    })
}

/// `certificate.json` beside the reduction of one system: none but what is true is accepted.
pub(super) fn certificate(bytes: &[u8]) -> bool {
    let Pair { full, reduced, honest } = pair();
    let Ok(claimed) = Certificate::parse(bytes) else { return false };
    let [layer] = &claimed.layers[..] else { return false };
    let Ok(found) = verify_layer(full, reduced, 1.0, Some(&layer.facts)) else { return false };
    let accepted = Verification::new(vec![found], Some(&claimed)).passed;
    if accepted {
        let (claim, truth) = (&layer.facts, &honest.layers[0].facts);
        let near = |claimed: f64, measured: f64| (claimed - measured).abs() <= 1e-5 * truth.hinf_norm;
        assert_eq!((claim.states, claim.order), (truth.states, truth.order));
        assert!(near(claim.hinf_error, truth.hinf_error) && near(claim.hinf_norm, truth.hinf_norm), "{claim:?}");
        assert!(near(claimed.total.hinf_error, truth.hinf_error), "{:?}", claimed.total);
        assert!(claim.hinf_error_upper >= truth.hinf_error * (1.0 - 1e-9), "{claim:?}");
    }
    accepted
}

/// The certificate that is true, as a file.
pub fn honest_certificate() -> String {
    serde_json::to_string_pretty(&pair().honest).expect("a JSON value")
}
