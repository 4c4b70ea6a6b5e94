//! Discrete-time linear systems: Gramians, Hankel singular values, model reduction with guaranteed error, norms.
//!
//! Pure control theory on f64 matrices: nothing here knows of tensors or transformers. The road through it:
//!
//! ```text
//! LinearSystem -> GramianFactors -> HankelSpectrum -> order -> reduce -> to_modal -> certificate
//! ```
//!
//! The page `docs/truncation.md` explains the ideas to readers without control theory; R numbers refer to
//! `docs/resolutions.md`.

pub mod cauchy;
pub mod certificate;
pub mod empirical;
mod error;
pub mod gradient;
pub mod gramians;
pub mod hankel;
pub mod hankel_norm;
pub mod jacobi;
mod linalg;
pub mod modal;
pub mod norms;
pub mod order;
pub mod poles;
pub mod stein;
pub mod system;
pub mod truncation;
pub mod varying;

pub use certificate::SystemCertificate;
pub use error::{LtiError, Result};
pub use gramians::{GramianFactors, GramianSource, gramians};
pub use hankel::{HankelSpectrum, glover_bound};
pub use order::OrderRule;
pub use system::{LinearSystem, Mode, StateMatrix};
pub use truncation::{Method, Projection, Reduced, reduce};
