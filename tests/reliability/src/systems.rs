//! Systems that are hard to reduce: what the certificate says of the error, beside the frequency response in plain arithmetic,
//! which has nothing in common with the proofs.

use crate::binaries::{Binaries, run_and_judge};
use crate::random::Random;
use crate::tally::Tally;
use anyhow::{Context, Result, bail};
use num_complex::Complex64;
use serde_json::{Value, json};
use std::f64::consts::PI;
use std::fs;
use std::path::Path;

/// Most states of a dense system.
const STATES: usize = 20;
/// What the response in doubles cannot tell apart, of the norm: of diagonal systems, and of dense ones per distance to the circle.
const OF_NORM: f64 = 3e-9;
const OF_DENSE: f64 = 1e-12;
/// Share of the systems that may be refused: who refuses all is never wrong. It was 0.03 of 5,000.
const MOST_REFUSED: f64 = 0.15;
/// Peaks of the error between the frequencies of the sweep that are climbed, and steps of each.
const PEAKS: usize = 8;
const STEPS: usize = 50;
const METHODS: [&str; 8] = ["bt", "bfsr", "spa", "modal", "hankel", "svd", "h2", "energy"];
const KINDS: [Kind; 12] = [
    Kind::Real,
    Kind::Slow,
    Kind::Slower,
    Kind::Alternating,
    Kind::NearlyRepeated,
    Kind::Repeated,
    Kind::Many,
    Kind::LightlyDamped,
    Kind::NearEachOther,
    Kind::FarFromNormal,
    Kind::Nilpotent,
    Kind::Zero,
];
const SCALES: [Scale; 12] = [
    Scale::AsDrawn,
    Scale::AsDrawn,
    Scale::AsDrawn,
    Scale::AsDrawn,
    Scale::Both(150, -150),
    Scale::Both(-150, 150),
    Scale::Both(70, 70),
    Scale::Both(-70, -70),
    Scale::RowsApart,
    Scale::ZeroInput,
    Scale::ZeroOutput,
    Scale::SomeZero,
];

/// Where the poles are, and what is between the states.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Real,
    /// A memory of at most a million steps.
    Slow,
    /// A memory of up to 1e12 steps.
    Slower,
    Alternating,
    NearlyRepeated,
    Repeated,
    Many,
    LightlyDamped,
    NearEachOther,
    FarFromNormal,
    Nilpotent,
    Zero,
}

/// What is done to B and C.
#[derive(Debug, Clone, Copy)]
enum Scale {
    AsDrawn,
    /// Powers of ten.
    Both(i32, i32),
    RowsApart,
    ZeroInput,
    ZeroOutput,
    SomeZero,
}

/// Row by row.
#[derive(Debug, Clone, Default)]
struct Matrix {
    rows: usize,
    columns: usize,
    values: Vec<f64>,
}

impl Matrix {
    fn new(rows: usize, columns: usize, mut value: impl FnMut(usize, usize) -> f64) -> Self {
        let values = (0..rows * columns).map(|at| value(at / columns, at % columns)).collect();
        Self { rows, columns, values }
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.values[row * self.columns + column]
    }
}

struct System {
    /// The diagonal, or all of A.
    a: Result<Vec<f64>, Matrix>,
    b: Matrix,
    c: Matrix,
    d: Option<Matrix>,
}

/// Reduces `count` systems and looks at what is claimed of them.
pub fn attack(b: &Binaries, place: &Path, count: usize, seed: u64, tally: &mut Tally) -> Result<()> {
    let mut random = Random(seed ^ 6);
    let mut refused = 0;
    fs::create_dir(place)?;
    for number in 0..count {
        let cell = place.join("cell");
        let _ = fs::remove_dir_all(&cell);
        fs::create_dir(&cell)?;
        let (kind, scale) = (KINDS[number % KINDS.len()], *random.choice(&SCALES));
        let (full, radius) = draw(&mut random, kind, scale);
        let states = full.b.rows;
        fs::write(cell.join("full.safetensors"), full.to_bytes())?;
        let (rule, value) = match random.below(3) {
            0 => ("--order", random.below(states + 1).to_string()),
            1 => ("--epsilon", format!("{:e}", 10_f64.powf(-8.0 * random.unit()))),
            _ => ("--energy", (0.3 + 0.7 * random.unit()).to_string()),
        };
        let method = *random.choice(&METHODS);
        let name = format!("number {number}, {states} states, {kind:?}, {scale:?}, {method}, {rule} {value}");
        let arguments =
            ["reduce", "full.safetensors", "-o", "small.safetensors", "--method", method, rule, value.as_str()];
        let (code, problem) = run_and_judge(&b.bt, &arguments, &cell)?;
        let wrote = code != 0 && fs::read_dir(&cell)?.count() != 1;
        let problem = problem.or(wrote.then(|| "failed, and wrote".to_owned()));
        let of = if scale.is_extreme() { "a system at an extreme scale" } else { "a system" };
        tally.add(&format!("{of} is reduced or refused"), problem.map(|problem| format!("{name}: {problem}")));
        if code != 0 {
            tally.count("of these refused", 1);
            refused += 1;
            continue;
        }
        let reduced = System::from_bytes(&fs::read(cell.join("small.safetensors"))?).context(name.clone())?;
        let certificate: Value = serde_json::from_slice(&fs::read(cell.join("small.safetensors.certificate.json"))?)?;
        let found = claims(&full, &reduced, radius, &certificate["layers"][0]);
        let told = found.err().map(|problem| format!("{name}: {problem}"));
        tally.add("no frequency contradicts a certificate", told);
        let (code, problem) = run_and_judge(&b.bt, &["verify", "full.safetensors", "small.safetensors"], &cell)?;
        let problem = problem.or((code != 0).then(|| format!("exit {code}")));
        tally.add("a certificate of a system is verified", problem.map(|problem| format!("{name}: {problem}")));
    }
    let few = f64::from(refused) <= MOST_REFUSED * count as f64;
    tally.add("few systems are refused", (!few).then(|| format!("{refused} of {count}")));
    Ok(())
}

/// Whether the response is where the certificate says.
fn claims(full: &System, reduced: &System, radius: f64, layer: &Value) -> Result<()> {
    let fact = |name: &str| layer[name].as_f64().with_context(|| format!("{name} is {}", layer[name]));
    let (error, upper, norm) = (fact("hinf_error")?, fact("hinf_error_upper")?, fact("hinf_norm")?);
    let (frequency, slowest) = (fact("hinf_error_frequency")?, fact("reduced_spectral_radius")?);
    let dense = full.a.is_err() || reduced.a.is_err();
    let away = (1.0 - radius.max(slowest)).max(f64::EPSILON);
    let slack = norm * (OF_NORM + if dense { OF_DENSE / away } else { 0.0 });
    if layer["holds"] == false {
        bail!("the bound does not hold, and it was written");
    }
    if let Some(bound) = layer["error_bound"].as_f64()
        && upper > bound * (1.0 + 1e-5) + 2e-9 * norm
    {
        bail!("the upper end {upper:e} is above the bound {bound:e} of norm {norm:e}");
    }
    if !(error..f64::INFINITY).contains(&upper) {
        bail!("the error {error:e} is above the upper end {upper:e}");
    }
    let gain = |w: f64| largest(&full.response(w), &reduced.response(w), full.b.columns);
    let attained = gain(frequency);
    if (attained - error).abs() > 1e-3 * error + slack {
        bail!("the error {error:e} is claimed at {frequency}, where it is {attained:e}; norm {norm:e}");
    }
    let mut sweep: Vec<f64> = full.frequencies().into_iter().chain(reduced.frequencies()).chain([frequency]).collect();
    sweep.sort_by(f64::total_cmp);
    let gains: Vec<f64> = sweep.iter().map(|&w| gain(w)).collect();
    let not_above = |w: f64, found: f64| {
        // NaN is above.
        if found <= upper * (1.0 + 1e-6) + slack {
            return Ok(());
        }
        bail!("the upper end is {upper:e}, at {w} it is {found:e}; norm {norm:e}")
    };
    sweep.iter().zip(&gains).try_for_each(|(&w, &found)| not_above(w, found))?;
    let mut peaks: Vec<usize> =
        (1..sweep.len().saturating_sub(1)).filter(|&i| gains[i] >= gains[i - 1] && gains[i] >= gains[i + 1]).collect();
    peaks.sort_by(|&i, &j| gains[j].total_cmp(&gains[i]));
    for i in peaks.into_iter().take(PEAKS) {
        let (w, found) = climb(gain, sweep[i - 1], sweep[i + 1]);
        not_above(w, found)?;
    }
    Ok(())
}

/// The highest point that a golden-section search finds between two frequencies.
fn climb(gain: impl Fn(f64) -> f64, mut low: f64, mut high: f64) -> (f64, f64) {
    let golden = (5_f64.sqrt() - 1.0) / 2.0;
    let at = |w: f64| (w, gain(w));
    let (mut left, mut right) = (at(high - golden * (high - low)), at(low + golden * (high - low)));
    for _ in 0..STEPS {
        if left.1 >= right.1 {
            (high, right) = (right.0, left);
            left = at(high - golden * (high - low));
        } else {
            (low, left) = (left.0, right);
            right = at(low + golden * (high - low));
        }
    }
    if left.1 >= right.1 { left } else { right }
}

impl Scale {
    fn is_extreme(self) -> bool {
        matches!(self, Scale::Both(..) | Scale::RowsApart)
    }
}

/// A system, and the modulus of its slowest pole.
fn draw(random: &mut Random, kind: Kind, scale: Scale) -> (System, f64) {
    let states = 1 + random.below(STATES);
    let slow = |random: &mut Random, digits: f64| 1.0 - 10_f64.powf(-digits * random.unit());
    let of = |random: &mut Random, n: usize, value: &mut dyn FnMut(&mut Random) -> f64| -> Vec<f64> {
        (0..n).map(|_| value(random)).collect()
    };
    let diagonal: Vec<f64> = match kind {
        Kind::Real | Kind::FarFromNormal => of(random, states, &mut |r| 0.999 * r.around()),
        Kind::Slow => of(random, states, &mut |r| slow(r, 5.9)),
        Kind::Slower => of(random, states, &mut |r| slow(r, 12.0)),
        Kind::Alternating => of(random, states, &mut |r| r.around().signum() * slow(r, 9.0)),
        Kind::NearlyRepeated => {
            let base = 0.99 * random.around();
            of(random, states, &mut |r| base + r.around() * 10_f64.powf(-6.0 - 10.0 * r.unit()))
        }
        Kind::Repeated => vec![0.99 * random.around(); states],
        Kind::Many => {
            let many = *random.choice(&[128, 256]);
            of(random, many, &mut |r| slow(r, 5.0))
        }
        Kind::LightlyDamped | Kind::NearEachOther | Kind::Nilpotent | Kind::Zero => vec![0.0; states],
    };
    let a = match kind {
        Kind::LightlyDamped | Kind::NearEachOther => {
            let (radius, angle) = (slow(random, 7.0), PI * random.unit());
            let blocks: Vec<(f64, f64)> = (0..states.div_ceil(2))
                .map(|_| match kind {
                    Kind::NearEachOther => (radius, angle + random.around() * 10_f64.powf(-2.0 - 5.0 * random.unit())),
                    _ => (slow(random, 8.0), PI * random.unit()),
                })
                .collect();
            Err(turned(random, &rotations(&blocks)))
        }
        Kind::FarFromNormal => {
            // Farther than this, the response in doubles says nothing.
            let (size, states) = (10_f64.powf(random.unit() - 1.0), states.min(10));
            let upper = Matrix::new(states, states, |i, j| match i.cmp(&j) {
                std::cmp::Ordering::Less => size * random.normal(),
                std::cmp::Ordering::Equal => 0.95 * diagonal[i],
                std::cmp::Ordering::Greater => 0.0,
            });
            Err(turned(random, &upper))
        }
        Kind::Nilpotent => Err(Matrix::new(states, states, |i, j| f64::from(u8::from(j == i + 1)))),
        _ => Ok(diagonal),
    };
    let radius = match &a {
        Ok(poles) => poles.iter().fold(0.0, |most: f64, pole| most.max(pole.abs())),
        // Of the dense ones the least that the kind allows.
        Err(_) if matches!(kind, Kind::LightlyDamped | Kind::NearEachOther) => 1.0 - 1e-8,
        Err(_) => 0.95,
    };
    let states = a.as_ref().map_or_else(|a| a.rows, Vec::len);
    let (inputs, outputs) = (1 + random.below(4), 1 + random.below(4));
    let (of_b, of_c) = if let Scale::Both(b, c) = scale { (b, c) } else { (0, 0) };
    let rows: Vec<f64> = (0..states)
        .map(|_| match scale {
            Scale::RowsApart => 10_f64.powf(-12.0 * random.unit()),
            Scale::ZeroInput => 0.0,
            Scale::SomeZero => random.below(2) as f64,
            _ => 10_f64.powi(of_b),
        })
        .collect();
    let b = Matrix::new(states, inputs, |i, _| rows[i] * random.normal());
    let of_c = if matches!(scale, Scale::ZeroOutput) { 0.0 } else { 10_f64.powi(of_c) };
    let c = Matrix::new(outputs, states, |_, _| of_c * random.normal());
    let direct = random.below(5) == 0;
    let d = direct.then(|| Matrix::new(outputs, inputs, |_, _| random.normal()));
    (System { a, b, c, d }, radius)
}

/// Blocks of two states, each a rotation.
fn rotations(blocks: &[(f64, f64)]) -> Matrix {
    Matrix::new(2 * blocks.len(), 2 * blocks.len(), |i, j| {
        let (radius, angle) = blocks[i / 2];
        match (i / 2 == j / 2, i % 2, j % 2) {
            (false, ..) => 0.0,
            (true, 0, 1) => radius * angle.sin(),
            (true, 1, 0) => -radius * angle.sin(),
            _ => radius * angle.cos(),
        }
    })
}

/// The same system in other coordinates: those behind two reflections.
fn turned(random: &mut Random, a: &Matrix) -> Matrix {
    let mut turned = a.clone();
    for _ in 0..2 {
        let v: Vec<f64> = (0..a.rows).map(|_| random.normal()).collect();
        let square: f64 = v.iter().map(|x| x * x).sum();
        let n = a.rows;
        let left: Vec<f64> = (0..n).map(|j| (0..n).map(|i| v[i] * turned.at(i, j)).sum()).collect();
        let once = Matrix::new(n, n, |i, j| turned.at(i, j) - 2.0 * v[i] * left[j] / square);
        let right: Vec<f64> = (0..n).map(|i| (0..n).map(|j| once.at(i, j) * v[j]).sum()).collect();
        turned = Matrix::new(n, n, |i, j| once.at(i, j) - 2.0 * right[i] * v[j] / square);
    }
    turned
}

impl System {
    /// As a file of doubles.
    fn to_bytes(&self) -> Vec<u8> {
        let a = match &self.a {
            Ok(poles) => (vec![poles.len()], poles.as_slice()),
            Err(a) => (vec![a.rows, a.columns], a.values.as_slice()),
        };
        let of = |m: &'_ Matrix| vec![m.rows, m.columns];
        let mut arrays =
            vec![("A", a), ("B", (of(&self.b), &self.b.values[..])), ("C", (of(&self.c), &self.c.values[..]))];
        arrays.extend(self.d.as_ref().map(|d| ("D", (of(d), &d.values[..]))));
        let (mut header, mut body) = (serde_json::Map::new(), Vec::new());
        for (name, (shape, values)) in arrays {
            let first = body.len();
            body.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            header.insert(name.into(), json!({"dtype": "F64", "shape": shape, "data_offsets": [first, body.len()]}));
        }
        let header = Value::from(header).to_string();
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &body].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (size, rest) = bytes.split_first_chunk().context("it is too short")?;
        let (header, body) = rest.split_at_checked(u64::from_le_bytes(*size) as usize).context("it is too short")?;
        let header: Value = serde_json::from_slice(header)?;
        let read = |name: &str| -> Result<Option<Matrix>> {
            let entry = &header[name];
            if entry.is_null() {
                return Ok(None);
            }
            let range = |at: usize| entry["data_offsets"][at].as_u64().map(|value| value as usize);
            let bytes = body.get(range(0).context(name.to_owned())?..range(1).context(name.to_owned())?);
            let bytes = bytes.with_context(|| format!("{name} ends after the file"))?;
            let values = match entry["dtype"].as_str() {
                Some("F64") => bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect(),
                Some("F32") => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes).into()).collect(),
                other => bail!("{name} is of {other:?}"),
            };
            let shape = entry["shape"].as_array().context("a shape")?;
            let of = |at: usize| shape.get(at).and_then(Value::as_u64).map(|size| size as usize);
            Ok(Some(Matrix { rows: of(0).context("a shape")?, columns: of(1).unwrap_or(0), values }))
        };
        let must = |name: &str| read(name)?.with_context(|| format!("{name} is missing"));
        let a = must("A")?;
        let one = header["A"]["shape"].as_array().is_some_and(|shape| shape.len() == 1);
        Ok(Self { a: if one { Ok(a.values) } else { Err(a) }, b: must("B")?, c: must("C")?, d: read("D")? })
    }

    /// Where something may happen: everywhere a little, and near the ends and the angles of the poles much.
    fn frequencies(&self) -> Vec<f64> {
        let states = self.b.rows;
        let count = if states > 60 { 60 } else { 400 };
        let mut all: Vec<f64> = (0..=count).map(|i| PI * f64::from(i) / f64::from(count)).collect();
        all.extend((0..64).flat_map(|i| {
            let near = 10_f64.powf(-16.0 + f64::from(i) / 4.0);
            [near.min(PI), (PI - near).max(0.0)]
        }));
        // The poles of blocks on the diagonal; those of a full A are climbed to from the first grid.
        if let Err(a) = &self.a {
            for i in 0..states.saturating_sub(1) {
                let (own, next) = (a.at(i, i), a.at(i, i + 1) * a.at(i + 1, i));
                if next < 0.0 {
                    let (angle, width) =
                        ((-next).sqrt().atan2(own), (1.0 - own.hypot((-next).sqrt())).abs().max(1e-16));
                    let offsets = (-20..=20).map(|step| angle + width * f64::from(step) / 5.0);
                    all.extend(offsets.filter(|w| (0.0..=PI).contains(w)));
                }
            }
        }
        all
    }

    /// `C (z - A)^-1 B + D` at an angle, row by row.
    fn response(&self, w: f64) -> Vec<Complex64> {
        let (states, inputs, outputs) = (self.b.rows, self.b.columns, self.c.rows);
        // The states that each input leads to.
        let mut x: Vec<Complex64> = self.b.values.iter().map(|&value| value.into()).collect();
        match &self.a {
            Ok(poles) => {
                // z - 1 and z + 1 have no cancellation in them, nor has the distance of a pole to the nearer one.
                let half = Complex64::cis(w / 2.0);
                let (one, minus) = (Complex64::i() * 2.0 * (w / 2.0).sin() * half, 2.0 * (w / 2.0).cos() * half);
                for (i, &pole) in poles.iter().enumerate() {
                    let distance = if pole >= 0.0 { one + (1.0 - pole) } else { minus - (1.0 + pole) };
                    x[i * inputs..(i + 1) * inputs].iter_mut().for_each(|value| *value /= distance);
                }
            }
            Err(a) => {
                let z = Complex64::cis(w);
                let mut m: Vec<Complex64> = a.values.iter().map(|&value| (-value).into()).collect();
                (0..states).for_each(|i| m[i * states + i] += z);
                solve(&mut m, &mut x, states, inputs);
            }
        }
        let mut out = Vec::with_capacity(outputs * inputs);
        for row in 0..outputs {
            for column in 0..inputs {
                let sum: Complex64 = (0..states).map(|k| x[k * inputs + column] * self.c.at(row, k)).sum();
                out.push(sum + self.d.as_ref().map_or(0.0, |d| d.at(row, column)));
            }
        }
        out
    }
}

/// Gaussian elimination with the largest pivot of each column.
fn solve(m: &mut [Complex64], x: &mut [Complex64], n: usize, inputs: usize) {
    for step in 0..n {
        let pivot = (step..n).max_by(|&i, &j| m[i * n + step].norm().total_cmp(&m[j * n + step].norm()));
        let pivot = pivot.unwrap_or(step);
        (0..n).for_each(|k| m.swap(step * n + k, pivot * n + k));
        (0..inputs).for_each(|k| x.swap(step * inputs + k, pivot * inputs + k));
        for i in step + 1..n {
            let factor = m[i * n + step] / m[step * n + step];
            for k in step..n {
                let product = factor * m[step * n + k];
                m[i * n + k] -= product;
            }
            for k in 0..inputs {
                let product = factor * x[step * inputs + k];
                x[i * inputs + k] -= product;
            }
        }
    }
    for i in (0..n).rev() {
        for k in 0..inputs {
            let known: Complex64 = (i + 1..n).map(|j| m[i * n + j] * x[j * inputs + k]).sum();
            x[i * inputs + k] = (x[i * inputs + k] - known) / m[i * n + i];
        }
    }
}

/// The largest singular value of the difference of two matrices with a few columns, from below; infinite where an element is not a number.
fn largest(one: &[Complex64], other: &[Complex64], columns: usize) -> f64 {
    let difference: Vec<Complex64> = one.iter().zip(other).map(|(a, b)| a - b).collect();
    if difference.iter().any(|value| value.is_nan()) {
        return f64::INFINITY;
    }
    let most = difference.iter().fold(0.0, |most: f64, value| most.max(value.norm()));
    if most == 0.0 || !most.is_finite() {
        return most;
    }
    let rows: Vec<Vec<Complex64>> =
        difference.chunks(columns).map(|row| row.iter().map(|value| value / most).collect()).collect();
    // The 1024th power of the product with itself is all but a projection on its largest.
    let mut power: Vec<Complex64> = (0..columns * columns)
        .map(|at| rows.iter().map(|row| row[at / columns].conj() * row[at % columns]).sum())
        .collect();
    for _ in 0..10 {
        let scale = power.iter().fold(0.0, |most: f64, value| most.max(value.norm()));
        power.iter_mut().for_each(|value| *value /= scale);
        let entry = |at: usize| {
            (0..columns).map(|k| power[at / columns * columns + k] * power[k * columns + at % columns]).sum()
        };
        power = (0..columns * columns).map(entry).collect();
    }
    let size = |vector: &[Complex64]| vector.iter().map(Complex64::norm_sqr).sum::<f64>().sqrt();
    let of = |column: usize| (0..columns).map(|row| power[row * columns + column]).collect::<Vec<_>>();
    let vectors = (0..columns).map(of).filter(|vector| size(vector) > 0.0);
    let gain = |vector: Vec<Complex64>| {
        let out: Vec<Complex64> = rows.iter().map(|row| row.iter().zip(&vector).map(|(a, b)| a * b).sum()).collect();
        size(&out) / size(&vector)
    };
    most * vectors.map(gain).fold(0.0, f64::max)
}
