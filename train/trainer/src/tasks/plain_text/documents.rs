//! From files and folders to the documents of each part.

use super::config::{Division, PlainTextConfig};
use crate::format::counted;
use crate::results::DataFile;
use crate::settings::Paths;
use crate::tasks::text::duplicate_groups;
use crate::tasks::text::lines::{Problems, text};
use crate::tasks::text::records::each_record;
use crate::tasks::{TaskError, file, named};
use hankel_core::Random;
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

/// From so many documents on, whole ones are held out where nothing is said.
const MANY: usize = 10;

/// The documents of each part.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Trained on.
    pub train: Vec<String>,
    /// Scored during training.
    pub validation: Vec<String>,
    /// Scored at the end.
    pub test: Vec<String>,
    /// How the validation part was made, in words.
    pub division: String,
}

/// Reads the files of a resolved configuration and divides them. Files that are not text are reported on standard error and
/// left out.
///
/// # Errors
/// When a file cannot be read, or a part is left with nothing.
pub(super) fn load(config: &PlainTextConfig) -> Result<(Parts, Vec<DataFile>), TaskError> {
    let mut files = Vec::new();
    let mut part = |key, paths: Option<&Paths>| {
        paths.map(|paths| documents(key, paths, config.separator.as_deref(), &mut files)).transpose()
    };
    let train = part("task.path", Some(&config.path))?.unwrap_or_default();
    let validation = part("task.validation_path", config.validation_path.as_ref())?;
    let test = part("task.test_path", config.test_path.as_ref())?.unwrap_or_default();
    let default_share = PlainTextConfig::default_share();
    let without_effect = [
        (
            "validation_share",
            config.validation_share != default_share && validation.is_some(),
            "`validation_path` is given",
        ),
        ("division", config.division.is_some() && validation.is_some(), "`validation_path` is given"),
        ("test_sequences", config.test_sequences.is_some() && test.is_empty(), "there is no test part"),
    ];
    for (key, _, why) in without_effect.into_iter().filter(|(_, is_given, _)| *is_given) {
        tell!("note: `task.{key}` has no effect: {why}");
    }
    let parts = divide(train, validation, test, config).map_err(TaskError::Unusable)?;
    Ok((parts, files))
}

/// All documents of `path`, a file or folder, as the test part.
///
/// # Errors
/// When it cannot be read, or there is no text in it.
pub(super) fn whole(config: &PlainTextConfig, path: &Path) -> Result<(Parts, Vec<DataFile>), TaskError> {
    let mut files = Vec::new();
    let test = documents("--data", &Paths(vec![path.to_owned()]), config.separator.as_deref(), &mut files)?;
    Ok((Parts { test, division: "nothing held out".to_owned(), ..Parts::default() }, files))
}

/// The field of a record that is a document.
const TEXT: &str = "text";

/// Whether the name of a file says that it has a record on every line, and not the text itself.
fn has_records(path: &Path) -> bool {
    ends_with(path, &[".jsonl", ".ndjson"])
}

/// Whether the name of a file says that it is a table or JSON, and so no text to read as it stands.
fn is_data(path: &Path) -> bool {
    ends_with(path, &[".json", ".csv", ".tsv"])
}

/// Whether the name of a file, packed by gzip or not, ends with one of these.
fn ends_with(path: &Path, endings: &[&str]) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    endings.iter().any(|ending| name.ends_with(ending))
}

/// The documents of some files and folders.
fn documents(
    key: &'static str,
    paths: &Paths,
    separator: Option<&str>,
    files: &mut Vec<DataFile>,
) -> Result<Vec<String>, TaskError> {
    let (mut found, mut problems) = (Vec::new(), Problems::default());
    let (mut has_texts, mut is_divided) = (false, false);
    for path in &paths.0 {
        let mut listed = Vec::new();
        let is_folder = path.is_dir();
        if is_folder {
            list(key, path, &mut listed, &mut problems)?;
        } else {
            listed.push(path.clone());
        }
        for path in listed {
            if has_records(&path) {
                let taken = each_record(key, &path, &mut problems, |_, record| {
                    let own = text(record, TEXT)?;
                    found.extend((!own.trim().is_empty()).then(|| own.to_owned()));
                    Ok(())
                });
                match taken {
                    Err(TaskError::Empty { .. }) if is_folder => {}
                    Err(error @ TaskError::Unreadable { .. }) if is_folder => problems.note(error.to_string()),
                    taken => files.push(taken?),
                }
                continue;
            }
            let (content, data) = match file::read(key, &path) {
                Err(TaskError::Empty { .. }) if is_folder => continue,
                other => other?,
            };
            let whole = match std::str::from_utf8(file::without_mark(&content)) {
                Ok(whole) if !whole.contains('\0') => whole,
                Ok(_) => {
                    problems.note(format!("{}: it holds zero bytes, so it is not text", path.display()));
                    continue;
                }
                Err(error) => {
                    let place = error.valid_up_to();
                    problems.note(format!("{}: byte {place} is not UTF-8, so it is not text", path.display()));
                    continue;
                }
            };
            if is_data(&path) && !is_folder {
                tell!(
                    "note: {} is one text as it stands: records are read from `.jsonl` and `.ndjson`, by their field `text`",
                    path.display()
                );
            }
            files.push(data);
            has_texts = true;
            is_divided |= separator.is_some_and(|separator| whole.contains(separator));
            let texts = separator.map_or_else(|| vec![whole], |separator| whole.split(separator).collect());
            found.extend(texts.into_iter().filter(|text| !text.trim().is_empty()).map(str::to_owned));
        }
    }
    if let Some(separator) = separator.filter(|_| !found.is_empty() && !is_divided) {
        let why = if has_texts { "it is nowhere in the texts" } else { "records are not divided" };
        tell!("note: `task.separator` {separator:?} has no effect on `{key}`: {why}");
    }
    if found.is_empty() {
        let names: Vec<String> = paths.0.iter().map(|path| path.display().to_string()).collect();
        let why = problems.first().map_or_else(|| "there is no text".to_owned(), str::to_owned);
        return Err(TaskError::Unusable(format!("{}nothing in {} can be used: {why}", named(key), names.join(", "))));
    }
    problems.warn();
    Ok(found)
}

/// The files of a folder and the folders in it, by name; what begins with a dot is not looked at.
fn list(key: &'static str, folder: &Path, found: &mut Vec<PathBuf>, problems: &mut Problems) -> Result<(), TaskError> {
    let unreadable =
        |error: std::io::Error| TaskError::Unreadable { key, path: folder.to_owned(), reason: error.to_string() };
    let mut entries: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        entries.push(entry.map_err(unreadable)?.path());
    }
    entries.sort();
    for path in entries {
        let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if is_hidden {
            continue;
        }
        if path.is_symlink() && path.is_dir() {
            // It may lead back to where it is.
            problems.note(format!(
                "{}: a link to a folder, which is not followed: name that folder itself",
                path.display()
            ));
        } else if path.is_dir() {
            list(key, &path, found, problems)?;
        } else if path.is_file() {
            found.push(path);
        } else {
            problems.note(format!("{}: it is no file, nor a link to one", path.display()));
        }
    }
    Ok(())
}

fn divide(
    mut train: Vec<String>,
    validation: Option<Vec<String>>,
    test: Vec<String>,
    config: &PlainTextConfig,
) -> Result<Parts, String> {
    let held_out: Vec<&String> = validation.iter().flatten().chain(&test).collect();
    let all: Vec<&str> = train.iter().chain(held_out.iter().copied()).map(String::as_str).collect();
    let group = duplicate_groups(&all);
    let (own, others) = group.split_at(train.len());
    let taken: HashSet<usize> = others.iter().copied().collect();
    let kept: Vec<usize> = (0..train.len()).filter(|&index| !taken.contains(&own[index])).collect();
    if kept.len() < train.len() {
        let left_out = counted(train.len() - kept.len(), "document");
        tell!("note: left out of training: {left_out} among those held out");
    }
    if kept.is_empty() {
        return Err("`task.path`: nothing is left for training: every document is also held out".to_owned());
    }
    let groups: Vec<usize> = kept.iter().map(|&index| own[index]).collect();
    train = kept.into_iter().map(|index| std::mem::take(&mut train[index])).collect();
    if let Some(mut validation) = validation {
        let (own, of_test) = others.split_at(validation.len());
        let of_test: HashSet<usize> = of_test.iter().copied().collect();
        let before = validation.len();
        let mut own = own.iter();
        validation.retain(|_| own.next().is_some_and(|group| !of_test.contains(group)));
        if validation.len() < before {
            let left_out = counted(before - validation.len(), "document");
            tell!("note: left out of validation: {left_out} among those of the test part");
        }
        if validation.is_empty() {
            return Err("`task.validation_path`: every document is also in the test part".to_owned());
        }
        return Ok(Parts { train, validation, test, division: "validation by files of its own".to_owned() });
    }
    let distinct: Vec<usize> = groups.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let by_documents = config.division.map_or(distinct.len() >= MANY, |division| division == Division::Documents);
    let share = config.validation_share;
    if !by_documents {
        if distinct.len() < train.len() {
            let remedy = if distinct.len() > 1 {
                "remove them, or hold out whole documents (`task.division = \"documents\"`)"
            } else {
                "remove them"
            };
            tell!(
                "warning: only {} of {} differ; the others are copies, or nearly, and each is divided by itself, so that training \
                 may hold what validation does: {remedy}",
                distinct.len(),
                counted(train.len(), "document")
            );
        }
        let (train, validation): (Vec<String>, Vec<String>) =
            train.iter().map(|text| cut(text, 1.0 - share)).map(|(a, b)| (a.to_owned(), b.to_owned())).unzip();
        let division = format!("the last {share} of every document held out for validation");
        return Ok(Parts { train, validation, test, division });
    }
    if distinct.len() < 2 {
        return Err(
            "`task.division`: there is 1 document, and whole ones are to be held out: at least 2 are needed, or \
             \"share\", or `task.validation_path`"
                .to_owned(),
        );
    }
    let count = ((share * distinct.len() as f64).round() as usize).clamp(1, distinct.len() - 1);
    let order = Random::new(config.data_seed.unwrap_or(0), "text.split", 0).permutation(distinct.len());
    let drawn: HashSet<usize> = order[..count].iter().map(|&place| distinct[place]).collect();
    let (held_out, kept): (Vec<_>, Vec<_>) =
        train.into_iter().zip(groups).partition(|(_, group)| drawn.contains(group));
    let texts = |part: Vec<(String, usize)>| part.into_iter().map(|(text, _)| text).collect();
    let division = format!("{count} of {} distinct documents held out for validation", distinct.len());
    Ok(Parts { train: texts(kept), validation: texts(held_out), test, division })
}

/// Divides a text behind about `share` of it: after the next line if one ends soon, else between words, else between
/// characters.
fn cut(text: &str, share: f64) -> (&str, &str) {
    /// Bytes in which a line is looked for.
    const SOON: usize = 2000;
    let mut at = (text.len() as f64 * share) as usize;
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let rest = &text[at..];
    let near = rest.char_indices().map(|(place, _)| place).take_while(|place| *place < SOON.min(rest.len() / 2)).last();
    let near = &rest[..near.unwrap_or(0)];
    let line = near.find('\n').map(|place| place + 1);
    text.split_at(at + line.or_else(|| near.find(' ')).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(more: &str) -> PlainTextConfig {
        toml::from_str(&format!("path = \"x\"\n{more}")).unwrap()
    }

    /// A text of its own for every number.
    fn words(number: usize) -> String {
        (0..60).map(|word| format!("w{} ", word * (number + 3) % 101)).collect::<Vec<_>>().concat()
    }

    #[test]
    fn no_part_has_what_a_later_one_has() {
        let texts = |numbers: &[usize]| numbers.iter().map(|&number| words(number)).collect::<Vec<_>>();
        let parts = divide(texts(&[0, 1, 2, 3]), Some(texts(&[2, 4, 5])), texts(&[3, 5]), &config("")).unwrap();
        assert_eq!((parts.train, parts.validation, parts.test), (texts(&[0, 1]), texts(&[2, 4]), texts(&[3, 5])));
        let nothing = divide(texts(&[0]), Some(texts(&[1])), texts(&[1]), &config("")).unwrap_err();
        assert!(nothing.contains("`task.validation_path`: every document is also in the test part"), "{nothing}");
    }

    #[test]
    fn whole_documents_or_the_ends_of_them() {
        let twelve: Vec<String> = (0..12).map(words).collect();
        let twice = [&twelve[..], &twelve].concat();
        let by_documents = divide(twice, None, Vec::new(), &config("validation_share = 0.25")).unwrap();
        assert_eq!((by_documents.train.len(), by_documents.validation.len()), (18, 6));
        assert!(by_documents.train.iter().all(|text| !by_documents.validation.contains(text)));
        assert_eq!(by_documents.division, "3 of 12 distinct documents held out for validation");

        let by_share = divide(twelve[..2].to_vec(), None, Vec::new(), &config("")).unwrap();
        assert_eq!((by_share.train.len(), by_share.validation.len()), (2, 2));
        for ((head, tail), whole) in by_share.train.iter().zip(&by_share.validation).zip(&twelve) {
            assert_eq!(&[&head[..], tail].concat(), whole);
            assert!(tail.starts_with(" w") && tail.len() < whole.len() / 8, "{tail:?}");
        }
        let one = divide(twelve[..1].to_vec(), None, Vec::new(), &config("division = \"documents\"")).unwrap_err();
        assert!(one.contains("at least 2 are needed"), "{one}");
    }

    #[test]
    fn held_out_files_win() {
        let all: Vec<String> = (0..4).map(words).collect();
        let parts = divide(all.clone(), Some(vec![words(1)]), vec![words(2)], &config("")).unwrap();
        assert_eq!(parts.train, [words(0), words(3)]);
        assert!(divide(all.clone(), Some(all), Vec::new(), &config("")).unwrap_err().contains("nothing is left"));
    }

    #[test]
    fn a_text_is_cut_between_lines_words_or_characters() {
        let lines = "one two three\nfour five six\nseven eight nine\nten eleven twelve\n";
        assert_eq!(cut(lines, 0.5).1, "ten eleven twelve\n");
        assert_eq!(cut("one two three four five six seven eight", 0.5).1, " six seven eight");
        for share in [0.1, 0.3, 0.5, 0.9] {
            let (head, tail) = cut("äöüßäöüßäöüß", share);
            assert_eq!([head, tail].concat(), "äöüßäöüßäöüß");
        }
        assert_eq!(cut("", 0.9), ("", ""));
    }

    #[test]
    fn folders_are_read_and_what_is_not_text_is_left_out() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &[u8]| {
            let path = place.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        };
        write("b.txt", b"second<|end|>third<|end|> \n");
        write("a/a.md", b"\xef\xbb\xbffirst");
        write("image.png", b"\x89PNG\0");
        write("zeros", b"a\0b");
        write("empty.txt", b"");
        write(".hidden/x.txt", b"hidden");
        let paths = Paths(vec![place.path().to_owned()]);
        let mut files = Vec::new();
        let found = documents("task.path", &paths, Some("<|end|>"), &mut files).unwrap();
        assert_eq!(found, ["first", "second", "third"]);
        assert_eq!(files.len(), 2);
        write(
            "corpus.jsonl",
            b"{\"text\": \"one\\n\"}\n{\"text\": \" \"}\n{\"text\": \"two\", \"id\": 3}\n{\"content\": \"x\"}\n",
        );
        let records = Paths(vec![place.path().join("corpus.jsonl")]);
        assert_eq!(documents("task.path", &records, None, &mut files).unwrap(), ["one\n", "two"]);
        write("none.jsonl", b"{\"content\": \"x\"}\n");
        let none = Paths(vec![place.path().join("none.jsonl")]);
        let message = documents("task.path", &none, None, &mut files).unwrap_err().to_string();
        assert!(message.contains("none.jsonl:1: has no `text`; there are `content`"), "{message}");
        let image = Paths(vec![place.path().join("image.png")]);
        let message = documents("task.path", &image, None, &mut files).unwrap_err().to_string();
        assert!(message.contains("image.png: byte 0 is not UTF-8, so it is not text"), "{message}");
        let empty = Paths(vec![place.path().join("empty.txt")]);
        assert!(documents("task.path", &empty, None, &mut files).unwrap_err().to_string().contains("is empty"));
    }
}
