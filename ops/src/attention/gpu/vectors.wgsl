// Inputs in vectors of four, for heads of a multiple of 4 elements.
@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> g: array<vec4<f32>>;

// Four elements from `i` on, of which there are `inside`: here all.
fn load(source: u32, i: u32, inside: u32) -> vec4<f32> {
    switch source {
        case Q: { return q[i / 4u]; }
        case K: { return k[i / 4u]; }
        case V: { return v[i / 4u]; }
        default: { return g[i / 4u]; }
    }
}
