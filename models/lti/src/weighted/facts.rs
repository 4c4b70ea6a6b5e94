//! What is measured and claimed about the error where it counts: under weights, or in a band.

use super::{Band, Weights};
use crate::certificate::{bound_holds, is_within_rounding};
use crate::continuous::{Bilinear, DirectTerm};
use crate::norms::{FrequencyResponse, h2_norm, h2_norm_in, hinf_norm, hinf_norm_in, hinf_sweep, without_shared};
use crate::{LinearSystem, LtiError, Result};
use serde::{Deserialize, Serialize};

/// What an error is weighted by.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one per layer")]
pub enum Emphasis {
    /// Weights of input and output.
    Weights(Weights),
    /// A band of frequencies.
    Band(Band),
}

/// The weighted error of a reduced system, of the gated systems as in [`SystemCertificate`](crate::SystemCertificate).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WeightedFacts {
    /// The band, for frequency-limited Gramians.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub band: Option<Band>,
    /// Values of the weighted Gramians, descending; empty where the reduction was not based on them.
    pub singular_values: Vec<f64>,
    /// Guaranteed bound of `hinf_error`; absent where theory gives none.
    pub error_bound: Option<f64>,
    /// Measured `||W (G - G_r) V||`, or the largest error in the band; by the two methods of the unweighted error.
    pub hinf_error: f64,
    /// Frequency in radians per step at which it is attained.
    pub hinf_error_frequency: f64,
    /// Upper end of its enclosure by the bounded-real test.
    pub hinf_error_upper: f64,
    /// `||W G V||`, or the largest gain in the band.
    pub hinf_norm: f64,
    /// H2 norm of `W (G - G_r) V`: the root of the mean squared error per step under the weighted input. Not for a band. In continuous time
    /// that of continuous time, absent where it is infinite.
    pub h2_error: Option<f64>,
    /// H2 norm of `W G V`.
    pub h2_norm: Option<f64>,
    /// Whether `hinf_error` is within `error_bound`, as for the unweighted error; absent where there is none.
    pub holds: Option<bool>,
}

/// By what share of itself the gain of a cascade of images may be off: rounding moves the slowest pole of each towards the circle or away from
/// it. Weights are mapped with the rate of what they weigh, which may be far from their own.
fn rounding_of_map<'a>(map: Option<Bilinear>, systems: impl Iterator<Item = &'a LinearSystem>) -> Result<f64> {
    if map.is_none() {
        return Ok(0.0);
    }
    let of_one = |system: &LinearSystem| -> Result<f64> {
        let distance = (1.0 - system.spectral_radius()).max(f64::EPSILON);
        Ok(4.0 * system.states() as f64 * f64::EPSILON / distance)
    };
    systems.map(of_one).sum()
}

impl WeightedFacts {
    /// Whether the bound holds only because rounding is allowed for, as of the unweighted error.
    pub fn is_within_rounding(&self) -> bool {
        is_within_rounding(self.holds, self.hinf_error, self.error_bound)
    }

    /// Measures the error of `reduced` for `full`, both without the gate. `values` are the singular values and `bound` the
    /// claimed bound, without the gate as well. `map` is the bilinear map that made both of systems in continuous time.
    ///
    /// # Errors
    /// Weights that do not fit; failures of the linear algebra; norms that are not finite.
    pub fn measure(
        (full, reduced): (&LinearSystem, &LinearSystem),
        gate: f64,
        emphasis: &Emphasis,
        (values, bound): (&[f64], Option<f64>),
        map: Option<Bilinear>,
    ) -> Result<Self> {
        let gate = gate.abs();
        let (own, others) = without_shared(full, reduced)?;
        let difference = own.difference(&others)?;
        let (norm, error, upper, h2) = match emphasis {
            Emphasis::Weights(weights) => {
                let sides = weights.input.iter().chain(&weights.output);
                let map_moves = rounding_of_map(map, sides.chain([full, reduced]))?;
                let (full, difference) = (weights.around(full)?, weights.around(&difference)?);
                let norm = hinf_sweep(&FrequencyResponse::new(&full))?;
                let (error, check) = hinf_norm(&FrequencyResponse::new(&difference))?;
                let h2 =
                    |system: &LinearSystem| h2_norm_in(map, system, DirectTerm::Computed { gain: norm.value }, h2_norm);
                (norm, error, check.upper * (1.0 + map_moves), [h2(&difference)?, h2(&full)?].map(Some))
            }
            Emphasis::Band(band) => {
                let norm = hinf_norm_in(&FrequencyResponse::new(full), band.ends())?.0;
                let (error, check) = hinf_norm_in(&FrequencyResponse::new(&difference), band.ends())?;
                (norm, error, check.upper, [None; 2])
            }
        };
        // In continuous time an infinite H2 norm means a direct term and is left out; in discrete time it is an overflow, refused below.
        let [h2_error, h2_norm] = h2.map(|h2| h2.filter(|h2| map.is_none() || *h2 != f64::INFINITY));
        let facts = Self {
            band: if let Emphasis::Band(band) = emphasis { Some(*band) } else { None },
            singular_values: values.iter().map(|s| gate * s).collect(),
            error_bound: bound.map(|bound| gate * bound),
            hinf_error: gate * error.value,
            hinf_error_frequency: error.frequency,
            hinf_error_upper: gate * upper,
            hinf_norm: gate * norm.value,
            h2_error: h2_error.map(|h2| gate * h2),
            h2_norm: h2_norm.map(|h2| gate * h2),
            holds: bound.map(|bound| bound_holds(gate * error.value, gate * bound, gate * norm.value)),
        };
        facts.check_finite()?;
        Ok(facts)
    }

    fn check_finite(&self) -> Result<()> {
        let named = [
            ("hinf_error", self.hinf_error_upper),
            ("hinf_norm", self.hinf_norm),
            ("h2_error", self.h2_error.unwrap_or(0.0)),
            ("h2_norm", self.h2_norm.unwrap_or(0.0)),
            ("error_bound", self.error_bound.unwrap_or(0.0)),
            ("singular_values", self.singular_values.iter().sum()),
        ];
        match named.into_iter().find(|(_, value)| !value.is_finite()) {
            Some((name, value)) => Err(LtiError::Unsupported(format!(
                "the weighted {name} is {value} in double precision; scale the weight"
            ))),
            None => Ok(()),
        }
    }

    /// Claims that a fresh measurement contradicts, in words; where the error is largest is not compared, since there may be several such
    /// frequencies.
    pub fn contradictions(&self, measured: &Self) -> Vec<String> {
        let mut found = Vec::new();
        let mut number = |what: &str, claimed: f64, got: f64, slack: f64| {
            let difference = (claimed - got).abs();
            if difference.is_nan() || difference > slack {
                found.push(format!("weighted {what} is claimed to be {claimed:e}, measured {got:e}"));
            }
        };
        let close = |got: f64, norm: f64| 1e-6 * got.abs() + 1e-9 * norm;
        for (what, claimed, got) in [
            ("hinf_error", self.hinf_error, measured.hinf_error),
            ("hinf_error_upper", self.hinf_error_upper, measured.hinf_error_upper),
            ("hinf_norm", self.hinf_norm, measured.hinf_norm),
        ] {
            number(what, claimed, got, close(got, measured.hinf_norm));
        }
        // Of a band there is none, and an infinite one is not written.
        if let Some(claimed) = self.h2_error {
            let got = measured.h2_error.unwrap_or(f64::NAN);
            number("h2_error", claimed, got, close(got, measured.h2_norm.unwrap_or(0.0)));
        }
        if let Some(claimed) = self.h2_norm {
            let got = measured.h2_norm.unwrap_or(f64::NAN);
            number("h2_norm", claimed, got, close(got, 0.0));
        }
        let largest = measured.singular_values.first().copied().unwrap_or(0.0);
        if self.singular_values.len() == measured.singular_values.len() {
            for (i, (a, b)) in self.singular_values.iter().zip(&measured.singular_values).enumerate() {
                number(&format!("singular_values[{i}]"), *a, *b, 1e-6 * largest);
            }
        } else {
            let lengths = [self, measured].map(|facts| facts.singular_values.len() as f64);
            number("number of singular values", lengths[0], lengths[1], 0.0);
        }
        if let Some(claimed) = self.error_bound {
            let got = measured.error_bound.unwrap_or(f64::NAN);
            number("error_bound", claimed, got, 1e-6 * got.abs() + 1e-6 * largest);
            if self.holds == Some(true) && !bound_holds(measured.hinf_error, claimed, measured.hinf_norm) {
                found.push(format!(
                    "the weighted bound {claimed:e} is claimed to hold, the error is {:e}",
                    measured.hinf_error
                ));
            }
        }
        if self.band != measured.band {
            found.push(format!("the band is claimed to be {:?}, it is {:?}", self.band, measured.band));
        }
        if self.holds == Some(true) && measured.holds != Some(true) {
            found.push("the weighted bound is claimed to hold".into());
        }
        found
    }
}
