//! Short answers: the normalisation, F1 and exact match of SQuAD (Rajpurkar et al., 2016), as LongBench applies them.

use std::collections::HashMap;

use super::{PrecisionRecall, words};

/// Lower case, without ASCII punctuation, without the words a, an and the, with single spaces.
pub(crate) fn normalize(text: &str) -> String {
    let lower: String = text.to_lowercase().chars().filter(|c| !c.is_ascii_punctuation()).collect();
    let mut kept = String::with_capacity(lower.len());
    // An article is a whole word of letters and digits; an apostrophe is gone by now, but a typographic dash is not, and
    // "the—cat" holds an article.
    for run in lower.split_inclusive(|c: char| !c.is_alphanumeric()) {
        let end = run.trim_end_matches(|c: char| !c.is_alphanumeric());
        if matches!(end, "a" | "an" | "the") {
            kept.push(' ');
            kept.push_str(&run[end.len()..]);
        } else {
            kept.push_str(run);
        }
    }
    words(&kept).collect::<Vec<_>>().join(" ")
}

/// F1 of the normalised words, counted with multiplicity; 0 when nothing is common (also when both are empty).
pub(crate) fn token_f1(prediction: &str, reference: &str) -> f64 {
    let (prediction, reference) = (normalize(prediction), normalize(reference));
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for word in words(&reference) {
        *counts.entry(word).or_default() += 1;
    }
    let mut common = 0;
    let mut predicted = 0;
    for word in words(&prediction) {
        predicted += 1;
        if let Some(left) = counts.get_mut(word).filter(|left| **left > 0) {
            *left -= 1;
            common += 1;
        }
    }
    PrecisionRecall::new(common, predicted, words(&reference).count()).f1
}

/// Whether both are equal after normalisation.
pub(crate) fn exact_match(prediction: &str, reference: &str) -> bool {
    normalize(prediction) == normalize(reference)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn articles_are_whole_words() {
        assert_eq!(normalize("The cat, an  apple & a theory!"), "cat apple theory");
        assert_eq!(normalize("the\u{2014}cat"), "\u{2014}cat");
        assert_eq!(normalize("thé a1 the2 _an_"), "thé a1 the2");
        assert_eq!(normalize("don't a.n."), "dont");
        assert_eq!(normalize("the the the"), "");
    }

    #[test]
    fn f1_counts_multiplicity() {
        assert_eq!(token_f1("yes yes yes", "yes"), 0.5);
        assert_eq!(token_f1("", ""), 0.0);
        assert!(exact_match("", "the"));
    }
}
