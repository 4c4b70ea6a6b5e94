//! The sum of the Hankel singular values as a term of the loss: adapters trained with it truncate to fewer states.

use super::{Dynamics, Hrm};
use crate::adapters::{AdapterSet, StreamAdapter};
use crate::lti::gradient::hankel_sum;
use crate::lti::{LinearSystem, LtiError, MIN_RATE, StateMatrix};
use crate::parameter::Parameter;
use faer::{Mat, MatRef};
use hankel_core::{Error, Result, Tensor};
use hankel_ops::{Poles, add};

impl AdapterSet {
    /// `sum over the layers of |gate| sum_i sigma_i`, a scalar with gradients for everything it depends on; `None` without
    /// recurrent adapters of real trained poles (a truncated adapter has had its small values removed).
    ///
    /// # Errors
    /// Those of the operators; parameters that are not finite; complex pairs, for which the gradient is not known.
    pub fn hankel_sum(&self) -> Result<Option<Tensor>> {
        let mut sum: Option<Tensor> = None;
        for (_, stream) in self.streams() {
            let Some(term) = stream.hankel_sum()? else { continue };
            sum = Some(sum.map_or(Ok(term.clone()), |sum| add(&sum, &term))?);
        }
        Ok(sum)
    }
}

impl Hrm {
    /// `|gate| sum_i sigma_i` (R6) from the closed form of the Gramians, in f64 whatever the parameters' type; see
    /// [`hankel_sum`] for the gradient.
    pub(super) fn sum_of_singular_values(&self, gate: &Parameter) -> Result<Option<Tensor>> {
        let coefficients = self.dynamics.coefficients(&self.b.tensor())?;
        let d = self.state_dim();
        // Poles are what is tracked times a sign.
        let (a, signs) = match (&self.dynamics, &coefficients.poles) {
            (Dynamics::Diagonal { .. }, Poles::Diagonal(a)) => (a, vec![1.0; d]),
            (Dynamics::Signed { sign, .. }, Poles::Modal { radius, .. }) => (radius, sign.to_f64_vec()),
            (Dynamics::Complex { .. }, _) => {
                let problem =
                    "the gradient of the Hankel singular values needs real poles: mode = \"complex\" has none";
                return Err(Error::invalid("hankel_sum", problem));
            }
            _ => return Ok(None),
        };
        let (b, c, gate) = (&coefficients.b, &self.c.tensor(), &gate.tensor());
        let width = b.shape()[1];
        // A pole that is 1 in single precision is as slow as the Gramians take it to be; NaN stays NaN.
        let slowest = (-MIN_RATE).exp();
        let clamped = |a: f64| if a > slowest { slowest } else { a };
        let poles = a.to_f64_vec().iter().zip(&signs).map(|(&a, sign)| sign * clamped(a)).collect();
        let (b_values, c_values) = (b.to_f64_vec(), c.to_f64_vec());
        let system = LinearSystem::new(
            StateMatrix::Diagonal(poles),
            MatRef::from_row_major_slice(&b_values, d, width).to_owned(),
            MatRef::from_row_major_slice(&c_values, width, d).to_owned(),
            None,
        );
        let failed = |error: LtiError| Error::invalid("hankel_sum", error.to_string());
        let sum = hankel_sum(&system.map_err(failed)?).map_err(failed)?;
        let g = gate.to_f64_vec()[0];
        let (dtype, device) = (b.dtype(), b.device());
        // What was read from a device that has failed is worth nothing.
        device.check()?;
        let value = Tensor::scalar(g.abs() * sum.value).to_dtype(dtype)?.to_device(device)?;
        let value = value.from_operator("hankel_sum", &[a, b, c, gate].map(Some), move |upstream, _| {
            let scale = upstream.to_f64_vec()[0];
            let to_tensor = |values: Vec<f64>, shape: &[usize], factor: f64| {
                let values: Vec<f64> = values.into_iter().map(|x| x * factor * scale).collect();
                Tensor::from_vec(values, shape)?.to_dtype(dtype)?.to_device(device).map(Some)
            };
            let of_gate = if g == 0.0 { 0.0 } else { g.signum() * sum.value };
            Ok(vec![
                to_tensor(sum.a.iter().zip(&signs).map(|(d, sign)| d * sign).collect(), &[d], g.abs())?,
                to_tensor(row_major(&sum.b), &[d, width], g.abs())?,
                to_tensor(row_major(&sum.c), &[width, d], g.abs())?,
                to_tensor(vec![of_gate], &[1], 1.0)?,
            ])
        })?;
        Ok(Some(value))
    }
}

fn row_major(m: &Mat<f64>) -> Vec<f64> {
    (0..m.nrows()).flat_map(|i| (0..m.ncols()).map(move |j| m[(i, j)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::{AdapterConfig, Discretization, HrmConfig, HrmMode, HrmPreset, Placement, StreamSite};
    use crate::reduce::{LayerAnalysis, analyse};
    use hankel_core::DType;

    fn set(discretization: Discretization, mode: HrmMode) -> AdapterSet {
        let stream = vec![StreamSite::Mlp];
        let placement = Placement { layers: 2, d_model: 3, linear: Vec::new(), stream };
        let mut config = HrmConfig::new(HrmPreset::Paper, 4, 3, 16);
        (config.discretization, config.mode) = (discretization, mode);
        let config = AdapterConfig::stream::<Hrm>(&config).with("gate_init", -0.3);
        let set = AdapterSet::new(&config, &placement, 7).unwrap();
        set.to_dtype(DType::F64).unwrap();
        set
    }

    #[test]
    fn the_sum_is_that_of_the_analysis() {
        for (discretization, mode) in
            [(Discretization::Zoh, HrmMode::Positive), (Discretization::Free, HrmMode::Signed)]
        {
            let set = set(discretization, mode);
            let sum = set.hankel_sum().unwrap().unwrap().item().unwrap();
            let analyses = analyse(&set.to_hrm_file(None).unwrap()).unwrap();
            let expected: f64 = analyses.iter().flat_map(LayerAnalysis::hankel_singular_values).sum();
            assert!((sum - expected).abs() < 1e-12 * expected, "{sum} {expected}");
        }
        let refused = set(Discretization::Free, HrmMode::Complex).hankel_sum().unwrap_err().to_string();
        assert!(refused.contains("needs real poles"), "{refused}");
    }

    #[test]
    fn a_pole_that_is_no_number_is_not_taken_for_a_slow_one() {
        for (value, refused) in [(f64::NAN, true), (-60.0, false)] {
            let set = set(Discretization::Free, HrmMode::Positive);
            let log_a = set.parameters().into_iter().find(|parameter| parameter.name().ends_with("log_a")).unwrap();
            log_a.update(|t| t.data_mut::<f64>().unwrap()[1] = value);
            match set.hankel_sum() {
                Ok(sum) => assert!(!refused && sum.unwrap().item().unwrap().is_finite()),
                Err(error) => assert!(refused && error.to_string().contains("A holds NaN"), "{error}"),
            }
        }
    }

    #[test]
    fn gradients_match_central_differences_down_to_what_is_learnt() {
        let positive = [Discretization::Free, Discretization::Zoh, Discretization::ZohClamped];
        let all = positive.map(|discretization| (discretization, HrmMode::Positive));
        for (discretization, mode) in all.into_iter().chain([(Discretization::Free, HrmMode::Signed)]) {
            let set = set(discretization, mode);
            let value = || set.hankel_sum().unwrap().unwrap();
            let gradients = value().backward().unwrap();
            for parameter in set.parameters() {
                let gradient = gradients.get(&parameter.tensor()).unwrap().to_f64_vec();
                for i in [0, parameter.elements() - 1] {
                    let moved = |h: f64| {
                        let change = |h: f64| parameter.update(|t| t.data_mut::<f64>().unwrap()[i] += h);
                        change(h);
                        let value = value().item().unwrap();
                        change(-h);
                        value
                    };
                    let h = 1e-4;
                    let slope = (8.0 * (moved(h) - moved(-h)) - (moved(2.0 * h) - moved(-2.0 * h))) / (12.0 * h);
                    let size = gradient.iter().fold(1e-3, |m: f64, x| m.max(x.abs()));
                    assert!((slope - gradient[i]).abs() < 1e-6 * size, "{} {slope} {}", parameter.name(), gradient[i]);
                }
            }
        }
    }
}
