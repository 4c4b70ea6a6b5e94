// cap tanh(x / cap); x itself without a cap (0). The shading language allows its own tanh an error of 1e-5.
fn soft_cap(x: f32, cap: f32) -> f32 {
    if cap == 0.0 { return x; }
    let e = exp(-2.0 * abs(x) / cap);
    return sign(x) * cap * (1.0 - e) / (1.0 + e);
}

