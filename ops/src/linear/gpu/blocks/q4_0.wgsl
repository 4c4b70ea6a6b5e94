const SIZE = 32u;
const BYTES = 18u;
fn block_element(at: u32, i: u32) -> f32 { return (f32(nibble(at + 2u, i)) - 8.0) * half(at); }
