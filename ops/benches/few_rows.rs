//! Products of one and of eight rows with weights in every type: bytes of weights per second of processor time, beside a copy (bytes read
//! and written) that is timed in turn with them.
//!
//! One thread, and its processor time where the system tells it, so that other work on the machine matters less.
//! Names of types as arguments choose among them: `cargo bench -p hankel-ops --bench few_rows -- q4_0 nf4`.

use hankel_core::block_formats::{BlockMatrix, GGML_FORMATS};
use hankel_core::{Buffer, DType, Random, Tensor};
use hankel_ops::linear;
use hankel_ops::linear::nf4::quantize;
use std::hint::black_box;
use std::time::Instant;

/// The largest product of a Mistral block.
const OUTPUTS: usize = 14336;
const INPUTS: usize = 4096;
const TURNS: usize = 9;
/// Some systems count processor time in steps of 4 ms: a turn takes this many seconds at least.
const TURN: f64 = 0.1;

/// Seconds on processors of all threads since they were started; `None` where the system does not tell.
fn processor_seconds() -> Option<f64> {
    let mut nanoseconds = 0.0;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        nanoseconds += text.split(' ').next()?.parse::<f64>().ok()?;
    }
    Some(nanoseconds * 1e-9)
}

/// Seconds that `run` takes, of as many runs as fill a turn.
fn seconds(mut run: impl FnMut()) -> f64 {
    let (before, clock, mut runs) = (processor_seconds(), Instant::now(), 0);
    while clock.elapsed().as_secs_f64() < TURN {
        run();
        runs += 1;
    }
    let taken = match (before, processor_seconds()) {
        (Some(before), Some(after)) => after - before,
        _ => clock.elapsed().as_secs_f64(),
    };
    taken / f64::from(runs)
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// A weight of the type called `name`.
fn weight(name: &str) -> Tensor {
    let random = Random::new(1, "few rows", 0);
    let plain = || {
        let few: Vec<f32> = (0..99_991).map(|i| random.uniform(i) as f32 - 0.5).collect();
        let values = (0..OUTPUTS * INPUTS).map(|i| few[i % few.len()]).collect();
        Tensor::from_vec(values, [OUTPUTS, INPUTS]).expect("a matrix")
    };
    match name {
        "f32" => plain(),
        "f16" => plain().to_dtype(DType::F16).expect("a float"),
        "bf16" => plain().to_dtype(DType::BF16).expect("a float"),
        "nf4" => quantize(&plain().to_dtype(DType::BF16).expect("a float"), true).expect("finite"),
        name => {
            let (_, format) = GGML_FORMATS.iter().find(|(_, format)| format.name() == name).expect("a type");
            let bytes = OUTPUTS * INPUTS / format.block_size() * format.block_bytes();
            // Random codes; the mask leaves every half-precision scale below 1.
            let bytes: Vec<u8> = (0..bytes).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 16) as u8 & 0x3b).collect();
            let blocks = BlockMatrix::new(*format, Buffer::from(bytes), OUTPUTS * INPUTS).expect("whole blocks");
            Tensor::from_blocks(blocks, [OUTPUTS, INPUTS]).expect("a matrix")
        }
    }
}

fn main() {
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global().expect("the first pool");
    let chosen: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let formats = GGML_FORMATS.iter().map(|(_, format)| format.name());
    let names = ["f32", "f16", "bf16", "nf4"].into_iter().chain(formats);
    let source = vec![1_u8; 64 << 20];
    let mut target = vec![0_u8; source.len()];
    println!("type    rows       ms    GB/s   copy   ratio   ns/element and row");
    for name in names.filter(|name| chosen.is_empty() || chosen.iter().any(|word| word == name)) {
        let weight = weight(name);
        for rows in [1, 8] {
            let x = (0..rows * INPUTS).map(|i| (i as f32 * 0.7).sin()).collect();
            let x = Tensor::from_vec(x, [rows, INPUTS]).expect("a matrix");
            let product = || drop(black_box(linear(black_box(&x), &weight, None).expect("shapes fit")));
            product();
            // The least of several turns: what disturbs only adds.
            let (mut products, mut copies) = ([0.0; TURNS], [0.0; TURNS]);
            for (taken, copied) in products.iter_mut().zip(&mut copies) {
                *copied = seconds(|| black_box(&mut target).copy_from_slice(black_box(&source)));
                *taken = seconds(&product);
            }
            let taken = least(&products);
            let (rate, copy) = (weight.bytes() as f64 / taken, 2.0 * source.len() as f64 / least(&copies));
            println!(
                "{name:6} {rows:5} {:8.2} {:7.2} {:6.1} {:7.2}   {:.4}",
                taken * 1e3,
                rate * 1e-9,
                copy * 1e-9,
                rate / copy,
                taken * 1e9 / (rows * OUTPUTS * INPUTS) as f64,
            );
        }
    }
}
