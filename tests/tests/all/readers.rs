//! The corpus of the fuzz targets, and what they found, read again.

use hankel_core::Random;
use hankel_tests::readers::{READERS, honest_certificate, read};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

/// Names in a folder.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn every_reader_has_a_target_and_a_corpus() {
    let expected: BTreeSet<String> = READERS.iter().map(|reader| reader.name.to_owned()).collect();
    assert_eq!(names(&fuzz().join("corpus")), expected);
    let targets: BTreeSet<String> = expected.iter().map(|name| format!("{name}.rs")).collect();
    assert_eq!(names(&fuzz().join("fuzz_targets")), targets);
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    for name in expected {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name} is in Cargo.toml");
        let target = fs::read_to_string(fuzz().join("fuzz_targets").join(format!("{name}.rs"))).unwrap();
        assert!(target.contains(&format!("read(\"{name}\", ")), "{name} reads by its own reader");
    }
}

#[test]
fn the_corpus_is_read_without_a_fault() {
    for reader in &READERS {
        let folder = fuzz().join("corpus").join(reader.name);
        let (mut taken, mut refused) = (0, 0);
        for name in names(&folder) {
            let accepted = read(reader.name, &fs::read(folder.join(&name)).unwrap());
            // What is whole is called so, and must be taken: a reader that refuses everything is no reader.
            assert!(accepted || !name.starts_with("valid"), "{}/{name} is refused", reader.name);
            *if accepted { &mut taken } else { &mut refused } += 1;
        }
        assert!(taken > 0 && refused > 0, "{}: {taken} taken, {refused} refused", reader.name);
    }
}

#[test]
fn what_is_true_of_a_reduction_is_accepted() {
    assert!(read("certificate", honest_certificate().as_bytes()));
    println!("{}", honest_certificate());
    let mut forged: serde_json::Value = serde_json::from_str(&honest_certificate()).unwrap();
    forged["layers"][0]["hinf_error"] = 0.0.into();
    assert!(!read("certificate", forged.to_string().as_bytes()));
}

/// A whole input damaged in one to four places.
fn damaged(content: &[u8], other: &[u8], random: &Random) -> Vec<u8> {
    const TELLING: &[u8] = b"\0\x01\x7f\x80\xff{}[]()\",:.-09eE\n %|";
    const NUMBERS: [&str; 8] = ["0", "-1", "255", "4294967296", "18446744073709551615", "1e308", "NaN", "null"];
    let mut out = content.to_vec();
    let draw = |place: u64, end: usize| random.below(place, end.max(1));
    for round in 0..=draw(0, 4) as u64 {
        let of = |which: u64, end: usize| draw(1 + 8 * round + which, end);
        let at = of(0, out.len() + 1).min(out.len());
        let end = (at + 1 + of(1, 1 << of(2, 9))).min(out.len());
        match of(3, 8) {
            0 | 1 if at < out.len() => out[at] ^= 1 << of(4, 8),
            2 if at < out.len() => out[at] = TELLING[of(4, TELLING.len())],
            3 => out.truncate(at),
            4 => drop(out.drain(at..end)),
            5 => {
                let piece = out[at..end].to_vec();
                out.splice(at..at, piece.repeat(1 + of(4, 4)));
            }
            6 => {
                let from = of(4, other.len());
                let to = (from + 1 + of(5, 64)).min(other.len());
                out.splice(at..at, other[from..to].iter().copied());
            }
            _ => {
                let Some(first) = out[at..].iter().position(u8::is_ascii_digit).map(|first| at + first) else {
                    continue;
                };
                let digits = out[first..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                out.splice(first..first + digits, NUMBERS[of(4, NUMBERS.len())].bytes());
            }
        }
    }
    out
}

/// The corpus damaged at random; `HANKEL_DAMAGED=100000` asks for another number of inputs of each reader than the usual, and
/// new ones. What panics is kept beside the findings of the fuzz targets.
#[test]
#[ignore = "takes as long as it is asked for"]
fn what_is_damaged_is_read_without_a_fault() {
    let asked = std::env::var("HANKEL_DAMAGED").ok().and_then(|count| count.parse::<u64>().ok());
    let seed = asked.map_or(1, |_| std::time::UNIX_EPOCH.elapsed().unwrap().as_secs());
    let mut guilty = Vec::new();
    for reader in &READERS {
        let folder = fuzz().join("corpus").join(reader.name);
        // What unpacks to 64 MiB takes its time.
        let whole: Vec<Vec<u8>> = names(&folder)
            .iter()
            .map(|name| fs::read(folder.join(name)).unwrap())
            .filter(|all| all.len() < 1 << 15)
            .collect();
        let (count, before, mut taken) = (asked.unwrap_or(200), guilty.len(), 0);
        for number in 0..count {
            let random = Random::new(seed, reader.name, number);
            let [one, other] = [100, 101].map(|place| &whole[random.below(place, whole.len())]);
            let input = damaged(one, other, &random);
            let Ok(is_taken) = std::panic::catch_unwind(|| read(reader.name, &input)) else {
                let kept = fuzz().join("artifacts").join(reader.name);
                fs::create_dir_all(&kept).unwrap();
                fs::write(kept.join(format!("damaged-{seed}-{number}")), &input).unwrap();
                guilty.push(format!("{}/damaged-{seed}-{number}", reader.name));
                continue;
            };
            taken += u64::from(is_taken);
        }
        let facts = serde_json::json!({ "reader": reader.name, "damaged": count, "taken": taken, "guilty": guilty.len() - before, "seed": seed });
        println!("{facts}");
    }
    assert!(guilty.is_empty(), "in tests/fuzz/artifacts: {guilty:?}");
}
