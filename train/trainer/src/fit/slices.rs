//! A batch in slices of sequences, forwards and backwards one after the other: activations are kept for one slice at a time.

use crate::parallel::{Node, sum};
use crate::tasks::Batch;
use hankel_core::{Error, Gradients, Tensor};

/// Parts of a loss that are to be added up, and its gradient.
pub(super) type Differentiated = (Vec<Tensor>, Gradients);

/// What `differentiate` gives for a batch, computed in slices of at most `size` sequences, which it is called with and their
/// numbers. Gradients are added in the order of [`sum`]; a batch of one slice is not copied.
///
/// # Errors
/// Those of `differentiate`.
pub(super) fn in_slices(
    batch: &Batch,
    size: usize,
    differentiate: impl Fn(u64, &Batch) -> Result<Differentiated, Error>,
) -> Result<Differentiated, Error> {
    // A pair of answers stays together.
    let unit = if batch.preference.is_some() { 2 } else { 1 };
    let size = size.max(1).next_multiple_of(unit);
    let count = batch.sequences.div_ceil(size) as u64;
    if count <= 1 {
        return differentiate(0, batch);
    }
    let mut losses = Vec::new();
    let mut leaf = |node: Node| {
        let number = node.leaf()?;
        let first = number as usize * size;
        let slice = batch.rows_of(first..(first + size).min(batch.sequences));
        Some(differentiate(number, &slice).map(|(parts, gradients)| {
            losses.extend(parts);
            gradients
        }))
    };
    let mut add = |mut left: Gradients, right| left.accumulate(right).map(|()| left);
    let gradients = sum(Node::root(count), count, &mut leaf, &mut add)?;
    Ok((losses, gradients))
}
