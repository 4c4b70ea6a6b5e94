//! Errors under weights.

use crate::common::{adapter, fail, low_pass, read_certificate, succeed, write_arrays, write_chain};
use faer::Mat;
use hankel_files::StreamSite;
use hankel_files::system_file::StoredSystem;
use hankel_files::system_file::parse_arrays;
use hankel_reduce::Certificate;
use serde_json::Value;
use std::fs;

#[test]
fn weighted_errors_are_certified_and_verify_with_their_weight_only() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    adapter(2, 8, 12).save(&dir.join("full")).unwrap();
    low_pass(&dir.join("low.npz"), 12, 0.9);
    low_pass(&dir.join("other.npz"), 12, 0.8);
    low_pass(&dir.join("narrow.npz"), 5, 0.9);
    // One weight per layer, as `train eval --record-inputs` writes them.
    let system = parse_arrays(&dir.join("low.npz"), &fs::read(dir.join("low.npz")).unwrap()).unwrap();
    let system = StoredSystem::parse(&dir.join("low.npz"), system).unwrap().system().unwrap();
    let layers = [(0, StreamSite::Mlp, system.clone()), (1, StreamSite::Mlp, system.clone())];
    hankel_files::save_weights(&dir.join("layers.safetensors"), &layers).unwrap();
    hankel_files::save_weights(&dir.join("first.safetensors"), &layers[..1]).unwrap();

    for (name, options, weights) in [
        ("in", vec![], vec!["--weight", "low.npz"]),
        ("layers", vec![], vec!["--weight", "layers.safetensors"]),
        ("both", vec![], vec!["--weight", "low.npz", "--output-weight", "low.npz"]),
        ("enns", vec!["--gramians", "enns"], vec!["--weight", "low.npz"]),
        ("svd", vec!["--method", "svd"], vec!["--weight", "low.npz"]),
        ("h2", vec!["--method", "h2"], vec!["--weight", "low.npz"]),
        ("plain", vec!["--gramians", "analytic"], vec!["--weight", "low.npz"]),
        ("band", vec!["--band", "0,0.4"], vec![]),
    ] {
        let reduce = [&["reduce", "full", "-o", name, "--order", "3"][..], &options, &weights].concat();
        let table = succeed(dir, &reduce);
        assert!(table.contains("H2 error/|G|") && !table.contains("NO"), "{table}");
        let certificate = read_certificate(&dir.join(name));
        let bounded = ["in", "layers", "both", "band"].contains(&name);
        for layer in &certificate.layers {
            let weighted = layer.facts.weighted.as_ref().unwrap();
            assert_eq!(weighted.holds, bounded.then_some(true), "{name}");
            assert_eq!(layer.facts.holds, (bounded || name == "plain").then_some(true), "{name}");
            assert!(weighted.hinf_error > 0.0 && weighted.hinf_error <= layer.facts.hinf_error * 1.03);
        }
        assert_eq!(certificate.weights.is_some(), name != "band");
        let verify = [&["verify", "full", name][..], &weights].concat();
        let shown = succeed(dir, &verify);
        assert!(shown.contains("weighted") && shown.contains("is true"), "{shown}");
        if name != "band" {
            fail(dir, &["verify", "full", name], 2, &["is about errors under the weight", "--weight"]);
            let other = [&["verify", "full", name, "--weight", "other.npz"][..], &weights[2..]].concat();
            fail(dir, &other, 2, &["does not match other.npz", "another weight"]);
        }
    }
    // A system given for all layers and the same one given for each: the same certificate.
    let [one, each] = ["in", "layers"].map(|name| read_certificate(&dir.join(name)).layers);
    assert_eq!(one, each);
    for (least, start) in read_certificate(&dir.join("h2")).layers.iter().zip(&one) {
        let [least, start] = [least, start].map(|layer| layer.facts.weighted.as_ref().and_then(|facts| facts.h2_error));
        assert!(least.unwrap() < start.unwrap(), "{least:?} {start:?}");
    }

    // A false claim about the weighted error alone.
    let path = dir.join("in/certificate.json");
    let mut certificate = read_certificate(&dir.join("in"));
    certificate.layers[1].facts.weighted.as_mut().unwrap().hinf_error *= 0.9;
    fs::write(&path, serde_json::to_vec(&certificate).unwrap()).unwrap();
    fail(dir, &["verify", "full", "in", "--weight", "low.npz"], 1, &["layer 1: weighted hinf_error is claimed"]);

    let refused = |more: &[&str], words: &[&str]| fail(dir, &[&["reduce", "full", "-o", "x"], more].concat(), 2, words);
    refused(&["--weight", "narrow.npz"], &["layer 0", "5 outputs, the system 12 inputs"]);
    refused(&["--weight", "first.safetensors"], &["layer 1", "first.safetensors has no weight for this layer"]);
    refused(&["--weight", "nowhere.npz"], &["nowhere.npz"]);
    refused(&["--gramians", "weighted"], &["--gramians weighted needs --weight"]);
    refused(&["--gramians", "frequency-limited"], &["--gramians frequency-limited needs --band"]);
    refused(&["--band", "0.4,0.1"], &["band", "above the low end"]);
    refused(&["--band", "wide"], &["expected two numbers"]);
    refused(&["--band", "0,1", "--weight", "low.npz"], &["--band and --weight exclude each other"]);
    let of_hankel = ["--weight", "low.npz", "--method", "hankel", "--gramians", "weighted"];
    refused(&of_hankel, &["method hankel", "infinite-horizon Gramians only"]);
    let of_h2 = ["--weight", "low.npz", "--method", "h2", "--gramians", "enns"];
    refused(&of_h2, &["method h2", "infinite-horizon Gramians or under weights only"]);
    refused(&["--bound", "1", "--weight", "low.npz", "--gramians", "enns"], &["Enns' Gramians"]);
    fail(
        dir,
        &["verify", "full", "plain", "--weight", "low.npz", "--output-weight", "low.npz"],
        2,
        &["nothing is claimed"],
    );
}

/// What is wrong with a weight is not said of the system.
#[test]
fn a_weight_that_cannot_be_computed_with_is_named() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let of = |x: f64| Mat::from_fn(1, 1, |_, _| x);
    let [pole, one] = [of(0.5), of(1.0)];
    write_arrays(&dir.join("one.npz"), &[("A", pole.as_ref()), ("B", one.as_ref()), ("C", one.as_ref())]);
    let a = Mat::from_fn(2, 2, |i, j| if i == j { 0.5 - 0.3 * i as f64 } else { 0.0 });
    let (b, c) = (Mat::from_fn(2, 1, |_, _| 1e308), Mat::from_fn(1, 2, |_, j| if j == 0 { 1e308 } else { 1.0 }));
    write_arrays(&dir.join("huge.npz"), &[("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref())]);
    fail(
        dir,
        &["reduce", "one.npz", "-o", "out.npz", "--order", "1", "--weight", "huge.npz"],
        2,
        &["huge.npz", "overflow"],
    );
    adapter(1, 4, 2).save(&dir.join("adapter")).unwrap();
    let all = Mat::from_fn(2, 2, |_, _| 1e308);
    write_arrays(&dir.join("wide.npz"), &[("A", a.as_ref()), ("B", all.as_ref()), ("C", all.as_ref())]);
    let of_adapter = ["reduce", "adapter", "-o", "out", "--order", "1", "--weight", "wide.npz"];
    fail(dir, &of_adapter, 2, &["wide.npz", "overflow"]);
}

#[test]
fn weighted_systems_are_files_too() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let a = Mat::from_fn(4, 4, |i, j| if i == j { 0.9 - 0.3 * i as f64 } else { 0.05 * (i as f64 - j as f64) });
    let (b, c) = (Mat::from_fn(4, 1, |i, _| 1.0 - 0.2 * i as f64), Mat::from_fn(1, 4, |_, j| 1.0 + j as f64));
    write_arrays(&dir.join("g.npz"), &[("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref())]);
    low_pass(&dir.join("v.npz"), 1, 0.95);
    succeed(dir, &["reduce", "g.npz", "-o", "r.npz", "--order", "2", "--weight", "v.npz"]);
    succeed(dir, &["verify", "g.npz", "r.npz", "--weight", "v.npz"]);
    let bound: Value = serde_json::from_slice(&fs::read(dir.join("r.npz.certificate.json")).unwrap()).unwrap();
    let bound = bound["layers"][0]["weighted"]["error_bound"].as_f64();
    // `--bound` is about the weighted error.
    let tolerance = format!("{}", bound.unwrap() * 1.0001);
    succeed(dir, &["reduce", "g.npz", "-o", "b.npz", "--bound", &tolerance, "--weight", "v.npz"]);
    let chosen: Value = serde_json::from_slice(&fs::read(dir.join("b.npz.certificate.json")).unwrap()).unwrap();
    assert!(chosen["total"]["order"].as_u64().unwrap() <= 2);
    succeed(dir, &["reduce", "g.npz", "-o", "band.npz", "--order", "2", "--band", "0.5,3.1"]);
    succeed(dir, &["verify", "g.npz", "band.npz"]);
}

/// A slow weight hides the second state from the Gramians. Methods that read none keep what they keep without it.
#[test]
fn a_weight_only_measures_beside_methods_without_gramians() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let diagonal = |values: [f64; 3]| Mat::from_fn(3, 3, |i, j| if i == j { values[i] } else { 0.0 });
    let (a, b, c) = (diagonal([0.9, -0.8, 0.1]), diagonal([1.0; 3]), diagonal([1.0, 1.0, 0.01]));
    write_arrays(&dir.join("g.npz"), &[("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref())]);
    low_pass(&dir.join("v.npz"), 3, 0.95);
    for (method, order, gramians) in [
        ("bt", 1, "weighted"),
        ("modal", 2, "analytic"),
        ("energy", 2, "analytic"),
        ("svd", 2, "analytic"),
        ("hankel", 2, "analytic"),
    ] {
        let out = format!("{method}.npz");
        let options = ["--epsilon", "0.3", "--method", method, "--weight", "v.npz"];
        succeed(dir, &[&["reduce", "g.npz", "-o", &out][..], &options].concat());
        let certificate = fs::read(dir.join(format!("{out}.certificate.json"))).unwrap();
        let layer = serde_json::from_slice::<Value>(&certificate).unwrap()["layers"][0].clone();
        assert_eq!((layer["order"].as_u64(), layer["gramians"].as_str()), (Some(order), Some(gramians)), "{method}");
        assert!(layer["weighted"]["hinf_error"].as_f64().unwrap() > 0.0, "{method}");
        succeed(dir, &["verify", "g.npz", &out, "--weight", "v.npz"]);
    }
    for gramians in ["weighted", "enns"] {
        let options = ["--method", "modal", "--weight", "v.npz", "--gramians", gramians];
        let reduce = [&["reduce", "g.npz", "-o", "x.npz"][..], &options].concat();
        fail(dir, &reduce, 2, &["method modal reads no Gramians", "a weight only measures"]);
    }
}

/// A claimed bound that is below the error is false, however little it differs from the measured one beside the largest value.
#[test]
fn a_weighted_bound_below_the_error_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let diagonal = |values: [f64; 2]| Mat::from_fn(2, 2, |i, j| if i == j { values[i] } else { 0.0 });
    let (a, b, c) = (diagonal([0.5, 0.1]), diagonal([1.0, 1.0]), diagonal([750.0, 1e-4]));
    write_arrays(&dir.join("g.npz"), &[("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref())]);
    low_pass(&dir.join("v.npz"), 2, 0.0);
    succeed(dir, &["reduce", "g.npz", "-o", "r.npz", "--order", "1", "--weight", "v.npz"]);
    let verify = ["verify", "g.npz", "r.npz", "--weight", "v.npz"];
    succeed(dir, &verify);
    let path = dir.join("r.npz.certificate.json");
    let mut certificate: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    certificate["layers"][0]["weighted"]["error_bound"] = 0.0.into();
    fs::write(&path, certificate.to_string()).unwrap();
    fail(dir, &verify, 1, &["is claimed to hold"]);
}

#[test]
fn weights_of_a_plant_in_continuous_time_run_in_its_time() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    write_chain(&dir.join("plant.npz"), Some(0.0));
    write_chain(&dir.join("untimed.npz"), None);
    let weight = |name: &str, pole: f64, dt: Option<f64>| {
        let of = |x: f64| Mat::from_fn(1, 1, |_, _| x);
        let (a, b, dt) = (of(pole), of(-pole), dt.map(of));
        let mut arrays = vec![("A", a.as_ref()), ("B", b.as_ref()), ("C", b.as_ref())];
        arrays.extend(dt.as_ref().map(|dt| ("dt", dt.as_ref())));
        write_arrays(&dir.join(name), &arrays);
    };
    weight("low.npz", -0.5, Some(0.0));
    weight("untimed-low.npz", -0.5, None);
    weight("sampled.npz", -0.5, Some(0.1));
    weight("integrator.npz", 0.0, Some(0.0));
    let facts = |out: &str| {
        let bytes = fs::read(dir.join(format!("{out}.certificate.json"))).unwrap();
        serde_json::from_slice::<Certificate>(&bytes).unwrap()
    };
    for (out, options) in [
        ("in.npz", vec!["--weight", "low.npz"]),
        ("out.npz", vec!["--output-weight", "low.npz"]),
        ("band.npz", vec!["--band", "0,1.5"]),
    ] {
        let table = succeed(
            dir,
            &[&["reduce", "plant.npz", "-o", out, "--order", "4", "--plots", &out[..2]], &options[..]].concat(),
        );
        assert!(out != "band.npz" || table.contains("from 0 to 1.500 radians per unit of time"), "{table}");
        let found = facts(out);
        let weighted = found.layers[0].facts.weighted.as_ref().unwrap();
        assert_eq!((weighted.holds, found.layers[0].facts.holds), (Some(true), Some(true)), "{table}");
        assert!(found.plant.unwrap().rate.is_some_and(|rate| rate > 0.0));
        let weights = if out == "band.npz" { &[][..] } else { &options[..] };
        succeed(dir, &[&["verify", "plant.npz", out], weights].concat());
        assert_eq!(dir.join(&out[..2]).join("weighted_error.svg").exists(), out != "band.npz");
    }
    // Under --continuous a file without dt is one of continuous time, and so is its weight.
    let options = ["--continuous", "--weight", "untimed-low.npz"];
    succeed(dir, &[&["reduce", "untimed.npz", "-o", "same.npz", "--order", "4"], &options[..]].concat());
    let error = |out: &str| facts(out).layers[0].facts.weighted.as_ref().unwrap().hinf_error;
    assert_eq!(error("same.npz"), error("in.npz"));

    let refused = |full: &str, weight: &str, words: &[&str]| {
        fail(dir, &["reduce", full, "-o", "x.npz", "--order", "4", "--weight", weight], 2, words);
    };
    refused("plant.npz", "untimed-low.npz", &["untimed-low.npz", "continuous time", "dt = 0"]);
    refused("plant.npz", "sampled.npz", &["sampled.npz", "continuous time"]);
    refused("plant.npz", "integrator.npz", &["integrator.npz", "not stable"]);
    let a = Mat::from_fn(2, 2, |i, j| if i == j { 0.5 } else { 0.1 });
    let (b, c, dt) =
        (Mat::from_fn(2, 1, |_, _| 1.0), Mat::from_fn(1, 2, |_, j| 1.0 + j as f64), Mat::from_fn(1, 1, |_, _| 0.2));
    write_arrays(&dir.join("d.npz"), &[("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref()), ("dt", dt.as_ref())]);
    refused("d.npz", "low.npz", &["low.npz", "continuous time"]);
    refused("d.npz", "sampled.npz", &["sampling time dt is 0.1, that of the system 0.2"]);
    fail(dir, &["reduce", "plant.npz", "-o", "x.npz", "--band", "2,1"], 2, &["band", "above the low end"]);
}
