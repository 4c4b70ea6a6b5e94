//! Tensors, automatic differentiation, random numbers and the helpers every kernel needs. Knows no operator.

pub mod autograd;
pub mod block_formats;
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

pub use autograd::{Gradients, checkpoint, checkpoint_as, no_grad, scope};
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
pub use tensor::Tensor;
