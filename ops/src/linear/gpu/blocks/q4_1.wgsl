const SIZE = 32u;
const BYTES = 20u;
fn block_element(at: u32, i: u32) -> f32 { return f32(nibble(at + 4u, i)) * half(at) + half(at + 2u); }
