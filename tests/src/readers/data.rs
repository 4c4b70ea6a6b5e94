//! Readers of data sets.

use super::with_files;
use hankel_io::input;
use hankel_trainer::tasks::maestro::{events, midi};
use hankel_trainer::tasks::text::Records;
use std::path::Path;

/// A gzip file.
pub(super) fn gzip(bytes: &[u8]) -> bool {
    let Ok(content) = input::gunzip(Path::new("x.gz"), bytes) else { return false };
    assert!(content.len() as u64 <= input::unpacked_limit(bytes.len() as u64));
    true
}

/// A MIDI file, and the events that its notes are.
pub(super) fn midi(bytes: &[u8]) -> bool {
    let Ok(notes) = midi::read(bytes) else { return false };
    let notes = events::quantize(&notes);
    let tokens = events::encode(&notes);
    assert!(tokens.iter().all(|&token| usize::from(token) < events::VOCABULARY));
    let again = events::decode(tokens.into_iter().map(u32::from));
    assert_eq!(again, notes, "the tokens are the notes");
    true
}

/// Records as JSON lines, a JSON array or a table; the first byte says what the file is called.
pub(super) fn records(bytes: &[u8]) -> bool {
    let Some((first, content)) = bytes.split_first() else { return false };
    let name = match first {
        b'c' => "x.csv",
        b't' => "x.tsv",
        b'a' => "x.json",
        _ => "x.jsonl",
    };
    with_files(&[(name, content)], |folder| {
        Records::read(&folder.join(name)).is_ok_and(|found| found.problems.is_empty() && !found.records.is_empty())
    })
}
