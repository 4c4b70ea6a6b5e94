@group(0) @binding(1) var<storage, read> b: array<u32>;

// Here `p.block` is the binary logarithm of the block's size, which is at least 4.
fn right(i: u32, inside: u32) -> vec4<f32> {
    if inside == 0u { return vec4(0.0); }
    // Bytes in the order of memory, the first element of each in its high nibble.
    let codes = b[i / 8u] >> (4u * (i & 4u));
    let decoded = vec4(
        values[(codes >> 4u) & 0xfu],
        values[codes & 0xfu],
        values[(codes >> 12u) & 0xfu],
        values[(codes >> 8u) & 0xfu],
    );
    return rounded(decoded * scales[i >> p.block]);
}
