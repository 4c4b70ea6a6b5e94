//! Which documents are trained on and which are held out.

use super::dedup::duplicate_groups;
use super::document::Example;
use super::formats::TextFormat;
use hankel_core::Random;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The questions of each part.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Parts {
    /// Trained on.
    pub train: Vec<Example>,
    /// Scored during training.
    pub validation: Vec<Example>,
    /// Scored at the end.
    pub test: Vec<Example>,
    /// Training and validation questions left out because their document is in a part held out by a file of its own.
    pub left_out: usize,
}

/// Divides questions so that no document is in two parts, under whatever name. Without `validation` a share of the
/// documents in `train` is drawn by `seed`, at least one and never all.
///
/// # Errors
/// When a part is left with nothing.
pub(super) fn divide(
    mut train: Vec<Example>,
    mut validation: Option<Vec<Example>>,
    test: Option<Vec<Example>>,
    (format, share, seed): (&TextFormat, f64, u64),
) -> Result<Parts, String> {
    let mut test = test.unwrap_or_default();
    let group = grouped(format, train.iter().chain(validation.iter().flatten()).chain(&test));
    for example in train.iter_mut().chain(validation.iter_mut().flatten()).chain(&mut test) {
        example.group = group[&Arc::as_ptr(&example.question.document)];
    }
    let of = |example: &Example| example.group;
    let tested: HashSet<usize> = test.iter().map(of).collect();
    let before = train.len() + validation.as_ref().map_or(0, Vec::len);
    let free = |part: Vec<Example>| part.into_iter().filter(|example| !tested.contains(&of(example)));
    let (train, validation): (Vec<Example>, Vec<Example>) = if let Some(validation) = validation {
        let validation: Vec<Example> = free(validation).collect();
        let held_out: HashSet<usize> = validation.iter().map(of).collect();
        (free(train).filter(|example| !held_out.contains(&of(example))).collect(), validation)
    } else {
        let train: Vec<Example> = free(train).collect();
        let distinct: BTreeSet<usize> = train.iter().map(of).collect();
        let n = distinct.len();
        if n < 2 {
            let there = if n == 1 { "there is 1 document" } else { "there are no documents" };
            return Err(format!(
                "{there} to divide into training and validation: at least 2 different ones are needed, or `task.validation_path`"
            ));
        }
        let count = ((share * n as f64).round() as usize).clamp(1, n - 1);
        let order = Random::new(seed, "text.split", 0).permutation(n);
        let distinct: Vec<usize> = distinct.into_iter().collect();
        let drawn: HashSet<usize> = order[..count].iter().map(|&place| distinct[place]).collect();
        train.into_iter().partition(|example| !drawn.contains(&of(example)))
    };
    let left_out = before - train.len() - validation.len();
    let parts = Parts { train, validation, test, left_out };
    for (name, part) in [("training", &parts.train), ("validation", &parts.validation)] {
        if part.is_empty() {
            return Err(format!("nothing is left for {name}: every document is also in a part that is held out"));
        }
    }
    Ok(parts)
}

/// The group of each document. One's own lines are the same only when they are equal: they may share instructions. Where all have
/// one prompt, those with one answer are the same.
fn grouped<'a>(
    format: &TextFormat,
    examples: impl Iterator<Item = &'a Example>,
) -> HashMap<*const super::Document, usize> {
    let (mut documents, mut answers) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    for example in examples {
        if seen.insert(Arc::as_ptr(&example.question.document)) {
            documents.push(&example.question.document);
            answers.push(example.answer());
        }
    }
    let numbers: Vec<usize> = if format.is_own {
        let first_of = |texts: &[&str]| -> Vec<usize> {
            let mut first: HashMap<&str, usize> = HashMap::new();
            texts.iter().enumerate().map(|(index, text)| *first.entry(text.trim()).or_insert(index)).collect()
        };
        let by_prompt = first_of(&documents.iter().map(|document| &document.text[..]).collect::<Vec<_>>());
        if by_prompt.iter().any(|&number| number != 0) { by_prompt } else { first_of(&answers) }
    } else {
        duplicate_groups(&documents.iter().map(|document| &document.text[..]).collect::<Vec<_>>())
    };
    documents.into_iter().map(Arc::as_ptr).zip(numbers).collect()
}

#[cfg(test)]
mod tests {
    use super::super::document::Piece;
    use super::super::formats::{jsonl, qmsum, quality};
    use super::super::{Document, Question};
    use super::*;

    fn example(id: &str, text: &str) -> Example {
        let document = Arc::new(Document { id: id.to_owned(), text: text.to_owned() });
        Example { question: Question { id: id.to_owned(), document, ..Question::default() }, ..Example::default() }
    }

    /// Ten texts, each under two names.
    fn corpus() -> Vec<Example> {
        let text = |i: usize| (0..60).map(|w| format!("w{}", w * (i + 3) % 101)).collect::<Vec<_>>().join(" ");
        (0..20).map(|i| example(&format!("d{i}"), &text(i % 10))).collect()
    }

    fn names(part: &[Example]) -> HashSet<usize> {
        part.iter().map(|q| q.question.id[1..].parse::<usize>().unwrap() % 10).collect()
    }

    #[test]
    fn no_text_is_in_two_parts() {
        for seed in 0..20 {
            let parts = divide(corpus(), None, None, (&quality::FORMAT, 0.3, seed)).unwrap();
            assert_eq!((parts.train.len(), parts.validation.len(), parts.left_out), (14, 6, 0));
            assert!(names(&parts.train).is_disjoint(&names(&parts.validation)));
        }
        let by_seed = |seed| names(&divide(corpus(), None, None, (&quality::FORMAT, 0.3, seed)).unwrap().validation);
        assert_eq!(by_seed(1), by_seed(1));
        assert!((2..9).any(|seed| by_seed(seed) != by_seed(1)));
    }

    #[test]
    fn held_out_files_win() {
        let held_out = |i: usize| Some(vec![corpus().swap_remove(i)]);
        let parts = divide(corpus(), held_out(3), held_out(14), (&qmsum::FORMAT, 0.1, 0)).unwrap();
        assert_eq!(names(&parts.validation), HashSet::from([3]));
        assert_eq!(names(&parts.test), HashSet::from([4]));
        assert_eq!((parts.train.len(), parts.left_out), (16, 4));
        let all = divide(corpus(), Some(corpus()), None, (&qmsum::FORMAT, 0.1, 0)).unwrap_err();
        assert!(all.contains("nothing is left for training"), "{all}");
        let one = divide(vec![example("d1", "a"), example("d2", "a")], None, None, (&jsonl::FORMAT, 0.1, 0));
        assert!(one.unwrap_err().contains("there is 1 document to divide"));
    }

    #[test]
    fn examples_with_one_prompt_are_divided_by_their_answers() {
        let of = |i: usize| {
            let answer = Piece::Answer(format!("story {}", i % 10));
            Example { pieces: vec![answer], ..example(&format!("d{i}"), "Write a story.") }
        };
        let all = || (0..20).map(of).collect::<Vec<_>>();
        let parts = divide(all(), None, None, (&jsonl::FORMAT, 0.3, 0)).unwrap();
        assert_eq!((parts.train.len(), parts.validation.len()), (14, 6));
        assert!(names(&parts.train).is_disjoint(&names(&parts.validation)));
        let parts = divide(all(), Some(vec![of(3)]), None, (&jsonl::FORMAT, 0.3, 0)).unwrap();
        assert_eq!((parts.train.len(), parts.validation.len(), parts.left_out), (18, 1, 2));
        // With another prompt among them, prompts tell.
        let mut two = all();
        two.push(example("d20", "Write a poem."));
        let parts = divide(two, None, None, (&jsonl::FORMAT, 0.3, 0)).unwrap();
        assert_eq!(parts.train.len().min(parts.validation.len()), 1);
    }
}
