//! Tensors, automatic differentiation, random numbers and the helpers every kernel needs. Knows no operator.
//!
//! An operator is a function on tensors that records a rule for its gradient:
//!
//! ```
//! use hankel_core::{Result, Tensor};
//!
//! /// `x * y`, element by element, with `d x = g * y` and `d y = g * x`.
//! fn multiply(x: &Tensor, y: &Tensor) -> Result<Tensor> {
//!     fn product(x: &Tensor, y: &Tensor) -> Result<Tensor> {
//!         let pairs = x.data::<f64>()?.iter().zip(y.data::<f64>()?);
//!         Tensor::from_vec(pairs.map(|(x, y)| x * y).collect(), x.shape())
//!     }
//!     let (saved_x, saved_y) = (x.detach(), y.detach());
//!     product(x, y)?.from_operator("multiply", &[Some(x), Some(y)], move |g, wanted| {
//!         let d_x = wanted[0].then(|| product(&g, &saved_y)).transpose()?;
//!         let d_y = wanted[1].then(|| product(&g, &saved_x)).transpose()?;
//!         Ok(vec![d_x, d_y])
//!     })
//! }
//!
//! # fn main() -> Result<()> {
//! let x = Tensor::from_vec(vec![3.0], [1])?.parameter()?;
//! let cube = multiply(&x, &multiply(&x, &x)?)?;
//! let gradients = cube.backward()?;
//! assert_eq!(gradients.get(&x).unwrap().item()?, 27.0); // 3 x^2
//! # Ok(())
//! # }
//! ```

pub mod autograd;
pub mod block_formats;
mod conversion;
mod device;
mod dtype;
mod error;
mod float;
pub mod gpu;
pub mod nf4;
pub mod parallel;
pub mod pool;
mod precision;
mod random;
mod read_back;
mod shape;
mod storage;
mod tensor;
pub mod trace;
pub mod wide;

pub use autograd::{Gradients, checkpoint, no_grad, scope};
pub use block_formats::{BlockFormat, BlockMatrix};
pub use device::Device;
pub use dtype::{DType, Element};
pub use error::{Error, Result};
pub use float::Float;
pub use nf4::Nf4;
pub use pool::Buffer;
pub use precision::{Precision, precision, with_precision};
pub use random::Random;
pub use read_back::ReadBack;
pub use shape::Shape;
pub use storage::{CpuStorage, Storage};
pub use tensor::{Tensor, to_odd};
