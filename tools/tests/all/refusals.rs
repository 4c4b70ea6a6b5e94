//! Bad input, which writes nothing.

use crate::common::{adapter, bt, fail, write_arrays, write_system};
use faer::Mat;
use hankel_files::HrmDynamics;
use hankel_files::HrmLayerFile;
use std::fs;

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
    for options in [&[][..], &["--no-certify"]] {
        let args = [&["reduce", "full", "-o", "small.npz", "--order", "2"], options].concat();
        fail(dir, &args, 2, &["full is an adapter", "small.npz has the name of a file"]);
    }
    // What `train` writes has its adapters inside.
    adapter(1, 2, 4).save(&dir.join("run/adapters/hrm")).unwrap();
    adapter(1, 2, 4).save(&dir.join("run/adapters/hrm-2")).unwrap();
    fail(dir, &["inspect", "run"], 2, &["run is a run directory", "in run/adapters: hrm, hrm-2"]);
    fail(dir, &["polish", "full"], 2, &["polish"]);
    fail(dir, &["verify", "full", "taken"], 2, &["adapter_config.json"]);
}

/// A system without any gain that doubles have a number for is not reduced to nothing.
#[test]
fn gains_below_doubles_are_refused_by_the_names_of_b_and_c() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let tiny = Mat::from_fn(2, 1, |_, _| 1e-165);
    for (name, beside) in [("diagonal.npz", 0.0), ("dense.npz", 0.1)] {
        let a = Mat::from_fn(2, 2, |i, j| if i == j { [0.5, 0.3][i] } else { beside });
        write_arrays(&dir.join(name), &[("A", a.as_ref()), ("B", tiny.as_ref()), ("C", tiny.transpose())]);
        let words = [name, "underflow double precision", "B has entries up to 1e-165, C up to 1e-165"];
        fail(dir, &["inspect", name], 2, &words);
        fail(dir, &["reduce", name, "-o", "small.npz", "--order", "1"], 2, &words);
    }
}

/// What is wrong with an output is told of the name that was given.
#[test]
fn outputs_are_refused_by_the_names_given() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    write_system(&dir.join("g.npz"));
    adapter(1, 4, 6).save(&dir.join("full")).unwrap();
    for option in ["--save", "--balanced"] {
        let words = ["a.mat: the name of an output must end in .safetensors or .npz"];
        fail(dir, &["inspect", "g.npz", option, "a.mat"], 2, &words);
    }
    let missing = ["cannot write nodir/x.npz: there is no folder nodir;"];
    fail(dir, &["reduce", "g.npz", "-o", "nodir/x.npz"], 2, &missing);
    fail(dir, &["reduce", "g.npz", "-o", "nodir/x.npz", "--no-certify"], 2, &missing);
    fail(dir, &["inspect", "g.npz", "--save", "nodir/x.npz"], 2, &missing);
    fail(dir, &["inspect", "g.npz", "--balanced", "nodir/x.npz"], 2, &missing);
    fail(dir, &["inspect", "g.npz", "--plot", "nodir/x.svg"], 2, &["nodir/x.svg: there is no folder nodir;"]);
    let both = ["--save and --balanced both name ./s.npz;"];
    fail(dir, &["inspect", "g.npz", "--save", "s.npz", "--balanced", "./s.npz"], 2, &both);
    let both = ["--output and --plots both name s.npz;"];
    fail(dir, &["reduce", "g.npz", "-o", "s.npz", "--plots", "s.npz"], 2, &both);
    let both = ["the certificate beside it and --plots both name s.npz.certificate.json;"];
    fail(dir, &["reduce", "g.npz", "-o", "s.npz", "--plots", "s.npz.certificate.json"], 2, &both);
    // There is no way to balance an adapter, so none is named.
    let balance = ["inspect", "full", "--balanced", "b.npz"];
    fail(dir, &balance, 2, &["no command writes an adapter in balanced coordinates"]);
    let said = bt(dir, &balance).stderr;
    assert!(!String::from_utf8_lossy(&said).contains("--epsilon"));
}

#[test]
fn the_option_that_gramians_lack_is_named() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    write_system(&dir.join("g.npz"));
    for (options, words) in [
        (&["--gramians", "frequency-limited"][..], "--gramians frequency-limited needs --band"),
        (&["--gramians", "enns"], "--gramians enns needs --weight"),
        (&["--gramians", "weighted"], "--gramians weighted needs --weight"),
        (&["--horizon", "5"], "--horizon goes with --gramians time-limited, not with analytic"),
        (&["--states", "g.npz"], "--states goes with --gramians empirical, not with analytic"),
        (
            &["--gramians", "analytic", "--band", "0.1,0.2"],
            "--band goes with --gramians frequency-limited, not with analytic",
        ),
        (&["--band", "0.1,0.2", "--weight", "g.npz"], "--band and --weight exclude each other"),
    ] {
        fail(dir, &[&["reduce", "g.npz", "-o", "x.npz", "--order", "2"], options].concat(), 2, &[words]);
    }
}

#[test]
fn counts_below_0_are_refused_as_numbers() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    write_system(&dir.join("g.npz"));
    for (option, least) in [("--order", 0), ("--budget", 0), ("--horizon", 1)] {
        for number in ["-1", "1.5", "-2.5"] {
            let named = format!("invalid value '{number}' for '{option} <");
            let expected = format!("expected a whole number, {least} or above");
            let words: [&str; 2] = [&named, &expected];
            fail(dir, &["reduce", "g.npz", "-o", "x.npz", option, number], 2, &words);
        }
    }
    // Also where all states are kept, for which no Gramian is needed.
    let none = ["reduce", "g.npz", "-o", "x.npz", "--gramians", "time-limited", "--horizon", "0", "--order", "4"];
    fail(dir, &none, 2, &["invalid value '0' for '--horizon <", "expected a whole number, 1 or above"]);
    fail(dir, &["reduce", "g.npz", "-o", "x.npz", "--order", "99999999999999999999"], 2, &["it is too large"]);
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
        b: vec![].into(),
        c: vec![].into(),
        dynamics: HrmDynamics::Diagonal { log_a: vec![], log_dt: vec![] },
        ..broken.layers[0].clone()
    };
    broken.save(&dir.join("full")).unwrap();
    check(&["no states"]);
}

#[test]
fn gains_beyond_doubles_are_refused_by_the_names_of_b_and_c() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let huge = Mat::from_fn(2, 1, |_, _| 1e200);
    for (name, poles, time) in [("discrete.npz", [0.5, 0.3], 1.0), ("continuous.npz", [-0.5, -0.3], 0.0)] {
        let a = Mat::from_fn(2, 2, |i, j| if i == j { poles[i] } else { 0.1 * i as f64 });
        let dt = Mat::from_fn(1, 1, |_, _| time);
        let arrays = [("A", a.as_ref()), ("B", huge.as_ref()), ("C", huge.transpose()), ("dt", dt.as_ref())];
        write_arrays(&dir.join(name), &arrays);
        let words = [name, "overflow double precision", "B has entries up to 1e200, C up to 1e200"];
        fail(dir, &["inspect", name], 2, &words);
        fail(dir, &["reduce", name, "-o", "small.npz", "--order", "1"], 2, &words);
    }
}
