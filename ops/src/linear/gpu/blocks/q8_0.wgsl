const SIZE = 32u;
const BYTES = 34u;
fn block_element(at: u32, i: u32) -> f32 { return signed_byte(at + 2u + i) * half(at); }
