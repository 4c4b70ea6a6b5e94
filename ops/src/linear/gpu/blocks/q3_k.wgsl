const SIZE = 256u;
const BYTES = 110u;
fn block_element(at: u32, i: u32) -> f32 {
    let l = i % 128u;
    let part = i / 16u;
    let low_scale = (byte(at + 96u + part % 8u) >> (4u * (part / 8u))) & 15u;
    let high_scale = (byte(at + 104u + part % 4u) >> (2u * (part / 4u))) & 3u;
    let two = (byte(at + 32u + 32u * (i / 128u) + l % 32u) >> (2u * (l / 32u))) & 3u;
    let one = (byte(at + i % 32u) >> (i / 32u)) & 1u;
    return half(at + 108u) * (f32(low_scale | (high_scale << 4u)) - 32.0) * (f32(two | (one << 2u)) - 4.0);
}
