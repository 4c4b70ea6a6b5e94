// Scale and minimum of part `j`, six bits each, from 12 bytes.
fn scale_and_minimum(at: u32, j: u32) -> vec2<f32> {
    if j < 4u { return vec2(f32(byte(at + j) & 63u), f32(byte(at + j + 4u) & 63u)); }
    let low = byte(at + j + 4u);
    return vec2(f32((low & 15u) | ((byte(at + j - 4u) >> 6u) << 4u)), f32((low >> 4u) | ((byte(at + j) >> 6u) << 4u)));
}
