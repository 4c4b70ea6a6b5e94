//! What is drawn for an example: a function of seed, task, split and index.

use crate::results::Split;
use hankel_core::Random;

/// Random symbols below `symbols` of example `index`.
pub(super) fn symbols(seed: u64, task: &str, split: Split, index: usize, symbols: usize) -> impl Iterator<Item = u32> {
    let random = Random::new(seed, &format!("{task}.{}", split.name()), index as u64);
    (0..).map(move |place| random.below(place, symbols) as u32)
}

/// Where window `index` begins, of so many `windows` and `places`: anywhere for training; else evenly spaced, from the first place to the
/// last.
pub(super) fn window(seed: u64, task: &str, split: Split, index: usize, [windows, places]: [usize; 2]) -> usize {
    match (split, windows) {
        (Split::Train, _) => Random::new(seed, &format!("{task}.train"), 0).below(index as u64, places),
        (_, 0 | 1) => 0,
        _ => (index as u128 * (places - 1) as u128 / (windows - 1) as u128) as usize,
    }
}
