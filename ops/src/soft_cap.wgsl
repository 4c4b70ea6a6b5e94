// cap tanh(x / cap); x itself without a cap (0). The shading language allows its own tanh an error of 1e-5.
fn soft_cap(x: f32, cap: f32) -> f32 {
    if cap == 0.0 { return x; }
    // Near 0 the quotient below has the rounding of 1: the series up to x^7, whose rest is 2e-10 of the value.
    let z = x / cap;
    if abs(z) < 0.1 {
        let s = z * z;
        return x * (1.0 - s * (1.0 / 3.0 - s * (2.0 / 15.0 - s * (17.0 / 315.0))));
    }
    let e = exp(-2.0 * abs(x) / cap);
    return sign(x) * cap * (1.0 - e) / (1.0 + e);
}

