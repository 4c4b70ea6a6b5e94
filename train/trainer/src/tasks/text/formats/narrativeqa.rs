//! NarrativeQA: questions in one file (`document_id`, `question`, `answer1`, `answer2`), texts of the documents in another.
//!
//! Questions are JSON lines or the published `qaps.csv`. Texts are JSON lines or a CSV with `document_id` and `text` or
//! `summary` (as `summaries.csv`), or a directory of `DOCUMENT_ID.content` files, as the published script downloads them.

use super::super::config::TextConfig;
use super::super::document::{Document, Question};
use super::super::lines::{Problems, filled, text};
use super::super::records::each_record;
use super::{Reader, TextFormat};
use crate::metrics::TextMetric;
use crate::results::{DataFile, Split};
use crate::settings::Paths;
use crate::tasks::{TaskError, file};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// `kind = "narrativeqa"`.
pub(in super::super) static FORMAT: TextFormat = TextFormat {
    name: "narrativeqa",
    summary: "NarrativeQA: stories with questions",
    prompt: Some("Document:\n{text}\n\nQuestion: {question}\nAnswer:"),
    answer: " {answer}",
    prompt_fields: Some(&["text", "question", "title"]),
    answer_fields: Some(&["answer"]),
    keys: &["documents", "official_split"],
    repetition_penalty: 1.3,
    metrics: &[TextMetric::TokenF1, TextMetric::ExactMatch, TextMetric::RougeL],
    figure: None,
    has_choices: false,
    has_pairs: false,
    is_own: false,
    reader: Reader::Files(read),
};

fn read(
    key: &'static str,
    paths: &Paths,
    config: &TextConfig,
    problems: &mut Problems,
) -> Result<(Vec<Question>, Vec<DataFile>), TaskError> {
    let (mut questions, mut files) = (Vec::new(), Vec::new());
    let mut found: Vec<(String, Question)> = Vec::new();
    for path in &paths.0 {
        let mut counts: HashMap<String, usize> = HashMap::new();
        files.push(each_record(key, path, problems, |line, record| {
            let document = filled(record, "document_id")?;
            let asked = filled(record, "question")?;
            let first = filled(record, "answer1")?;
            let second = text(record, "answer2").ok().filter(|answer| !answer.trim().is_empty());
            let part = config.official_split.then(|| part(record)).transpose()?;
            let number = counts.entry(document.to_owned()).or_default();
            *number += 1;
            let fields = BTreeMap::from([
                ("question".to_owned(), asked.to_owned()),
                ("answer".to_owned(), first.to_owned()),
                ("title".to_owned(), String::new()),
            ]);
            let references = [Some(first), second].into_iter().flatten().map(str::to_owned).collect();
            let id = format!("{document}/{number}");
            let origin = format!("{}:{line}", path.display());
            let question = Question { id, origin, fields, references, part, ..Question::default() };
            found.push((document.to_owned(), question));
            Ok(())
        })?);
    }
    let wanted: HashSet<&str> = found.iter().map(|(document, _)| document.as_str()).collect();
    let mut documents = HashMap::new();
    for path in config.documents.iter().flat_map(|paths| &paths.0) {
        if path.is_dir() {
            files.push(folder(path, &wanted, &mut documents)?);
        } else {
            files.push(texts(path, &wanted, &mut documents, problems)?);
        }
    }
    let mut missing = 0;
    for (id, mut question) in found {
        let Some((document, title)) = documents.get(&id) else {
            missing += 1;
            continue;
        };
        question.document = Arc::clone(document);
        question.fields.insert("title".to_owned(), title.clone());
        questions.push(question);
    }
    if missing > 0 {
        problems.note(format!("{missing} questions are about documents that `task.documents` does not hold"));
    }
    Ok((questions, files))
}

/// The part of the published division that a question belongs to.
fn part(record: &Value) -> Result<Split, String> {
    match filled(record, "set")? {
        "train" => Ok(Split::Train),
        "valid" | "validation" => Ok(Split::Validation),
        "test" => Ok(Split::Test),
        other => Err(format!("`set` is {other:?}, expected train, valid or test")),
    }
}

type Documents = HashMap<String, (Arc<Document>, String)>;

fn texts(
    path: &Path,
    wanted: &HashSet<&str>,
    documents: &mut Documents,
    problems: &mut Problems,
) -> Result<DataFile, TaskError> {
    each_record("task.documents", path, problems, |_, record| {
        let id = filled(record, "document_id")?;
        if wanted.contains(id) {
            let key = if record.get("text").is_some() { "text" } else { "summary" };
            let document = Document { id: id.to_owned(), text: filled(record, key)?.to_owned() };
            let title = text(record, "title").unwrap_or_default().to_owned();
            documents.insert(id.to_owned(), (Arc::new(document), title));
        }
        Ok(())
    })
}

/// The documents that are `wanted` of a folder, as one file: its digest is that of theirs.
fn folder(path: &Path, wanted: &HashSet<&str>, documents: &mut Documents) -> Result<DataFile, TaskError> {
    let mut ids: Vec<&str> = wanted.iter().copied().collect();
    ids.sort_unstable();
    let (mut bytes, mut digests) = (0, Vec::new());
    for id in ids {
        let file = path.join(format!("{id}.content"));
        // An identifier is a name, never a path.
        if id.contains(['/', '\\', ':']) || !file.is_file() {
            continue;
        }
        let (content, of_it) = file::read("task.documents", &file)?;
        bytes += of_it.bytes;
        digests.push(format!("{}  {id}\n", of_it.sha256));
        let text = String::from_utf8_lossy(&content).into_owned();
        documents.insert(id.to_owned(), (Arc::new(Document { id: id.to_owned(), text }), String::new()));
    }
    let sha256 = file::digest(digests.concat().as_bytes());
    Ok(DataFile { path: format!("{} ({} documents)", path.display(), digests.len()), bytes, sha256 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_tables_and_folders() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = place.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let qaps = write(
            "qaps.csv",
            "document_id,set,question,answer1,answer2\nd1,train,\"Who, then?\",She.,Her\nd1,train,Why?,So.,\nd2,train,?,,x\n\
             d3,train,Where?,Here,There\n",
        );
        let summaries = write("summaries.csv", "document_id,set,summary\nd1,train,\"A tale\nof one.\"\n");
        std::fs::create_dir(place.path().join("tmp")).unwrap();
        write("tmp/d3.content", "A long story.");
        let config: TextConfig = toml::from_str("path = \"x\"").unwrap();
        let config = TextConfig { documents: Some(Paths(vec![summaries, place.path().join("tmp")])), ..config };
        let read = |path: &Path| {
            let (paths, mut problems) = (Paths(vec![path.to_owned()]), Problems::default());
            let (questions, files) = read("task.path", &paths, &config, &mut problems).unwrap();
            (questions, files, problems)
        };
        let (questions, files, problems) = read(&qaps);
        assert_eq!(files.len(), 3);
        let digest = || read(&qaps).1.swap_remove(2);
        assert_eq!((digest().bytes, digest() == files[2]), (13, true));
        write("tmp/d3.content", "A long Story.");
        assert_ne!(digest().sha256, files[2].sha256);
        assert_eq!(questions.iter().map(|q| &q.id[..]).collect::<Vec<_>>(), ["d1/1", "d1/2", "d3/1"]);
        assert_eq!(questions[0].references, ["She.", "Her"]);
        assert_eq!(
            (&questions[0].document.text[..], &questions[2].document.text[..]),
            ("A tale\nof one.", "A long story.")
        );
        assert!(problems.first().unwrap().ends_with("qaps.csv:4: `answer1` is empty"), "{problems:?}");
        assert_eq!(problems.len(), 1);
        // `lines` reads the other form.
        let lines = write("qaps.jsonl", "{\"document_id\": \"d9\", \"question\": \"?\", \"answer1\": \"!\"}");
        assert!(read(&lines).0.is_empty());
    }
}
