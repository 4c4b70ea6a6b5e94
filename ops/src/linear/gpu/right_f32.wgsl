@group(0) @binding(1) var<storage, read> b: array<vec4<u32>>;

// Four elements from `i` on as they are stored; there are `inside` of them, none or all.
fn load_right(i: u32, inside: u32) -> vec4<u32> {
    if inside == 0u { return vec4(0u); }
    return b[i / 4u];
}

// What `load_right` has loaded.
fn right(stored: vec4<u32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(stored);
}
