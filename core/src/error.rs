//! What can go wrong at the door of an operator.

use crate::{DType, Shape};

/// Result of tensor operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the tensor engine. Each sentence says what was wrong and where.
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
        /// What it takes.
        expected: &'static str,
        /// What it was given.
        found: DType,
    },
    /// An operator without a gradient was applied to a tensor that needs one.
    #[error("{0} has no gradient, but its input needs one: detach the input if that is what you mean")]
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
        /// Its name, or what was asked for.
        device: String,
        /// What went wrong.
        problem: String,
    },
    /// A GPU has no room for a tensor.
    #[error(
        "{device}: {} for {place}, beside {} in use, are {}", amount(*.bytes), amount(*.used),
        .budget.map_or_else(
            || "more than the card has".to_owned(),
            |budget| format!("over the budget of {}: raise `gpu_memory`", amount(budget)),
        )
    )]
    GpuMemory {
        /// Its name.
        device: String,
        /// What needs it.
        place: String,
        /// Bytes asked for.
        bytes: u64,
        /// Bytes in use.
        used: u64,
        /// The limit that was set; `None` when the card itself has no more.
        budget: Option<u64>,
    },
    /// Tensors of one operator are on different devices, or it cannot run where they are.
    #[error("{operator}: {problem}")]
    Placement {
        /// The operator that refused.
        operator: &'static str,
        /// What is where.
        problem: String,
    },
    /// Anything else that a caller can mend.
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
