//! The operators: one folder each, with its equation, gradient and kernels.
