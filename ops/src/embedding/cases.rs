//! Cases and oracles.

use super::{add_embedding, embedding};
use crate::testing::{Case, Input, ShapeRng};

fn case(shape: &[usize], vocabulary: usize, width: usize) -> Case {
    Case {
        name: format!("{shape:?} of {vocabulary} x {width}"),
        inputs: vec![Input::tokens(shape, vocabulary), Input::normal([vocabulary, width], 1.0)],
        run: Box::new(|x| embedding(&x[0], &x[1])),
        oracle: Box::new(|x| {
            let rows: Vec<&[f64]> = x[1].rows().collect();
            x[0].data.iter().flat_map(|&id| rows[id as usize].to_vec()).collect()
        }),
    }
}

fn added(shape: &[usize], vocabulary: usize, width: usize) -> Case {
    let plain = case(shape, vocabulary, width);
    let mut inputs = plain.inputs;
    inputs.push(Input::normal([shape, &[width]].concat(), 1.0));
    Case {
        name: format!("{}, onto a stream", plain.name),
        inputs,
        run: Box::new(|x| add_embedding(&x[2], &x[0], &x[1])),
        oracle: Box::new(move |x| (plain.oracle)(&x[..2]).iter().zip(&x[2].data).map(|(y, base)| y + base).collect()),
    }
}

pub fn cases() -> Vec<Case> {
    [(&[2, 7][..], 5, 3), (&[0], 4, 2), (&[1], 1, 1), (&[4, 33], 17, 129)]
        .into_iter()
        .flat_map(|(shape, vocabulary, width)| [case(shape, vocabulary, width), added(shape, vocabulary, width)])
        .collect()
}

pub fn random(rng: &mut ShapeRng) -> Case {
    let kind = [case, added][rng.size(0, 1)];
    kind(&[rng.size(0, 4), rng.size(1, 9)], rng.size(1, 7), rng.size(1, 6))
}
