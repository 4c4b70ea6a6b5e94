//! Discrete-time linear systems: Gramians, Hankel singular values, model reduction with guaranteed error, norms, certificates.
//!
//! Control theory on f64 matrices ([`faer`]), without tensors or neural networks.
//!
//! ```text
//! LinearSystem -> GramianFactors -> HankelSpectrum -> OrderRule -> reduce -> SystemCertificate
//! ```
//!
//! # Example
//!
//! ```
//! use faer::mat;
//! use hankel_lti::norms::{FrequencyResponse, hinf_norm};
//! use hankel_lti::{GramianFactors, HankelSpectrum, LinearSystem, Method, StateMatrix, reduce};
//!
//! # fn main() -> hankel_lti::Result<()> {
//! // x' = A x + B u, y = C x: two modes that matter and one that hardly does.
//! let a = StateMatrix::Diagonal(vec![0.9, 0.5, 0.1]);
//! let (b, c) = (mat![[1.0], [1.0], [0.1]], mat![[1.0, -0.5, 0.1]]);
//! let system = LinearSystem::new(a, b, c, None)?;
//!
//! let spectrum = HankelSpectrum::new(&GramianFactors::analytic(&system)?)?;
//! let reduced = reduce(&system, &spectrum, Method::default(), 2)?;
//! assert_eq!(reduced.system.states(), 2);
//!
//! // The measured H-infinity error lies within the bound.
//! let bound = reduced.bound.expect("balanced truncation has a bound");
//! let (error, _) = hinf_norm(&FrequencyResponse::new(&system.difference(&reduced.system)?))?;
//! assert!(error.value <= bound && bound < 0.02);
//! # Ok(())
//! # }
//! ```
//!
//! # Names elsewhere
//!
//! | here | SLICOT | MATLAB | pyMOR |
//! | --- | --- | --- | --- |
//! | [`GramianFactors::analytic`] | SB03OD | `gram`, `dlyapchol` | `LTIModel.gramian` |
//! | [`HankelSpectrum`] | AB13AD | `hsvd` | `LTIModel.hsv` |
//! | [`methods::bt`], [`methods::bfsr`] | AB09AD | `balred` | `BTReductor` |
//! | [`methods::spa`] | AB09BD | `balred`, `MatchDC` | - |
//! | [`methods::hankel`] | AB09CD | `hankelmr` | - |
//! | [`weighted`] | AB09ID | - | - |
//! | [`methods::modal`] | - | `reducespec(sys, "modal")` | `MTReductor` |
//! | [`methods::h2`] | - | - | `TSIAReductor` (continuous time) |
//! | [`norms::hinf_norm`] | AB13DD | `hinfnorm` | `LTIModel.hinf_norm` |
//! | [`norms::h2_norm`] | AB13BD | `norm(sys, 2)` | `LTIModel.h2_norm` |
//! | [`modal::to_modal`] | - | `modalreal` | - |
//! | [`split::split`] | TB01KD | `stabsep` | - |
//! | [`continuous::Bilinear`] | AB04MD | `c2d`, `'tustin'` | - |
//!
//! The page `docs/truncation.md` explains the ideas to readers without control theory; R numbers refer to
//! `docs/resolutions.md`.

pub mod autoregression;
mod cauchy;
pub mod certificate;
pub mod continuous;
pub mod coordinates;
mod eigen;
pub mod empirical;
mod error;
pub mod gradient;
mod gram;
mod gramians;
mod hankel;
mod jacobi;
mod largest;
mod linalg;
pub mod methods;
pub mod modal;
pub mod norms;
pub mod order;
mod poles;
mod proof;
mod shared;
pub mod split;
mod stein;
mod system;
pub mod varying;
pub mod weighted;

pub use certificate::SystemCertificate;
pub use error::{LtiError, Result};
pub use gramians::{GramianFactors, GramianSource, gramians};
pub use hankel::{HankelSpectrum, glover_bound};
pub use methods::{Bound, Method, Projection, Reduced, reduce};
pub use order::OrderRule;
pub use poles::{MIN_RATE, Pole};
pub use shared::Shared;
pub use system::{LinearSystem, Mode, StateMatrix};
