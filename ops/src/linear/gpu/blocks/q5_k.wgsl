const SIZE = 256u;
const BYTES = 176u;
fn block_element(at: u32, i: u32) -> f32 {
    let part = i / 32u;
    let scales = scale_and_minimum(at + 4u, part);
    let low = (byte(at + 48u + 32u * (part / 2u) + i % 32u) >> (4u * (part % 2u))) & 15u;
    let high = (byte(at + 16u + i % 32u) >> part) & 1u;
    return half(at) * scales.x * f32(low | (high << 4u)) - half(at + 2u) * scales.y;
}
