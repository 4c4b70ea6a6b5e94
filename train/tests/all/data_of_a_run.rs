//! Data files that change between commands.

use crate::common::Place;
use crate::mistral::small;
use hankel_models::decoder::{InitType, init_model};
use std::fs;
use std::path::Path;

const CONFIG: &str = "name = \"t\"\n[task]\nkind = \"bytes\"\npath = \"text\"\nlength = 16\ntrain_sequences = 32\n\
    validation_sequences = 2\ntest_sequences = 2\n[backbone]\nkind = \"tiny_gpt\"\nlayers = 1\nd_model = 16\nheads = 2\n[train]\n\
    steps = 2\nbatch_size = 2\n[[adapter]]\nkind = \"hrm\"\nstate_dim = 4\n";

fn place() -> (Place, String) {
    let (place, text) = (Place::new(), "the quick brown fox jumps over the lazy dog; ".repeat(60));
    place.write("text", &text);
    (place, text)
}

/// Another file would be divided in another way, and what was trained on tested.
#[test]
fn a_run_is_evaluated_on_its_own_data() {
    let (place, text) = place();
    place.fit(CONFIG, "run", &[]);
    let eval = ["eval", "run", "--adapter", "hrm"];
    assert_eq!(place.run(&eval).code, Some(0));
    place.write("text", format!("{text}more"));
    place.run(&eval).refused(&["text is not the file that the run was trained with", "put that file back", "--data"]);
    assert_eq!(place.run(&[&eval[..], &["--data", "text"]].concat()).code, Some(0));
    place.write("text", &text);
    assert_eq!(place.run(&eval).code, Some(0));
    // Without a name all are evaluated, and one that is not there is missed.
    let all = place.run(&["eval", "run"]);
    assert!(all.code == Some(0) && !all.stderr.contains("warning"), "{}", all.stderr);
    fs::rename(place.path("run/adapters/hrm"), place.path("elsewhere")).unwrap();
    let rest = place.run(&["eval", "run"]);
    assert!(rest.stderr.contains("warning: run/adapters lacks the adapters hrm"), "{}", rest.stderr);
    let again = place.run(&["fit", "--out", "run", "--resume"]);
    assert!(again.stderr.contains("warning: run/adapters lacks the adapters hrm"), "{}", again.stderr);
    assert!(rest.stdout.starts_with("none"), "{}", rest.stdout);
}

/// Cells of different data are no repetitions of each other.
#[test]
fn cells_of_a_sweep_have_the_same_data() {
    let (place, text) = place();
    place.write("grid.toml", format!("{CONFIG}[sweep.grid]\nseed = [0, 1]\n"));
    let sweep = ["sweep", "grid.toml", "--out", "out"];
    let first = place.run(&[&sweep[..], &["--task-index", "0"]].concat());
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    place.write("text", format!("{text}more"));
    let second = place.run(&sweep);
    assert_ne!(second.code, Some(0));
    assert!(second.stderr.contains("text is not the file that out/t/seed-0 was run with"), "{}", second.stderr);
    assert!(!fs::exists(place.path("out/t/seed-1/result.json")).unwrap());
    place.write("text", &text);
    let again = place.run(&sweep);
    assert!(again.stdout.contains("2 of 2 cells done"), "{}{}", again.stdout, again.stderr);
    // Nor are those of another command with other seeds, which reports take together.
    place.write("text", format!("{text}more"));
    let third = place.run(&[&sweep[..], &["--set", "seed=[2]"]].concat());
    assert_eq!(third.code, Some(1), "{}", third.stderr);
    assert!(third.stderr.contains("text is not the file that out/t/seed-0 was run with"), "{}", third.stderr);
}

/// A folder with more files, or fewer, is divided in another way.
#[test]
fn files_that_come_or_go_are_noticed() {
    let place = Place::new();
    fs::create_dir(place.path("docs")).unwrap();
    let write = |number: u32| {
        place.write(&format!("docs/{number}.txt"), format!("{number} quick foxes jump over it. ").repeat(30))
    };
    (0..12).for_each(|number| drop(write(number)));
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/stories260k");
    let config = format!(
        "name = \"t\"\n[task]\nkind = \"text\"\npath = \"docs\"\nlength = 16\n[backbone]\nkind = \"decoder\"\nmodel = {model:?}\n\
         [train]\nsteps = 2\nbatch_size = 2\n[[adapter]]\nkind = \"hrm\"\nstate_dim = 4\n"
    );
    place.fit(&config, "run", &[]);
    let eval = ["eval", "run", "--adapter", "hrm"];
    assert_eq!(place.run(&eval).code, Some(0));
    place.write("grid.toml", format!("{config}[sweep.grid]\nseed = [0, 1]\n"));
    let sweep = ["sweep", "grid.toml", "--out", "out"];
    assert_eq!(place.run(&[&sweep[..], &["--task-index", "0"]].concat()).code, Some(0));
    write(12);
    place.run(&eval).refused(&["the run was trained with 12 files, and there are 13 now", "--data"]);
    let second = place.run(&sweep);
    assert!(second.stderr.contains("out/t/seed-0 was run with 12 files, and there are 13 now"), "{}", second.stderr);
    fs::remove_file(place.path("docs/12.txt")).unwrap();
    fs::remove_file(place.path("docs/11.txt")).unwrap();
    place.run(&eval).refused(&["the run was trained with 12 files, and there are 11 now"]);
}

/// A few texts are each divided: what one of them holds for validation a copy has in training.
#[test]
fn copies_among_few_texts_are_told() {
    let place = Place::new();
    let text = "It was a dark and stormy night; the rain fell in torrents.\n".repeat(60);
    place.write("book.txt", &text);
    place.write("copy.txt", format!("A copy.\n{text}"));
    place.write("other.txt", "Nobody saw who came to the door at noon. ".repeat(60));
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/stories260k");
    let told = |paths: &str| {
        let config = format!(
            "[task]\nkind = \"text\"\npath = {paths}\nlength = 16\n[backbone]\nkind = \"decoder\"\nmodel = {model:?}\n\
             [train]\nsteps = 2\n[[adapter]]\nkind = \"hrm\"\nstate_dim = 4\n"
        );
        place.write("config.toml", config);
        let finished = place.run(&["fit", "config.toml", "--dry-run"]);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        finished.stderr
    };
    assert!(!told("[\"book.txt\", \"other.txt\"]").contains("are copies"));
    let two = told("[\"book.txt\", \"copy.txt\"]");
    assert!(two.contains("warning: only 1 of 2 documents differ") && two.trim_end().ends_with("remove them"), "{two}");
    assert!(told("[\"book.txt\", \"copy.txt\", \"other.txt\"]").contains("`task.division = \"documents\"`"));
}

/// Cells on another model of the same place are no repetitions either; those on a model elsewhere are another matter.
#[test]
fn cells_of_a_sweep_have_the_same_model() {
    let (place, _) = place();
    for (seed, name) in ["one", "two"].into_iter().enumerate() {
        init_model(&small(), seed as u64, InitType::F32, &place.path(name)).unwrap();
    }
    let config = CONFIG
        .replace("kind = \"tiny_gpt\"\nlayers = 1\nd_model = 16\nheads = 2", "kind = \"mistral\"\nmodel = \"one\"");
    place.write("grid.toml", format!("{config}[sweep.grid]\n\"backbone.model\" = [\"one\", \"two\"]\nseed = [0, 1]\n"));
    let cell = |index| place.run(&["sweep", "grid.toml", "--out", "out", "--task-index", index]);
    for index in ["0", "2"] {
        let first = cell(index);
        assert_eq!(first.code, Some(0), "{}", first.stderr);
    }
    let weights = place.path("one/model.safetensors");
    let own = fs::read(&weights).unwrap();
    fs::copy(place.path("two/model.safetensors"), &weights).unwrap();
    let other = cell("1");
    assert_eq!(other.code, Some(1), "{}", other.stderr);
    assert!(other.stderr.contains("model file model.safetensors is not the file that out/t/"), "{}", other.stderr);
    fs::write(&weights, own).unwrap();
    assert_eq!(cell("1").code, Some(0));
}
