//! Finite groups whose word problems tell apart what a recurrence can follow.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Counts modulo 2: the parity.
    Z2,
    /// Counts modulo 3.
    Z3,
    /// Permutations of three things, the smallest group that does not commute.
    #[default]
    S3,
    /// Even permutations of five things, the smallest group that is not solvable.
    A5,
    /// Permutations of five things.
    S5,
}

/// The elements of a group by number, the identity first, with their products.
#[derive(Debug, Clone)]
pub(super) struct Elements {
    names: Vec<String>,
    /// `[left][right]`.
    products: Vec<Vec<u32>>,
}

impl Group {
    /// As the configuration names it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Group::Z2 => "Z2",
            Group::Z3 => "Z3",
            Group::S3 => "S3",
            Group::A5 => "A5",
            Group::S5 => "S5",
        }
    }

    /// Number of elements.
    pub(super) fn order(self) -> usize {
        match self {
            Group::Z2 => 2,
            Group::Z3 => 3,
            Group::S3 => 6,
            Group::A5 => 60,
            Group::S5 => 120,
        }
    }

    pub(super) fn elements(self) -> Elements {
        match self {
            Group::Z2 => Elements::cyclic(2),
            Group::Z3 => Elements::cyclic(3),
            Group::S3 => Elements::permutations(3, false),
            Group::A5 => Elements::permutations(5, true),
            Group::S5 => Elements::permutations(5, false),
        }
    }
}

impl Elements {
    fn cyclic(n: u32) -> Self {
        let names = (0..n).map(|i| i.to_string()).collect();
        Elements { names, products: (0..n).map(|i| (0..n).map(|j| (i + j) % n).collect()).collect() }
    }

    /// Permutations of `n` things in lexicographic order, all or the even ones. The product of p and q is p, then q.
    fn permutations(n: usize, even: bool) -> Self {
        let mut all: Vec<Vec<usize>> = vec![Vec::new()];
        for _ in 0..n {
            let longer = |p: &Vec<usize>| -> Vec<Vec<usize>> {
                (0..n).filter(|i| !p.contains(i)).map(|i| [&p[..], &[i]].concat()).collect()
            };
            all = all.iter().flat_map(longer).collect();
        }
        let inversions =
            |p: &[usize]| (0..n).flat_map(|j| (0..j).map(move |i| (i, j))).filter(|&(i, j)| p[i] > p[j]).count();
        all.retain(|p| !even || inversions(p) % 2 == 0);
        let number = |p: &[usize]| all.iter().position(|q| q == p).expect("a group is closed") as u32;
        let product = |p: &[usize], q: &[usize]| number(&p.iter().map(|&i| q[i]).collect::<Vec<_>>());
        Elements {
            names: all.iter().map(|p| p.iter().map(usize::to_string).collect()).collect(),
            products: all.iter().map(|p| all.iter().map(|q| product(p, q)).collect()).collect(),
        }
    }

    pub(super) fn product(&self, left: u32, right: u32) -> u32 {
        self.products[left as usize][right as usize]
    }

    /// As a person would read it: a number, or where a permutation takes 0, 1, 2 ...
    pub(super) fn name(&self, element: u32) -> &str {
        &self.names[element as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_those_of_groups() {
        for (group, commutes) in
            [(Group::Z2, true), (Group::Z3, true), (Group::S3, false), (Group::A5, false), (Group::S5, false)]
        {
            let (elements, order) = (group.elements(), group.order() as u32);
            let name = group.name();
            assert_eq!(elements.products.len(), group.order(), "{name}");
            let mut same = true;
            for a in 0..order {
                assert_eq!((elements.product(0, a), elements.product(a, 0)), (a, a), "{name}");
                let mut row = elements.products[a as usize].clone();
                row.sort_unstable();
                assert!(row.iter().copied().eq(0..order), "{name}: every element is a product with {a}, once");
                for b in 0..order {
                    let ab = elements.product(a, b);
                    same &= ab == elements.product(b, a);
                    let c = (7 * a + 3 * b) % order;
                    let (left, right) = (elements.product(ab, c), elements.product(a, elements.product(b, c)));
                    assert_eq!(left, right, "{name}: ({a} {b}) {c}");
                }
            }
            assert_eq!(same, commutes, "{name}");
        }
        let s3 = Group::S3.elements();
        // Swapping the first two, then the last two, takes 0 to 2, 1 to 0 and 2 to 1.
        let number = |name: &str| (0..6).find(|&element| s3.name(element) == name).unwrap();
        assert_eq!(s3.name(s3.product(number("102"), number("021"))), "201");
    }
}
