//! Adapters reduced, certified and stored.

use crate::common::{adapter, bt, fail, low_pass, noise, read_certificate, succeed, write_arrays};
use faer::Mat;
use hankel_files::AdapterBytes;
use hankel_files::HrmAdapterFile;
use hankel_files::HrmSites;
use hankel_files::Sensitivities;
use hankel_files::StateRecord;
use hankel_files::StreamSite;
use hankel_files::TRAINED_BACKBONE_FILE;
use hankel_files::arrays::Precision;
use hankel_files::arrays::parse;
use hankel_files::arrays::serialize;
use hankel_files::sensitivity::LayerSensitivity;
use hankel_reduce::OrderChoice;
use serde_json::Value;
use std::fs;
use std::path::Path;

#[test]
fn a_reduced_adapter_is_certified_and_verifies() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    adapter(3, 12, 20).save(&dir.join("full")).unwrap();
    let shown = succeed(dir, &["inspect", "full"]);
    assert!(shown.contains("layer 2") && shown.contains('●'), "{shown}");
    let facts: Value = serde_json::from_str(&succeed(dir, &["inspect", "full", "--json"])).unwrap();
    assert_eq!(facts.as_array().unwrap().len(), 3);
    assert_eq!(facts[0]["hankel_singular_values"].as_array().unwrap().len(), 12);
    // Keeping everything costs 0, which is not written as -0.0.
    let bounds = facts[0]["error_bounds"].as_array().unwrap();
    assert!(bounds.iter().all(|bound| bound.as_f64().unwrap().is_sign_positive()), "{bounds:?}");

    for (name, rule) in [
        ("epsilon", vec!["--epsilon", "0.05"]),
        ("default", vec![]),
        ("order", vec!["--order", "4"]),
        ("energy", vec!["--energy", "0.9"]),
        ("bound", vec!["--bound", "0.5"]),
        ("budget", vec!["--budget", "17"]),
        ("total", vec!["--total-bound", "3"]),
        ("bfsr", vec!["--order", "4", "--method", "bfsr"]),
        ("modal", vec!["--order", "4", "--method", "modal"]),
        ("svd", vec!["--order", "4", "--method", "svd"]),
        ("limited", vec!["--order", "4", "--gramians", "time-limited", "--horizon", "64"]),
        ("everything", vec!["--order", "12"]),
        ("nothing", vec!["--order", "0"]),
    ] {
        let mut args = vec!["reduce", "full", "-o", name];
        args.extend(&rule);
        let table = succeed(dir, &args);
        assert!(!table.contains("NO"), "{table}");
        let certificate = read_certificate(&dir.join(name));
        let guaranteed = !["svd", "limited"].contains(&name);
        assert_eq!(certificate.total.holds, guaranteed.then_some(true), "{name}");
        if name == "budget" {
            assert_eq!(certificate.total.order, 17);
        }
        if name == "total" {
            assert!(certificate.total.error_bound.unwrap() <= 3.0);
        }
        if name == "everything" {
            assert!(certificate.total.hinf_error < 1e-11);
        }
        for layer in &certificate.layers {
            let f = &layer.facts;
            assert!(f.hinf_error >= f.lower_bound * (1.0 - 1e-6) - 1e-12);
            assert!(f.hinf_error_upper >= f.hinf_error);
            assert!(f.hinf_error_upper <= f.hinf_error * (1.0 + 1e-6) + 1e-12 * f.hinf_norm);
        }
        succeed(dir, &["verify", "full", name]);
        let report: Value = serde_json::from_str(&succeed(dir, &["verify", "full", name, "--json"])).unwrap();
        assert_eq!(report["passed"], true);
        // A reduced adapter is an adapter: it can be inspected and reduced again.
        if name == "order" {
            succeed(dir, &["inspect", name]);
            succeed(dir, &["reduce", name, "-o", "again", "--order", "2"]);
            succeed(dir, &["verify", name, "again"]);
        }
    }
}

#[test]
fn pictures_are_drawn_on_request() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    adapter(9, 6, 8).save(&dir.join("full")).unwrap();
    assert!(succeed(dir, &["inspect", "full", "--plot", "hsv.svg"]).contains('█'));
    assert!(fs::read_to_string(dir.join("hsv.svg")).unwrap().starts_with("<svg"));
    succeed(dir, &["reduce", "full", "-o", "small", "--plots", "pictures"]);
    for name in ["hankel_singular_values", "error", "orders"] {
        assert!(fs::read_to_string(dir.join(format!("pictures/{name}.svg"))).unwrap().starts_with("<svg"));
        assert!(fs::read(dir.join(format!("pictures/{name}.png"))).unwrap().starts_with(b"\x89PNG"));
    }
    fail(dir, &["inspect", "full", "--plot", "hsv.svg"], 2, &["already exists"]);
    fail(dir, &["inspect", "full", "--plot", "hsv.gif"], 2, &[".svg or .png"]);
    fail(dir, &["reduce", "full", "-o", "smaller", "--plots", "pictures"], 2, &["already exists"]);
}

#[test]
fn reduced_adapters_are_stored_as_precisely_as_they_are_used() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let mut full = adapter(2, 12, 64);
    let size = |name: &str| fs::metadata(dir.join(name).join("adapter_model.safetensors")).unwrap().len();
    full.save(&dir.join("single")).unwrap();
    succeed(dir, &["reduce", "single", "-o", "small", "--order", "8"]);
    assert!(size("small") < size("single"), "{} {}", size("small"), size("single"));
    succeed(dir, &["verify", "single", "small"]);
    assert!(
        read_certificate(&dir.join("small"))
            .layers
            .iter()
            .all(|l| l.facts.dtype == "f32" && l.facts.holds == Some(true))
    );
    // What was trained in f64 stays so, and so does what f32 has no digits for.
    full.precision = Precision::F64;
    full.save(&dir.join("double")).unwrap();
    succeed(dir, &["reduce", "double", "-o", "small-double", "--order", "8"]);
    assert!(read_certificate(&dir.join("small-double")).layers.iter().all(|l| l.facts.dtype == "f64"));
}

#[test]
fn a_slow_pair_is_certified_as_it_is_stored() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let (b, c) = (Mat::from_fn(3, 1, |_, _| 1.0), Mat::from_fn(1, 3, |_, _| 1.0));
    for angle in [0.7_f64, 1.0, 1.3, 2.0] {
        let (re, im) = ((1.0 - 1e-9) * angle.cos(), (1.0 - 1e-9) * angle.sin());
        let a = Mat::from_fn(3, 3, |i, j| [[re, -im, 0.0], [im, re, 0.0], [0.0, 0.0, 0.5]][i][j]);
        let (full, pair) = (format!("full-{angle}.npz"), format!("pair-{angle}.npz"));
        write_arrays(&dir.join(&full), &[("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref())]);
        // The rounding of such a pole may be above the bound: nothing is written then unless it is asked for.
        let options = ["reduce", &full, "-o", &pair, "--order", "2", "--method", "modal"];
        if bt(dir, &options).status.code() != Some(0) {
            fail(dir, &options, 1, &["exceeds the bound", "--force"]);
            assert!(!dir.join(&pair).exists() && !dir.join(format!("{pair}.certificate.json")).exists());
            succeed(dir, &[&options[..], &["--force"]].concat());
        }
        let output = bt(dir, &["verify", &full, &pair]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!error.contains("is claimed to be"), "{angle}: {error}");
    }
}

#[test]
fn empirical_gramians_come_from_recorded_states() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let full = adapter(2, 5, 6);
    full.save(&dir.join("full")).unwrap();
    let mut next = noise(99);
    let mut record = |layer: usize, states: usize| StateRecord {
        layer,
        site: StreamSite::Mlp,
        shape: [3, 16, states],
        states: (0..3 * 16 * states).map(|_| next() as f32).collect(),
    };
    StateRecord::save_all(&dir.join("states.safetensors"), &[record(0, 5), record(1, 5)]).unwrap();
    StateRecord::save_all(&dir.join("one.safetensors"), &[record(0, 5)]).unwrap();
    StateRecord::save_all(&dir.join("wide.safetensors"), &[record(0, 5), record(1, 6)]).unwrap();
    let arguments = ["reduce", "full", "-o", "small", "--gramians", "empirical", "--order", "3", "--states"];
    let with = |file: &'static str| [&arguments[..], &[file]].concat();
    let table = succeed(dir, &with("states.safetensors"));
    assert!(table.contains("no guarantee"), "{table}");
    succeed(dir, &["verify", "full", "small"]);
    fs::remove_dir_all(dir.join("small")).unwrap();
    fail(dir, &with("one.safetensors"), 2, &["layer 1", "recorded states"]);
    fail(dir, &with("wide.safetensors"), 2, &["layer 1", "(48, 6)"]);
    fail(dir, &with("full"), 2, &["full"]);
    let empty = StateRecord { layer: 0, site: StreamSite::Mlp, shape: [3, 0, 5], states: Vec::new() };
    StateRecord::save_all(&dir.join("empty.safetensors"), &[empty]).unwrap();
    fail(dir, &with("empty.safetensors"), 2, &["empty.safetensors", "no steps"]);
    fail(dir, &arguments[..8], 2, &["--states"]);
}

#[test]
fn whatever_the_gramians_a_layer_kept_whole_is_within_its_bound() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    adapter(2, 6, 8).save(&dir.join("full")).unwrap();
    let limited = ["--gramians", "time-limited", "--horizon", "64"];
    let reduce = |full, name, rule: [_; 2]| [&["reduce", full, "-o", name][..], &rule, &limited].concat();
    succeed(dir, &reduce("full", "whole", ["--order", "6"]));
    assert_eq!(read_certificate(&dir.join("whole")).total.error_bound, Some(0.0));
    succeed(dir, &["verify", "full", "whole"]);
    // A layer that has no states left is whole, too.
    let mut gone = HrmAdapterFile::load(&dir.join("full")).unwrap();
    gone.layers[1].gate = 0.0;
    gone.save(&dir.join("gone")).unwrap();
    succeed(dir, &["reduce", "gone", "-o", "once", "--order", "5"]);
    succeed(dir, &reduce("once", "twice", ["--epsilon", "0.2"]));
    assert_eq!(read_certificate(&dir.join("twice")).layers[1].facts.error_bound, Some(0.0));
    succeed(dir, &["verify", "once", "twice"]);
}

#[test]
fn parameters_of_several_precisions_are_stored_as_they_were_certified() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let mut full = adapter(2, 4, 6);
    full.precision = Precision::F64;
    full.save(&dir.join("full")).unwrap();
    let weights = dir.join("full/adapter_model.safetensors");
    let mut arrays = parse(&weights, &fs::read(&weights).unwrap()).unwrap();
    for (name, array) in &mut arrays {
        let rate = name.ends_with("log_a") || name.ends_with("log_dt");
        array.precision = if rate { Precision::F32 } else { Precision::Bf16 };
        if name.ends_with("log_a") {
            array.data[3] = f64::from(-6.2377_f32);
        }
    }
    fs::write(&weights, serialize(&arrays)).unwrap();
    for rule in [&["--order", "4"][..], &["--order", "2", "--method", "modal"]] {
        succeed(dir, &[&["reduce", "full", "-o", "small"][..], rule].concat());
        succeed(dir, &["verify", "full", "small"]);
        fs::remove_dir_all(dir.join("small")).unwrap();
    }
}

#[test]
fn a_closed_gate_has_order_zero() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let mut full = adapter(2, 6, 8);
    full.layers[1].gate = 0.0;
    full.save(&dir.join("full")).unwrap();
    succeed(dir, &["inspect", "full"]);
    succeed(dir, &["reduce", "full", "-o", "small", "--epsilon", "0"]);
    let small = HrmAdapterFile::load(&dir.join("small")).unwrap();
    assert_eq!(small.layers.iter().map(|l| l.state_dim).collect::<Vec<_>>(), [6, 0]);
    succeed(dir, &["verify", "full", "small"]);
    succeed(dir, &["inspect", "small"]);
}

#[test]
fn a_head_trained_with_the_adapter_goes_with_it() {
    let root = tempfile::tempdir().unwrap();
    adapter(1, 6, 5).save(&root.path().join("full")).unwrap();
    let trained = root.path().join("full").join(TRAINED_BACKBONE_FILE);
    fs::write(&trained, b"whatever was trained").unwrap();
    succeed(root.path(), &["reduce", "full", "-o", "small", "--order", "2"]);
    assert_eq!(fs::read(root.path().join("small").join(TRAINED_BACKBONE_FILE)).unwrap(), b"whatever was trained");
    succeed(root.path(), &["verify", "full", "small"]);
    // Another head is another model, even under a certificate that says nothing of it.
    let head = root.path().join("small").join(TRAINED_BACKBONE_FILE);
    fs::write(&head, b"zeroed").unwrap();
    fail(root.path(), &["verify", "full", "small"], 2, &[TRAINED_BACKBONE_FILE, "not the same"]);
    fs::write(&trained, b"zeroed").unwrap();
    fail(root.path(), &["verify", "full", "small"], 2, &["hash of the full files"]);
    fs::remove_file(trained).unwrap();
    succeed(root.path(), &["reduce", "full", "-o", "without", "--order", "2"]);
    assert!(!root.path().join("without").join(TRAINED_BACKBONE_FILE).exists());
}

#[test]
fn states_are_shared_out_by_what_they_cost_a_task() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    adapter(2, 8, 12).save(&dir.join("full")).unwrap();
    let weights = AdapterBytes::read(&dir.join("full")).unwrap().hashes().weights;
    fs::create_dir(dir.join("run")).unwrap();
    let layer = |layer: &str, sensitivity| LayerSensitivity { layer: layer.into(), sensitivity };
    let recorded = |adapter: &str, layers| Sensitivities {
        format: Sensitivities::FORMAT,
        adapter: adapter.into(),
        sequences: 1,
        loss: 2.0,
        layers,
    };
    let save = |name: &str, adapter: &str, layers| recorded(adapter, layers).save(&dir.join(name)).unwrap();
    save("even.json", &weights, vec![layer("layer 0", 0.5), layer("layer 1", 0.5)]);
    save("run/gradients.json", &weights, vec![layer("layer 0", 1e-4), layer("layer 1", 1.0)]);
    save("other.json", "00", vec![layer("layer 0", 0.5), layer("layer 1", 0.5)]);
    save("one.json", &weights, vec![layer("layer 0", 0.5)]);
    let orders = |name: &str| -> Vec<usize> {
        read_certificate(&dir.join(name)).layers.iter().map(|layer| layer.facts.order).collect()
    };
    succeed(dir, &["reduce", "full", "-o", "plain", "--budget", "8"]);
    let said = succeed(dir, &["reduce", "full", "-o", "even", "--budget", "8", "--task", "even.json"]);
    assert!(said.contains("To first order these errors change the loss of even.json (2.000)"), "{said}");
    succeed(dir, &["reduce", "full", "-o", "tilted", "--budget", "8", "--task", "run"]);
    // Layers that matter alike share states out as without a task; what costs nothing gets what is left.
    assert_eq!(orders("even"), orders("plain"));
    assert!(orders("tilted")[1] > orders("plain")[1] && orders("tilted").iter().sum::<usize>() == 8);
    let certificate = read_certificate(&dir.join("tilted"));
    let task = certificate.task.clone().unwrap();
    let expected: f64 = certificate.layers.iter().zip([1e-4, 1.0]).map(|(l, c)| c * l.facts.hinf_error).sum();
    assert!((task.change_of_loss / expected - 1.0).abs() < 1e-12);
    assert!(task.change_of_loss <= task.change_of_loss_bound.unwrap() * (1.0 + 1e-6));
    // The fewest states for a bound of the change of the loss.
    let tolerance = format!("{}", task.change_of_loss_bound.unwrap() * 1.0001);
    succeed(dir, &["reduce", "full", "-o", "least", "--total-bound", &tolerance, "--task", "run"]);
    assert!(orders("least").iter().sum::<usize>() <= 8);
    succeed(dir, &["verify", "full", "least"]);
    let mut forged = read_certificate(&dir.join("least"));
    forged.orders = OrderChoice::TotalBound(0.9 * forged.task.as_ref().unwrap().change_of_loss);
    fs::write(dir.join("least/certificate.json"), serde_json::to_vec(&forged).unwrap()).unwrap();
    fail(dir, &["verify", "full", "least"], 1, &["larger than the bound that the orders"]);
    succeed(dir, &["verify", "full", "tilted"]);
    let mut certificate = certificate;
    certificate.task.as_mut().unwrap().change_of_loss *= 0.9;
    fs::write(dir.join("tilted/certificate.json"), serde_json::to_vec(&certificate).unwrap()).unwrap();
    fail(dir, &["verify", "full", "tilted"], 1, &["change of the loss"]);
    for claimed in [Some(0.0), None] {
        certificate.task = Some(task.clone());
        certificate.task.as_mut().unwrap().change_of_loss_bound = claimed;
        fs::write(dir.join("tilted/certificate.json"), serde_json::to_vec(&certificate).unwrap()).unwrap();
        fail(dir, &["verify", "full", "tilted"], 1, &["change of the loss"]);
    }

    let refused = |more: &[&str], words: &[&str]| fail(dir, &[&["reduce", "full", "-o", "x"], more].concat(), 2, words);
    refused(&["--order", "4", "--task", "even.json"], &["--task goes with --budget"]);
    refused(&["--budget", "4", "--task", "other.json"], &["other.json", "another adapter"]);
    refused(&["--budget", "4", "--task", "one.json"], &["one.json knows nothing of layer 1"]);
    refused(&["--budget", "4", "--task", "nowhere"], &["nowhere"]);
    refused(&["--budget", "4", "--task", "full/adapter_config.json"], &["--record-gradients"]);
    low_pass(&dir.join("low.npz"), 12, 0.9);
    refused(&["--budget", "4", "--task", "even.json", "--weight", "low.npz"], &["analytic Gramians only"]);
}

/// The Hamiltonian matrix of this adapter has eigenvalues of equal modulus whose order rounding turns: faer sorted them for ever.
#[test]
fn eigenvalues_of_equal_modulus_end() {
    let place = tempfile::tempdir().unwrap();
    let adapter = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/equal_moduli");
    let out = bt(place.path(), &["reduce", adapter.to_str().unwrap(), "-o", "out", "--epsilon", "0.01"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn tables_fit_into_80_columns() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let mut full = adapter(12, 32, 10);
    full.config.site = HrmSites::Attention;
    for layer in &mut full.layers {
        (layer.site, layer.gate) = (StreamSite::Attention, 1e-4);
    }
    full.save(&dir.join("full")).unwrap();
    let told = [
        succeed(dir, &["inspect", "full", "--norms", "--gramians"]),
        succeed(dir, &["reduce", "full", "-o", "small", "--order", "8"]),
        succeed(dir, &["verify", "full", "small"]),
    ];
    // Lines of a table have gaps between columns.
    for line in told.iter().flat_map(|text| text.lines()).filter(|line| line.contains("  ")) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}
