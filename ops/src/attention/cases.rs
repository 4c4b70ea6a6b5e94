//! Cases; the oracle is beside them.

use super::cpu::tiles::Shape;
use super::{Heads, ScoreSettings, attention, oracle};
use crate::testing::{Case, Input, ShapeRng};

fn case(
    batch: usize,
    [queries, keys]: [usize; 2],
    heads: Heads,
    head_dim: usize,
    settings: impl Into<ScoreSettings>,
) -> Case {
    let settings @ ScoreSettings { window, cap } = settings.into();
    let (width, kv_width) = (heads.query * head_dim, heads.key_value * head_dim);
    Case {
        name: format!("{batch} x {queries}/{keys}, {heads:?} of {head_dim}, {settings:?}"),
        inputs: vec![
            Input::normal([batch, queries, width], 1.0),
            Input::normal([batch, keys, kv_width], 1.0),
            Input::normal([batch, keys, kv_width], 1.0),
        ],
        run: Box::new(move |x| attention(&x[0], &x[1], &x[2], heads, settings)),
        oracle: Box::new(move |x| {
            let shape = Shape {
                batch,
                heads: heads.query,
                kv_heads: heads.key_value,
                head_dim,
                queries,
                keys,
                offset: keys - queries,
                window,
                cap,
            };
            let scale = 1.0 / (head_dim as f64).sqrt();
            let unused = vec![0.0; x[0].data.len()];
            oracle::attention(&shape, scale, &x[0].data, &x[1].data, &x[2].data, &unused).out
        }),
    }
}

const fn heads(query: usize, key_value: usize) -> Heads {
    Heads { query, key_value }
}

pub fn cases() -> Vec<Case> {
    vec![
        case(2, [7, 7], heads(2, 2), 3, None),
        case(1, [1, 1], heads(1, 1), 1, None),
        case(0, [4, 4], heads(2, 1), 2, None),
        case(1, [130, 130], heads(2, 2), 32, None),
        case(1, [65, 65], heads(4, 2), 5, Some(9)),
        case(2, [3, 11], heads(4, 1), 8, None),
        case(1, [1, 40], heads(2, 2), 4, Some(7)),
        case(2, [70, 70], heads(4, 2), 8, ScoreSettings { window: None, cap: Some(0.7) }),
        case(1, [33, 41], heads(2, 2), 5, ScoreSettings { window: Some(9), cap: Some(50.0) }),
        // Usual heads, over edges of the tiles of a GPU: 64 rows of all heads that share keys, 64 keys.
        case(1, [65, 129], heads(3, 1), 64, None),
        case(1, [70, 70], heads(4, 2), 80, Some(40)),
        case(1, [40, 90], heads(4, 2), 128, ScoreSettings { window: Some(66), cap: Some(5.0) }),
        case(2, [66, 66], heads(2, 1), 256, None),
        case(1, [3, 70], heads(1, 1), 255, ScoreSettings { window: Some(65), cap: Some(3.0) }),
        case(1, [200, 200], heads(2, 1), 4, Some(100)),
    ]
}

pub fn random(rng: &mut ShapeRng) -> Case {
    let (queries, shared, groups) = (rng.size(1, 40), rng.size(1, 2), rng.size(1, 2));
    let keys = queries + if rng.coin() { rng.size(0, 9) } else { 0 };
    let window = rng.coin().then(|| rng.size(1, 30));
    let cap = rng.coin().then(|| 0.1 * rng.size(3, 60) as f64);
    case(rng.size(0, 2), [queries, keys], heads(shared * groups, shared), rng.size(1, 9), ScoreSettings { window, cap })
}
