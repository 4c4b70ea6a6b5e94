const SIZE = 256u;
const BYTES = 84u;
fn block_element(at: u32, i: u32) -> f32 {
    let l = i % 128u;
    let scales = byte(at + i / 16u);
    let code = (byte(at + 16u + 32u * (i / 128u) + l % 32u) >> (2u * (l / 32u))) & 3u;
    return half(at + 80u) * f32(scales & 15u) * f32(code) - half(at + 82u) * f32(scales >> 4u);
}
