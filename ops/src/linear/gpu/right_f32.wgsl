@group(0) @binding(1) var<storage, read> b: array<vec4<u32>>;

fn right(i: u32, inside: u32) -> vec4<f32> {
    if inside == 0u { return vec4(0.0); }
    return bitcast<vec4<f32>>(b[i / 4u]);
}
