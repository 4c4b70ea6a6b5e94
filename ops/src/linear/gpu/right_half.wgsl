@group(0) @binding(1) var<storage, read> b: array<vec2<u32>>;

fn right(i: u32, inside: u32) -> vec4<f32> {
    if inside == 0u { return vec4(0.0); }
    let w = b[i / 4u];
    if STORED == 1u {
        return bitcast<vec4<f32>>(vec4(w.x << 16u, w.x & 0xffff0000u, w.y << 16u, w.y & 0xffff0000u));
    }
    return vec4(unpack2x16float(w.x), unpack2x16float(w.y));
}
