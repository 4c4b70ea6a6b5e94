//! Sequences that are divided into turns.

use super::*;

/// Three conversations of 2, 1 and 3 turns in Mistral's words.
const CONVERSATIONS: &str = r#"{"prompt": "User: One.\nNote: yes\nUser: Two.\nNote:", "completion": " no"}
{"prompt": "User: Three.\nNote:", "completion": " yes"}
{"prompt": "User: Four.\nNote: no\nUser: Five.\nNote: no\nUser: Six.\nNote:", "completion": " yes"}
"#;

#[test]
fn turns_begin_where_their_text_stands() {
    let more = ["task.turn_start=User:", "task.validation_share=0.01"];
    let text = own(&CONVERSATIONS.repeat(2), &more).unwrap();
    let indices: Vec<usize> = (0..text.examples(Split::Train).len()).collect();
    let batch = text.batch(Split::Train, &indices).unwrap();
    let first = |place: usize| text.layout().tokenizer().decode(&batch.tokens[place..place + 2]).unwrap();
    let documents: Vec<usize> = batch.turns.iter().copied().filter(|turn| batch.documents.contains(turn)).collect();
    assert_eq!(documents, batch.documents, "every document begins a turn");
    let within: Vec<usize> = batch.turns.iter().copied().filter(|turn| !documents.contains(turn)).collect();
    assert!(!within.is_empty() && within.iter().all(|&place| first(place) == "User:"), "{within:?}");
    let said = text.layout().tokenizer().decode(&batch.tokens).unwrap().matches("User:").count();
    assert_eq!(batch.turns.len(), said, "the token that begins a text is no turn of its own");
    // A document apart keeps its turns.
    let apart = batch.clone().apart();
    let turns: usize = apart.iter().map(|document| document.turns.len()).sum();
    assert!(apart.iter().all(|document| document.turns[0] == 0) && turns == batch.turns.len());
    let shown = text.show(&batch).unwrap();
    assert!(shown.contains("attention starts afresh at every \"User:\""), "{shown}");

    // Where the text begins an example, and behind a special token, its tokens are others than within a text.
    let prompt =
        ["task.turn_start=User:", "task.prompt='User: {prompt}\\nUser: And now?'", "task.validation_share=0.01"];
    let lines = "{\"prompt\": \"One\", \"completion\": \" 1\"}\n{\"prompt\": \"Two\", \"completion\": \" 2\"}\n";
    let first = own(lines, &prompt).unwrap().batch(Split::Train, &[0]).unwrap();
    assert_eq!(first.turns.len(), 2, "{:?}", first.turns);
    let roles = [
        "task.turn_start=<|user|>",
        "task.roles={ user = '<|user|>{content}', assistant = '<|answer|>{content}' }",
        "task.validation_share=0.01",
    ];
    let message = |role: &str, text: &str| format!("{{\"role\": \"{role}\", \"content\": \"{text}\"}}");
    let said = |n: usize| {
        (0..n).flat_map(|i| [message("user", &format!("q{i}")), message("assistant", "a")]).collect::<Vec<_>>()
    };
    let line = |n: usize| format!("{{\"messages\": [{}]}}\n", said(n).join(", "));
    let text = own(&(line(3) + &line(4)), &roles).unwrap();
    let turns = text.batch(Split::Train, &[0]).unwrap().turns.len();
    assert!(turns == 3 || turns == 4, "{turns}");
    assert_eq!(turns, all(&text).map(|example| example.pieces.len() / 2).next().unwrap());

    let Err(none) = own(CONVERSATIONS, &["task.turn_start=Nobody:", "task.validation_share=0.01"]) else {
        panic!("no turn begins")
    };
    assert!(none.contains("`task.turn_start` = \"Nobody:\" begins no second turn"), "{none}");
    let refused = |kind: &str, more: &[&str]| config(kind, "x.jsonl", more).unwrap_err();
    let padded = refused("jsonl", &["task.turn_start=User:", "task.pack=false"]);
    assert!(padded.contains("`task.turn_start` and `pack = false`"), "{padded}");
    assert!(refused("jsonl", &["task.turn_start=''"]).contains("`task.turn_start` must not be empty"));
    assert!(refused("dpo", &["task.turn_start=User:"]).contains("is not for `kind = \"dpo\"`"));
    let chunk = refused("jsonl", &["task.turn_start=User:", "train.chunk=8"]);
    assert!(chunk.contains("`train.chunk` and `task.turn_start` are both given"), "{chunk}");
    let before = refused("jsonl", &["task.turn_start=User:", "pretrain.steps=1", "pretrain.chunk=8"]);
    assert!(before.contains("`pretrain.chunk` and `turn_start` of the task"), "{before}");
}
