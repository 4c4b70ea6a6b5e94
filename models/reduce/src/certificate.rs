//! The certificate of a reduced adapter.

use super::options::OrderChoice;
use super::plant::PlantFacts;
use super::weighting::WeightFiles;
use hankel_files::{AdapterHashes, Sensitivities, WeightFile};
use hankel_lti::certificate::BEFORE_PROOFS;
use hankel_lti::{OrderRule, SystemCertificate};
use serde::de::Error;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A layer's certificate under its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerCertificate {
    /// `layer 3`.
    pub layer: String,
    /// The facts.
    #[serde(flatten)]
    pub facts: SystemCertificate,
}

/// Sums over the layers. They describe the adapter layer by layer; the network's output is a nonlinear function of them all,
/// for which a sum of bounds guarantees nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CertificateTotal {
    /// States before.
    pub states: usize,
    /// States after.
    pub order: usize,
    /// Sum of the layers' bounds; absent where a layer has none.
    pub error_bound: Option<f64>,
    /// Sum of the layers' measured errors.
    pub hinf_error: f64,
    /// Whether every layer's bound holds; absent where a layer has none.
    pub holds: Option<bool>,
}

/// What the errors can change in the loss of a task, to first order: no guarantee, since the loss is not linear in them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskFacts {
    /// The file of the sensitivities.
    #[serde(flatten)]
    pub file: WeightFile,
    /// The loss before.
    pub loss: f64,
    /// Loss per unit of error, layer by layer.
    pub sensitivities: Vec<f64>,
    /// `sum of sensitivity times hinf_error`.
    pub change_of_loss: f64,
    /// `sum of sensitivity times error_bound`; absent where a layer has none.
    pub change_of_loss_bound: Option<f64>,
}

impl TaskFacts {
    /// Of layers that the sensitivities are known of; of others they are 0.
    pub fn new((sensitivities, file): &(Sensitivities, WeightFile), layers: &[LayerCertificate]) -> Self {
        let of = |layer: &LayerCertificate| sensitivities.of(&layer.layer).unwrap_or(0.0);
        Self {
            file: file.clone(),
            loss: sensitivities.loss,
            sensitivities: layers.iter().map(of).collect(),
            change_of_loss: layers.iter().map(|layer| of(layer) * layer.facts.hinf_error).sum(),
            change_of_loss_bound: layers.iter().map(|layer| Some(of(layer) * layer.facts.error_bound?)).sum(),
        }
    }

    /// Whether the sums are those of the claimed sensitivities and the errors and bounds measured.
    pub fn follows_from(&self, measured: &[LayerCertificate]) -> bool {
        let pairs = || self.sensitivities.iter().zip(measured);
        let sum: f64 = pairs().map(|(c, layer)| c * layer.facts.hinf_error).sum();
        let size: f64 = pairs().map(|(c, layer)| c * layer.facts.hinf_norm).sum();
        let bound: Option<f64> = pairs().map(|(c, layer)| Some(c * layer.facts.error_bound?)).sum();
        let is = |claimed: f64, sum: f64| (claimed - sum).abs() <= 1e-6 * sum + 1e-9 * size;
        let bounds = match (self.change_of_loss_bound, bound) {
            (Some(claimed), Some(bound)) => is(claimed, bound),
            (claimed, bound) => claimed.is_none() && bound.is_none(),
        };
        self.sensitivities.len() == measured.len() && is(self.change_of_loss, sum) && bounds
    }
}

/// Contents of `certificate.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// Version of this format.
    pub format: u32,
    /// Version of the program that wrote it.
    pub version: String,
    /// How the orders were chosen.
    pub orders: OrderChoice,
    /// What the numbers mean, for a reader of the file.
    pub note: String,
    /// Hashes of the full adapter's files.
    pub full: Option<AdapterHashes>,
    /// Hashes of the reduced adapter's files.
    pub reduced: Option<AdapterHashes>,
    /// What there is to a system in a file beyond its stable part in discrete time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plant: Option<PlantFacts>,
    /// The weights of the weighted errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<WeightFiles>,
    /// What errors cost the task that states were shared out by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskFacts>,
    /// Sum over the layers.
    pub total: CertificateTotal,
    /// Layer by layer.
    pub layers: Vec<LayerCertificate>,
}

/// File name of the certificate in a reduced adapter's directory.
pub const CERTIFICATE_FILE: &str = "certificate.json";

impl Certificate {
    /// The version of the format that is written and read.
    pub const FORMAT: u32 = 3;

    /// Reads a certificate; one of format 1, which had no proofs, as one that claims none. Others keep their number, for the reader to
    /// refuse. H2 norms in continuous time were those of the mapped system before format 3.
    ///
    /// # Errors
    /// What is not JSON of a certificate; proofs where the format has none, and none where it has; continuous time before format 3.
    pub fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        let mut certificate: Self = serde_json::from_slice(bytes)?;
        let before = |layer: &LayerCertificate| !layer.facts.proved && layer.facts.proof == BEFORE_PROOFS;
        if certificate.format < 3 && certificate.plant.is_some_and(|plant| plant.continuous) {
            return Err(serde_json::Error::custom(format!(
                "its H2 norms are not those of continuous time, as before format 3 (it has format {}); reduce the system again",
                certificate.format
            )));
        }
        if certificate.format == 1 {
            if !certificate.layers.iter().all(before) {
                return Err(serde_json::Error::custom("certificates of format 1 have no proofs"));
            }
        } else if let Some(layer) = certificate.layers.iter().find(|layer| before(layer)) {
            return Err(serde_json::Error::custom(format!("the field `proof` of {} is missing", layer.layer)));
        } else {
            let value: Value = serde_json::from_slice(bytes)?;
            let missing = (0..certificate.layers.len()).find(|&i| value["layers"][i].get("proved").is_none());
            if let Some(i) = missing {
                let layer = &certificate.layers[i].layer;
                return Err(serde_json::Error::custom(format!("the field `proved` of {layer} is missing")));
            }
        }
        if certificate.format == 1 {
            certificate.format = Self::FORMAT;
        }
        Ok(certificate)
    }

    /// Says that an error may be larger than `bound` or `total_bound` allow, if orders were chosen by one: orders follow from theory, what
    /// rounding adds to it is measured afterwards. With a task `total_bound` is of what the errors cost it.
    pub fn excess(&self) -> Option<String> {
        let advice = "choose a larger bound, or the order by another rule";
        match self.orders {
            OrderChoice::PerLayer(OrderRule::Bound(tolerance)) => self.layers.iter().find_map(|LayerCertificate { layer, facts }| {
                let at_most = largest(facts);
                (at_most > tolerance * ALLOWED).then(|| {
                    format!(
                        "{layer}: of order {} theory bounds the error by at most {tolerance}; with rounding it may be {at_most:.3e}: {advice}",
                        facts.order
                    )
                })
            }),
            OrderChoice::TotalBound(tolerance) => {
                let errors = self.layers.iter().map(|layer| largest(&layer.facts));
                let (what, at_most): (_, f64) = match &self.task {
                    Some(task) => {
                        ("the change of the loss", errors.zip(&task.sensitivities).map(|(error, cost)| error * cost).sum())
                    }
                    None => ("the sum of the errors", errors.sum()),
                };
                (at_most > tolerance * ALLOWED).then(|| {
                    format!("theory bounds {what} by at most {tolerance}; with rounding it may be {at_most:.3e}: {advice}")
                })
            }
            _ => None,
        }
    }

    /// The certificate of one system in a file.
    pub fn of_system(orders: OrderChoice, system: LayerCertificate, plant: Option<PlantFacts>) -> Self {
        Self {
            plant,
            note: "Norms are H-infinity and H2 norms of the system; of one with poles outside the stability boundary, or \
                   next to it, those of the rest: their part is kept, and what rounding changes in it is in no number. In continuous time hinf_error_frequency is the angle \
                   2 atan(omega / rate) of the bilinear map; H2 norms are those of continuous time, null where a direct term makes \
                   them infinite."
                .into(),
            ..Self::new(orders, vec![system])
        }
    }

    /// Collects the layers' certificates.
    pub fn new(orders: OrderChoice, layers: Vec<LayerCertificate>) -> Self {
        Self {
            format: Self::FORMAT,
            version: env!("CARGO_PKG_VERSION").into(),
            orders,
            note: "Norms are H-infinity and H2 norms of the gated system of each layer; the total is a sum over the layers and \
                   no guarantee for the network's output."
                .into(),
            full: None,
            reduced: None,
            plant: None,
            weights: None,
            task: None,
            total: total(&layers),
            layers,
        }
    }
}

/// Upper ends are this much above the errors.
const ALLOWED: f64 = 1.0 + 1e-5;

/// What the error of a layer may be, by its bound, if one is claimed, and by what was measured, under weights where these have a bound.
fn largest(facts: &SystemCertificate) -> f64 {
    match facts.weighted.as_ref().and_then(|weighted| Some((weighted.error_bound?, weighted.hinf_error_upper))) {
        Some((bound, upper)) => bound.max(upper),
        None => facts.error_bound.unwrap_or(0.0).max(facts.hinf_error_upper),
    }
}

/// Sums the layers' certificates.
pub fn total(layers: &[LayerCertificate]) -> CertificateTotal {
    CertificateTotal {
        states: layers.iter().map(|l| l.facts.states).sum(),
        order: layers.iter().map(|l| l.facts.order).sum(),
        error_bound: layers.iter().map(|l| l.facts.error_bound).sum(),
        hinf_error: layers.iter().map(|l| l.facts.hinf_error).sum(),
        holds: layers.iter().map(|l| l.facts.holds).try_fold(true, |all, holds| holds.map(|h| h && all)),
    }
}

#[cfg(test)]
mod tests {
    use crate::{LayerAnalysis, OrderChoice, Purpose, ReduceOptions, reduce_systems};
    use faer::Mat;
    use hankel_lti::{LinearSystem, OrderRule, StateMatrix};

    /// Dense, with a pole so near the circle that rounding its entries moves the response by more than theory bounds the error by.
    #[test]
    fn what_rounding_adds_counts_where_orders_are_chosen_by_a_bound() {
        let poles = [1.0 - 1e-10, 0.8, 0.5, 0.3, -0.2];
        let v: Vec<f64> = (0..5).map(|i| (1.0 + f64::from(i)).sin()).collect();
        let square: f64 = v.iter().map(|x| x * x).sum();
        // A reflection.
        let q = Mat::from_fn(5, 5, |i, j| f64::from(u8::from(i == j)) - 2.0 * v[i] * v[j] / square);
        let a = Mat::from_fn(5, 5, |i, j| (0..5).map(|k| q[(i, k)] * poles[k] * q[(j, k)]).sum());
        let (b, c) = (&q * Mat::from_fn(5, 1, |_, _| 1.0), Mat::from_fn(1, 5, |_, _| 1.0) * &q);
        let system = LinearSystem::new(StateMatrix::Dense(a), b, c, None).unwrap();
        let layers = [LayerAnalysis::new("layer 0", system, 1.0).unwrap()];
        let with = |orders: OrderChoice| {
            let options = ReduceOptions { orders, ..ReduceOptions::default() };
            reduce_systems(&layers, &options, Purpose { direct_term: true, single: false })
        };
        let (_, free) = with(OrderChoice::PerLayer(OrderRule::Order(1))).unwrap();
        let facts = &free.layers[0].facts;
        let theory = facts.error_bound.unwrap() - facts.rounding;
        assert!(facts.rounding > theory && facts.holds == Some(true), "{facts:?}");
        for orders in [OrderChoice::PerLayer(OrderRule::Bound(1.1 * theory)), OrderChoice::TotalBound(1.1 * theory)] {
            let refused = with(orders).unwrap_err().to_string();
            assert!(refused.contains("with rounding it may be"), "{refused}");
            assert!(free.excess().is_none());
        }
        let enough = 1.1 * facts.error_bound.unwrap();
        assert!(with(OrderChoice::PerLayer(OrderRule::Bound(enough))).is_ok());
    }
}
