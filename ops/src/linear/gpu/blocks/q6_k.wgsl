const SIZE = 256u;
const BYTES = 210u;
fn block_element(at: u32, i: u32) -> f32 {
    let upper = i / 128u;
    let l = i % 128u;
    let low = (byte(at + 64u * upper + l % 64u) >> (4u * (l / 64u))) & 15u;
    let high = (byte(at + 128u + 32u * upper + l % 32u) >> (2u * (l / 32u))) & 3u;
    return half(at + 208u) * signed_byte(at + 192u + i / 16u) * (f32(low | (high << 4u)) - 32.0);
}
