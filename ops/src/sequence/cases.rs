//! Cases and oracles.

use super::{NO_STEP, Selection, concat_time, narrow_time, select_time};
use crate::testing::{Case, Input, ShapeRng};

fn narrow([batch, total, width]: [usize; 3], first: usize, steps: usize) -> Case {
    Case {
        name: format!("narrow {first}+{steps} of {batch} x {total} x {width}"),
        inputs: vec![Input::normal([batch, total, width], 1.0)],
        run: Box::new(move |x| narrow_time(&x[0], first, steps)),
        oracle: Box::new(move |x| {
            let index = |b, t, i| (b * total + first + t) * width + i;
            let steps = (0..batch).flat_map(|b| (0..steps).map(move |t| (b, t)));
            steps.flat_map(|(b, t)| (0..width).map(move |i| x[0].data[index(b, t, i)])).collect()
        }),
    }
}

fn concat(batch: usize, steps: &[usize], width: usize) -> Case {
    let sizes = steps.to_vec();
    Case {
        name: format!("concat {steps:?} of {batch} x {width}"),
        inputs: steps.iter().map(|&steps| Input::normal([batch, steps, width], 1.0)).collect(),
        run: Box::new(|x| concat_time(&x.iter().collect::<Vec<_>>())),
        oracle: Box::new(move |x| {
            let part = |b: usize, i: usize| x[i].data[b * sizes[i] * width..][..sizes[i] * width].to_vec();
            (0..batch).flat_map(|b| (0..sizes.len()).flat_map(|i| part(b, i)).collect::<Vec<_>>()).collect()
        }),
    }
}

fn select([batch, total, width]: [usize; 3], steps: Vec<u32>) -> Case {
    let selection = Selection::new(steps.clone(), total).expect("a selection");
    Case {
        name: format!("select {steps:?} of {batch} x {total} x {width}"),
        inputs: vec![Input::normal([batch, total, width], 1.0)],
        run: Box::new(move |x| select_time(&x[0], &selection)),
        oracle: Box::new(move |x| {
            let of = |b: usize, step: u32, i: usize| match step {
                NO_STEP => 0.0,
                step => x[0].data[(b * total + step as usize) * width + i],
            };
            let places = (0..batch).flat_map(|b| steps.iter().map(move |&step| (b, step)));
            places.flat_map(|(b, step)| (0..width).map(move |i| of(b, step, i))).collect()
        }),
    }
}

pub fn cases() -> Vec<Case> {
    vec![
        narrow([2, 5, 3], 1, 3),
        narrow([1, 1, 1], 0, 1),
        narrow([2, 4, 2], 4, 0),
        concat(2, &[3, 4], 5),
        concat(1, &[0, 2], 3),
        concat(2, &[2], 3),
        concat(1, &[2, 0, 3, 1], 2),
        select([1, 4, 3], vec![3, NO_STEP, 0]),
        select([2, 3, 2], vec![0, 2, 1, NO_STEP]),
        select([1, 2, 2], vec![]),
    ]
}

pub fn random(rng: &mut ShapeRng) -> Case {
    let (batch, width, left, right) = (rng.size(0, 3), rng.size(1, 4), rng.size(0, 5), rng.size(0, 5));
    if rng.coin() {
        // Every other step, the last one first, and a gap.
        let steps = (0..left as u32).rev().step_by(2).chain([NO_STEP]).collect();
        return select([batch, left, width], steps);
    }
    if rng.coin() { concat(batch, &[left, right], width) } else { narrow([batch, left + right, width], left, right) }
}
