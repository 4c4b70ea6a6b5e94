const SIZE = 32u;
const BYTES = 22u;
fn block_element(at: u32, i: u32) -> f32 {
    return (f32(nibble(at + 6u, i) | (bit(at + 2u, i) << 4u)) - 16.0) * half(at);
}
