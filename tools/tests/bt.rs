//! The command line end to end: results, exit codes, and that nothing is written where something is wrong.

use faer::{Mat, MatRef};
use hankel_files::arrays::{Precision, parse, serialize};
use hankel_files::npz;
use hankel_files::sensitivity::LayerSensitivity;
use hankel_files::system_file::{arrays_to_bytes, parse_arrays, system_from_arrays};
use hankel_files::{
    AdapterBytes, HrmAdapterFile, HrmConfigFile, HrmDynamics, HrmLayerFile, HrmPreset, HrmSite, Sensitivities,
    StateRecord, TRAINED_BACKBONE_FILE,
};
use hankel_lti::{GramianFactors, Method};
use hankel_reduce::Certificate;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn write_arrays(path: &Path, arrays: &[(&str, MatRef<'_, f64>)]) {
    fs::write(path, arrays_to_bytes(path, arrays).unwrap()).unwrap();
}

/// Deterministic numbers in (-1, 1).
fn noise(seed: usize) -> impl FnMut() -> f64 {
    let mut state = (seed as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(((state >> 33) as f32 / (1u64 << 30) as f32) - 1.0)
    }
}

fn adapter(layers: usize, states: usize, width: usize) -> HrmAdapterFile {
    let layer = |layer: usize| {
        let mut next = noise(layer + 1);
        let mut take = |n: usize| (0..n).map(|_| next()).collect::<Vec<f64>>();
        HrmLayerFile {
            layer,
            site: HrmSite::Mlp,
            state_dim: states,
            width,
            b: take(states * width),
            c: take(states * width),
            gate: 0.25,
            dynamics: HrmDynamics::Diagonal {
                log_a: (0..states).map(|i| f64::from((-0.4 * i as f64) as f32)).collect(),
                log_dt: vec![0.0; states],
            },
        }
    };
    HrmAdapterFile {
        config: HrmConfigFile::new(HrmPreset::Paper, states),
        layers: (0..layers).map(layer).collect(),
        precision: Precision::default(),
    }
}

fn bt(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bt")).current_dir(folder).args(args).output().unwrap()
}

#[track_caller]
fn succeed(folder: &Path, args: &[&str]) -> String {
    let output = bt(folder, args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail with `code`, say all of `words` and leave the folder's listing as it was.
#[track_caller]
fn fail(folder: &Path, args: &[&str], code: i32, words: &[&str]) {
    let listing = || {
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = listing();
    let output = bt(folder, args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
    for word in words {
        assert!(error.contains(word), "{args:?}: no {word:?} in {error:?}");
    }
    assert!(!error.contains("panicked"), "{error}");
    assert_eq!(listing(), before, "{args:?} left something behind");
}

fn read_certificate(adapter: &Path) -> Certificate {
    serde_json::from_slice(&fs::read(adapter.join("certificate.json")).unwrap()).unwrap()
}

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

/// A system of four states that no adapter could hold: a complex pair, a negative pole, a direct term.
fn write_system(path: &Path) {
    let a = [[0.8, -0.4, 0.0, 0.1], [0.4, 0.8, 0.0, 0.0], [0.0, 0.0, -0.7, 0.0], [0.0, 0.0, 0.0, 0.2]];
    let (a, b) = (Mat::from_fn(4, 4, |i, j| a[i][j]), Mat::from_fn(4, 2, |i, j| 1.0 / (1.0 + (i + 2 * j) as f64)));
    let (c, d) = (Mat::from_fn(3, 4, |i, j| (1.0 + i as f64) / (2.0 + j as f64)), Mat::from_fn(3, 2, |i, _| i as f64));
    write_arrays(path, &[("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref()), ("D", d.as_ref())]);
}

#[test]
fn any_system_in_a_file_is_reduced_and_verified() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    for extension in ["npz", "safetensors"] {
        let full = format!("system.{extension}");
        write_system(&dir.join(&full));
        succeed(dir, &["inspect", &full]);
        succeed(dir, &["inspect", &full, "--save", &format!("facts.{extension}")]);
        let bytes = fs::read(dir.join(format!("facts.{extension}"))).unwrap();
        let facts = parse_arrays(Path::new(&format!("facts.{extension}")), &bytes).unwrap();
        assert_eq!(facts.keys().collect::<Vec<_>>(), ["Wc", "Wo", "hsv"]);
        assert_eq!((facts["Wc"].shape.as_slice(), facts["hsv"].shape.as_slice()), (&[4, 4][..], &[4][..]));
        for method in ["bt", "bfsr", "spa", "modal", "svd", "hankel"] {
            let out = format!("{method}.{extension}");
            succeed(dir, &["reduce", &full, "-o", &out, "--order", "2", "--method", method]);
            succeed(dir, &["verify", &full, &out]);
            let system = Path::new(&out);
            let system = system_from_arrays(system, parse_arrays(system, &fs::read(dir.join(&out)).unwrap()).unwrap());
            assert_eq!(system.unwrap().unwrap().states(), 2);
        }
        fail(dir, &["reduce", &full, "-o", "out.mat"], 2, &["out.mat", ".npz"]);
        fail(dir, &["reduce", &full, "-o", &format!("bt.{extension}")], 2, &["already exists"]);
    }
    let unstable = Mat::from_fn(1, 2, |_, j| 0.5 + j as f64);
    let ones = Mat::from_fn(2, 2, |_, _| 1.0);
    let diagonal = unstable.transpose() * Mat::from_fn(1, 2, |_, _| 1.0);
    write_arrays(&dir.join("bad.npz"), &[("A", diagonal.as_ref()), ("B", ones.as_ref()), ("C", ones.as_ref())]);
    assert!(succeed(dir, &["inspect", "bad.npz"]).contains("1 pole is not inside the stability boundary"));
    fail(dir, &["reduce", "bad.npz", "-o", "o.npz", "--order", "0"], 2, &["1 poles", "kept in any case"]);
    let outside = Mat::from_fn(1, 1, |_, _| -1.5);
    let one = Mat::from_fn(1, 1, |_, _| 1.0);
    write_arrays(&dir.join("none.npz"), &[("A", outside.as_ref()), ("B", one.as_ref()), ("C", one.as_ref())]);
    fail(dir, &["inspect", "none.npz"], 2, &["none.npz", "none of its 1 poles", "nothing to reduce"]);
    fail(dir, &["inspect", "plant.mat"], 2, &["plant.mat does not exist"]);
    fs::write(dir.join("plant.mat"), "MATLAB 5.0 MAT-file").unwrap();
    fail(dir, &["inspect", "plant.mat"], 2, &["scipy.io.loadmat"]);
    fs::write(dir.join("text.md"), "no matrices").unwrap();
    fail(dir, &["inspect", "text.md"], 2, &["neither an adapter directory nor a file"]);
}

/// Three masses on springs and dampers that float: two integrators and two pairs, in continuous time.
fn write_chain(path: &Path, time: Option<f64>) {
    let k = [[-1.0, 1.0, 0.0], [1.0, -2.0, 1.0], [0.0, 1.0, -1.0]];
    let a = Mat::from_fn(6, 6, |i, j| match (i < 3, j < 3) {
        (true, true) => 0.0,
        (true, false) => f64::from(u8::from(i + 3 == j)),
        (false, true) => 4.0 * k[i - 3][j],
        (false, false) => 0.2 * k[i - 3][j - 3],
    });
    let (b, c) = (Mat::from_fn(6, 1, |i, _| (i / 3) as f64), Mat::from_fn(1, 6, |_, j| f64::from(u8::from(j == 2))));
    let b = Mat::from_fn(6, 1, |i, _| b[(i, 0)] * (1.0 + i as f64));
    let dt = Mat::from_fn(1, 1, |_, _| time.unwrap_or(0.0));
    let mut arrays = vec![("a", a.as_ref()), ("b", b.as_ref()), ("c", c.as_ref())];
    if time.is_some() {
        arrays.push(("dt", dt.as_ref()));
    }
    write_arrays(path, &arrays);
}

#[test]
fn a_plant_in_continuous_time_keeps_its_integrators() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    write_chain(&dir.join("plant.npz"), None);
    write_chain(&dir.join("timed.npz"), Some(0.0));
    write_chain(&dir.join("sampled.npz"), Some(0.01));
    for (name, option) in [("plant", "--continuous"), ("timed", "--json")] {
        let (full, out) = (format!("{name}.npz"), format!("{name}-small.npz"));
        succeed(dir, &["reduce", &full, "-o", &out, "--order", "4", option]);
        let table = succeed(dir, &["verify", &full, &out, option]);
        assert!(option == "--json" || !table.contains("FALSE"), "{table}");
        let path = Path::new(&out);
        let arrays = parse_arrays(path, &fs::read(dir.join(&out)).unwrap()).unwrap();
        assert_eq!((arrays["A"].shape.as_slice(), arrays["dt"].data.as_slice()), (&[4, 4][..], &[0.0][..]));
        assert!(arrays["D"].data[0].abs() < 1e-12);
        let certificate = dir.join(format!("{out}.certificate.json"));
        let honest = fs::read_to_string(&certificate).unwrap();
        let facts = serde_json::from_str::<Certificate>(&honest).unwrap();
        let plant = facts.plant.unwrap();
        assert_eq!((plant.continuous, plant.kept_poles, facts.total.holds), (true, 2, Some(true)));
        // A certificate that says nothing of them, or of others, is false.
        fs::write(&certificate, honest.replace("\"kept_poles\": 2", "\"kept_poles\": 1")).unwrap();
        let verify =
            if option == "--continuous" { vec!["verify", &full, &out, option] } else { vec!["verify", &full, &out] };
        fail(dir, &verify, 1, &["kept_poles: 1"]);
        // So is another part in the place of what was to be kept.
        fs::write(&certificate, &honest).unwrap();
        let mut changed = arrays;
        changed.get_mut("C").unwrap().data[0] *= 1.001;
        fs::write(dir.join("changed.npz"), npz::serialize(&changed)).unwrap();
        let verify: Vec<&str> = verify.iter().map(|&arg| if arg == out { "changed.npz" } else { arg }).collect();
        fail(dir, &verify, 1, &["was to be kept"]);
    }
    assert!(succeed(dir, &["inspect", "plant.npz", "--continuous"]).contains("continuous time"));
    fail(dir, &["reduce", "sampled.npz", "-o", "o.npz", "--continuous"], 2, &["sampling time dt is 0.01"]);
    fail(dir, &["reduce", "timed.npz", "-o", "o.npz", "--order", "1"], 2, &["2 poles", "kept in any case"]);
}

#[test]
fn systems_are_shown_in_their_own_words() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    write_system(&dir.join("full.npz"));
    let shown = succeed(dir, &["inspect", "full.npz", "--norms", "--gramians", "--balanced", "balanced.npz"]);
    for words in ["H-infinity", "Controllability Gramian", "Observability Gramian"] {
        assert!(shown.contains(words), "{shown}");
    }
    succeed(dir, &["inspect", "balanced.npz"]);
    fail(dir, &["inspect", "full.npz", "--balanced", "balanced.npz"], 2, &["already exists"]);
    let path = Path::new("balanced.npz");
    let system = system_from_arrays(path, parse_arrays(path, &fs::read(dir.join(path)).unwrap()).unwrap());
    let factors = GramianFactors::analytic(&system.unwrap().unwrap()).unwrap();
    let (wc, wo) = (factors.controllability(), factors.observability());
    for (i, j) in (0..4).flat_map(|i| (0..4).map(move |j| (i, j))) {
        assert!(
            (wc[(i, j)] - wo[(i, j)]).abs() < 1e-9 * wc[(0, 0)] && (i == j || wc[(i, j)].abs() < 1e-9 * wc[(0, 0)])
        );
    }
    let table = succeed(dir, &["reduce", "full.npz", "-o", "small.npz", "--order", "2", "--plots", "pictures"]);
    assert!(!table.contains("layer") && !table.contains("network") && !table.contains("sum"), "{table}");
    assert!(fs::read_to_string(dir.join("pictures/response.svg")).unwrap().contains("Response"));
    assert!(!dir.join("pictures/orders.svg").exists());
    let said = succeed(dir, &["reduce", "full.npz", "-o", "plain.npz", "--order", "3", "--no-certify"]);
    assert!(said.contains("3 of 4 states kept; nothing was measured"), "{said}");
    assert!(dir.join("plain.npz").exists() && !dir.join("plain.npz.certificate.json").exists());
    succeed(dir, &["verify", "full.npz", "plain.npz"]);
    // Two states that are one: fewer are kept than were asked for, which is said.
    let (half, one) = (Mat::from_fn(2, 2, |i, j| f64::from(u8::from(i == j)) / 2.0), Mat::from_fn(2, 1, |_, _| 1.0));
    write_arrays(&dir.join("twice.npz"), &[("A", half.as_ref()), ("B", one.as_ref()), ("C", one.transpose())]);
    let output = bt(dir, &["reduce", "twice.npz", "-o", "once.npz", "--order", "2"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("keeps 1 states instead of 2: only 1 of its Hankel singular values"), "{said}");
    // An adapter without a certificate.
    adapter(2, 6, 8).save(&dir.join("full")).unwrap();
    succeed(dir, &["reduce", "full", "-o", "small", "--order", "2", "--no-certify"]);
    assert!(!dir.join("small/certificate.json").exists());
    succeed(dir, &["verify", "full", "small"]);
    fail(dir, &["inspect", "full", "--continuous"], 2, &["is an adapter"]);
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
        site: HrmSite::Mlp,
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
    let later = certificate.replace("\"format\": 1", "\"format\": 2");
    fs::write(dir.join("small/certificate.json"), later).unwrap();
    fail(dir, &["verify", "full", "small"], 2, &["format 2"]);
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
fn bad_options_and_outputs_exit_2() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    adapter(2, 6, 8).save(&dir.join("full")).unwrap();
    fs::create_dir(dir.join("taken")).unwrap();
    fs::write(dir.join("taken/keep"), "me").unwrap();
    fail(dir, &["reduce", "full", "-o", "taken"], 2, &["taken already exists"]);
    assert_eq!(fs::read_to_string(dir.join("taken/keep")).unwrap(), "me");
    fail(dir, &["reduce", "nowhere", "-o", "out"], 2, &["nowhere does not exist"]);
    fail(dir, &["reduce", "full", "-o", "out", "--order", "7"], 2, &["layer 0", "order 7", "6 states"]);
    fail(dir, &["reduce", "full", "-o", "out", "--epsilon", "-1"], 2, &["epsilon"]);
    fail(dir, &["reduce", "full", "-o", "out", "--epsilon=-1"], 2, &["epsilon", "between 0 and 1"]);
    fail(dir, &["reduce", "full", "-o", "out", "--energy", "2"], 2, &["energy"]);
    fail(dir, &["reduce", "full", "-o", "out", "--bound", "nan"], 2, &["bound"]);
    fail(dir, &["reduce", "full", "-o", "out", "--total-bound=-1"], 2, &["total-bound"]);
    fail(dir, &["reduce", "full", "-o", "out", "--epsilon", "0.1", "--order", "2"], 2, &["cannot be used with"]);
    fail(dir, &["reduce", "full", "-o", "out", "--method", "spa"], 2, &["direct term"]);
    fail(dir, &["reduce", "full", "-o", "out", "--method", "svd", "--bound", "1"], 2, &["no error bound"]);
    fail(dir, &["reduce", "full", "-o", "out", "--gramians", "time-limited"], 2, &["--horizon"]);
    fail(dir, &["reduce", "full", "-o", "out", "--horizon", "5"], 2, &["--horizon"]);
    fail(dir, &["reduce", "full"], 2, &["--output"]);
    fail(dir, &["polish", "full"], 2, &["polish"]);
    fail(dir, &["verify", "full", "taken"], 2, &["adapter_config.json"]);
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
    (layer.b, layer.c, layer.gate) = (vec![1.0], vec![1.0], 1.0);
    layer.dynamics = HrmDynamics::Diagonal { log_a: vec![1e-9_f64.ln()], log_dt: vec![0.0] };
    full.precision = Precision::F64;
    full.save(&dir.join("full")).unwrap();
    // By the Gramians' pole the error of dropping it is 1e6, but it is 1e9.
    assert!(succeed(dir, &["inspect", "full"]).contains("not a guarantee"));
    for rule in ["--bound", "--total-bound"] {
        fail(dir, &["reduce", "full", "-o", "out", rule, "1.1e6"], 2, &["layer 0", "1 of its poles", "no error bound"]);
    }
    let table = succeed(dir, &["reduce", "full", "-o", "small", "--order", "0"]);
    assert!(table.contains("no guarantee") && table.contains("1 poles"), "{table}");
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

#[test]
fn damaged_adapters_exit_2_and_name_what_is_wrong() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let weights = dir.join("full/adapter_model.safetensors");
    let config = dir.join("full/adapter_config.json");
    let reset = || adapter(2, 4, 6).save(&dir.join("full")).unwrap();
    reset();
    let good_config = fs::read_to_string(&config).unwrap();
    let check = |words: &[&str]| {
        fail(dir, &["inspect", "full"], 2, words);
        fail(dir, &["reduce", "full", "-o", "out"], 2, words);
    };
    let bytes = fs::read(&weights).unwrap();
    fs::write(&weights, &bytes[..bytes.len() / 2]).unwrap();
    check(&["adapter_model.safetensors", "not a readable"]);
    fs::write(&weights, b"").unwrap();
    check(&["adapter_model.safetensors", "0 bytes"]);
    fs::remove_file(&weights).unwrap();
    check(&["cannot read", "adapter_model.safetensors"]);
    reset();
    fs::write(&config, "{\"peft_type\": ").unwrap();
    check(&["adapter_config.json", "line 1"]);
    fs::write(&config, good_config.replace("HRM", "LORA")).unwrap();
    check(&["LORA adapter", "only HRM"]);
    fs::write(&config, "{}").unwrap();
    check(&["peft_type"]);
    fs::write(&config, good_config.replace("\"free\"", "\"fre\"")).unwrap();
    check(&["adapter_config.json", "fre"]);
    fs::write(&config, good_config.replace("\"state_dim\": 4", "\"state_dim\": 5")).unwrap();
    check(&["layers.0.mlp.hrm.b", "[4, 6]", "[5, any]"]);
    fs::write(&config, good_config.replace("\"state_dim\": 4", "\"state_dim\": 0")).unwrap();
    check(&["layers.0.mlp.hrm.b"]);
    fs::write(&config, good_config.replace("\"site\": \"mlp\"", "\"site\": \"attention\"")).unwrap();
    check(&["unexpected tensor", "mlp.hrm"]);

    let mut broken = adapter(2, 4, 6);
    broken.layers[1].c[7] = f64::NAN;
    broken.save(&dir.join("full")).unwrap();
    check(&["layers.1.mlp.hrm.c", "NaN", "[1, 3]"]);
    let mut broken = adapter(2, 4, 6);
    broken.layers[1].layer = 2;
    broken.save(&dir.join("full")).unwrap();
    fs::write(&config, good_config).unwrap();
    check(&["[0, 1]", "[0, 2]"]);
    let mut broken = adapter(1, 2, 6);
    broken.layers[0].dynamics = HrmDynamics::Dense(vec![0.5, 0.0, 0.0, -1.25]);
    broken.save(&dir.join("full")).unwrap();
    check(&["layer 0", "not stable", "eigenvalue -1.25"]);
    // No states at all.
    let mut broken = adapter(1, 4, 6);
    broken.config.state_dim = 0;
    broken.layers[0] = HrmLayerFile {
        state_dim: 0,
        b: vec![],
        c: vec![],
        dynamics: HrmDynamics::Diagonal { log_a: vec![], log_dt: vec![] },
        ..broken.layers[0].clone()
    };
    broken.save(&dir.join("full")).unwrap();
    check(&["no states"]);
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
fn every_method_is_in_the_help_and_on_the_page() {
    let page = include_str!("../../docs/truncation.md");
    let help = succeed(Path::new("."), &["reduce", "--help"]);
    for method in Method::ALL {
        let name = method.name();
        assert!(page.contains(&format!("| `{name}` |")), "docs/truncation.md says nothing of the method {name}");
        assert!(help.contains(method.summary()), "bt reduce --help says nothing of the method {name}");
    }
}

#[test]
fn shells_complete_commands_and_options() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = succeed(folder.path(), &["completions", shell]);
        assert!(["inspect", "verify", "epsilon"].iter().all(|word| script.contains(word)), "{shell}");
    }
    fail(folder.path(), &["completions", "tcsh"], 2, &["tcsh", "bash"]);
}

/// A first-order low pass in `n` inputs with a direct term.
fn low_pass(path: &Path, n: usize, pole: f64) {
    let of = |x: f64| &Mat::<f64>::identity(n, n) * faer::Scale(x);
    let (a, b, c, d) = (of(pole), of(1.0), of(1.0 - pole), of(0.01));
    write_arrays(path, &[("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref()), ("D", d.as_ref())]);
}

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
    let system = system_from_arrays(&dir.join("low.npz"), system).unwrap().unwrap();
    let layers = [(0, HrmSite::Mlp, system.clone()), (1, HrmSite::Mlp, system.clone())];
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
    refused(&["--gramians", "weighted"], &["--weight or --output-weight with weighted"]);
    refused(&["--gramians", "frequency-limited"], &["--band with frequency-limited"]);
    refused(&["--band", "0.4,0.1"], &["band", "above the low end"]);
    refused(&["--band", "wide"], &["expected two numbers"]);
    refused(&["--band", "0,1", "--weight", "low.npz"], &["without weights"]);
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
    succeed(dir, &["verify", "full", "tilted"]);
    let mut certificate = certificate;
    certificate.task.as_mut().unwrap().change_of_loss *= 0.9;
    fs::write(dir.join("tilted/certificate.json"), serde_json::to_vec(&certificate).unwrap()).unwrap();
    fail(dir, &["verify", "full", "tilted"], 1, &["change of the loss"]);

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
