//! The operators: one folder each, with its equation, gradient and kernels.
//!
//! An operator is a function from tensors to a tensor. It checks shapes, element types and devices of its inputs, computes
//! in `f32` or `f64`, and records a rule for its gradient if an input is tracked.
//!
//! ```
//! use hankel_core::{Result, Tensor};
//! use hankel_ops::{gelu, linear};
//!
//! # fn main() -> Result<()> {
//! let x = Tensor::from_vec(vec![1.0_f32, -2.0, 0.5], [1, 3])?;
//! let weight = Tensor::full([2, 3], 0.5_f32).parameter()?; // [out, in], as in PyTorch
//! let bias = Tensor::zeros::<f32>([2]).parameter()?;
//! let y = gelu(&linear(&x, &weight, Some(&bias))?)?;
//! let gradients = y.backward_with(Tensor::full([1, 2], 1.0_f32))?;
//! assert_eq!(gradients.get(&weight).unwrap().shape()[..], [2, 3]);
//! # Ok(())
//! # }
//! ```
//!
//! In an operator's folder `mod.rs` has the equation, the checks and the gradient rule, `cpu.rs` and `gpu.rs` the functions
//! on tensors that both call, and `cases.rs` the cases of the test suites.

pub mod attention;
pub mod causal_conv;
mod check;
pub mod cross_entropy;
pub mod delta_scan;
mod dispatch;
pub mod dropout;
pub mod elementwise;
pub mod embedding;
pub mod gelu;
mod gpu;
pub mod kernels;
pub mod layer_norm;
pub mod linear;
mod normalization;
pub mod optimizer;
pub mod orthogonality;
pub mod rms_norm;
pub mod rope;
pub mod row_norms;
pub mod scan;
pub mod sequence;
mod sums;
pub mod swiglu;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod varying_scan;

pub use attention::{Heads, KeyValues, ScoreSettings, attention};
pub use causal_conv::causal_conv;
pub use cross_entropy::{Head, Targets, TokenScores, cross_entropy, token_scores};
pub use delta_scan::delta_scan;
pub use dropout::dropout;
pub use elementwise::{
    add, add_scaled, clamp, cos, exp, expm1, multiply, scale, scale_columns, scale_rows, sin, soft_cap, softplus,
};
pub use embedding::{add_embedding, embedding};
pub use gelu::{gelu, gelu_tanh};
pub use layer_norm::layer_norm;
pub use linear::{Gate, add_linear, linear};
pub use orthogonality::{Side, orthogonality};
pub use rms_norm::rms_norm;
pub use rope::{Rotary, rope};
pub use row_norms::{inverse_row_norms, row_squares};
pub use scan::{Poles, ScanPath, scan};
pub use sequence::{NO_STEP, Selection, concat_time, narrow_time, select_time};
pub use swiglu::swiglu;
pub use varying_scan::varying_scan;
