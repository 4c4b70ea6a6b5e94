//! Elements that were asked for and are fetched later.

use crate::gpu::{self, Transfer};
use crate::storage::Storage;
use crate::{DType, Error, Result, Shape, Tensor};
use std::sync::Arc;

/// Elements on their way to main memory, as they were when they were asked for ([`Tensor::read_back`]). What is launched in the
/// meantime neither waits for them nor changes them: a loss can be asked for in every step, and fetched many steps later.
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
                let problem = format!("elements in {} do not come back from a GPU", storage.dtype);
                return Err(Error::Placement { operator: "read_back", problem });
            }
            Storage::Gpu(storage) => {
                State::Coming { transfer: storage.read_back()?, dtype: storage.dtype, shape: tensor.shape().clone() }
            }
        }))
    }

    /// The elements, in main memory. Waits until everything recorded before they were asked for has run, not for what came after.
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
