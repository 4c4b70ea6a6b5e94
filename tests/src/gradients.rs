//! Gradient checks by central differences.

use hankel_core::{Error, Random, Result, Tensor};

/// Checks the gradient of `f` with respect to every tracked input, in f64, and returns the largest relative error.
///
/// The output is contracted with a random tensor of its shape. For each input the analytic gradient `g` is compared with
/// central differences at up to `samples` elements; the error is `max |g - difference| / max |difference|` over them, with
/// a floor of `1e-3` times the largest gradient of any input (absolute where all are zero).
///
/// # Errors
/// Those of `f` and of the backward pass.
pub fn relative_error(inputs: &[Tensor], samples: usize, f: impl Fn(&[Tensor]) -> Result<Tensor>) -> Result<f64> {
    let output = f(inputs)?;
    let seed = Random::new(11, "seed", 0).normal_vec::<f64>(output.elements(), 1.0);
    let value = |inputs: &[Tensor]| -> Result<f64> {
        Ok(f(inputs)?.data::<f64>()?.iter().zip(&seed).map(|(x, s)| x * s).sum())
    };
    if !output.is_tracked() {
        if inputs.iter().any(Tensor::is_tracked) {
            return Err(Error::invalid("relative_error", "inputs need a gradient, and the output has none"));
        }
        return Ok(0.0);
    }
    let mut gradients = output.backward_with(Tensor::from_vec(seed.clone(), output.shape())?)?;
    drop(output);
    let mut pairs: Vec<Vec<(f64, f64)>> = Vec::new();
    for (which, input) in inputs.iter().enumerate().filter(|(_, input)| input.is_tracked()) {
        let analytic = match gradients.take(input) {
            Some(gradient) => {
                assert_eq!(gradient.shape(), input.shape(), "the gradient of input {which} has another shape");
                gradient.to_f64_vec()
            }
            None => vec![0.0; input.elements()],
        };
        let values = input.to_f64_vec();
        let n = values.len();
        let at = |index: usize, step: f64| -> Result<f64> {
            let mut moved = values.clone();
            moved[index] += step;
            let mut inputs: Vec<Tensor> = inputs.iter().map(Tensor::detach).collect();
            inputs[which] = Tensor::from_vec(moved, input.shape())?;
            value(&inputs)
        };
        let picks: Vec<usize> = if n <= samples {
            (0..n).collect()
        } else {
            let mut order = Random::new(5, "picks", which as u64).permutation(n);
            order.truncate(samples);
            order
        };
        let mut compared = Vec::new();
        for index in picks {
            // Fourth-order central difference: its error is O(h^4), so h can be large enough to keep rounding small.
            let h = 1e-4 * values[index].abs().max(0.1);
            let difference =
                (8.0 * (at(index, h)? - at(index, -h)?) - (at(index, 2.0 * h)? - at(index, -2.0 * h)?)) / (12.0 * h);
            compared.push((analytic[index], difference));
        }
        pairs.push(compared);
    }
    // NaN stays NaN: `f64::max` would drop it.
    let larger = |a: f64, b: f64| if b.is_nan() || b > a { b } else { a };
    let largest = |pairs: &[(f64, f64)]| pairs.iter().map(|p| p.1.abs()).fold(0.0, larger);
    let overall = pairs.iter().map(|p| largest(p)).fold(0.0, larger);
    let error = |pairs: &Vec<(f64, f64)>| {
        let scale = largest(pairs).max(1e-3 * overall);
        let worst = pairs.iter().map(|(g, d)| (g - d).abs()).fold(0.0, larger);
        if scale > 0.0 { worst / scale } else { worst }
    };
    Ok(pairs.iter().map(error).fold(0.0, larger))
}
