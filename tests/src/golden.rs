//! Reference values computed with independent software, `tests/golden/`: pairs `NAME.safetensors` and `NAME.json`. The JSON
//! gives each tensor's role, metric and tolerances.

use crate::largest_difference;
use hankel_core::{DType, Tensor};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// One case.
pub struct Golden {
    name: String,
    facts: Value,
    arrays: BTreeMap<String, (Vec<usize>, Vec<f64>)>,
}

impl Golden {
    /// Reads `tests/golden/NAME.{json,safetensors}`.
    ///
    /// # Panics
    /// When the files are not there or not readable.
    pub fn read(name: &str) -> Self {
        let base = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/golden")).join(name);
        let read = |extension: &str| {
            let path = base.with_extension(extension);
            std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        let facts = serde_json::from_slice(&read("json")).expect("the facts of a golden case");
        let bytes = read("safetensors");
        let file = SafeTensors::deserialize(&bytes).expect("the tensors of a golden case");
        let array = |(name, view): (String, safetensors::tensor::TensorView)| {
            let data = match view.dtype() {
                Dtype::F32 => view.data().as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect(),
                Dtype::F64 => view.data().as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect(),
                Dtype::BF16 => {
                    view.data().as_chunks().0.iter().map(|b| half::bf16::from_le_bytes(*b).to_f64()).collect()
                }
                Dtype::U8 => view.data().iter().map(|&b| f64::from(b)).collect(),
                Dtype::I32 => view.data().as_chunks().0.iter().map(|b| f64::from(i32::from_le_bytes(*b))).collect(),
                Dtype::I64 => view.data().as_chunks().0.iter().map(|b| i64::from_le_bytes(*b) as f64).collect(),
                other => panic!("{name} has element type {other:?}"),
            };
            (name, (view.shape().to_vec(), data))
        };
        Golden { name: name.to_owned(), facts, arrays: file.tensors().into_iter().map(array).collect() }
    }

    /// Whether there is a tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.arrays.contains_key(name)
    }

    /// A fact beside the tensors.
    pub fn fact(&self, key: &str) -> &Value {
        &self.facts[key]
    }

    /// Names of the tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.arrays.keys().map(String::as_str)
    }

    /// The elements of a tensor in row-major order.
    ///
    /// # Panics
    /// When there is none of this name.
    pub fn values(&self, name: &str) -> &[f64] {
        &self.arrays.get(name).unwrap_or_else(|| panic!("{} has no {name}", self.name)).1
    }

    /// A tensor of token ids.
    ///
    /// # Panics
    /// When there is none of this name.
    pub fn tokens(&self, name: &str) -> Tensor {
        let (shape, data) = self.arrays.get(name).unwrap_or_else(|| panic!("{} has no {name}", self.name));
        Tensor::from_vec(data.iter().map(|&id| id as u32).collect(), shape.clone()).expect("golden ids")
    }

    /// A given tensor.
    ///
    /// # Panics
    /// When there is none of this name.
    pub fn tensor(&self, name: &str, dtype: DType) -> Tensor {
        let (shape, data) = self.arrays.get(name).unwrap_or_else(|| panic!("{} has no {name}", self.name));
        Tensor::from_vec(data.clone(), shape.clone()).and_then(|t| t.to_dtype(dtype)).expect("a golden tensor")
    }

    /// Checks a computed tensor against the reference of this name, at the tolerance for `dtype`.
    ///
    /// # Panics
    /// When it is outside the tolerance, saying by how much.
    pub fn check(&self, name: &str, dtype: DType, got: &[f64]) {
        let (_, reference) = self.arrays.get(name).unwrap_or_else(|| panic!("{} has no {name}", self.name));
        let facts = &self.facts["tensors"][name];
        // A reference in single precision has no other tolerance.
        let tolerances = if dtype == DType::F64 { ["tol_f64", "tol_f32"] } else { ["tol_f32"; 2] };
        let tolerance = tolerances.iter().find_map(|tolerance| facts[tolerance].as_f64());
        let tolerance = tolerance.unwrap_or_else(|| panic!("{} {name}: no tolerance for {dtype}", self.name));
        assert_eq!(got.len(), reference.len(), "{} {name}: number of elements", self.name);
        if facts["metric"] == "exact" {
            let different = got.iter().zip(reference).filter(|(g, r)| g != r).count();
            assert_eq!(different, 0, "{} {name}: elements that differ", self.name);
            return;
        }
        let rel_delta = facts["metric"] == "rel_delta";
        assert!(rel_delta || facts["metric"] == "rel_max", "{} {name}: another metric", self.name);
        let scale = reference.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
        let worst = largest_difference(got, reference);
        if rel_delta {
            // What training changed is the scale, with room for rounding the value itself.
            let init = self.values(facts["init"].as_str().expect("the name of the initial value"));
            let moved = reference.iter().zip(init).fold(0.0_f64, |m, (r, i)| m.max((r - i).abs()));
            let limit = tolerance * moved + 2.4e-7 * scale;
            assert!(worst <= limit, "{} {name} {dtype}: error {worst:e}, limit {limit:e}", self.name);
            return;
        }
        let error = if scale > 0.0 { worst / scale } else { worst };
        assert!(error <= tolerance, "{} {name} {dtype}: error {error:e}, tolerance {tolerance:e}", self.name);
    }
}
