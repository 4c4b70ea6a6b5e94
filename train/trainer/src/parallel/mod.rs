//! Several processes at one training: who does which share, and sums whose bits do not depend on how many there are.

mod group;
mod launcher;
#[cfg(feature = "mpi")]
mod mpi;
mod reduce;
#[cfg(test)]
mod threads;
mod transport;
mod tree;

pub use group::{Group, host, is_muted, of_this_process};

pub(crate) use group::Traffic;
pub(crate) use reduce::sum_gradients;
#[cfg(test)]
pub(crate) use threads::{Network, together};
pub(crate) use tree::{Node, cover, sum};
