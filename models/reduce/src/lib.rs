//! Certified reduction of whole HRM adapters: one linear system per layer, orders chosen per layer or across layers, a certificate.
//!
//! ```text
//! numbers of a layer -> linear_system -> LayerAnalysis -> reduce_systems -> reduced_layer + Certificate -> verify
//! ```

mod analysis;
mod certificate;
pub mod hrm;
mod layer;
mod options;
mod plant;
mod verify;
mod weighting;

pub use analysis::{LayerAnalysis, analyse, choose_orders};
pub use certificate::{CERTIFICATE_FILE, Certificate, CertificateTotal, LayerCertificate, TaskFacts, total};
pub use hankel_files::RecordedStates;
pub use layer::{LayerReduction, Purpose, reduce_system, reduce_uncertified};
pub use options::{Gramians, OrderChoice, ReduceError, ReduceOptions, Result};
pub use plant::{Plant, PlantFacts};
pub use verify::{LayerVerification, Verification, verify, verify_layer};
pub use weighting::{LayerWeights, WeightFiles, Weighting, weigh, weigh_with};

use faer::MatRef;
use hankel_files::arrays::Precision;
use hankel_files::{HrmAdapterFile, HrmDynamics, HrmLayerFile};
use hankel_lti::LinearSystem;
use rayon::prelude::*;

/// A reduced adapter.
#[derive(Debug, Clone)]
pub struct AdapterReduction {
    /// Ready to be saved.
    pub adapter: HrmAdapterFile,
    /// Its certificate; the hashes are of the adapters as they are saved, `full` is left to the caller.
    pub certificate: Certificate,
    /// The layers' systems and state transformations.
    pub layers: Vec<LayerReduction>,
}

/// Reduces every system to an order of its own, in parallel, and certifies the results. The systems were weighed, if weighted errors are
/// asked for. The certificate has no hashes of adapters.
///
/// # Errors
/// A system that cannot be reduced, by name; errors that rounding makes larger than the bound that orders were chosen by.
pub fn reduce_systems(
    systems: &[LayerAnalysis],
    options: &ReduceOptions,
    purpose: Purpose,
) -> Result<(Vec<LayerReduction>, Certificate)> {
    let orders = choose_orders(systems, options)?;
    let reductions: Vec<LayerReduction> = systems
        .par_iter()
        .zip(&orders)
        .map(|(system, &order)| reduce_system(system, options.method, order, &options.gramians, purpose))
        .collect::<Result<_>>()?;
    let certified = systems.iter().zip(&reductions);
    let layers = certified.map(|(s, r)| LayerCertificate { layer: s.label.clone(), facts: r.certificate.clone() });
    let mut certificate = Certificate::new(options.orders, layers.collect());
    certificate.weights = options.weights.files();
    certificate.task = options.task.as_ref().map(|task| TaskFacts::new(task, &certificate.layers));
    match certificate.excess() {
        Some(excess) => Err(ReduceError::Excess(excess)),
        None => Ok((reductions, certificate)),
    }
}

/// Reduces every layer of an adapter file.
///
/// # Errors
/// A layer that cannot be reduced, by name; an adapter without states; weights or sensitivities that do not fit it;
/// [`ReduceError::Excess`].
pub fn reduce_adapter(adapter: &HrmAdapterFile, options: &ReduceOptions) -> Result<AdapterReduction> {
    let systems = weigh(analyse(adapter)?, options.gramians.source(), &options.weights)?;
    let (layers, mut certificate) = reduce_systems(&systems, options, purpose(adapter))?;
    let smaller = adapter.layers.iter().zip(&layers);
    let reduced = HrmAdapterFile {
        layers: smaller.map(|(full, r)| reduced_layer(full, &r.system, r.kept.as_deref())).collect(),
        ..adapter.clone()
    };
    certificate.reduced = Some(reduced.to_bytes().hashes());
    Ok(AdapterReduction { adapter: reduced, certificate, layers })
}

/// A reduced adapter without a certificate; the `state_dim` of a layer is its order.
///
/// # Errors
/// A layer that cannot be reduced, by name; an adapter without states; weights or sensitivities that do not fit it.
pub fn reduce_adapter_uncertified(adapter: &HrmAdapterFile, options: &ReduceOptions) -> Result<HrmAdapterFile> {
    let systems = weigh(analyse(adapter)?, options.gramians.source(), &options.weights)?;
    let orders = choose_orders(&systems, options)?;
    let layers = adapter.layers.par_iter().zip(&systems).zip(&orders).map(|((full, system), &order)| {
        let reduced = reduce_uncertified(system, options.method, order, &options.gramians, purpose(adapter))?;
        Ok(reduced_layer(full, &reduced.system, reduced.kept.as_deref()))
    });
    Ok(HrmAdapterFile { layers: layers.collect::<Result<_>>()?, ..adapter.clone() })
}

/// An adapter has no direct term, and is stored as precisely as it was trained, but for poles.
fn purpose(adapter: &HrmAdapterFile) -> Purpose {
    Purpose { direct_term: false, single: adapter.precision != Precision::F64 }
}

fn row_major(m: MatRef<'_, f64>) -> Vec<f64> {
    (0..m.nrows()).flat_map(|i| (0..m.ncols()).map(move |j| m[(i, j)])).collect()
}

/// The numbers of a layer after its reduction: trained parameters of the states kept unchanged, else the reduced system.
pub fn reduced_layer(full: &HrmLayerFile, system: &LinearSystem, kept: Option<&[usize]>) -> HrmLayerFile {
    if let (Some(kept), HrmDynamics::Diagonal { log_a, log_dt }) = (kept, &full.dynamics) {
        // Trained parameters are kept as they are, not their discretised values.
        let width = full.width;
        return HrmLayerFile {
            state_dim: kept.len(),
            b: kept
                .iter()
                .flat_map(|&i| full.b[i * width..(i + 1) * width].iter().copied())
                .collect::<Vec<f64>>()
                .into(),
            c: (0..width)
                .flat_map(|row| kept.iter().map(move |&i| full.c[row * full.state_dim + i]))
                .collect::<Vec<f64>>()
                .into(),
            dynamics: HrmDynamics::Diagonal {
                log_a: kept.iter().map(|&i| log_a[i]).collect(),
                log_dt: kept.iter().map(|&i| log_dt[i]).collect(),
            },
            ..full.clone()
        };
    }
    if kept.is_some_and(|kept| kept.len() == full.state_dim) {
        return full.clone();
    }
    HrmLayerFile {
        state_dim: system.states(),
        b: row_major(system.b()).into(),
        c: row_major(system.c()).into(),
        dynamics: match system.a().modes() {
            Some(modes) => HrmDynamics::Modal(modes),
            None => HrmDynamics::Dense(row_major(system.a().to_dense().as_ref())),
        },
        ..full.clone()
    }
}
