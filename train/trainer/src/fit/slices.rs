//! A batch in slices of sequences, packed or not, forwards and backwards one after the other: activations are kept for one slice at a time.

use crate::parallel::{Node, sum};
use crate::tasks::Batch;
use hankel_core::{Error, Gradients, Tensor};

/// Parts of a loss that are to be added up, and its gradient.
pub(super) type Differentiated = (Vec<Tensor>, Gradients);

/// What `differentiate` gives for a batch, computed slice by slice: it is called with the number of each slice and the slice. A slice has
/// at most `size` sequences, or pairs of them. If `tokens` is given, a slice of a packed batch instead has as many sequences as fit into
/// `tokens` tokens, since packed sequences are shorter than the longest. Gradients are added in the order of [`sum`]; a batch of one
/// slice is not copied.
///
/// # Errors
/// Those of `differentiate`.
pub(super) fn in_slices(
    batch: &Batch,
    size: usize,
    tokens: Option<usize>,
    differentiate: impl Fn(u64, &Batch) -> Result<Differentiated, Error>,
) -> Result<Differentiated, Error> {
    let firsts = firsts(batch, size, tokens);
    let count = firsts.len() as u64;
    if count <= 1 {
        return differentiate(0, batch);
    }
    let mut losses = Vec::new();
    let mut leaf = |node: Node| {
        let number = node.leaf()?;
        let at = |number: usize| firsts.get(number).copied().unwrap_or(batch.document_count());
        let slice = batch.part(at(number as usize)..at(number as usize + 1));
        Some(differentiate(number, &slice).map(|(parts, gradients)| {
            losses.extend(parts);
            gradients
        }))
    };
    let mut add = |mut left: Gradients, right| left.accumulate(right).map(|()| left);
    let gradients = sum(Node::root(count), count, &mut leaf, &mut add)?;
    Ok((losses, gradients))
}

/// The first sequence of every slice.
fn firsts(batch: &Batch, size: usize, tokens: Option<usize>) -> Vec<usize> {
    // A pair of answers stays together.
    let unit = if batch.preference.is_some() { 2 } else { 1 };
    let (count, documents) = (batch.document_count(), &batch.documents);
    let Some(tokens) = tokens.filter(|_| !documents.is_empty()) else {
        return (0..count).step_by(size.max(1) * unit).collect();
    };
    let at = |document: usize| documents.get(document).copied().unwrap_or(batch.length);
    let mut firsts = vec![0];
    for document in (0..count).step_by(unit) {
        let first = firsts[firsts.len() - 1];
        if document > first && at(document + unit) - at(first) > tokens {
            firsts.push(document);
        }
    }
    firsts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::Sequence;

    fn packed(lengths: &[usize]) -> Batch {
        let sequence = |&n: &usize| Sequence { tokens: vec![1; n], targets: vec![1; n], weights: vec![1.0; n] };
        Batch::packed(&lengths.iter().map(sequence).collect::<Vec<_>>())
    }

    #[test]
    fn packed_batches_are_cut_by_tokens() {
        let batch = packed(&[5, 4, 1, 9, 12, 2]);
        assert_eq!(firsts(&batch, 1, Some(10)), [0, 3, 4, 5]);
        assert_eq!(firsts(&batch, 1, Some(33)), [0]);
        assert_eq!(firsts(&batch, 4, None), [0, 4]);
        let pairs = Batch { preference: Some(0.1), ..batch };
        assert_eq!(firsts(&pairs, 1, Some(10)), [0, 2, 4]);
        assert_eq!(firsts(&pairs, 2, None), [0, 4]);
        assert_eq!(firsts(&Batch { preference: Some(0.1), ..Batch::blank(6, 9) }, 3, None), [0]);
        let rows = Batch::blank(6, 9);
        assert_eq!(firsts(&rows, 4, Some(10)), [0, 4]);
    }
}
