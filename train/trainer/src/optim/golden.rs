//! Reference values of optimizers, computed with PyTorch (`tests/golden/optim`).

use hankel_core::{Float, Tensor};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

pub(crate) struct Golden {
    facts: Value,
    data: Vec<u8>,
}

impl Golden {
    pub(crate) fn open(name: &str) -> Self {
        let path =
            |extension: &str| format!("{}/../../tests/golden/optim/{name}.{extension}", env!("CARGO_MANIFEST_DIR"));
        let facts = serde_json::from_str(&std::fs::read_to_string(path("json")).unwrap()).unwrap();
        Golden { facts, data: std::fs::read(path("safetensors")).unwrap() }
    }

    pub(crate) fn facts(&self) -> &Value {
        &self.facts
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.facts["tensors"].get(name).is_some()
    }

    fn shape(&self, name: &str) -> Vec<usize> {
        SafeTensors::deserialize(&self.data).unwrap().tensor(name).unwrap().shape().to_vec()
    }

    pub(crate) fn values(&self, name: &str) -> Vec<f64> {
        let file = SafeTensors::deserialize(&self.data).unwrap();
        let view = file.tensor(name).unwrap();
        match view.dtype() {
            Dtype::F32 => view.data().as_chunks().0.iter().map(|&bytes| f64::from(f32::from_le_bytes(bytes))).collect(),
            Dtype::F64 => view.data().as_chunks().0.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect(),
            other => panic!("{name} is {other:?}"),
        }
    }

    pub(crate) fn integers(&self, name: &str) -> Vec<u32> {
        let file = SafeTensors::deserialize(&self.data).unwrap();
        let view = file.tensor(name).unwrap();
        assert_eq!(view.dtype(), Dtype::I64);
        view.data().as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes).try_into().unwrap()).collect()
    }

    pub(crate) fn tensor<T: Float>(&self, name: &str) -> Tensor {
        let values = self.values(name).into_iter().map(T::of).collect();
        Tensor::from_vec(values, self.shape(name)).unwrap()
    }
}

/// Asserts that `found` agrees with the tensor `name` by its own metric and limit.
pub(crate) fn close<T: Float>(golden: &Golden, name: &str, found: &Tensor) {
    let about = &golden.facts()["tensors"][name];
    let reference = golden.values(name);
    let limit = about[if size_of::<T>() == 4 { "tol_f32" } else { "tol_f64" }].as_f64().unwrap();
    let largest = |values: &[f64]| values.iter().map(|x| x.abs()).max_by(f64::total_cmp).unwrap_or(0.0);
    let found = found.to_f64_vec();
    assert_eq!(found.len(), reference.len(), "{name}");
    let error = largest(&found.iter().zip(&reference).map(|(a, b)| a - b).collect::<Vec<_>>());
    let allowed = match about["metric"].as_str().unwrap() {
        "rel_max" if largest(&reference) == 0.0 => limit,
        "rel_max" => limit * largest(&reference),
        "rel_delta" => {
            let start = golden.values(about["init"].as_str().unwrap());
            let moved: Vec<f64> = reference.iter().zip(&start).map(|(a, b)| a - b).collect();
            limit * largest(&moved) + 2.4e-7 * largest(&reference)
        }
        other => panic!("unknown metric {other}"),
    };
    assert!(error <= allowed, "{name}: error {error:e} above {allowed:e}");
}
