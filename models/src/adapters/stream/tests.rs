//! What the kinds promise: conformance, and that `selective` at its start is HRM.

use super::{Calibration, Memory, SiteContext, StreamAdapter, StreamInputs, StreamKind, conformance, kinds};
use crate::adapters::kind::Sites;
use crate::adapters::{
    AdapterConfig, AdapterSet, Delta, HankelShared, Householder, Hrm, HrmConfig, HrmPreset, Placement, Rotation,
    Selective, StateOffset, StreamSite, delta, hankel_shared, householder, rotation, selective, state_offset,
};
use crate::lti::varying::Controllability;
use crate::lti::{LinearSystem, OrderRule};
use crate::parameter::Parameter;
use crate::pass::{Pass, SiteInput};
use crate::reduce::{OrderChoice, ReduceOptions};
use faer::{Mat, MatRef};
use hankel_core::{DType, Error, Random, Result, Tensor, no_grad};
use hankel_ops::add;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

const WIDTH: usize = 5;
const STEPS: usize = 150;

#[test]
fn every_kind_conforms() {
    let seen = &mut BTreeSet::new();
    conforms::<Selective>(&selective::Settings { state_dim: 3, selection_rank: 2, ..Default::default() }, seen);
    let signed = selective::Mode::Signed;
    conforms::<Selective>(&selective::Settings { state_dim: 3, mode: signed, ..Default::default() }, seen);
    conforms::<Rotation>(&rotation::Settings { planes: 3, max_modulus: 0.97, ..Default::default() }, seen);
    for reflections in [1, 2, 3] {
        let settings = householder::Settings { state_dim: 3, reflections, ..Default::default() };
        conforms::<Householder>(&settings, seen);
    }
    let settings = delta::Settings { heads: 2, state_dim: 3, value_dim: 2, ..Default::default() };
    conforms::<Delta>(&settings, seen);
    conforms::<Hrm>(&HrmConfig::new(HrmPreset::Paper, 4, 6, 9), seen);
    conforms::<HankelShared>(&hankel_shared::Settings { state_dim: 3, ..Default::default() }, seen);
    conforms::<StateOffset>(&state_offset::Settings {}, seen);
    // Those that other tests register have no description.
    for kind in kinds().into_iter().filter(|kind| kind.sites() == Sites::Stream && !kind.about().is_empty()) {
        assert!(seen.contains(kind.name()), "{kind:?} has no line here");
    }
}

fn conforms<K: StreamKind>(settings: &K::Settings, seen: &mut BTreeSet<&str>) {
    conformance::<K>(settings).unwrap();
    seen.insert(K::KIND);
}

fn noise(name: &str, shape: [usize; 3], dtype: DType) -> Tensor {
    let values = Random::new(8, name, 0).normal_vec::<f64>(shape.iter().product(), 1.0);
    Tensor::from_vec(values, shape).unwrap().to_dtype(dtype).unwrap()
}

fn placement() -> Placement {
    Placement { layers: 2, d_model: WIDTH, linear: Vec::new(), stream: vec![StreamSite::Mlp] }
}

fn entry(name: &str) -> &str {
    name.rsplit('.').next().unwrap()
}

/// HRM with parameters as after some training, and `selective` with the same ones.
fn twins(dtype: DType) -> [AdapterSet; 2] {
    let hrm = AdapterConfig::stream::<Hrm>(&HrmConfig::new(HrmPreset::Paper, 6, WIDTH, STEPS));
    let selective = selective::Settings { state_dim: 6, ..Default::default() };
    let selective = AdapterConfig::stream::<Selective>(&selective).for_length(STEPS);
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

fn output(set: &AdapterSet, x: &Tensor) -> Tensor {
    // Truncated adapters have no gradient, and their parameters are still those that were trained.
    let track = !set.is_truncated();
    let run = || {
        (0..2).fold(x.clone(), |h, layer| {
            let inputs = StreamInputs { residual: &h, norm: x, sublayer: None };
            set.layer(layer).stream(StreamSite::Mlp).unwrap().forward(layer, inputs, &mut Pass::evaluation()).unwrap()
        })
    };
    if track { run() } else { no_grad(run) }
}

fn difference(a: &Tensor, b: &Tensor) -> f64 {
    let (a, b) = (a.to_f64_vec(), b.to_f64_vec());
    assert_eq!(a.len(), b.len());
    let scale = b.iter().fold(1e-6, |m: f64, x| m.max(x.abs()));
    a.iter().zip(&b).map(|(a, b)| (a - b).abs()).max_by(f64::total_cmp).unwrap_or(0.0) / scale
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

fn inputs(name: &str, dtype: DType) -> Vec<SiteInput> {
    let one = |layer| SiteInput { layer, site: StreamSite::Mlp, x: noise(name, [3, 40, WIDTH], dtype) };
    (0..2).map(one).collect()
}

/// What a linear system makes of one sequence, step by step in doubles.
fn respond(system: &LinearSystem, gate: f64, x: &Tensor) -> Tensor {
    let (a, x) = (system.a().to_dense(), x.to_f64_vec());
    let mut z = Mat::<f64>::zeros(system.states(), 1);
    let mut y = Vec::new();
    for x in x.chunks(WIDTH) {
        z = &a * &z + system.b() * MatRef::from_column_major_slice(x, WIDTH, 1);
        y.extend((system.c() * &z).col(0).iter().map(|y| gate * y));
    }
    Tensor::from_vec(y, [1, x.len() / WIDTH, WIDTH]).unwrap()
}

#[test]
fn truncated_selective_without_selection_is_truncated_hrm() {
    for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F64, 1e-10)] {
        let [hrm, selective] = twins(dtype);
        let rule = OrderRule::Order(3);
        let options = ReduceOptions { orders: OrderChoice::PerLayer(rule), ..ReduceOptions::default() };
        let of_hrm = hrm.truncate(&options, &placement(), STEPS, None).unwrap();
        let mut calibration = Calibration::new(&selective, Controllability::White).unwrap();
        calibration.add(&inputs("calibration", dtype)).unwrap();
        let mut of_selective = calibration.truncate(rule).unwrap();
        of_selective.measure(&inputs("held out", dtype)).unwrap();
        let x = noise("x", [1, STEPS, WIDTH], dtype);
        let inputs = StreamInputs { residual: &x, norm: &x, sublayer: None };
        for (layer, reduction) in of_hrm.reduction.layers.iter().enumerate() {
            let stream = of_selective.adapters.layer(layer).stream(StreamSite::Mlp).unwrap();
            let y = no_grad(|| stream.forward(layer, inputs, &mut Pass::evaluation())).unwrap();
            let expected = add(&x, &respond(&reduction.system, stream.gate(), &x).to_dtype(dtype).unwrap()).unwrap();
            assert!(difference(&y, &expected) < tolerance, "{dtype}: {:e}", difference(&y, &expected));
        }
        for (layer, certified) in of_hrm.reduction.certificate.layers.iter().zip(&of_selective.certificate.layers) {
            let values = layer.facts.hankel_singular_values.iter().zip(&certified.averaged_singular_values);
            let largest = layer.facts.hankel_singular_values[0];
            values.for_each(|(a, b)| assert!((a - b).abs() < tolerance * largest, "{dtype}: {a} {b}"));
            assert_eq!((certified.states, certified.order, certified.measured_tokens), (6, 3, 120));
            assert!(certified.measured_error > 1e-6 && certified.measured_error < 1.0, "{}", certified.measured_error);
        }
    }
}

/// With coefficients that do change, a file keeps the truncated adapter, it streams, and it learns nothing.
#[test]
fn truncated_selective_on_disk_and_in_parts() {
    let [_, selective] = twins(DType::F32);
    for (i, parameter) in selective.parameters().iter().enumerate().filter(|(_, p)| p.name().contains("select")) {
        let noise = Random::new(4, "selection", i as u64).normal_vec::<f32>(parameter.elements(), 0.5);
        parameter.set(&Tensor::from_vec(noise, parameter.tensor().shape()).unwrap()).unwrap();
    }
    let x = noise("x", [2, 9, WIDTH], DType::F32);
    let mut errors = Vec::new();
    for which in [Controllability::White, Controllability::Recorded] {
        for order in [1, 3, 6] {
            let mut calibration = Calibration::new(&selective, which).unwrap();
            calibration.add(&inputs("calibration", DType::F32)).unwrap();
            let mut truncated = calibration.truncate(OrderRule::Order(order)).unwrap();
            truncated.measure(&inputs("held out", DType::F32)).unwrap();
            errors.push(truncated.certificate.layers[0].measured_error);
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("adapter");
            truncated.adapters.save(&path, None).unwrap();
            let loaded = AdapterSet::load(&path, &placement(), 9).unwrap();
            let whole = output(&loaded, &x);
            assert_eq!(whole.to_f64_vec(), output(&truncated.adapters, &x).to_f64_vec());
            assert_eq!((loaded.trainable_count(), loaded.is_truncated()), (0, true));
            let mut state = crate::pass::State::default();
            let stream = loaded.layer(0).stream(StreamSite::Mlp).unwrap();
            assert_eq!(stream.state_dim(), truncated.certificate.layers[0].order);
            let parts = [(0, 4), (4, 1), (5, 4)].map(|(first, steps)| {
                let x = hankel_ops::narrow_time(&x, first, steps).unwrap();
                let inputs = StreamInputs { residual: &x, norm: &x, sublayer: None };
                stream.forward(0, inputs, &mut Pass::streaming(&mut state)).unwrap()
            });
            let inputs = StreamInputs { residual: &x, norm: &x, sublayer: None };
            let at_once = stream.forward(0, inputs, &mut Pass::evaluation()).unwrap();
            let parts = hankel_ops::concat_time(&parts.each_ref()).unwrap();
            assert!(difference(&parts, &at_once) < 1e-5);
            assert!(Calibration::new(&loaded, which).is_err());
        }
    }
    assert!(errors[0] > errors[1] && errors[1] > errors[2] && errors[2] < 1e-5, "{errors:?}");
    assert!(errors[3] > errors[4] && errors[4] > errors[5] && errors[5] < 1e-5, "{errors:?}");
    // A layer without data is refused, not left out.
    let unseen = Calibration::new(&selective, Controllability::White).unwrap().truncate(OrderRule::Order(2));
    assert!(unseen.err().unwrap().to_string().contains("layer 0 has no calibration data"));
    // A gradient through a truncated adapter is refused, not left out.
    let mut calibration = Calibration::new(&selective, Controllability::White).unwrap();
    calibration.add(&inputs("calibration", DType::F32)).unwrap();
    let truncated = calibration.truncate(OrderRule::Order(2)).unwrap().adapters;
    let inputs = StreamInputs { residual: &x, norm: &x, sublayer: None };
    let stream = truncated.layer(0).stream(StreamSite::Mlp).unwrap();
    let error = stream.forward(0, inputs, &mut Pass::evaluation()).unwrap_err().to_string();
    assert!(error.contains("truncated recurrence"), "{error}");
}

/// A matrix of `size` x `size`.
struct Square(Parameter);

#[derive(Default, Serialize, Deserialize)]
struct Size {
    size: usize,
}

impl StreamAdapter for Square {
    fn parameters(&self) -> Vec<Parameter> {
        vec![self.0.clone()]
    }

    fn forward(&self, x: &Tensor, _: Option<&Memory>) -> Result<(Tensor, Memory)> {
        Ok((x.clone(), Memory::new()))
    }
}

impl StreamKind for Square {
    const KIND: &'static str = "square";
    const SIZE: Option<&'static str> = Some("size");
    type Settings = Size;

    fn new(&Size { size }: &Size, context: &SiteContext<'_>) -> Result<Self> {
        if size > 100 {
            return Err(Error::invalid("square", format!("size is {size}, above 100")));
        }
        Ok(Square(context.zeros("square", [size, size])?))
    }
}

#[test]
fn a_budget_of_a_count_that_is_no_straight_line() {
    let config = AdapterConfig::stream::<Square>(&Size { size: 1 });
    // The matrices and gates of two layers.
    let count = |size: u64| 2 * (size * size + 1);
    let between = count(50).midpoint(count(51));
    let solve = |budget: u64| {
        let solved = config.solve_budget(&placement(), budget).unwrap();
        assert_eq!(solved.parameters, count(solved.size as u64));
        solved.size
    };
    let budgets = [1, count(1), count(50) - 1, count(50), between, between + 1, count(99)];
    assert_eq!(budgets.map(solve), [1, 1, 50, 50, 50, 51, 99]);
    let refused = config.solve_budget(&placement(), 10 * count(100)).unwrap_err().to_string();
    assert!(refused.contains("size is 101, above 100"), "{refused}");
}
