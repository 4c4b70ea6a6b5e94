// Inputs element by element, for heads of any width.
@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(2) var<storage, read> v: array<f32>;
@group(0) @binding(3) var<storage, read> g: array<f32>;

fn load_one(source: u32, i: u32) -> f32 {
    switch source {
        case Q: { return q[i]; }
        case K: { return k[i]; }
        case V: { return v[i]; }
        default: { return g[i]; }
    }
}

// Four elements from `i` on, of which there are `inside`, one at least.
fn load(source: u32, i: u32, inside: u32) -> vec4<f32> {
    var value = vec4(load_one(source, i), 0.0, 0.0, 0.0);
    if inside > 1u { value.y = load_one(source, i + 1u); }
    if inside > 2u { value.z = load_one(source, i + 2u); }
    if inside > 3u { value.w = load_one(source, i + 3u); }
    return value;
}
