//! Sums over the micro-batches of a step in one fixed order: that of a binary tree over their numbers.
//!
//! A node of level `l` and index `i` stands for the leaves `i 2^l .. (i + 1) 2^l`, cut off at the end. Its sum is that of its left
//! half plus that of its right half. The order depends on the number of leaves alone. A run of leaves is a few nodes
//! ([`cover`]): whoever computes their sums, the whole has the same bits.

use std::ops::Range;

/// A node of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Node {
    level: u32,
    index: u64,
}

impl Node {
    /// The node of all `leaves`.
    pub(crate) fn root(leaves: u64) -> Self {
        Node { level: leaves.max(1).next_power_of_two().trailing_zeros(), index: 0 }
    }

    /// The leaf, if it is one.
    pub(crate) fn leaf(self) -> Option<u64> {
        (self.level == 0).then_some(self.index)
    }

    fn start(self) -> u64 {
        self.index << self.level
    }

    fn end(self, leaves: u64) -> u64 {
        ((self.index + 1) << self.level).min(leaves)
    }

    fn parent(self) -> Self {
        Node { level: self.level + 1, index: self.index / 2 }
    }

    fn halves(self) -> [Self; 2] {
        [0, 1].map(|half| Node { level: self.level - 1, index: 2 * self.index + half })
    }
}

/// The largest nodes whose leaves are those of `range`, from the left: at most two of a level.
pub(crate) fn cover(range: Range<u64>, leaves: u64) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut place = range.start;
    while place < range.end {
        let mut node = Node { level: 0, index: place };
        while node != Node::root(leaves) {
            let parent = node.parent();
            if parent.start() != place || parent.end(leaves) > range.end {
                break;
            }
            node = parent;
        }
        place = node.end(leaves);
        nodes.push(node);
    }
    nodes
}

/// The sum of `node` in a tree of so many `leaves`. `known` gives the sums of some nodes, at least those of all leaves.
///
/// # Errors
/// Those of `known` and `add`.
pub(crate) fn sum<T, E>(
    node: Node,
    leaves: u64,
    known: &mut impl FnMut(Node) -> Option<Result<T, E>>,
    add: &mut impl FnMut(T, T) -> Result<T, E>,
) -> Result<T, E> {
    if let Some(sum) = known(node) {
        return sum;
    }
    assert!(node.level > 0, "the sum of leaf {} is not known", node.index);
    let [left, right] = node.halves();
    let left = sum(left, leaves, known, add)?;
    if right.start() >= leaves {
        return Ok(left);
    }
    let right = sum(right, leaves, known, add)?;
    add(left, right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    /// The sum as a formula.
    fn formula(leaves: u64) -> String {
        let mut leaf = |node: Node| node.leaf().map(|leaf| Ok::<_, Infallible>(leaf.to_string()));
        let mut add = |a: String, b: String| Ok(format!("({a}+{b})"));
        sum(Node::root(leaves), leaves, &mut leaf, &mut add).unwrap()
    }

    #[test]
    fn the_order_of_the_sum() {
        assert_eq!(formula(1), "0");
        assert_eq!(formula(3), "((0+1)+2)");
        assert_eq!(formula(4), "((0+1)+(2+3))");
        assert_eq!(formula(7), "(((0+1)+(2+3))+((4+5)+6))");
    }

    proptest! {
        /// However the leaves are cut into runs, the nodes that cover them add up in the same order.
        #[test]
        fn runs_change_nothing(leaves in 1_u64..40, cuts in proptest::collection::vec(0_u64..40, 0..6)) {
            let mut cuts: Vec<u64> = cuts.into_iter().map(|cut| cut.min(leaves)).chain([0, leaves]).collect();
            cuts.sort_unstable();
            let mut known = Vec::new();
            for run in cuts.windows(2) {
                let nodes = cover(run[0]..run[1], leaves);
                prop_assert!(nodes.len() <= 12);
                for node in nodes {
                    let mut leaf = |node: Node| node.leaf().map(|leaf| Ok::<_, Infallible>(leaf.to_string()));
                    let text = sum(node, leaves, &mut leaf, &mut |a, b| Ok(format!("({a}+{b})"))).unwrap();
                    known.push((node, text));
                }
            }
            let mut of_run = |node: Node| {
                known.iter().find(|(known, _)| *known == node).map(|(_, text)| Ok::<_, Infallible>(text.clone()))
            };
            let whole = sum(Node::root(leaves), leaves, &mut of_run, &mut |a, b| Ok(format!("({a}+{b})"))).unwrap();
            prop_assert_eq!(whole, formula(leaves));
        }
    }
}
