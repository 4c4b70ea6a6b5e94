@group(0) @binding(1) var<storage, read> b: array<u32>;

// Codes and the scale of four elements from `i` on; there are `inside` of them, none or all. Here `p.block` is the binary
// logarithm of the block's size, which is at least 4.
fn load_right(i: u32, inside: u32) -> vec4<u32> {
    if inside == 0u { return vec4(0u); }
    return vec4(b[i / 8u] >> (4u * (i & 4u)), bitcast<u32>(scales[i >> p.block]), 0u, 0u);
}

// What `load_right` has loaded. Bytes are in the order of memory, the first element of each in its high nibble.
fn right(stored: vec4<u32>) -> vec4<f32> {
    let codes = stored.x;
    let decoded = vec4(
        values[(codes >> 4u) & 0xfu],
        values[codes & 0xfu],
        values[(codes >> 12u) & 0xfu],
        values[(codes >> 8u) & 0xfu],
    );
    return rounded(decoded * bitcast<f32>(stored.y));
}
