//! Sequences with their targets.

use std::ops::Range;

/// Sequences of equal length with their targets: all fields are [sequences, length], row-major. What is shorter is padded
/// behind its end with weights of 0, which changes nothing: no token sees what comes after it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// What the model reads.
    pub tokens: Vec<u32>,
    /// What it should predict after reading the token at the same place.
    pub targets: Vec<u32>,
    /// Weight of each target in the loss; 0 where there is nothing to predict.
    pub weights: Vec<f32>,
    /// Number of sequences, B.
    pub sequences: usize,
    /// Tokens in a sequence, T.
    pub length: usize,
    /// Where documents begin in a single sequence that holds several end to end; empty when a sequence is a document.
    pub documents: Vec<usize>,
    /// Where turns begin in a single sequence, those of the documents among them; empty when it is not divided into turns.
    pub turns: Vec<usize>,
    /// Bytes of text that the targets stand for, where the task counts them.
    pub text_bytes: u64,
    /// The sequences are pairs, a chosen answer and a rejected one, for direct preference optimization with this `beta`.
    pub preference: Option<f64>,
}

/// One example of a batch, to be filled in: three slices of the sequence length.
pub struct Row<'a> {
    /// What the model reads.
    pub tokens: &'a mut [u32],
    /// What it should predict.
    pub targets: &'a mut [u32],
    /// Weights of the targets, 0 to begin with.
    pub weights: &'a mut [f32],
}

/// One example.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sequence {
    /// What the model reads.
    pub tokens: Vec<u32>,
    /// What it should predict.
    pub targets: Vec<u32>,
    /// Weights of the targets.
    pub weights: Vec<f32>,
}

impl Batch {
    /// Rows of weight 0 to be filled in.
    pub fn blank(sequences: usize, length: usize) -> Self {
        let elements = sequences * length;
        Batch {
            tokens: vec![0; elements],
            targets: vec![0; elements],
            weights: vec![0.0; elements],
            sequences,
            length,
            documents: Vec::new(),
            turns: Vec::new(),
            text_bytes: 0,
            preference: None,
        }
    }

    /// The rows.
    pub fn rows(&mut self) -> impl Iterator<Item = Row<'_>> {
        let length = self.length.max(1);
        let rows = self.tokens.chunks_mut(length).zip(self.targets.chunks_mut(length));
        rows.zip(self.weights.chunks_mut(length)).map(|((tokens, targets), weights)| Row { tokens, targets, weights })
    }

    /// Examples of any lengths below each other, the shorter ones padded.
    pub fn padded(examples: &[Sequence]) -> Self {
        let length = examples.iter().map(|example| example.tokens.len()).max().unwrap_or(0);
        let mut batch = Self::blank(examples.len(), length);
        for (row, example) in batch.rows().zip(examples) {
            let n = example.tokens.len();
            row.tokens[..n].copy_from_slice(&example.tokens);
            row.targets[..n].copy_from_slice(&example.targets);
            row.weights[..n].copy_from_slice(&example.weights);
        }
        batch
    }

    /// Examples of any lengths end to end in one sequence.
    pub fn packed(examples: &[Sequence]) -> Self {
        let mut batch = Batch { sequences: 1, ..Batch::default() };
        for example in examples {
            batch.documents.push(batch.length);
            batch.tokens.extend(&example.tokens);
            batch.targets.extend(&example.targets);
            batch.weights.extend(&example.weights);
            batch.length += example.tokens.len();
        }
        batch
    }

    /// What the mean loss is a mean over: the sum of the weights, or the number of pairs.
    pub fn weight(&self) -> f64 {
        if self.preference.is_some() {
            return (self.document_count() / 2) as f64;
        }
        self.weights.iter().map(|&weight| f64::from(weight)).sum()
    }

    /// Number of documents.
    pub fn document_count(&self) -> usize {
        self.sequences.max(self.documents.len())
    }

    /// The first `count` sequences, packed or not, without what they were padded with.
    pub fn first(&self, count: usize) -> Vec<Sequence> {
        let parts = self.clone().apart();
        let rows = parts.iter().flat_map(|part| (0..part.sequences).map(|row| part.rows_of(row..row + 1)));
        let sequence = |row: Batch| {
            let n = row.end_of(0);
            let Batch { mut tokens, mut targets, mut weights, .. } = row;
            tokens.truncate(n);
            targets.truncate(n);
            weights.truncate(n);
            Sequence { tokens, targets, weights }
        };
        rows.take(count).map(sequence).collect()
    }

    /// Itself, or every sequence by itself if some are padded, without what they were padded with. Pairs stay together.
    pub fn unpadded(self) -> Vec<Self> {
        let ends: Vec<usize> = (0..self.sequences).map(|row| self.end_of(row)).collect();
        if self.preference.is_some() || ends.iter().all(|&end| end == self.length) {
            return vec![self];
        }
        let part = |(row, &end): (usize, &usize)| {
            let own = if self.sequences == 1 { self.clone() } else { self.rows_of(row..row + 1) };
            let documents = own.documents.clone();
            Batch { documents, ..own.steps(0, end) }
        };
        ends.iter().enumerate().map(part).collect()
    }

    /// Where a row ends: behind it is padding.
    fn end_of(&self, row: usize) -> usize {
        let read = |place: &usize| self.tokens[*place] != 0 || self.weights[*place] > 0.0;
        let first = row * self.length;
        (first..first + self.length).rev().find(read).map_or(0, |last| last + 1 - first)
    }

    /// Splits packed documents into one batch each.
    pub fn apart(self) -> Vec<Self> {
        if self.documents.len() < 2 {
            return vec![Batch { documents: Vec::new(), ..self }];
        }
        let ends = self.documents[1..].iter().copied().chain([self.length]);
        self.documents.iter().zip(ends).map(|(&start, end)| self.steps(start, end)).collect()
    }

    /// Some of the sequences, or of the documents of a packed one.
    pub fn part(&self, which: Range<usize>) -> Self {
        if self.documents.is_empty() {
            return self.rows_of(which);
        }
        let at = |document: usize| self.documents.get(document).copied().unwrap_or(self.length);
        let (start, end) = (at(which.start), at(which.end));
        let documents = self.documents[which].iter().map(|document| document - start).collect();
        Batch { documents, preference: self.preference, ..self.steps(start, end) }
    }

    /// Some of the sequences, none of which is packed.
    fn rows_of(&self, sequences: Range<usize>) -> Self {
        let places = sequences.start * self.length..sequences.end * self.length;
        Batch {
            tokens: self.tokens[places.clone()].to_vec(),
            targets: self.targets[places.clone()].to_vec(),
            weights: self.weights[places].to_vec(),
            sequences: sequences.len(),
            length: self.length,
            documents: Vec::new(),
            turns: Vec::new(),
            text_bytes: 0,
            preference: self.preference,
        }
    }

    /// Steps `start..end` of every sequence. Where there are turns, one begins at `start`.
    pub fn steps(&self, start: usize, end: usize) -> Self {
        fn cut<T: Copy>(all: &[T], length: usize, start: usize, end: usize) -> Vec<T> {
            all.chunks(length.max(1)).flat_map(|row| &row[start..end]).copied().collect()
        }
        Batch {
            tokens: cut(&self.tokens, self.length, start, end),
            targets: cut(&self.targets, self.length, start, end),
            weights: cut(&self.weights, self.length, start, end),
            sequences: self.sequences,
            length: end - start,
            documents: Vec::new(),
            turns: self.turns.iter().filter(|turn| (start..end).contains(turn)).map(|turn| turn - start).collect(),
            text_bytes: 0,
            preference: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(first: u32, n: usize) -> Sequence {
        let tokens: Vec<u32> = (first..first + n as u32).collect();
        Sequence { targets: tokens.iter().map(|t| t + 1).collect(), weights: vec![1.0; n], tokens }
    }

    #[test]
    fn padded_and_packed() {
        let examples = [example(10, 2), example(20, 3)];
        let padded = Batch::padded(&examples);
        assert_eq!((padded.sequences, padded.length, padded.document_count()), (2, 3, 2));
        assert_eq!(padded.tokens, [10, 11, 0, 20, 21, 22]);
        assert_eq!(padded.weights, [1.0, 1.0, 0.0, 1.0, 1.0, 1.0]);
        let packed = Batch::packed(&examples);
        assert_eq!((packed.sequences, packed.length, packed.document_count()), (1, 5, 2));
        assert_eq!((&packed.tokens[..], &packed.documents[..]), (&[10, 11, 20, 21, 22][..], &[0, 2][..]));
        assert_eq!(packed.weight(), padded.weight());
        let part = packed.part(1..2);
        assert_eq!((&part.tokens[..], &part.documents[..], part.length), (&[20, 21, 22][..], &[0][..], 3));
        let apart = packed.clone().apart();
        assert_eq!(apart.len(), 2);
        assert_eq!((&apart[1].targets[..], apart[1].length), (&[21, 22, 23][..], 3));
        assert_eq!(padded.steps(1, 3).tokens, [11, 0, 21, 22]);
        let second = padded.part(1..2);
        assert_eq!(
            (&second.tokens[..], &second.targets[..], second.sequences),
            (&[20, 21, 22][..], &[21, 22, 23][..], 1)
        );
        assert_eq!(Batch::padded(&examples).apart(), std::slice::from_ref(&padded));
        let [short, long] = &padded.unpadded()[..] else { panic!("two sequences") };
        assert_eq!((&short.tokens[..], short.length, &long.tokens[..]), (&[10, 11][..], 2, &[20, 21, 22][..]));
        assert_eq!(packed.clone().unpadded(), [packed]);
        // A window that a text ends in.
        let mut window = Batch { turns: vec![0, 1], ..Batch::padded(&examples[..1]) };
        window.tokens.extend([0, 0]);
        window.targets.extend([0, 0]);
        window.weights.extend([0.0, 0.0]);
        window.length = 4;
        let cut = &window.unpadded()[0];
        assert_eq!((&cut.tokens[..], cut.length, &cut.turns[..]), (&[10, 11][..], 2, &[0, 1][..]));
    }
}
