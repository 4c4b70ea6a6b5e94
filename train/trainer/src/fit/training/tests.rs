use super::*;
use crate::config::Config;
use crate::fit::BackboneSnapshot;
use crate::optim::golden::{Golden, close};
use crate::parallel::{Network, together};
use hankel_core::Float;
use hankel_models::AdapterSet;
use hankel_models::adapters::Context;
use hankel_ops::{Head, Targets, cross_entropy};

const TEXT: &str = "precision = \"f64\"\n[task]\nkind = \"parity\"\nlength = 7\n[backbone]\nlayers = 1\nd_model = 8\n\
    heads = 2\n[train]\nsteps = 5\nbatch_size = 6\nlr = 0.01\n[[adapter]]\nkind = \"hrm\"\nstate_dim = 3\n";

fn losses(overrides: &[&str], steps: usize) -> (Vec<f64>, Vec<f64>) {
    losses_of(TEXT, overrides, steps, &Group::alone())
}

fn losses_of(text: &str, overrides: &[&str], steps: usize, group: &Group) -> (Vec<f64>, Vec<f64>) {
    with_training(text, overrides, group, |training| {
        let mut step = || {
            training.step().unwrap();
            training.read().unwrap()[0].loss
        };
        let losses = (0..steps).map(|_| step()).collect();
        let parameters = training.model().adapters.parameters();
        (losses, parameters.iter().flat_map(|parameter| parameter.tensor().to_f64_vec()).collect())
    })
}

fn with_training<R>(text: &str, overrides: &[&str], group: &Group, then: impl FnOnce(&mut Training<'_>) -> R) -> R {
    let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
    let (config, _) = Config::load(text, "t.toml", &overrides).unwrap();
    let snapshot = BackboneSnapshot::new(&config).unwrap();
    let placement = snapshot.backbone().placement();
    let context = Context { placement: &placement, length: 7, steps: Some(5), pretrained: false };
    let settings = config.adapter[0].method.settings(&context).unwrap().unwrap();
    let model = snapshot.with_adapters(AdapterSet::new(&settings, &placement, 0).unwrap()).unwrap();
    let task = config.task.build().unwrap();
    then(&mut Training::new(&model, &*task, &config.train, config.seed, group).unwrap())
}

#[test]
fn accumulated_batches_are_one_batch() {
    let (whole, whole_end) = losses(&[], 5);
    let (parts, parts_end) = losses(&["train.batch_size=2", "train.accumulation=3"], 5);
    assert!(whole.windows(2).any(|pair| pair[0] != pair[1]));
    for (a, b) in whole.iter().chain(&whole_end).zip(parts.iter().chain(&parts_end)) {
        assert!((a - b).abs() < 1e-11, "{a} {b}");
    }
}

#[test]
fn slices_of_a_batch_are_the_batch() {
    for more in [&[][..], &["train.chunk=3", "train.accumulation=2"]] {
        let (whole, whole_end) = losses(more, 5);
        for size in ["train.micro_batch_size=4", "train.micro_batch_size=1"] {
            let (parts, parts_end) = losses(&[more, &[size]].concat(), 5);
            for (a, b) in whole.iter().chain(&whole_end).zip(parts.iter().chain(&parts_end)) {
                assert!((a - b).abs() < 1e-11, "{size}: {a} {b}");
            }
        }
    }
    // With dropout every slice draws its own masks: two equal sequences lose different elements.
    let text = TEXT.replace("heads = 2", "heads = 2\ndropout = 0.5");
    let of = |size: &str| losses_of(&text, &[size], 3, &Group::alone());
    assert_eq!(of("train.micro_batch_size=2"), of("train.micro_batch_size=2"));
    assert_ne!(of("train.micro_batch_size=2"), of("train.micro_batch_size=3"));
}

/// So are those of a packed one, whose answers are of different lengths.
#[test]
fn slices_of_packed_texts_are_the_batch() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("data.jsonl");
    let line = |i: usize| {
        let answer = "upon a time ".repeat(1 + i % 7);
        format!("{{\"prompt\": \"Once {i}\", \"completion\": \"{answer}\"}}\n")
    };
    std::fs::write(&file, (1..24).map(line).collect::<String>()).unwrap();
    let text = format!(
        "precision = \"f64\"\n[task]\nkind = \"jsonl\"\npath = {file:?}\nlength = 64\nmetrics = []\n[backbone]\nkind = \"decoder\"\n\
         model = \"{}/../../tests/fixtures/stories260k\"\n[train]\nsteps = 3\nbatch_size = 6\nlr = 0.01\n[[adapter]]\nkind = \"hrm\"\n\
         state_dim = 3\n",
        env!("CARGO_MANIFEST_DIR")
    );
    let (whole, whole_end) = losses_of(&text, &[], 3, &Group::alone());
    for size in ["train.micro_batch_size=4", "train.micro_batch_size=1"] {
        let (parts, parts_end) = losses_of(&text, &[size], 3, &Group::alone());
        assert_ne!(whole, parts);
        for (a, b) in whole.iter().chain(&whole_end).zip(parts.iter().chain(&parts_end)) {
            assert!((a - b).abs() < 1e-10, "{size}: {a} {b}");
        }
    }
}

/// Losses and adapters have the same bits on any number of processes: with dropout, clipping, a penalty and ranks that are
/// shared out (AdaLoRA), in single and double precision, also where there are more processes than micro-batches.
#[test]
fn the_number_of_processes_changes_no_bit() {
    let hrm = TEXT.replace("heads = 2", "heads = 2\ndropout = 0.1");
    let start = hrm.find("[[adapter]]").unwrap();
    let adalora = hrm[..start].replace("f64", "f32")
        + "[[adapter]]\nkind = \"adalora\"\ninit_rank = 3\ntarget_rank = 1\ndropout = 0.1\ntinit = 1\ntfinal = 1\n\
           delta_t = 1\n";
    for text in [hrm, adalora] {
        for micro_batches in [1, 5] {
            let accumulation = format!("train.accumulation={micro_batches}");
            let overrides = ["train.batch_size=2", &accumulation];
            let alone = losses_of(&text, &overrides, 5, &Group::alone());
            for size in [2, 3, 4] {
                for found in together(size, Network::default(), |group| losses_of(&text, &overrides, 5, group)) {
                    assert!(found == alone, "{micro_batches} micro-batches on {size} processes");
                }
            }
        }
    }
}

/// One bit in one process is enough, and all of them are told.
#[test]
fn processes_that_have_learnt_something_else_stop() {
    let said = together(3, Network::default(), |group| {
        with_training(TEXT, &["train.accumulation=3"], group, |training| {
            training.step().unwrap();
            training.check_same().unwrap();
            if group.rank() == 2 {
                let parameter = &training.model().adapters.parameters()[0];
                parameter.update(|value| {
                    let first = &mut value.data_mut::<f64>().unwrap()[0];
                    *first = f64::from_bits(first.to_bits() ^ 1);
                });
            }
            training.check_same().unwrap_err().to_string()
        })
    });
    for told in said {
        assert!(told.starts_with("after step 1 process 2 has other parameters than process 0"), "{told}");
    }
}

#[test]
fn rates_and_gates_have_their_own_learning_rate_and_no_decay() {
    let at_rest = |overrides: &[&str]| losses(overrides, 3).1;
    let start = losses(&[], 0).1;
    let frozen = at_rest(&["train.lr=0", "train.rate_lr=0", "train.gate_lr=0", "train.weight_decay=0.5"]);
    assert_eq!(frozen, start);
    // In a layer: b 3x8, c 8x3, log_a 3, log_dt 3, gate.
    let moved = |end: &[f64]| -> Vec<usize> { (0..start.len()).filter(|&i| end[i] != start[i]).collect() };
    let gate = at_rest(&["train.lr=0", "train.rate_lr=0", "train.gate_lr=0.01", "train.warmup_steps=0"]);
    assert_eq!(moved(&gate), [54]);
    let rates = at_rest(&["train.lr=0", "train.rate_lr=0.01", "train.gate_lr=0", "train.warmup_steps=0"]);
    assert_eq!(moved(&rates), [48, 49, 50, 51, 52, 53]);
}

/// Micro-batches of 5, 11, 2 and 8 targets: every target counts the same (`grad_token_mean`), not every batch.
fn accumulates<T: Float>() {
    let golden = Golden::open("accumulation");
    let weight = golden.tensor::<T>("weight").parameter().unwrap();
    let mut gradients = Gradients::default();
    for part in 0..4 {
        let x = golden.tensor::<T>(&format!("x{part}"));
        let y = golden.integers(&format!("y{part}"));
        let n = y.len();
        let tokens = Tensor::from_vec(y, [n]).unwrap();
        let weights = Tensor::full([n], T::of(1.0));
        let targets = Targets { tokens: &tokens, weights: &weights, smoothing: 0.0, normalizer: 26.0 };
        let loss = cross_entropy(&x, Head::new(&weight), targets).unwrap();
        gradients.accumulate(loss.backward().unwrap()).unwrap();
    }
    close::<T>(&golden, "grad_token_mean", gradients.get(&weight).unwrap());
}

#[test]
fn accumulation_weighs_tokens() {
    accumulates::<f64>();
    accumulates::<f32>();
}
