//! Certified reduction of whole HRM adapters: one linear system per layer, orders chosen per layer or across layers, a certificate.
//!
//! ```text
//! HrmAdapterFile -> analyse -> choose_orders -> reduce_system per layer -> HrmAdapterFile + Certificate -> verify
//! ```

mod analysis;
mod certificate;
pub mod hrm;
mod layer;
mod options;
mod verify;

pub use analysis::{LayerAnalysis, analyse, choose_orders};
pub use certificate::{CERTIFICATE_FILE, Certificate, CertificateTotal, LayerCertificate, total};
pub use hankel_files::RecordedStates;
pub use layer::{LayerReduction, reduce_system};
pub use options::{Gramians, OrderChoice, ReduceError, ReduceOptions, Result};
pub use verify::{LayerVerification, Verification, verify, verify_layer};

use faer::MatRef;
use hankel_files::{HrmAdapterFile, HrmDynamics, HrmLayerFile};
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

/// Reduces every layer of an adapter, in parallel.
///
/// # Errors
/// The first layer that cannot be reduced, by name.
pub fn reduce_adapter(adapter: &HrmAdapterFile, options: &ReduceOptions) -> Result<AdapterReduction> {
    let analyses = analyse(adapter)?;
    let orders = choose_orders(&analyses, options)?;
    let layers: Vec<LayerReduction> = analyses
        .par_iter()
        .zip(&orders)
        .map(|(layer, &order)| reduce_system(layer, options.method, order, &options.gramians, false))
        .collect::<Result<_>>()?;
    let certificates = analyses
        .iter()
        .zip(&layers)
        .map(|(a, r)| LayerCertificate { layer: a.label.clone(), facts: r.certificate.clone() })
        .collect();
    let reduced = HrmAdapterFile {
        layers: adapter.layers.iter().zip(&layers).map(|(full, r)| reduced_layer(full, r)).collect(),
        ..adapter.clone()
    };
    let mut certificate = Certificate::new(options.orders, certificates);
    certificate.reduced = Some(reduced.to_bytes().hashes());
    Ok(AdapterReduction { adapter: reduced, certificate, layers })
}

fn row_major(m: MatRef<'_, f64>) -> Vec<f64> {
    (0..m.nrows()).flat_map(|i| (0..m.ncols()).map(move |j| m[(i, j)])).collect()
}

fn reduced_layer(full: &HrmLayerFile, reduction: &LayerReduction) -> HrmLayerFile {
    if let (Some(kept), HrmDynamics::Diagonal { log_a, log_dt }) = (&reduction.kept, &full.dynamics) {
        // Trained parameters are kept as they are, not their discretised values.
        let width = full.width;
        return HrmLayerFile {
            state_dim: kept.len(),
            b: kept.iter().flat_map(|&i| full.b[i * width..(i + 1) * width].iter().copied()).collect(),
            c: (0..width).flat_map(|row| kept.iter().map(move |&i| full.c[row * full.state_dim + i])).collect(),
            dynamics: HrmDynamics::Diagonal {
                log_a: kept.iter().map(|&i| log_a[i]).collect(),
                log_dt: kept.iter().map(|&i| log_dt[i]).collect(),
            },
            ..full.clone()
        };
    }
    if reduction.kept.as_ref().is_some_and(|kept| kept.len() == full.state_dim) {
        return full.clone();
    }
    let system = &reduction.system;
    HrmLayerFile {
        state_dim: system.states(),
        b: row_major(system.b()),
        c: row_major(system.c()),
        dynamics: match system.a().modes() {
            Some(modes) => HrmDynamics::Modal(modes),
            None => HrmDynamics::Dense(row_major(system.a().to_dense().as_ref())),
        },
        ..full.clone()
    }
}
