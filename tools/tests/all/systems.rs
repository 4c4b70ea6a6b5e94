//! Systems in files, in discrete and continuous time, and the words for them.

use crate::common::{adapter, bt, fail, succeed, write_arrays, write_chain, write_system};
use faer::Mat;
use hankel_files::arrays::{Array, Precision};
use hankel_files::npz;
use hankel_files::system_file::StoredSystem;
use hankel_files::system_file::parse_arrays;
use hankel_lti::GramianFactors;
use hankel_lti::Method;
use hankel_reduce::Certificate;
use serde_json::Value;
use std::fs;
use std::path::Path;

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
            let system = StoredSystem::parse(system, parse_arrays(system, &fs::read(dir.join(&out)).unwrap()).unwrap());
            assert_eq!(system.unwrap().system().unwrap().states(), 2);
        }
        fail(dir, &["reduce", &full, "-o", "out.mat"], 2, &["out.mat", ".npz"]);
        fail(dir, &["reduce", &full, "-o", &format!("bt.{extension}")], 2, &["already exists"]);
    }
    let unstable = Mat::from_fn(1, 2, |_, j| 0.5 + j as f64);
    let ones = Mat::from_fn(2, 2, |_, _| 1.0);
    let diagonal = unstable.transpose() * Mat::from_fn(1, 2, |_, _| 1.0);
    write_arrays(&dir.join("bad.npz"), &[("A", diagonal.as_ref()), ("B", ones.as_ref()), ("C", ones.as_ref())]);
    assert!(succeed(dir, &["inspect", "bad.npz"]).contains("1 pole is on, outside or next to the stability boundary"));
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

/// Pairs may be written with either sign above the diagonal: what is told about states is about those of the file.
#[test]
fn gramians_and_recorded_states_are_those_of_the_file() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let b = [1.0, 2.0, 0.5, -1.0];
    let c = [1.0, 0.3, 0.4, 1.0];
    // The same plant with the second and the fourth state turned, and states that both record.
    let sign = |i: usize, turned: bool| if turned && i % 2 == 1 { -1.0 } else { 1.0 };
    for turned in [false, true] {
        let block = |[re, im]: [f64; 2], i: usize, j: usize| [[re, -im], [im, re]][i % 2][j % 2];
        let a = Mat::from_fn(4, 4, |i, j| {
            let entry = if i / 2 == j / 2 { block([[0.7, 0.6], [0.8, 0.2]][i / 2], i, j) } else { 0.0 };
            sign(i, turned) * sign(j, turned) * entry
        });
        let (b, c) =
            (Mat::from_fn(4, 1, |i, _| sign(i, turned) * b[i]), Mat::from_fn(1, 4, |_, j| sign(j, turned) * c[j]));
        let name = format!("plant-{turned}.npz");
        write_arrays(&dir.join(&name), &[("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref())]);
        let number = |i: usize, j: usize| sign(j, turned) * (1e3 * ((4 * i + j) as f64 + 0.5).sin()).fract();
        let states: Vec<f64> = (0..32).flat_map(|i| (0..4).map(move |j| number(i, j))).collect();
        let recorded = [("states".to_owned(), Array::new(vec![1, 32, 4], states, Precision::F64))];
        fs::write(dir.join(format!("states-{turned}.npz")), npz::serialize(&recorded.into())).unwrap();
    }
    let json = |args: &[&str]| serde_json::from_str::<Value>(&succeed(dir, &[args, &["--json"]].concat())).unwrap();
    let [plain, turned] = ["plant-false.npz", "plant-true.npz"]
        .map(|plant| json(&["inspect", plant, "--gramians"])[0]["gramians"].clone());
    for which in ["controllability", "observability"] {
        for (i, j) in (0..4).flat_map(|i| (0..4).map(move |j| (i, j))) {
            let [x, y] = [&plain, &turned].map(|gramians| gramians[which][i][j].as_f64().unwrap());
            assert!(
                (x - sign(i, true) * sign(j, true) * y).abs() <= 1e-12 * x.abs().max(1.0),
                "{which} {i} {j}: {x} {y}"
            );
        }
    }
    let [plain, turned] = [false, true].map(|turned| {
        let [plant, states, out] = ["plant", "states", "out"].map(|name| format!("{name}-{turned}.npz"));
        let reduce = ["reduce", &plant, "-o", &out, "--order", "2", "--gramians", "empirical", "--states", &states];
        json(&reduce)["layers"][0]["hinf_error"].as_f64().unwrap()
    });
    assert!((plain / turned - 1.0).abs() < 1e-9, "{plain} {turned}");
}

/// The entries of a slow pair are those of the file: an ulp of them is much of its distance from the circle.
#[test]
fn modes_that_are_kept_are_those_of_the_file() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let ones = Mat::from_fn(3, 1, |_, _| 1.0);
    for distance in [1e-10, 1e-12, 1e-14] {
        for angle in [0.259_f64, 1.0, 2.4] {
            let (re, im) = ((1.0 - distance) * angle.cos(), (1.0 - distance) * angle.sin());
            let a = Mat::from_fn(3, 3, |i, j| [[re, -im, 0.0], [im, re, 0.0], [0.0, 0.0, 0.5]][i][j]);
            write_arrays(&dir.join("slow.npz"), &[("A", a.as_ref()), ("B", ones.as_ref()), ("C", ones.transpose())]);
            for method in ["modal", "bt"] {
                let out = format!("{method}-{distance}-{angle}.npz");
                succeed(dir, &["reduce", "slow.npz", "-o", &out, "--order", "2", "--method", method]);
                let found = parse_arrays(Path::new(&out), &fs::read(dir.join(&out)).unwrap()).unwrap();
                assert_eq!(found["A"].data, [re, -im, im, re], "{out}");
            }
        }
    }
}

/// Two equal pairs, whose Hankel singular values are those of one.
#[test]
fn modes_are_kept_whatever_the_rank() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let block = [[0.5, -0.4], [0.4, 0.5]];
    let a = Mat::from_fn(4, 4, |i, j| if i / 2 == j / 2 { block[i % 2][j % 2] } else { 0.0 });
    let b = Mat::from_fn(4, 1, |i, _| f64::from(u8::from(i % 2 == 0)));
    write_arrays(&dir.join("twins.npz"), &[("A", a.as_ref()), ("B", b.as_ref()), ("C", b.transpose())]);
    for (order, kept, note) in
        [("4", 4, None), ("3", 2, Some("keeps 2 states instead of 3: a complex pair is kept whole"))]
    {
        let out = format!("{order}.npz");
        let output = bt(dir, &["reduce", "twins.npz", "-o", &out, "--method", "modal", "--order", order]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && note.map_or(!said.contains("keeps"), |note| said.contains(note)), "{said}");
        succeed(dir, &["verify", "twins.npz", &out]);
        let found = parse_arrays(Path::new(&out), &fs::read(dir.join(&out)).unwrap()).unwrap();
        assert_eq!(found["B"].shape, [kept, 1]);
    }
    succeed(dir, &["reduce", "twins.npz", "-o", "all.npz", "--method", "energy", "--bound", "0"]);
    let found = parse_arrays(Path::new("all.npz"), &fs::read(dir.join("all.npz")).unwrap()).unwrap();
    assert_eq!(found["A"].data, (0..16).map(|k| a[(k / 4, k % 4)]).collect::<Vec<_>>());
}

/// An output that is always zero costs no proof.
#[test]
fn a_zero_row_of_outputs_leaves_the_error_proved() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let a = Mat::from_fn(6, 6, |i, j| {
        if i == j {
            -1.0 - i as f64
        } else if j == i + 1 {
            0.5
        } else {
            0.0
        }
    });
    let b = Mat::from_fn(6, 2, |i, j| 1.0 / (1.0 + (i + 2 * j) as f64));
    let c = Mat::from_fn(2, 6, |i, j| if i == 0 { 1.0 - 0.2 * j as f64 } else { 0.0 });
    let dt = Mat::zeros(1, 1);
    write_arrays(
        &dir.join("zero.npz"),
        &[("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref()), ("dt", dt.as_ref())],
    );
    let reduced = succeed(dir, &["reduce", "zero.npz", "-o", "out.npz", "--order", "3", "--json"]);
    let facts = &serde_json::from_str::<Value>(&reduced).unwrap()["layers"][0];
    assert_eq!(facts["proved"], true, "{facts}");
}

/// What the file of a reduced system says of its time, beside a full one that says nothing or runs in another.
#[test]
fn times_are_compared_before_anything_is_measured() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let system = |name: &str, pole: f64, dt: Option<f64>| {
        let (a, one) = (Mat::from_fn(1, 1, |_, _| pole), Mat::from_fn(1, 1, |_, _| 1.0));
        let dt = dt.map(|dt| Mat::from_fn(1, 1, |_, _| dt));
        let arrays = [("A", a.as_ref()), ("B", one.as_ref()), ("C", one.as_ref())];
        let arrays: Vec<_> = arrays.into_iter().chain(dt.as_ref().map(|dt| ("dt", dt.as_ref()))).collect();
        write_arrays(&dir.join(name), &arrays);
    };
    system("unstated.npz", -1.5, None);
    system("continuous.npz", -1.5, Some(0.0));
    let two = Mat::from_fn(2, 2, |i, j| if i == j { [-0.5, -3.0][i] } else { 0.0 });
    let (b, c) = (Mat::from_fn(2, 1, |_, _| 1.0), Mat::from_fn(1, 2, |_, _| 1.0));
    write_arrays(&dir.join("two.npz"), &[("A", two.as_ref()), ("B", b.as_ref()), ("C", c.as_ref())]);
    let told = |out: &str, more: &[&str]| {
        let said = bt(dir, &[&["reduce", "two.npz", "-o", out, "--order", "1"], more].concat());
        assert_eq!(said.status.code(), Some(0));
        String::from_utf8(said.stderr).unwrap()
    };
    assert!(told("read.npz", &[]).contains("without dt it is read as a system in discrete time"));
    assert!(!told("given.npz", &["--continuous"]).contains("without dt"));
    fail(dir, &["verify", "unstated.npz", "continuous.npz"], 2, &["dt = 0", "--continuous"]);
    succeed(dir, &["verify", "continuous.npz", "unstated.npz"]);
    succeed(dir, &["verify", "unstated.npz", "unstated.npz", "--continuous"]);
    system("step.npz", 0.5, Some(0.1));
    system("steps.npz", 0.5, None);
    let told = bt(dir, &["verify", "step.npz", "steps.npz"]);
    let told = String::from_utf8_lossy(&[told.stdout, told.stderr].concat()).into_owned();
    assert!(told.contains("the sampling times differ: dt is 0.1 and not given"), "{told}");
    system("unspecified.npz", 0.5, Some(-1.0));
    fail(dir, &["inspect", "unspecified.npz"], 2, &["dt (or Ts) is -1;", "True for steps of unknown length"]);
}

#[test]
fn a_plant_in_continuous_time_keeps_its_integrators() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    write_chain(&dir.join("plant.npz"), None);
    write_chain(&dir.join("timed.npz"), Some(0.0));
    write_chain(&dir.join("sampled.npz"), Some(0.01));
    // A time that is assumed is named.
    assert!(!succeed(dir, &["inspect", "timed.npz"]).contains("without dt"));
    let assumed = "without dt it is read as a system in discrete time";
    assert!(succeed(dir, &["inspect", "plant.npz"]).contains(assumed));
    fail(dir, &["reduce", "plant.npz", "-o", "x.npz", "--order", "1"], 2, &[assumed, "--continuous"]);
    for (name, option) in [("plant", "--continuous"), ("timed", "--json")] {
        let (full, out) = (format!("{name}.npz"), format!("{name}-small.npz"));
        succeed(dir, &["reduce", &full, "-o", &out, "--order", "4", option]);
        let table = succeed(dir, &["verify", &full, &out, option]);
        assert!(option == "--json" || !table.contains("FALSE"), "{table}");
        // Six states, of which four are kept, the two integrators among them.
        assert!(option == "--json" || table.contains("system       6     4 "), "{table}");
        let path = Path::new(&out);
        let arrays = parse_arrays(path, &fs::read(dir.join(&out)).unwrap()).unwrap();
        assert_eq!((arrays["A"].shape.as_slice(), arrays["dt"].data.as_slice()), (&[4, 4][..], &[0.0][..]));
        assert_eq!(arrays["D"].data[0], 0.0);
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

/// Eleven orders of magnitude between the poles of a dense matrix: all are stable. Gains at low frequencies are the sums of four low passes.
#[test]
fn stiff_plants_are_reduced_as_a_whole() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let poles = [-0.01, -0.3, -0.5, -0.8, -1e9];
    let a = Mat::from_fn(5, 5, |i, j| if i == j { poles[i] } else { f64::from(u8::from(j == 4)) });
    let (b, c) = (Mat::from_fn(5, 1, |i, _| [0.0, 1e9][i / 4]), Mat::from_fn(1, 5, |_, j| [1.0, 0.0][j / 4]));
    let dt = Mat::zeros(1, 1);
    write_arrays(&dir.join("s.npz"), &[("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref()), ("dt", dt.as_ref())]);
    let text = succeed(dir, &["inspect", "s.npz", "--norms", "--json"]);
    let facts = serde_json::from_str::<Value>(&text).unwrap();
    let gain: f64 = poles[..4].iter().map(|pole| -1.0 / pole).sum();
    let norm = facts[0]["norms"]["hinf"].as_f64().unwrap();
    assert!((norm / gain - 1.0).abs() < 1e-6 && facts[0]["plant"]["kept_poles"] == 0, "{norm} {gain}");
    succeed(dir, &["reduce", "s.npz", "-o", "r.npz", "--order", "4"]);
    let certificate = fs::read_to_string(dir.join("r.npz.certificate.json")).unwrap();
    let facts = serde_json::from_str::<Certificate>(&certificate).unwrap().layers.remove(0).facts;
    // The fast pole is left out, which adds 1e-9 to each of the four.
    assert!(facts.hinf_error < 1e-8 && facts.proved, "{:e}", facts.hinf_error);
    succeed(dir, &["verify", "s.npz", "r.npz"]);
}

/// A double integrator beside a slow pole, in coordinates that mix them; and an integrator in other units, which is the same part.
#[test]
fn kept_parts_are_compared_where_they_have_gains() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let write = |name: &str, a: &[[f64; 3]; 3], b: [f64; 3], c: [f64; 3]| {
        let a = Mat::from_fn(3, 3, |i, j| a[i][j]);
        let (b, c, dt) = (Mat::from_fn(3, 1, |i, _| b[i]), Mat::from_fn(1, 3, |_, j| c[j]), Mat::zeros(1, 1));
        let arrays = [("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref()), ("dt", dt.as_ref())];
        write_arrays(&dir.join(name), &arrays);
    };
    let mixed = [[-2.0, 1.0, -0.96875], [-4.0, 2.0, -1.953_125], [0.0, 0.0, -0.015_625]];
    write("double.npz", &mixed, [0.0, 2.0, 1.0], [5.0, -2.0, 5.0]);
    succeed(dir, &["reduce", "double.npz", "-o", "r.npz", "--order", "2"]);
    succeed(dir, &["verify", "double.npz", "r.npz"]);
    let plain = [[0.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -5.0]];
    write("one.npz", &plain, [1.0, 1.0, 1.0], [0.1, 1.0, 0.001]);
    write("units.npz", &plain, [2.0, 1.0, 1.0], [0.05, 1.0, 0.001]);
    write("other.npz", &plain, [1.0 + 1e-6, 1.0, 1.0], [0.1, 1.0, 0.001]);
    succeed(dir, &["reduce", "one.npz", "-o", "small.npz", "--order", "2"]);
    fs::remove_file(dir.join("small.npz.certificate.json")).unwrap();
    succeed(dir, &["verify", "units.npz", "small.npz"]);
    fail(dir, &["verify", "other.npz", "small.npz"], 1, &["was to be kept"]);
    // Also where it is weak beside the rest.
    let slow = [[0.0, 0.0, 0.0], [0.0, -1e-6, 0.0], [0.0, 0.0, -5.0]];
    write("weak.npz", &slow, [1e-4, 1.0, 1.0], [1e-4, 1.0, 0.001]);
    write("turned.npz", &slow, [-1e-4, 1.0, 1.0], [1e-4, 1.0, 0.001]);
    succeed(dir, &["reduce", "weak.npz", "-o", "strong.npz", "--order", "2"]);
    fs::remove_file(dir.join("strong.npz.certificate.json")).unwrap();
    succeed(dir, &["verify", "weak.npz", "strong.npz"]);
    fail(dir, &["verify", "turned.npz", "strong.npz"], 1, &["was to be kept"]);
}

/// `[1 / (s + 1), 1e-3 / (s + 100)]`: the second input is the error of what keeps the first singular vector of B.
#[test]
fn what_is_said_of_a_part_is_not_taken_for_the_whole() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let write = |name: &str, poles: &[f64]| {
        let n = poles.len();
        let a = Mat::from_fn(n, n, |i, j| if i == j { poles[i] } else { 0.0 });
        let (b, c) = (Mat::from_fn(n, 1, |_, _| 1.0), Mat::from_fn(1, n, |_, _| 1.0));
        write_arrays(&dir.join(name), &[("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref())]);
    };
    // Norms in JSON are those of the stable part, too.
    write("integrator.npz", &[1.0, 0.5, 0.3]);
    let facts =
        serde_json::from_str::<Value>(&succeed(dir, &["inspect", "integrator.npz", "--norms", "--json"])).unwrap();
    assert_eq!((&facts[0]["plant"]["kept_poles"], &facts[0]["states"]), (&1.into(), &2.into()));
    let too_many = ["order 4 is larger than the 3 states"];
    fail(dir, &["reduce", "integrator.npz", "-o", "out.npz", "--order", "4"], 2, &too_many);
    // Of five states, three steps show three.
    write("short.npz", &[0.9, 0.7, 0.5, 0.3, 0.1]);
    let short = ["--gramians", "time-limited", "--horizon", "3"];
    succeed(dir, &[&["reduce", "short.npz", "-o", "out.npz", "--order", "4"], &short[..]].concat());
    let out = parse_arrays(Path::new("out.npz"), &fs::read(dir.join("out.npz")).unwrap()).unwrap();
    assert_eq!(out["B"].shape, [3, 1]);
}

#[test]
fn h2_norms_in_continuous_time_are_those_of_continuous_time() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let diagonal = |x: [f64; 2]| Mat::from_fn(2, 2, |i, j| if i == j { x[i] } else { 0.0 });
    let (a, b, c) = (diagonal([-1.0, -100.0]), diagonal([1.0, 0.1]), Mat::from_fn(1, 2, |_, j| [1.0, 1e-2][j]));
    let (dt, d) = (Mat::zeros(1, 1), Mat::from_fn(1, 2, |_, _| 0.5));
    let arrays = [("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref()), ("dt", dt.as_ref()), ("D", d.as_ref())];
    write_arrays(&dir.join("strictly.npz"), &arrays[..4]);
    write_arrays(&dir.join("direct.npz"), &arrays);
    let norm = (0.5 + 1e-6 / 200.0_f64).sqrt();
    let json = |args: &[&str]| serde_json::from_str::<Value>(&succeed(dir, &[args, &["--json"]].concat())).unwrap();
    let close = |found: &Value, expected: f64| (found.as_f64().unwrap() / expected - 1.0).abs() < 1e-12;
    assert!(close(&json(&["inspect", "strictly.npz", "--norms"])[0]["norms"]["h2"], norm));
    assert!(json(&["inspect", "direct.npz", "--norms"])[0]["norms"]["h2"].is_null());
    assert!(succeed(dir, &["inspect", "direct.npz", "--norms"]).contains("inf"));
    for (name, method) in [("strictly", "svd"), ("direct", "svd"), ("strictly", "spa")] {
        let (full, small) = (format!("{name}.npz"), format!("{name}-{method}.npz"));
        let certificate = json(&["reduce", &full, "-o", &small, "--order", "1", "--method", method]);
        let facts = &certificate["layers"][0];
        // The singular perturbation has a direct term, which the strictly proper plant has not.
        assert!(if method == "spa" {
            facts["h2_error"].is_null()
        } else {
            close(&facts["h2_error"], 1e-3 / 200.0_f64.sqrt())
        });
        assert!(if name == "direct" { facts["h2_norm"].is_null() } else { close(&facts["h2_norm"], norm) });
        succeed(dir, &["verify", &full, &small]);
    }
    let path = dir.join("direct-svd.npz.certificate.json");
    let honest = fs::read_to_string(&path).unwrap();
    fs::write(&path, honest.replace("\"h2_norm\": null", "\"h2_norm\": 0.7")).unwrap();
    fail(dir, &["verify", "direct.npz", "direct-svd.npz"], 1, &["h2_norm is claimed to be 7e-1, measured inf"]);
    // Before format 3 they were norms of the mapped system.
    fs::write(&path, honest.replace("\"format\": 3", "\"format\": 2")).unwrap();
    fail(dir, &["verify", "direct.npz", "direct-svd.npz"], 2, &["H2 norms", "format 2", "reduce the system again"]);
    // A number that is not that of the file is refused, also where nothing else would differ.
    let stable = diagonal([0.5, -0.2]);
    write_arrays(&dir.join("discrete.npz"), &[("A", stable.as_ref()), ("B", b.as_ref()), ("C", c.as_ref())]);
    succeed(dir, &["reduce", "discrete.npz", "-o", "one.npz", "--order", "1"]);
    succeed(dir, &["verify", "discrete.npz", "one.npz"]);
    let path = dir.join("one.npz.certificate.json");
    let changed = fs::read_to_string(&path).unwrap().replace("\"format\": 3", "\"format\": 2");
    fs::write(&path, changed).unwrap();
    fail(dir, &["verify", "discrete.npz", "one.npz"], 2, &["format 2", "knows format 3", "reduce the system again"]);
}

/// A pair at -0.1 +- 4i, which peaks near 4, and the same sampled.
#[test]
fn frequencies_and_time_constants_are_those_of_the_time_of_the_file() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let (b, c) = (Mat::from_fn(2, 1, |i, _| i as f64), Mat::from_fn(1, 2, |_, j| 1.0 - j as f64));
    for (name, a, dt) in [
        ("continuous.npz", [[-0.1, 4.0], [-4.0, -0.1]], 0.0),
        (
            "sampled.npz",
            [0.02_f64].map(|t| [4.0 * t, -0.1 * t]).map(|[angle, rate]| {
                let (sin, cos, size) = (angle.sin(), angle.cos(), rate.exp());
                [[size * cos, size * sin], [-size * sin, size * cos]]
            })[0],
            0.02,
        ),
    ] {
        let (a, dt) = (Mat::from_fn(2, 2, |i, j| a[i][j]), Mat::from_fn(1, 1, |_, _| dt));
        let arrays = [("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref()), ("dt", dt.as_ref())];
        write_arrays(&dir.join(name), &arrays);
        let facts: Value = serde_json::from_str(&succeed(dir, &["inspect", name, "--norms", "--json"])).unwrap();
        let in_time = &facts[0]["in_time"];
        assert!((in_time["time_constants"][0].as_f64().unwrap() / 10.0 - 1.0).abs() < 1e-9, "{in_time}");
        assert!((in_time["hinf_frequency"].as_f64().unwrap() / 4.0 - 1.0).abs() < 1e-2, "{in_time}");
        // In steps as before.
        assert!(facts[0]["norms"]["hinf_frequency"].as_f64().unwrap() < std::f64::consts::PI);
        let table = succeed(dir, &["inspect", name, "--norms"]);
        assert!(table.contains("10.00") && table.contains("in radians per unit of"), "{table}");
        assert!(!table.contains("per step") && !table.contains("in steps"), "{table}");
    }
}

/// A stable matrix whose leading entry is not, on which B lies.
#[test]
fn a_method_that_loses_stability_is_named() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    for (name, leading, time) in [("discrete.npz", 1.2, 1.0), ("continuous.npz", 0.5, 0.0)] {
        let a = [[leading, 1.0], [-1.0, if time == 0.0 { -1.0 } else { -0.4 }]];
        let (a, dt) = (Mat::from_fn(2, 2, |i, j| a[i][j]), Mat::from_fn(1, 1, |_, _| time));
        let (b, c) = (Mat::from_fn(2, 1, |i, _| 1.0 - i as f64), Mat::from_fn(1, 2, |_, _| 1.0));
        let arrays = [("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref()), ("dt", dt.as_ref())];
        write_arrays(&dir.join(name), &arrays);
        let words = ["the reduced system of 1 states is not stable", "method svd does not keep stability"];
        for options in [&[][..], &["--no-certify"]] {
            let args = [&["reduce", name, "-o", "small.npz", "--order", "1", "--method", "svd"], options].concat();
            fail(dir, &args, 2, &words);
        }
        succeed(dir, &["reduce", name, "-o", &format!("small-{name}"), "--order", "1"]);
    }
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
    // Poles next to the unit circle, too, have a balanced realisation.
    let slow = Mat::from_fn(2, 2, |i, j| if i == j { 1.0 - 1e-7 * (1 + i) as f64 } else { 0.0 });
    let ones = Mat::<f64>::ones(2, 1);
    write_arrays(&dir.join("slow.npz"), &[("A", slow.as_ref()), ("B", ones.as_ref()), ("C", ones.transpose())]);
    succeed(dir, &["inspect", "slow.npz", "--balanced", "slow-balanced.npz"]);
    for (name, states, tolerance) in [("balanced.npz", 4, 1e-9), ("slow-balanced.npz", 2, 1e-6)] {
        let path = Path::new(name);
        let system = StoredSystem::parse(path, parse_arrays(path, &fs::read(dir.join(path)).unwrap()).unwrap());
        let factors = GramianFactors::analytic(&system.unwrap().system().unwrap()).unwrap();
        let (wc, wo) = (factors.controllability(), factors.observability());
        for (i, j) in (0..states).flat_map(|i| (0..states).map(move |j| (i, j))) {
            let (difference, size) = ((wc[(i, j)] - wo[(i, j)]).abs(), wc[(0, 0)]);
            assert!(difference < tolerance * size && (i == j || wc[(i, j)].abs() < tolerance * size), "{name}");
        }
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
    // States apart, of which balanced truncation keeps the best one.
    let apart = Mat::from_fn(2, 2, |i, j| if i == j { 0.5 - 0.3 * i as f64 } else { 0.0 });
    let one = Mat::<f64>::identity(2, 2);
    write_arrays(&dir.join("apart.npz"), &[("A", apart.as_ref()), ("B", one.as_ref()), ("C", one.as_ref())]);
    let output = bt(dir, &["reduce", "apart.npz", "-o", "h2.npz", "--order", "1", "--method", "h2"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("system: method h2 found no smaller H2 error than that of bt"), "{said}");
    // An adapter without a certificate.
    adapter(2, 6, 8).save(&dir.join("full")).unwrap();
    succeed(dir, &["reduce", "full", "-o", "small", "--order", "2", "--no-certify"]);
    assert!(!dir.join("small/certificate.json").exists());
    succeed(dir, &["verify", "full", "small"]);
    fail(dir, &["inspect", "full", "--continuous"], 2, &["is an adapter"]);
}

#[test]
fn every_method_is_in_the_help_and_on_the_page() {
    let page = include_str!("../../../docs/truncation.md");
    let keys = include_str!("../../../docs/configuration.md");
    let help = succeed(Path::new("."), &["reduce", "--help"]);
    for &method in Method::ALL {
        let name = method.name();
        assert!(page.contains(&format!("| `{name}` |")), "docs/truncation.md says nothing of the method {name}");
        assert!(keys.contains(&format!("`\"{name}\"`")), "docs/configuration.md says nothing of the method {name}");
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
