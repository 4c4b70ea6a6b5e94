//! Conversations through the standard input.

use crate::common::{Finished, Place};
use hankel_models::adapters::{Hrm, HrmConfig, HrmPreset};
use hankel_models::decoder::LoadOptions;
use hankel_models::{AdapterConfig, AdapterSet, Backbone, Decoder};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

fn model() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/gguf/models/hf/llama").display().to_string()
}

/// What the program says to these lines.
pub fn talk(place: &Place, arguments: &[&str], lines: impl AsRef<[u8]>) -> Finished {
    let mut command = place.command(arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_ref()).unwrap();
    Finished::new(&child.wait_with_output().unwrap())
}

/// A recurrent adapter that changes what the model says.
fn adapter(place: &Place) {
    let model = Decoder::load(Path::new(&model()), LoadOptions::default()).unwrap();
    let placement = model.placement();
    let settings = HrmConfig { b_std: 2.0, c_std: 2.0, ..HrmConfig::new(HrmPreset::Paper, 4, placement.d_model, 512) };
    let config = AdapterConfig::stream::<Hrm>(&settings);
    AdapterSet::on(&config, &placement, &model.parameters(), 1).unwrap().save(&place.path("hrm"), None).unwrap();
}

#[test]
fn turns_continue_the_state_and_adapters_are_switched() {
    let place = Place::new();
    adapter(&place);
    let model = model();
    let arguments = ["chat", &model, "--adapter", "hrm", "--temperature", "0", "--max-tokens", "12"];
    let said = |lines: &str| {
        let done = talk(&place, &arguments, lines);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        done.stdout
    };
    let (one, two) = (said("hello\n"), said("hello\nthe in\n/quit\nnever\n"));
    let second = two.strip_prefix(&one).unwrap();
    // The second answer continued what was read; taken back, all is read again.
    assert_eq!(said("hello\nthe in\n/again\n"), format!("{two}{second}"));
    assert_eq!(said("hello\n/adapter none\n/adapter hrm\nthe in\n"), two);
    assert_ne!(
        said("hello\nthe in\n/adapter none\n/again\n"),
        format!("{two}{second}"),
        "the adapter changes the answer"
    );
    assert_eq!(said("hello\n/reset\nhello\n"), format!("{one}{one}"));
}

#[test]
fn only_the_adapter_remembers_earlier_turns() {
    let place = Place::new();
    adapter(&place);
    let model = model();
    let last = |adapter: &str, lines: &str| {
        let turn = "<|start_header_id|>user";
        let arguments = ["chat", &model, "--adapter", adapter, "--temperature", "0", "--max-tokens", "12"];
        let done = talk(&place, &[&arguments[..], &["--turn-start", turn]].concat(), lines);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        let first = lines.lines().next().unwrap();
        let before = talk(&place, &[&arguments[..], &["--turn-start", turn]].concat(), first).stdout;
        done.stdout.strip_prefix(&before).unwrap().to_owned()
    };
    let (hello, other) = ("hello\nthe in\n", "in the end it was\nthe in\n");
    assert_eq!(last("none", hello), last("none", other), "without an adapter every turn is the first");
    assert_ne!(last("hrm", hello), last("hrm", other), "the states know what was said");
    // Read again as a whole, the turns are the same.
    assert_eq!(last("hrm", "hello\nthe in\n/again\n"), last("hrm", hello).repeat(2));
    let wrong = talk(&place, &["chat", &model, "--max-tokens", "2", "--turn-start", "nobody"], "one\ntwo\n");
    assert!(wrong.stderr.contains("no turn begins here"), "{}", wrong.stderr);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("1 line failed"), "{}", wrong.stderr);
    place.run(&["chat", &model, "--max-tokens", "0"]).refused(&["--max-tokens must be at least 1"]);
    place.run(&["chat", &model, "--turn-start", ""]).refused(&["--turn-start \"\" has no tokens"]);
}

#[test]
fn commands_that_mean_nothing_are_told() {
    let place = Place::new();
    let (model, short) = (model(), ["--max-tokens", "3"]);
    let done = talk(
        &place,
        &[&["chat", &model], &short[..]].concat(),
        b"/again\n/nonsense\n/adapter\n/adapter nowhere\n/help\n\nHello\xff\xfe\nhi\n",
    );
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    for part in [
        "3 lines failed",
        "this line is not UTF-8, and is left out",
        "nothing has been said",
        "no command /nonsense",
        "/adapter NAME: none",
        "error: nowhere is not a directory",
        "/reset",
    ] {
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
    assert!(!done.stdout.is_empty());
    place.run(&["chat", "nowhere"]).refused(&["nowhere does not exist"]);
    place.run(&["chat", &model, "--adapter", "nowhere"]).refused(&["nowhere is not a directory"]);
}

/// `/again` draws another answer, and a conversation with a seed is the same each time.
#[test]
fn again_is_another_answer() {
    let (place, model) = (Place::new(), model());
    let talked = |lines: &str| {
        let arguments = ["chat", &model, "--temperature", "2", "--max-tokens", "12", "--seed", "5"];
        talk(&place, &arguments, lines).stdout
    };
    let (once, twice) = (talked("Hello\n"), talked("Hello\n/again\n"));
    let second = twice.strip_prefix(&once).unwrap();
    assert!(!second.trim().is_empty() && second.trim() != once.trim(), "{twice}");
    assert_eq!(talked("Hello\n/again\n"), twice);
}
