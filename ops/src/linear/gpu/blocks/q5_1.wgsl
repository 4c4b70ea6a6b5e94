const SIZE = 32u;
const BYTES = 24u;
fn block_element(at: u32, i: u32) -> f32 {
    return f32(nibble(at + 8u, i) | (bit(at + 4u, i) << 4u)) * half(at) + half(at + 2u);
}
