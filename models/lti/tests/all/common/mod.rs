//! Reading the golden cases: a safetensors file with a JSON file of roles and tolerances beside it.

#![allow(dead_code, reason = "each test file uses its part")]

use faer::Mat;
use hankel_lti::norms::{ErrorNorm, Proof};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// One golden case in memory.
pub struct Golden {
    name: String,
    bytes: Vec<u8>,
    pub json: Value,
}

/// Folder of the golden files.
pub fn folder(group: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(group)
}

impl Golden {
    pub fn load(group: &str, name: &str) -> Self {
        let file = |extension| folder(group).join(name).with_extension(extension);
        let json = std::fs::read_to_string(file("json")).expect("golden JSON");
        Self {
            name: name.into(),
            bytes: std::fs::read(file("safetensors")).expect("golden safetensors"),
            json: serde_json::from_str(&json).expect("valid JSON"),
        }
    }

    /// Values of a tensor in row-major order.
    pub fn values(&self, key: &str) -> Vec<f64> {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        let view = file.tensor(key).unwrap_or_else(|_| panic!("{}: no tensor {key}", self.name));
        match view.dtype() {
            Dtype::F64 => view.data().chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect(),
            Dtype::F32 => {
                view.data().chunks_exact(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect()
            }
            other => panic!("{}: {key} has dtype {other:?}", self.name),
        }
    }

    pub fn shape(&self, key: &str) -> Vec<usize> {
        SafeTensors::deserialize(&self.bytes).unwrap().tensor(key).unwrap().shape().to_vec()
    }

    pub fn matrix(&self, key: &str) -> Mat<f64> {
        let shape = self.shape(key);
        let (rows, cols) = (shape[0], shape[1..].iter().product::<usize>());
        let values = self.values(key);
        Mat::from_fn(rows, cols, |i, j| values[i * cols + j])
    }

    /// Compares with the reference under the metric and the f64 tolerance of the file.
    #[track_caller]
    pub fn check(&self, key: &str, got: &[f64]) {
        let meta = &self.json["tensors"][key];
        let want = self.values(key);
        assert_eq!(got.len(), want.len(), "{}: size of {key}", self.name);
        let error = got.iter().zip(&want).map(|(g, w)| (g - w).abs()).max_by(f64::total_cmp).unwrap_or(0.0);
        let largest = want.iter().fold(0.0, |m: f64, w| m.max(w.abs()));
        let scale = match meta["metric"].as_str().unwrap() {
            "abs_over_scale" => meta["scale"].as_f64().unwrap(),
            _ if largest == 0.0 => 1.0,
            _ => largest,
        };
        let tolerance = meta["tol_f64"].as_f64().unwrap();
        let relative = error / scale;
        assert!(relative <= tolerance, "{}: {key} is off by {relative:.2e}, allowed {tolerance:.0e}", self.name);
    }
}

/// Entries of a matrix in row-major order.
pub fn row_major(m: &Mat<f64>) -> Vec<f64> {
    (0..m.nrows()).flat_map(|i| (0..m.ncols()).map(move |j| m[(i, j)])).collect()
}

/// Compares an error with the largest gain found in 60 digits, in a system of norm `size`: no upper end that is proved may be below it, or
/// far above. What is missing where nothing is proved.
pub fn check_proof(name: &str, error: &ErrorNorm, gain: f64, size: f64) -> Option<String> {
    match error.proof {
        Proof::Identity => assert_eq!((error.upper, gain), (0.0, 0.0), "{name}"),
        Proof::BoundedReal => {
            assert!(gain <= error.upper, "{name}: {gain:e} above {:e}", error.upper);
            let far = error.upper > gain * (1.0 + 2e-5) + 3e-9 * size;
            assert!(!far, "{name}: {gain:e} far below {:e}", error.upper);
        }
        Proof::None(missing) => return Some(format!("{name}: {missing}")),
    }
    None
}
