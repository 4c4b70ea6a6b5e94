//! What the kinds promise: conformance, and that `selective` at its start is HRM.

use super::*;
use crate::adapters::stream::conformance;
use crate::adapters::{
    AdapterConfig, AdapterSet, HrmConfig, Placement, Preset, StreamConfig, StreamInputs, StreamSite,
};
use crate::parameter::Parameter;
use crate::pass::Pass;
use hankel_core::{DType, Random};

const WIDTH: usize = 5;
const STEPS: usize = 150;

#[test]
fn every_kind_conforms() {
    conformance::<Selective>(&selective::Settings { state_dim: 3, selection_rank: 2, ..Default::default() }).unwrap();
    conformance::<Complex>(&complex::Settings { pairs: 2, ..Default::default() }).unwrap();
    conformance::<HankelShared>(&hankel_shared::Settings { state_dim: 3, ..Default::default() }).unwrap();
    conformance::<StateOffset>(&state_offset::Settings {}).unwrap();
}

pub(crate) fn noise(name: &str, shape: [usize; 3], dtype: DType) -> Tensor {
    let values = Random::new(8, name, 0).normal_vec::<f64>(shape.iter().product(), 1.0);
    Tensor::from_vec(values, shape).unwrap().to_dtype(dtype).unwrap()
}

pub(crate) fn placement() -> Placement {
    Placement { layers: 2, d_model: WIDTH, linear: Vec::new(), stream: vec![StreamSite::Mlp] }
}

fn entry(name: &str) -> &str {
    name.rsplit('.').next().unwrap()
}

/// HRM with parameters as after some training, and `selective` with the same ones.
pub(crate) fn twins(dtype: DType) -> [AdapterSet; 2] {
    let hrm = AdapterConfig::Hrm(HrmConfig::new(Preset::Paper, 6, WIDTH, STEPS));
    let selective = AdapterConfig::Stream(StreamConfig::new("selective", STEPS).with("state_dim", 6));
    let [hrm, selective] = [hrm, selective].map(|config| AdapterSet::new(&config, &placement(), 3).unwrap());
    for (i, parameter) in hrm.parameters().iter().enumerate() {
        let noise = Random::new(9, "twins", i as u64);
        let moved = parameter.tensor().to_f64_vec().into_iter().zip(0..).map(|(v, i)| v + 0.3 * noise.normal(i));
        parameter.set(&Tensor::from_vec(moved.collect(), parameter.tensor().shape()).unwrap()).unwrap();
    }
    for parameter in selective.parameters() {
        let same = |other: &Parameter| other.name() == parameter.name().replace(".selective.", ".hrm.");
        if let Some(other) = hrm.parameters().iter().find(|other| same(other)) {
            parameter.set(&other.tensor()).unwrap();
        }
    }
    [&hrm, &selective].into_iter().for_each(|set| set.to_dtype(dtype).unwrap());
    [hrm, selective]
}

pub(crate) fn output(set: &AdapterSet, x: &Tensor) -> Tensor {
    let inputs = StreamInputs { residual: x, norm: x, sublayer: None };
    (0..2).fold(x.clone(), |h, layer| {
        let inputs = StreamInputs { residual: &h, ..inputs };
        set.layer(layer).stream(StreamSite::Mlp).unwrap().forward(layer, inputs, &mut Pass::evaluation()).unwrap()
    })
}

pub(crate) fn difference(a: &Tensor, b: &Tensor) -> f64 {
    let (a, b) = (a.to_f64_vec(), b.to_f64_vec());
    assert_eq!(a.len(), b.len());
    let scale = b.iter().fold(1e-6, |m: f64, x| m.max(x.abs()));
    a.iter().zip(&b).fold(0.0, |m: f64, (a, b)| m.max((a - b).abs())) / scale
}

#[test]
fn selective_without_selection_is_hrm() {
    for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F64, 1e-10)] {
        let sets = twins(dtype);
        let x = noise("x", [2, STEPS, WIDTH], dtype).parameter().unwrap();
        let [hrm, selective] = sets.each_ref().map(|set| output(set, &x));
        assert!(difference(&selective, &hrm) < tolerance, "{dtype}: {:e}", difference(&selective, &hrm));
        let seed = noise("seed", [2, STEPS, WIDTH], dtype);
        let [of_hrm, of_selective] = [hrm, selective].map(|y| y.backward_with(seed.clone()).unwrap());
        let compare = |name: &str, a: &Tensor, b: &Tensor| {
            let [a, b] = [of_selective.get(a), of_hrm.get(b)].map(Option::unwrap);
            assert!(difference(a, b) < tolerance, "{dtype} {name}: {:e}", difference(a, b));
        };
        compare("the input", &x, &x);
        let mut shared = 0;
        for parameter in sets[1].parameters() {
            let of_hrm = sets[0].parameters();
            let same = parameter.name().replace(".selective.", ".hrm.");
            if let Some(other) = of_hrm.iter().find(|other| other.name() == same) {
                compare(parameter.name(), &parameter.tensor(), &other.tensor());
                shared += 1;
            } else if entry(parameter.name()) != "p" {
                let gradient = of_selective.get(&parameter.tensor()).unwrap().to_f64_vec();
                assert!(gradient.iter().any(|g| g.abs() > 1e-3), "{} can leave zero", parameter.name());
            }
        }
        assert_eq!(shared, 2 * 5);
    }
}
