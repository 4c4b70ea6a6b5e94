// Bytes of blocks, wherever they begin. What follows says how large a block is, and what element `i` of the block at byte `at` is.
@group(0) @binding(1) var<storage, read> b: array<u32>;

fn byte(at: u32) -> u32 { return (b[at / 4u] >> (8u * (at % 4u))) & 0xffu; }

fn signed_byte(at: u32) -> f32 { return f32(bitcast<i32>(byte(at) << 24u) >> 24u); }

fn half(at: u32) -> f32 { return unpack2x16float(byte(at) | (byte(at + 1u) << 8u)).x; }

// Bit `i` of the bits from byte `at` on.
fn bit(at: u32, i: u32) -> u32 { return (byte(at + i / 8u) >> (i % 8u)) & 1u; }

// Nibble `i` of 16 bytes: the low halves, then the high ones.
fn nibble(at: u32, i: u32) -> u32 { return (byte(at + i % 16u) >> (4u * (i / 16u))) & 15u; }

fn element(i: u32) -> f32 { return block_element(i / SIZE * BYTES, i % SIZE); }
