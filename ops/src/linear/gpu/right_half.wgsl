@group(0) @binding(1) var<storage, read> b: array<vec2<u32>>;

// Four elements from `i` on as they are stored; there are `inside` of them, none or all.
fn load_right(i: u32, inside: u32) -> vec4<u32> {
    if inside == 0u { return vec4(0u); }
    return vec4(b[i / 4u], 0u, 0u);
}

// What `load_right` has loaded.
fn right(stored: vec4<u32>) -> vec4<f32> {
    let w = stored.xy;
    if STORED == 1u {
        return bitcast<vec4<f32>>(vec4(w.x << 16u, w.x & 0xffff0000u, w.y << 16u, w.y & 0xffff0000u));
    }
    return vec4(unpack2x16float(w.x), unpack2x16float(w.y));
}
