@group(0) @binding(0) var<storage, read_write> out: array<vec2<u32>>;

// What f16 cannot hold, or is not finite, becomes a number that is not one: nothing is clipped.
fn put(i: u32, value: vec4<f32>) {
    const LARGEST = 0x477fe000u;
    const NOT_A_NUMBER = 0x7e00u;
    let fits = (bitcast<vec4<u32>>(value) & vec4(0x7fffffffu)) <= vec4(LARGEST);
    let safe = select(vec4(0.0), value, fits);
    let lost = select(vec4(NOT_A_NUMBER), vec4(0u), fits);
    let low = pack2x16float(safe.xy) | lost.x | (lost.y << 16u);
    let high = pack2x16float(safe.zw) | lost.z | (lost.w << 16u);
    out[i] = vec2(low, high);
}
