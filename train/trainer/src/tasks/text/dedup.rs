//! Which documents are the same text, whatever they are called.
//!
//! Copies of an article differ in white space, capitals, and a note or two. Documents are the same when at least half of
//! what is looked at is common: the [`SKETCH`] smallest hashes of their runs of [`RUN`] words (Broder, "On the resemblance
//! and containment of documents", 1997), so the sketch of a document is a fair sample of its runs. Runs that more than
//! [`COMMON`] different texts have (an instruction that all of them begin with) tell nothing, and looking at all pairs of
//! these would take the square of their number. The hash is fixed here and not the standard library's, which may change: the
//! division of a data set must not.

use std::collections::HashMap;

/// Words in a run.
const RUN: usize = 8;
/// Hashes kept of a document.
const SKETCH: usize = 128;
/// A run that more different texts have is ignored.
const COMMON: usize = 1000;

/// The hash of a word's letters and digits in lower case (FNV-1a); `None` when there are none.
fn word_hash(word: &str) -> Option<u64> {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut letters = word.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).peekable();
    letters.peek()?;
    for letter in letters {
        for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Some(hash)
}

/// The hash of a run of words: the finaliser of SplitMix64 after each, since the smallest hashes must be a fair sample.
fn run_hash(words: &[u64]) -> u64 {
    words.iter().fold(0, |hash: u64, word| {
        let mut z = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

fn sketch(text: &str) -> Vec<u64> {
    let words: Vec<u64> = text.split_whitespace().filter_map(word_hash).collect();
    let mut hashes: Vec<u64> =
        if words.len() < RUN { vec![run_hash(&words)] } else { words.windows(RUN).map(run_hash).collect() };
    hashes.sort_unstable();
    hashes.dedup();
    hashes.truncate(SKETCH);
    hashes
}

/// For each text the number of its group: texts with the same number are the same.
pub(crate) fn duplicate_groups(texts: &[&str]) -> Vec<usize> {
    use rayon::prelude::*;
    let mut sketches: Vec<Vec<u64>> = texts.par_iter().map(|text| sketch(text)).collect();
    let mut first_of: Vec<usize> = (0..texts.len()).collect();
    let mut first: HashMap<&[u64], usize> = HashMap::new();
    let mut texts_with: HashMap<u64, usize> = HashMap::new();
    for (index, hashes) in sketches.iter().enumerate() {
        first_of[index] = *first.entry(hashes).or_insert(index);
        if first_of[index] == index {
            hashes.iter().for_each(|hash| *texts_with.entry(*hash).or_default() += 1);
        }
    }
    sketches.iter_mut().for_each(|hashes| hashes.retain(|hash| texts_with[hash] <= COMMON));
    let mut parent = first_of.clone();
    let mut seen: HashMap<u64, Vec<usize>> = HashMap::new();
    for (index, hashes) in sketches.iter().enumerate() {
        // An exact copy has the group of the first one.
        if first_of[index] != index {
            continue;
        }
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
        let found = duplicate_groups(&[&story, &other, &copy, "short", "Short.", half, ""]);
        assert_eq!(found[2], found[0], "a copy with a note");
        assert_ne!(found[1], found[0]);
        assert_eq!(found[3], found[4]);
        assert_ne!(found[6], found[3]);
        assert_eq!(duplicate_groups(&[]), Vec::<usize>::new());
    }

    /// What all texts begin with makes them no copies of each other, nor does it hide those that are.
    #[test]
    fn a_common_beginning_tells_nothing() {
        let beginning =
            "Below is an instruction that describes a task. Write a response that completes the request well.";
        let mut texts: Vec<String> = (0..COMMON + 10)
            .map(|i| format!("{beginning} {}", (0..4).map(|j| format!("w{i}x{j}")).collect::<Vec<_>>().join(" ")))
            .collect();
        texts.push(texts[7].clone());
        texts.push(format!("{} and more", texts[8]));
        let found = duplicate_groups(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(found[..COMMON + 10], (0..COMMON + 10).collect::<Vec<_>>());
        assert_eq!(found[COMMON + 10..], [7, 8]);
    }

    #[test]
    fn the_hash_stays_what_it_is() {
        // FNV-1a of "foobar", as its authors publish it.
        assert_eq!(word_hash("Foo-BAR!"), Some(0x8594_4171_f739_67e8));
        assert_eq!(word_hash("--"), None);
        // The first number of SplitMix64 from seed 0.
        assert_eq!(run_hash(&[0]), 0xe220_a839_7b1d_cdaf);
        assert_eq!(sketch("One two three four five six seven eight, nine.").len(), 2);
    }
}
