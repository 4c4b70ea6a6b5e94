//! How far the evaluations of an adapter's recurrence are from the recurrence itself (R3).

use crate::adapters::stream::Recurrence;
use hankel_core::{DType, Device, Random, Result, Tensor, no_grad};
use hankel_ops::{Poles, ScanPath, add, linear, scale, scan};
use serde::{Deserialize, Serialize};

/// Errors of the outputs `C s_t`, before the gate, against the recurrence in f64.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Exactness {
    /// Number of random sequences.
    pub sequences: usize,
    /// Their length T.
    pub length: usize,
    /// Step by step.
    pub sequential: Deviation,
    /// In chunks.
    pub chunked: Deviation,
    /// As a convolution by FFT.
    pub fft: Deviation,
}

/// The largest error over all sequences, steps and channels.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Deviation {
    /// `max |y - y64|`; it follows the scale of the output.
    #[serde(deserialize_with = "or_nan")]
    pub absolute: f64,
    /// `max |y - y64| / max |y64|`, each sequence by itself.
    #[serde(deserialize_with = "or_nan")]
    pub relative: f64,
}

/// JSON has null for what is not finite.
fn or_nan<'de, D: serde::Deserializer<'de>>(value: D) -> std::result::Result<f64, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or(f64::NAN))
}

impl Recurrence {
    /// Runs `sequences` sequences of `length` standard normal inputs `x` `[T, D]` through the recurrence by every evaluation,
    /// where the parameters are and in their element type. The f64 recurrence starts from the same poles and the same
    /// `u = B x`, so that nothing is compared but the evaluation.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn exactness(&self, sequences: usize, length: usize, seed: u64) -> Result<Exactness> {
        let double = |x: &Tensor| x.to_device(Device::Cpu)?.to_dtype(DType::F64);
        let mut found = [Deviation::default(); 3];
        no_grad(|| -> Result<()> {
            let Recurrence { poles, b, c, .. } = self;
            let exact = match poles {
                Poles::Diagonal(a) => Poles::Diagonal(double(a)?),
                Poles::Modal { radius, angle, sign } => {
                    Poles::modal(&double(radius)?, &double(angle)?, &double(sign)?)?
                }
                Poles::Dense(a) => Poles::Dense(double(a)?),
            };
            let (c, width) = (double(c)?, b.shape().last());
            for sequence in 0..sequences as u64 {
                let x = Random::new(seed, "exactness", sequence).normal_vec::<f32>(length * width, 1.0);
                let x = Tensor::from_vec(x, [1, length, width])?.to_dtype(b.dtype())?.to_device(b.device())?;
                let u = linear(&x, b, None)?;
                let expected = scan(&double(&u)?, &exact, None, ScanPath::Sequential)?;
                let largest = largest(&linear(&expected, &c, None)?);
                for (path, deviation) in
                    [ScanPath::Sequential, ScanPath::Chunked, ScanPath::Fft].into_iter().zip(&mut found)
                {
                    let states = double(&scan(&u, poles, None, path)?)?;
                    let error = self::largest(&linear(&add(&states, &scale(&expected, -1.0)?)?, &c, None)?);
                    deviation.absolute = larger(deviation.absolute, error);
                    // An adapter that puts out nothing puts it out exactly.
                    let relative = if error == 0.0 { 0.0 } else { error / largest };
                    deviation.relative = larger(deviation.relative, relative);
                }
            }
            Ok(())
        })?;
        let [sequential, chunked, fft] = found;
        Ok(Exactness { sequences, length, sequential, chunked, fft })
    }
}

/// The largest modulus of an element; NaN if an element is NaN.
fn largest(x: &Tensor) -> f64 {
    x.to_f64_vec().into_iter().fold(0.0, |most, x| larger(most, x.abs()))
}

/// The larger one; NaN if one is NaN.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::{AdapterConfig, AdapterSet, Hrm, HrmConfig, HrmPreset, Placement, StreamSite};

    #[test]
    fn single_precision_errs_by_rounding_and_double_by_less() {
        let placement = Placement { layers: 1, d_model: 5, linear: Vec::new(), stream: vec![StreamSite::Mlp] };
        let config = AdapterConfig::stream::<Hrm>(&HrmConfig::new(HrmPreset::Paper, 6, 5, 100));
        let set = AdapterSet::new(&config, &placement, 1).unwrap();
        let stream = set.layer(0).stream(StreamSite::Mlp).unwrap();
        let measure = || stream.adapter().recurrence().unwrap().unwrap().exactness(4, 100, 2).unwrap();
        let all = |e: Exactness| [e.sequential, e.chunked, e.fft];
        for Deviation { absolute, relative } in all(measure()) {
            assert!(relative > 1e-9 && relative < 1e-5, "{relative}");
            assert!(absolute > 0.0 && absolute < relative, "outputs are below 1: {absolute}");
        }
        set.to_dtype(DType::F64).unwrap();
        assert!(all(measure()).iter().all(|deviation| deviation.relative < 1e-12));
    }
}
