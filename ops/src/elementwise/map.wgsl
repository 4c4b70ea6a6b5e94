struct Parameters { elements: u32, a: f32, b: f32 }
var<immediate> p: Parameters;
override OP: u32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

// By its series where exp(x) - 1 would cancel.
fn expm1(x: f32) -> f32 {
    if abs(x) > 0.35 { return exp(x) - 1.0; }
    return x * (1.0 + x * (0.5 + x * (1.0 / 6.0 + x * (1.0 / 24.0 + x * (1.0 / 120.0 + x * (1.0 / 720.0))))));
}

// ln(1 + x) for 0 <= x <= 1, as 2 atanh(s) by its series: near 1 the logarithm of the shading language may be off by 5e-7, which
// is much of a small result.
fn log1p(x: f32) -> f32 {
    let s = x / (2.0 + x);
    let z = s * s;
    let series = 1.0 / 3.0 + z * (1.0 / 5.0 + z * (1.0 / 7.0 + z * (1.0 / 9.0 + z * (1.0 / 11.0 + z / 13.0))));
    return 2.0 * (s + s * z * series);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 256u + lane;
    if i >= p.elements { return; }
    let v = x[i];
    switch OP {
        case 0u: { y[i] = p.a * v; }
        case 1u: { y[i] = exp(v); }
        case 2u: { y[i] = expm1(v); }
        case 3u: { y[i] = max(v, 0.0) + log1p(exp(-abs(v))); }
        case 5u: { y[i] = soft_cap(v, p.a); }
        case 6u: { y[i] = circle(v, 0); }
        case 7u: { y[i] = circle(v, 1); }
        // NaN stays NaN.
        default: { y[i] = select(min(max(v, p.a), p.b), v, (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u); }
    }
}
