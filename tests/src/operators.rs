//! Cases of operators against their oracles.

use hankel_core::{DType, Random, Result, Tensor};
use hankel_ops::testing::{Case, Input, Values};

/// The tensors of a case, tracked where the case wants gradients checked.
///
/// # Errors
/// When a tensor cannot be made.
pub fn inputs(case: &Case, dtype: DType, tracked: bool) -> Result<Vec<Tensor>> {
    let draw = |(i, input): (usize, &Input)| {
        let array = input.draw(&Random::new(1, &case.name, i as u64));
        if let Values::Tokens(_) = input.values {
            return Tensor::from_vec(array.data.iter().map(|&x| x as u32).collect(), array.shape);
        }
        let tensor = Tensor::from_vec(array.data, array.shape)?.to_dtype(dtype)?;
        if tracked && input.tracked { tensor.parameter() } else { Ok(tensor) }
    };
    case.inputs.iter().enumerate().map(draw).collect()
}

/// Compares a case with its oracle.
///
/// # Panics
/// When an element differs by more than `tolerance` times the largest.
pub fn against_oracle(operator: &str, case: &Case, dtype: DType, tolerance: f64) {
    let name = format!("{operator} {} {dtype}", case.name);
    let arrays: Vec<_> =
        case.inputs.iter().enumerate().map(|(i, input)| input.draw(&Random::new(1, &case.name, i as u64))).collect();
    let expected = (case.oracle)(&arrays);
    let output = inputs(case, dtype, false).and_then(|x| (case.run)(&x)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(!output.is_tracked(), "{name}: tracked without a tracked input");
    assert_eq!(output.dtype(), dtype, "{name}");
    let got = output.to_f64_vec();
    assert_eq!(got.len(), expected.len(), "{name}: number of elements");
    let scale = expected.iter().fold(1e-3, |m: f64, x| m.max(x.abs()));
    for (i, (g, e)) in got.iter().zip(&expected).enumerate() {
        assert!((g - e).abs() <= tolerance * scale, "{name}: element {i} is {g}, expected {e}, scale {scale}");
    }
}
