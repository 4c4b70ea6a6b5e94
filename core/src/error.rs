//! Errors of tensors and operators.

use crate::{DType, Shape};

/// Result of tensor operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the tensor engine. The message names the operator and the problem.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A tensor's data and shape disagree, or an operator was given shapes that do not fit together.
    #[error("{operator}: {problem}")]
    Shape {
        /// The operator or constructor that refused.
        operator: &'static str,
        /// The shapes and the rule they break.
        problem: String,
    },
    /// An operator was given an element type that it does not compute in.
    #[error("{operator}: expected {expected}, found {found}")]
    DType {
        /// The operator that refused.
        operator: &'static str,
        /// The accepted types.
        expected: &'static str,
        /// The type of the input.
        found: DType,
    },
    /// An operator without a gradient was applied to a tensor that needs one.
    #[error("{0} has no gradient, but its input needs one: detach the input to compute without a gradient")]
    NoGradient(&'static str),
    /// `backward` was called on a tensor that does not depend on any tracked tensor.
    #[error("backward: the tensor does not depend on anything that needs a gradient")]
    NotTracked,
    /// `backward` was called on a tensor with more than one element and no seed.
    #[error("backward: expected a single element, found shape {0}; use backward_with and give a seed")]
    NotScalar(Shape),
    /// The graph below this operator was freed by an earlier backward pass.
    #[error("backward: the graph of {0} was already used and freed; run the forward pass again")]
    Consumed(&'static str),
    /// A recomputed region refers to a tracked intermediate tensor that was not passed as an input.
    #[error("checkpoint: the region captured the output of {0} from outside; pass it as an input")]
    CapturedOutside(&'static str),
    /// A value that is not finite, found while looking for the first one.
    #[error("{operator} in {scope} produced a value that is not finite ({phase})")]
    NonFinite {
        /// Path of scopes, outermost first; `model` when none was open.
        scope: String,
        /// The operator.
        operator: &'static str,
        /// `forward` or `backward`.
        phase: &'static str,
    },
    /// A GPU could not be used, or failed.
    #[error("{device}: {problem}")]
    Gpu {
        /// Its name, or the name that was requested.
        device: String,
        /// What went wrong.
        problem: String,
    },
    /// A GPU is out of memory.
    #[error(
        "{device}: {} for {place}, beside {} in use, are {}", amount(*.bytes), amount(*.used),
        .budget.map_or_else(
            || "more than the GPU has".to_owned(),
            |budget| format!("over the budget of {}: raise `gpu_memory`", amount(budget)),
        )
    )]
    GpuMemory {
        /// Its name.
        device: String,
        /// The scope that needs it.
        place: String,
        /// Bytes asked for.
        bytes: u64,
        /// Bytes in use.
        used: u64,
        /// The limit that was set; `None` when the memory of the GPU is exhausted.
        budget: Option<u64>,
    },
    /// Tensors of one operator are on different devices, or it cannot run where they are.
    #[error("{operator}: {problem}")]
    Placement {
        /// The operator that refused.
        operator: &'static str,
        /// The tensor and the devices.
        problem: String,
    },
    /// Any other invalid argument.
    #[error("{operator}: {problem}")]
    Invalid {
        /// The operator that refused.
        operator: &'static str,
        /// What was wrong.
        problem: String,
    },
}

fn amount(bytes: u64) -> String {
    if bytes < 1 << 20 { format!("{bytes} bytes") } else { format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)) }
}

impl Error {
    /// A shape error of `operator`.
    pub fn shape(operator: &'static str, problem: impl Into<String>) -> Self {
        Error::Shape { operator, problem: problem.into() }
    }

    /// An invalid-argument error of `operator`.
    pub fn invalid(operator: &'static str, problem: impl Into<String>) -> Self {
        Error::Invalid { operator, problem: problem.into() }
    }
}
