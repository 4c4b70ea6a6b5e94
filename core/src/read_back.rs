//! Asynchronous copies of tensors to main memory.

use crate::gpu::{self, Transfer};
use crate::storage::Storage;
use crate::{DType, Error, Result, Shape, Tensor};
use std::sync::Arc;

/// An asynchronous copy of a tensor to main memory ([`Tensor::read_back`]), of the values at the time of the request. Later
/// launches neither wait for it nor change it: a loss can be requested in every step and fetched many steps later.
pub struct ReadBack(State);

enum State {
    Here(Tensor),
    Coming { transfer: Transfer, dtype: DType, shape: Shape },
}

impl ReadBack {
    pub(crate) fn of(tensor: &Tensor) -> Result<Self> {
        Ok(ReadBack(match tensor.storage() {
            Storage::Cpu(_) => State::Here(tensor.detach()),
            Storage::Gpu(storage) if matches!(storage.dtype, DType::Nf4 | DType::Blocks(_)) => {
                let problem = format!("{} tensors cannot be copied back from a GPU", storage.dtype);
                return Err(Error::Placement { operator: "read_back", problem });
            }
            Storage::Gpu(storage) => {
                State::Coming { transfer: storage.read_back()?, dtype: storage.dtype, shape: tensor.shape().clone() }
            }
        }))
    }

    /// The tensor in main memory. Waits for the launches before the request, not for later ones.
    ///
    /// # Errors
    /// When something that was launched, or the device, failed.
    pub fn wait(self) -> Result<Tensor> {
        match self.0 {
            State::Here(tensor) => Ok(tensor),
            State::Coming { transfer, dtype, shape } => {
                let storage = gpu::elements(&transfer.wait()?, dtype)?;
                Ok(Tensor::new(shape, Arc::new(Storage::Cpu(storage)), None))
            }
        }
    }
}
