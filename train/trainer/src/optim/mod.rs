//! Learning-rate schedules, and the trajectories of PyTorch's optimizers for tests.

mod schedule;

#[cfg(test)]
pub(crate) mod golden;
#[cfg(test)]
mod tests;

pub(crate) use schedule::factor;
