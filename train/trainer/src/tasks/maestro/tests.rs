//! On archives that the tests write themselves.

use super::events::{Note, decode};
use super::*;
use crate::tasks::settings::GeneratedData;
use std::fs;
use std::path::Path;

/// A piece of `count` notes, each starting when the one before ends, on pitches from `lowest` up.
fn piece(lowest: u8, count: u32) -> Vec<u8> {
    let note = |i: u32| Note { on: 5 * i, off: 5 * i + 5, pitch: lowest + (i % 7) as u8, velocity: (i % 3) as u8 };
    midi::write(&(0..count).map(note).collect::<Vec<_>>())
}

/// The layout of the published archive, with two pieces for training and one each for validation and test.
fn archive(root: &Path) {
    let mut table = "canonical_composer,canonical_title,split,year,midi_filename,audio_filename,duration\n".to_owned();
    for (index, (split, count)) in
        [("train", 60), ("train", 40), ("validation", 30), ("test", 50)].into_iter().enumerate()
    {
        let year = 2004 + index;
        fs::create_dir_all(root.join(year.to_string())).unwrap();
        fs::write(root.join(format!("{year}/piece.midi")), piece(10 + 20 * index as u8, count)).unwrap();
        table += &"Somebody,\"Prelude, and Fugue\",SPLIT,YEAR,YEAR/piece.midi,YEAR/piece.wav,12.5\n"
            .replace("SPLIT", split)
            .replace("YEAR", &year.to_string());
    }
    fs::write(root.join("maestro-v2.0.0.csv"), table).unwrap();
}

fn config(path: &Path) -> MaestroConfig {
    MaestroConfig {
        path: path.to_owned(),
        length: 20,
        sequences: GeneratedData {
            data_seed: Some(1),
            train_sequences: 40,
            validation_sequences: 6,
            test_sequences: 1,
        },
    }
}

#[test]
fn windows_stay_in_their_piece_and_targets_follow() {
    let directory = tempfile::tempdir().unwrap();
    archive(directory.path());
    let task = Maestro::open(&config(directory.path())).unwrap();
    let mut lowest = std::collections::BTreeSet::new();
    for split in SPLITS {
        for index in 0..task.sequences(split) {
            let batch = task.batch(split, &[index]).unwrap();
            assert_eq!((batch.tokens.len(), batch.weight()), (20, 20.0));
            assert_eq!(batch.tokens[1..], batch.targets[..19]);
            let pitches: Vec<u8> = decode(batch.tokens.iter().copied()).iter().map(|note| note.pitch / 20).collect();
            assert!(!pitches.is_empty() && pitches.iter().all(|&piece| piece == pitches[0]), "{pitches:?}");
            lowest.insert((split.name(), pitches[0]));
        }
    }
    assert_eq!(Vec::from_iter(lowest), [("test", 3), ("train", 0), ("train", 1), ("validation", 2)]);
    // The first and the last place.
    let piece = task.archive.of(Split::Validation)[0].clone();
    assert_eq!(task.window(Split::Validation, 0), &piece[..21]);
    assert_eq!(task.window(Split::Validation, 5), &piece[piece.len() - 21..]);
    let facts = task.describe();
    assert!(
        facts.description.contains("2 train pieces with 400, 1 validation pieces with 120"),
        "{}",
        facts.description
    );
    assert_eq!(facts.baselines.len(), 4);
    assert!(facts.baselines.values().all(|accuracy| (0.0..=1.0).contains(accuracy)), "{:?}", facts.baselines);
    assert_eq!(task.text(60) + &task.text(299), "on60velocity11");
    let files = task.data_files();
    assert!(files.len() == 2 && files[1].path.ends_with("(4 MIDI files that it names)"), "{files:?}");
}

#[test]
fn the_table_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    archive(root);
    // A part of the data, whose table lies beside that of everything.
    let part = root.join("part");
    fs::create_dir_all(part.join("midi")).unwrap();
    fs::copy(root.join("maestro-v2.0.0.csv"), part.join("maestro-v2.0.0.csv")).unwrap();
    let table = "file,split,midi_filename\nmidi/a.mid,train,2004/a.midi\nmidi/b.mid,validation,2004/b.midi\n";
    fs::write(part.join("a_subset.csv"), table).unwrap();
    fs::write(part.join("midi/a.mid"), piece(30, 40)).unwrap();
    fs::write(part.join("midi/b.mid"), piece(50, 40)).unwrap();
    let without_test = |path: &Path| {
        let config = config(path);
        let sequences = GeneratedData { test_sequences: 0, ..config.sequences.clone() };
        Maestro::open(&MaestroConfig { sequences, ..config })
    };
    let found = without_test(&part).unwrap();
    assert_eq!((found.archive.of(Split::Train).len(), found.archive.of(Split::Test).len()), (1, 0));
    let message = |path: &Path| without_test(path).err().unwrap().to_string();
    assert!(message(&part.join("maestro-v2.0.0.csv")).contains("line 2 of "), "named, so it is taken");
    assert_eq!(without_test(&root.join("maestro-v2.0.0.csv")).unwrap().archive.of(Split::Train).len(), 2);
    fs::write(part.join("b_subset.csv"), table).unwrap();
    assert!(message(&part).contains("has several tables: name one of"), "{}", message(&part));
}

#[test]
fn a_piece_outside_of_the_tables_folder_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("inner");
    archive(&root);
    let outside = directory.path().join("outside.midi");
    fs::write(&outside, piece(30, 40)).unwrap();
    for name in ["../outside.midi", &outside.display().to_string(), "2004/../../outside.midi"] {
        fs::write(root.join("maestro-v2.0.0.csv"), format!("midi_filename,split\n{name},train\n")).unwrap();
        let message = Maestro::open(&config(&root)).err().unwrap().to_string();
        assert!(message.contains("cannot be used as a path within a folder"), "{message}");
    }
}

#[test]
fn what_cannot_be_used() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let message = |config: MaestroConfig| Maestro::open(&config).err().unwrap().to_string();
    let refused = || message(config(root));
    assert!(refused().contains("has no table of pieces: name the directory"), "{}", refused());
    assert!(message(config(&root.join("nowhere"))).contains("cannot read"));
    archive(root);
    let longer = MaestroConfig { length: 130, ..config(root) };
    let found = message(longer);
    assert!(found.contains("of the validation split") && found.contains("`task.length` = 130 needs 131"), "{found}");

    let file = root.join("2005/piece.midi");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let parts = ["2005/piece.midi cannot be used: it is not a whole MIDI file", "; line 3 of ", "maestro-v2.0.0.csv"];
    assert!(parts.iter().all(|part| refused().contains(part)), "{}", refused());
    fs::remove_file(&file).unwrap();
    assert!(refused().contains("cannot read") && refused().contains("; line 3 of "), "{}", refused());
    fs::write(&file, whole).unwrap();

    let table = root.join("maestro-v2.0.0.csv");
    let text = fs::read_to_string(&table).unwrap();
    fs::write(&table, text.replace(",validation,", ",train,")).unwrap();
    assert!(refused().contains("lists no piece of the validation split"), "{}", refused());
    for end in ["\n", "\r\n"] {
        fs::write(&table, text.replace(",validation,", ",valid,").replace('\n', end)).unwrap();
        assert!(refused().contains(":4: \"valid\" is not a split"), "{}", refused());
    }
    fs::write(&table, text.replace("midi_filename", "name")).unwrap();
    assert!(refused().contains("has no columns `split` and `file` or `midi_filename`"), "{}", refused());
    fs::write(&table, text + "too,few\n").unwrap();
    assert!(refused().contains("is damaged") && refused().contains("line: 6"), "{}", refused());
}
