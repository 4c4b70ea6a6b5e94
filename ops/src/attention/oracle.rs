//! Attention by its definition, in doubles, with every score in memory.

use super::cpu::tiles::Shape;

/// Output, log-sum-exps and, given the output's gradient, the gradients of q, k and v. All without gaps.
pub struct Attention {
    /// `[batch, queries, heads, head_dim]`
    pub out: Vec<f64>,
    /// `[batch, heads, queries]`
    pub lse: Vec<f64>,
    /// Gradients of q, k and v.
    pub gradients: [Vec<f64>; 3],
}

/// Attention of `q` to `k` and `v`, and its gradients when the output's is `d_out`.
pub fn attention(shape: &Shape, scale: f64, q: &[f64], k: &[f64], v: &[f64], d_out: &[f64]) -> Attention {
    let dim = shape.head_dim;
    let mut result = Attention {
        out: vec![0.0; q.len()],
        lse: Vec::new(),
        gradients: [vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]],
    };
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    for b in 0..shape.batch {
        for h in 0..shape.heads {
            for i in 0..shape.queries {
                let query = ((b * shape.queries + i) * shape.heads + h) * dim;
                let key = |j| ((b * shape.keys + j) * shape.kv_heads + h / (shape.heads / shape.kv_heads)) * dim;
                let position = shape.offset + i;
                let sees = |&j: &usize| j <= position && shape.window.is_none_or(|window| j + window > position);
                let seen: Vec<usize> = (0..shape.keys).filter(sees).collect();
                let capped = |s: f64| shape.cap.map_or(s, |cap| cap * (s / cap).tanh());
                let slope = |s: f64| shape.cap.map_or(1.0, |cap| 1.0 - (s / cap) * (s / cap));
                let scores: Vec<f64> =
                    seen.iter().map(|&j| capped(scale * dot(&q[query..][..dim], &k[key(j)..][..dim]))).collect();
                let maximum = scores.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
                let lse = maximum + scores.iter().map(|s| (s - maximum).exp()).sum::<f64>().ln();
                result.lse.push(lse);
                let p: Vec<f64> = scores.iter().map(|s| (s - lse).exp()).collect();
                let d_p: Vec<f64> = seen.iter().map(|&j| dot(&d_out[query..][..dim], &v[key(j)..][..dim])).collect();
                let mean = dot(&p, &d_p);
                for (((&j, &p), &d_p), &score) in seen.iter().zip(&p).zip(&d_p).zip(&scores) {
                    let d_s = p * (d_p - mean) * slope(score) * scale;
                    for c in 0..dim {
                        result.out[query + c] += p * v[key(j) + c];
                        result.gradients[0][query + c] += d_s * k[key(j) + c];
                        result.gradients[1][key(j) + c] += d_s * q[query + c];
                        result.gradients[2][key(j) + c] += p * d_out[query + c];
                    }
                }
            }
        }
    }
    result
}
