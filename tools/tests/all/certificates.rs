//! Claims that do not hold.

use crate::common::{adapter, fail, noise, read_certificate, succeed, write_arrays, write_system};
use faer::Mat;
use hankel_files::HrmAdapterFile;
use hankel_files::HrmDynamics;
use hankel_files::arrays::Precision;
use hankel_files::system_file::arrays_to_bytes;
use serde_json::{Value, json};
use std::fs;

#[test]
fn false_claims_and_broken_bounds_exit_1_and_name_the_layer() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    adapter(2, 8, 10).save(&dir.join("full")).unwrap();
    succeed(dir, &["reduce", "full", "-o", "small", "--order", "3"]);
    let path = dir.join("small/certificate.json");
    let honest = fs::read_to_string(&path).unwrap();
    let mut certificate: Value = serde_json::from_str(&honest).unwrap();
    for (key, value) in [("hinf_error", 1e-3), ("error_bound", 1e-3), ("gate", 1.0), ("order", 2.0), ("h2_error", 0.0)]
    {
        let kept = certificate["layers"][1][key].clone();
        certificate["layers"][1][key] = if key == "order" { 2.into() } else { value.into() };
        fs::write(&path, certificate.to_string()).unwrap();
        fail(dir, &["verify", "full", "small"], 1, &["layer 1", key]);
        certificate["layers"][1][key] = kept;
    }
    certificate["total"]["hinf_error"] = 0.0.into();
    fs::write(&path, certificate.to_string()).unwrap();
    fail(dir, &["verify", "full", "small"], 1, &["total"]);

    // Without a certificate the bound itself is checked: here one layer's output matrix is wrong.
    fs::remove_file(&path).unwrap();
    succeed(dir, &["verify", "full", "small"]);
    let mut wrong = HrmAdapterFile::load(&dir.join("small")).unwrap();
    wrong.layers[1].c.iter_mut().for_each(|c| *c = -*c);
    wrong.save(&dir.join("wrong")).unwrap();
    fail(dir, &["verify", "full", "wrong"], 1, &["layer 1", "exceeds the bound"]);
}

/// A direct term that dwarfs the rest does not excuse an error in the rest.
#[test]
fn rounding_is_relative_to_what_is_reduced() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let d = Mat::from_fn(1, 1, |_, _| 1e10);
    for (name, poles, gain) in [("full.npz", &[0.9, 0.3][..], 1.0), ("other.npz", &[0.5][..], -1.0)] {
        let n = poles.len();
        let a = Mat::from_fn(n, n, |i, j| if i == j { poles[i] } else { 0.0 });
        let (b, c) = (Mat::from_fn(n, 1, |_, _| 1.0), Mat::from_fn(1, n, |_, _| gain));
        let arrays = [("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref()), ("D", d.as_ref())];
        write_arrays(&dir.join(name), &arrays);
    }
    fail(dir, &["verify", "full.npz", "other.npz"], 1, &["exceeds the bound"]);
    succeed(dir, &["reduce", "full.npz", "-o", "small.npz", "--order", "1"]);
    succeed(dir, &["verify", "full.npz", "small.npz"]);
}

#[test]
fn proofs_are_claimed_only_where_there_are_any() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    adapter(1, 8, 10).save(&dir.join("full")).unwrap();
    let plant = dir.join("plant.npz");
    // An integrator, which is kept aside.
    let a = Mat::from_fn(4, 4, |i, j| if i == j { -(i as f64) } else { 0.1 * i.saturating_sub(j) as f64 });
    let (b, c) = (Mat::from_fn(4, 1, |i, _| 1.0 + i as f64), Mat::from_fn(1, 4, |_, j| 1.0 - 0.7 * j as f64));
    let arrays = [("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref())];
    fs::write(&plant, arrays_to_bytes(&plant, &arrays).unwrap()).unwrap();
    succeed(dir, &["reduce", "plant.npz", "-o", "small.npz", "--order", "2", "--continuous"]);
    let said = succeed(dir, &["verify", "--continuous", "plant.npz", "small.npz"]);
    assert!(said.contains("not a proof: the part that is kept is split off"));
    let path = dir.join("small.npz.certificate.json");
    let mut certificate: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(certificate["layers"][0]["proved"], false);
    certificate["layers"][0].as_object_mut().unwrap().remove("proved");
    fs::write(&path, certificate.to_string()).unwrap();
    fail(dir, &["verify", "--continuous", "plant.npz", "small.npz"], 2, &["`proved` of system is missing"]);
    certificate["layers"][0]["proved"] = true.into();
    fs::write(&path, certificate.to_string()).unwrap();
    fail(dir, &["verify", "--continuous", "plant.npz", "small.npz"], 1, &["proved is claimed"]);
    certificate["layers"][0]["proof"] = "the bounded-real inequality, with every rounding".into();
    fs::write(&path, certificate.to_string()).unwrap();
    fail(dir, &["verify", "--continuous", "plant.npz", "small.npz"], 1, &["claimed to be proved", "split off"]);

    assert!(succeed(dir, &["reduce", "full", "-o", "small", "--order", "3"]).contains("yes"));
    let path = dir.join("small/certificate.json");
    let honest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(honest["layers"][0]["proved"], true);
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut certificate = honest.clone();
        change(&mut certificate);
        fs::write(&path, certificate.to_string()).unwrap();
    };
    // Just below the error that was found, or below what can be proved.
    for share in [0.999_999_9, 1.0] {
        let below = share * honest["layers"][0]["hinf_error"].as_f64().unwrap();
        changed(&|c| c["layers"][0]["hinf_error_upper"] = below.into());
        fail(dir, &["verify", "full", "small"], 1, &["claimed to be proved at"]);
    }
    changed(&|c| c["layers"][0]["proof"] = "by eye".into());
    fail(dir, &["verify", "full", "small"], 1, &["by eye"]);
    changed(&|c| c["layers"][0]["proved"] = false.into());
    fail(dir, &["verify", "full", "small"], 1, &["proved is claimed"]);
    let without = |certificate: &mut Value| {
        let layer = certificate["layers"][0].as_object_mut().unwrap();
        layer.retain(|key, _| key != "proved" && key != "proof");
    };
    changed(&without);
    fail(dir, &["verify", "full", "small"], 2, &["`proof` of layer 0 is missing"]);
    // Certificates of before had no proofs.
    changed(&|c| c["format"] = 1.into());
    fail(dir, &["verify", "full", "small"], 2, &["format 1"]);
    changed(&|c| {
        without(c);
        c["format"] = 1.into();
    });
    succeed(dir, &["verify", "full", "small"]);
}

#[test]
fn where_all_states_are_kept_the_error_is_0() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    // Pairs next to the circle, written out: the same numbers come back from the file.
    let pairs = [(1.0 - 1e-9, 1.0_f64), (1.0 - 1e-8, 0.3)];
    let mut a = Mat::zeros(4, 4);
    for (i, (radius, angle)) in pairs.into_iter().enumerate() {
        let (sin, cos) = angle.sin_cos();
        a[(2 * i, 2 * i)] = radius * cos;
        a[(2 * i + 1, 2 * i + 1)] = radius * cos;
        a[(2 * i, 2 * i + 1)] = -radius * sin;
        a[(2 * i + 1, 2 * i)] = radius * sin;
    }
    let (b, c) = (Mat::from_fn(4, 1, |i, _| 1.0 + i as f64), Mat::from_fn(1, 4, |_, j| 1.0 - 0.7 * j as f64));
    let path = dir.join("full.npz");
    let arrays = [("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref())];
    fs::write(&path, arrays_to_bytes(&path, &arrays).unwrap()).unwrap();
    succeed(dir, &["reduce", "full.npz", "-o", "same.npz", "--order", "4"]);
    let certificate: Value = serde_json::from_slice(&fs::read(dir.join("same.npz.certificate.json")).unwrap()).unwrap();
    let facts = &certificate["layers"][0];
    for key in ["hinf_error", "hinf_error_upper", "h2_error", "error_bound"] {
        assert_eq!(facts[key], 0.0, "{key}");
    }
    assert_eq!((&facts["proved"], &facts["holds"]), (&true.into(), &true.into()));
    succeed(dir, &["verify", "full.npz", "same.npz"]);
}

/// Poles at 4e-9 from the circle cannot be stored so well that the response is within 1e-9 of its peak: the bound says what that costs.
#[test]
fn what_rounding_costs_next_to_the_circle_is_part_of_the_bound() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let mut added = Vec::new();
    for case in 0..12 {
        let mut draw = noise(case);
        let mut a = Mat::zeros(5, 5);
        for (at, radius) in [(0, 1.0 - 4e-9), (2, 1.0 - 1e-7)] {
            let (sin, cos) = (1.5 + draw()).sin_cos();
            (a[(at, at)], a[(at, at + 1)]) = (radius * cos, radius * sin);
            (a[(at + 1, at)], a[(at + 1, at + 1)]) = (-radius * sin, radius * cos);
        }
        a[(4, 4)] = 0.7;
        // Not in blocks, whose poles would be exact.
        a[(0, 4)] = 0.1;
        let (b, c) = (Mat::from_fn(5, 2, |_, _| draw()), Mat::from_fn(2, 5, |_, _| draw()));
        let (full, small) = (format!("full-{case}.npz"), format!("small-{case}.npz"));
        write_arrays(&dir.join(&full), &[("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref())]);
        let told = succeed(dir, &["reduce", &full, "-o", &small, "--order", "4"]);
        succeed(dir, &["verify", &full, &small]);
        let certificate = dir.join(format!("{small}.certificate.json"));
        let facts: Value = serde_json::from_slice(&fs::read(&certificate).unwrap()).unwrap();
        let rounding = facts["layers"][0]["rounding"].as_f64();
        assert_eq!(told.contains("of the bound are for that"), rounding.is_some(), "{told}");
        if let Some(rounding) = rounding {
            let bound = facts["layers"][0]["error_bound"].as_f64().unwrap();
            let norm = facts["layers"][0]["hinf_norm"].as_f64().unwrap();
            assert!(rounding <= bound && rounding < 1e-6 * norm, "{rounding:e} of {bound:e}, norm {norm:e}");
            // To claim more of it is false, with the sum made right, too.
            let mut forged = facts;
            forged["layers"][0]["rounding"] = (2.0 * rounding).into();
            forged["layers"][0]["error_bound"] = (bound + rounding).into();
            forged["total"]["error_bound"] = (bound + rounding).into();
            fs::write(&certificate, forged.to_string()).unwrap();
            fail(dir, &["verify", &full, &small], 1, &["rounding"]);
            added.push(case);
        }
    }
    assert!(!added.is_empty());
}

#[test]
fn claims_about_the_sum_are_checked_where_there_is_no_bound() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    adapter(2, 6, 8).save(&dir.join("full")).unwrap();
    write_system(&dir.join("full.npz"));
    for (full, small, certificate) in
        [("full", "small", "small/certificate.json"), ("full.npz", "small.npz", "small.npz.certificate.json")]
    {
        succeed(dir, &["reduce", full, "-o", small, "--order", "2", "--method", "svd"]);
        let path = dir.join(certificate);
        let honest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        for (key, value) in [("holds", Value::from(true)), ("error_bound", 100.0.into()), ("hinf_error", 0.0.into())] {
            let mut changed = honest.clone();
            changed["total"][key] = value;
            fs::write(&path, changed.to_string()).unwrap();
            fail(dir, &["verify", full, small], 1, &["total: "]);
        }
        let mut changed = honest;
        changed["layers"][0]["holds"] = true.into();
        fs::write(&path, changed.to_string()).unwrap();
        fail(dir, &["verify", full, small], 1, &["claimed to hold"]);
    }
}

/// Whether or not the bounds themselves are claimed beside it.
#[test]
fn a_bound_that_orders_are_claimed_to_be_chosen_by_is_checked() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    adapter(2, 8, 10).save(&dir.join("full")).unwrap();
    succeed(dir, &["reduce", "full", "-o", "small", "--order", "3"]);
    let path = dir.join("small/certificate.json");
    let honest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let largest = |key: &str| (0..2).map(|i| honest["layers"][i][key].as_f64().unwrap()).fold(0.0, f64::max);
    let claim = |orders: Value, without_bounds: bool| {
        let mut certificate = honest.clone();
        certificate["orders"] = orders;
        if without_bounds {
            for place in ["/total", "/layers/0", "/layers/1"] {
                let facts = certificate.pointer_mut(place).unwrap();
                (facts["error_bound"], facts["holds"]) = (Value::Null, Value::Null);
            }
        }
        fs::write(&path, certificate.to_string()).unwrap();
    };
    for without_bounds in [false, true] {
        claim(json!({"per_layer": {"bound": 1.01 * largest("error_bound")}}), without_bounds);
        succeed(dir, &["verify", "full", "small"]);
        let too_small = 0.9 * largest("hinf_error");
        for orders in [json!({"per_layer": {"bound": too_small}}), json!({"total_bound": too_small})] {
            claim(orders, without_bounds);
            fail(dir, &["verify", "full", "small"], 1, &["larger than the bound that the orders"]);
        }
    }
}

#[test]
fn without_a_certificate_there_must_be_a_bound() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    write_system(&dir.join("full.npz"));
    succeed(dir, &["reduce", "full.npz", "-o", "small.npz", "--order", "2"]);
    fs::remove_file(dir.join("small.npz.certificate.json")).unwrap();
    assert!(succeed(dir, &["verify", "full.npz", "small.npz"]).contains("there is no certificate"));
    fail(dir, &["verify", "small.npz", "full.npz"], 1, &["4 states", "swapped", "neither a certificate nor a bound"]);
}

#[test]
fn a_certificate_about_other_files_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    adapter(1, 6, 8).save(&dir.join("full")).unwrap();
    succeed(dir, &["reduce", "full", "-o", "small", "--order", "3"]);
    let mut other = adapter(1, 6, 8);
    other.layers[0].b[0] += 0.5;
    other.save(&dir.join("other")).unwrap();
    fail(dir, &["verify", "other", "small"], 2, &["hash", "full", "other"]);
    let mut changed = HrmAdapterFile::load(&dir.join("small")).unwrap();
    changed.layers[0].b[0] += 1e-12;
    fs::copy(dir.join("small/certificate.json"), dir.join("certificate.json")).unwrap();
    changed.save(&dir.join("small")).unwrap();
    fs::copy(dir.join("certificate.json"), dir.join("small/certificate.json")).unwrap();
    fail(dir, &["verify", "full", "small"], 2, &["hash", "reduced", "small"]);
    let certificate = fs::read_to_string(dir.join("certificate.json")).unwrap();
    let later = certificate.replace("\"format\": 3", "\"format\": 4");
    fs::write(dir.join("small/certificate.json"), later).unwrap();
    fail(dir, &["verify", "full", "small"], 2, &["format 4"]);
    write_system(&dir.join("system.npz"));
    succeed(dir, &["reduce", "system.npz", "-o", "smaller.npz", "--order", "2"]);
    let path = dir.join("smaller.npz.certificate.json");
    let relabelled = fs::read_to_string(&path).unwrap().replace("\"system\"", "\"layer 0\"");
    fs::write(&path, relabelled).unwrap();
    fail(dir, &["verify", "system.npz", "smaller.npz"], 2, &["is about layer 0"]);
    fs::write(dir.join("small/certificate.json"), "{").unwrap();
    fail(dir, &["verify", "full", "small"], 2, &["certificate.json"]);
}

#[test]
fn an_unreachable_bound_is_refused() {
    // Two equal poles driven alike: one Hankel singular value is rounding noise, and no order gets below it.
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let mut full = adapter(1, 6, 8);
    for j in 0..8 {
        full.layers[0].b[8 + j] = full.layers[0].b[j] * (1.0 + 1e-15);
    }
    if let HrmDynamics::Diagonal { log_a, .. } = &mut full.layers[0].dynamics {
        log_a[1] = log_a[0];
    }
    full.precision = Precision::F64;
    full.save(&dir.join("full")).unwrap();
    fail(dir, &["reduce", "full", "-o", "out", "--bound", "0"], 2, &["layer 0", "cannot be reached"]);
    fail(dir, &["reduce", "full", "-o", "out", "--total-bound", "0"], 2, &["cannot be reached", "5 states"]);
}

#[test]
fn poles_too_slow_for_gramians_have_no_guarantee() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let mut full = adapter(1, 1, 1);
    let layer = &mut full.layers[0];
    (layer.b, layer.c, layer.gate) = (vec![1.0].into(), vec![1.0].into(), 1.0);
    layer.dynamics = HrmDynamics::Diagonal { log_a: vec![1e-9_f64.ln()], log_dt: vec![0.0] };
    full.precision = Precision::F64;
    full.save(&dir.join("full")).unwrap();
    // By the Gramians' pole the error of dropping it is 1e6, but it is 1e9.
    assert!(succeed(dir, &["inspect", "full"]).contains("not a guarantee"));
    for rule in ["--bound", "--total-bound"] {
        fail(dir, &["reduce", "full", "-o", "out", rule, "1.1e6"], 2, &["layer 0", "1 of its poles", "no error bound"]);
    }
    let table = succeed(dir, &["reduce", "full", "-o", "small", "--order", "0"]);
    assert!(table.contains("no guarantee") && table.contains("has 1 pole with"), "{table}");
    let facts = &read_certificate(&dir.join("small")).layers[0].facts;
    assert_eq!((facts.error_bound, facts.holds, facts.clamped_poles), (None, None, 1));
    assert!((facts.hinf_error * 1e-9 - 1.0).abs() < 1e-6 && (facts.h2_norm * 2e-9_f64.sqrt() - 1.0).abs() < 1e-6);
    assert_eq!(facts.h2_error, facts.h2_norm);
    succeed(dir, &["verify", "full", "small"]);
    fs::remove_file(dir.join("small/certificate.json")).unwrap();
    fail(dir, &["verify", "full", "small"], 1, &["layer 0", "neither a certificate nor a bound"]);
    // Nor has a pole that rounds to 1.
    full.layers[0].dynamics = HrmDynamics::Diagonal { log_a: vec![-60.0], log_dt: vec![0.0] };
    full.save(&dir.join("constant")).unwrap();
    succeed(dir, &["inspect", "constant"]);
    succeed(dir, &["reduce", "constant", "-o", "nothing", "--order", "0"]);
    succeed(dir, &["verify", "constant", "nothing"]);
    // Modes are bounded by their own gains, and what is kept whole has no error.
    succeed(dir, &["reduce", "full", "-o", "mode", "--order", "0", "--method", "modal"]);
    assert_eq!(read_certificate(&dir.join("mode")).total.holds, Some(true));
    succeed(dir, &["verify", "full", "mode"]);
    succeed(dir, &["reduce", "full", "-o", "whole", "--order", "1"]);
    assert_eq!(read_certificate(&dir.join("whole")).total.holds, Some(true));
    succeed(dir, &["verify", "full", "whole"]);
}
