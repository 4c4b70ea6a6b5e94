//! The program, and what it is given.

use faer::Mat;
use faer::MatRef;
use hankel_files::HrmAdapterFile;
use hankel_files::HrmConfigFile;
use hankel_files::HrmDynamics;
use hankel_files::HrmLayerFile;
use hankel_files::HrmPreset;
use hankel_files::StreamSite;
use hankel_files::arrays::Precision;
use hankel_files::system_file::arrays_to_bytes;
use hankel_reduce::Certificate;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::process::Output;

pub fn write_arrays(path: &Path, arrays: &[(&str, MatRef<'_, f64>)]) {
    fs::write(path, arrays_to_bytes(path, arrays).unwrap()).unwrap();
}

/// Deterministic numbers in (-1, 1).
pub fn noise(seed: usize) -> impl FnMut() -> f64 {
    let mut state = (seed as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(((state >> 33) as f32 / (1u64 << 30) as f32) - 1.0)
    }
}

pub fn adapter(layers: usize, states: usize, width: usize) -> HrmAdapterFile {
    let layer = |layer: usize| {
        let mut next = noise(layer + 1);
        let mut take = |n: usize| (0..n).map(|_| next()).collect::<Vec<f64>>();
        HrmLayerFile {
            layer,
            site: StreamSite::Mlp,
            state_dim: states,
            width,
            b: take(states * width).into(),
            c: take(states * width).into(),
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

pub fn bt(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bt")).current_dir(folder).args(args).output().unwrap()
}

#[track_caller]
pub fn succeed(folder: &Path, args: &[&str]) -> String {
    let output = bt(folder, args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail with `code`, say all of `words` and leave the folder's listing as it was.
#[track_caller]
pub fn fail(folder: &Path, args: &[&str], code: i32, words: &[&str]) {
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

pub fn read_certificate(adapter: &Path) -> Certificate {
    serde_json::from_slice(&fs::read(adapter.join("certificate.json")).unwrap()).unwrap()
}

/// A system of four states that no adapter could hold: a complex pair, a negative pole, a direct term.
pub fn write_system(path: &Path) {
    let a = [[0.8, -0.4, 0.0, 0.1], [0.4, 0.8, 0.0, 0.0], [0.0, 0.0, -0.7, 0.0], [0.0, 0.0, 0.0, 0.2]];
    let (a, b) = (Mat::from_fn(4, 4, |i, j| a[i][j]), Mat::from_fn(4, 2, |i, j| 1.0 / (1.0 + (i + 2 * j) as f64)));
    let (c, d) = (Mat::from_fn(3, 4, |i, j| (1.0 + i as f64) / (2.0 + j as f64)), Mat::from_fn(3, 2, |i, _| i as f64));
    write_arrays(path, &[("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref()), ("D", d.as_ref())]);
}

/// Three masses on springs and dampers that float: two integrators and two pairs, in continuous time.
pub fn write_chain(path: &Path, time: Option<f64>) {
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

/// A first-order low pass in `n` inputs with a direct term.
pub fn low_pass(path: &Path, n: usize, pole: f64) {
    let of = |x: f64| &Mat::<f64>::identity(n, n) * faer::Scale(x);
    let (a, b, c, d) = (of(pole), of(1.0), of(1.0 - pole), of(0.01));
    write_arrays(path, &[("A", a.as_ref()), ("B", b.as_ref()), ("C", c.as_ref()), ("D", d.as_ref())]);
}
