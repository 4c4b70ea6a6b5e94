//! Which documents are the same text, whatever they are called.
//!
//! Copies of an article differ in white space, capitals, and a note or two. Documents are the same when at least half of
//! what is looked at is common: the [`SKETCH`] smallest hashes of their runs of [`RUN`] words (Broder, "On the resemblance
//! and containment of documents", 1997), so the sketch of a document is a fair sample of its runs.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// Words in a run.
const RUN: usize = 8;
/// Hashes kept of a document.
const SKETCH: usize = 128;

fn sketch(text: &str) -> Vec<u64> {
    let words: Vec<String> = text
        .split_whitespace()
        .map(|word| word.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect::<String>())
        .filter(|word| !word.is_empty())
        .collect();
    let hash = |run: &[String]| {
        let mut hasher = DefaultHasher::new();
        run.hash(&mut hasher);
        hasher.finish()
    };
    let mut hashes: Vec<u64> =
        if words.len() < RUN { vec![hash(&words)] } else { words.windows(RUN).map(hash).collect() };
    hashes.sort_unstable();
    hashes.dedup();
    hashes.truncate(SKETCH);
    hashes
}

/// For each text the number of its group: texts with the same number are the same.
pub fn groups(texts: &[&str]) -> Vec<usize> {
    use rayon::prelude::*;
    let sketches: Vec<Vec<u64>> = texts.par_iter().map(|text| sketch(text)).collect();
    let mut parent: Vec<usize> = (0..texts.len()).collect();
    let mut seen: HashMap<u64, Vec<usize>> = HashMap::new();
    for (index, hashes) in sketches.iter().enumerate() {
        let mut common: HashMap<usize, usize> = HashMap::new();
        for hash in hashes {
            let holders = seen.entry(*hash).or_default();
            holders.iter().for_each(|&other| *common.entry(other).or_default() += 1);
            holders.push(index);
        }
        for (other, count) in common {
            if 2 * count >= hashes.len().min(sketches[other].len()) {
                let (a, b) = (root(&mut parent, index), root(&mut parent, other));
                parent[a.max(b)] = a.min(b);
            }
        }
    }
    (0..texts.len()).map(|index| root(&mut parent, index)).collect()
}

fn root(parent: &mut [usize], mut index: usize) -> usize {
    while parent[index] != index {
        parent[index] = parent[parent[index]];
        index = parent[index];
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_found() {
        let words = |f: &dyn Fn(usize) -> String| (0..400).map(f).collect::<Vec<_>>().join(" ");
        let story = words(&|i| format!("Word{} of{i}", i * i % 97));
        let copy = format!("Transcriber's note: scanned with care.\n\n{}", story.to_uppercase().replace(' ', "\n  "));
        let other = words(&|i| format!("word{} Of{i}", i * i % 89));
        let half = &story[..story.len() / 3];
        let found = groups(&[&story, &other, &copy, "short", "Short.", half, ""]);
        assert_eq!(found[2], found[0], "a copy with a note");
        assert_ne!(found[1], found[0]);
        assert_eq!(found[3], found[4]);
        assert_ne!(found[6], found[3]);
        assert_eq!(groups(&[]), Vec::<usize>::new());
    }
}
