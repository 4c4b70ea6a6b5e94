//! The pieces that operators are built from: matrix products, vectors, exponentials. Plain slices, no tensors.
//!
//! Every routine gives the same bits for any number of threads. Vector code is compiled for several instruction sets
//! (AVX-512, AVX2 + FMA, NEON, scalar) and chosen at run time.

pub mod elementary;
pub mod gemm;
pub(crate) mod rounding;
pub mod rows;
pub mod scratch;
pub mod simd;
pub(crate) mod transpose;

pub use elementary::Elementary;
pub use gemm::{Accumulate, Mat, gemm};
pub use simd::Real;
