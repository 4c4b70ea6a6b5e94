// Bytes of blocks, wherever they begin. What follows says how large a block is, and what element `i` of the block at byte `at` is.
@group(0) @binding(1) var<storage, read> b: array<u32>;

fn byte(at: u32) -> u32 { return (b[at / 4u] >> (8u * (at % 4u))) & 0xffu; }

fn signed_byte(at: u32) -> f32 { return f32(bitcast<i32>(byte(at) << 24u) >> 24u); }

// By bits: `unpack2x16float` may make zero of the smallest, and many scales are.
fn half(at: u32) -> f32 {
    let x = byte(at) | (byte(at + 1u) << 8u);
    let exponent = (x >> 10u) & 0x1fu;
    let small = f32(x & 0x3ffu) / 16777216.0;
    let usual = bitcast<f32>(select(((x & 0x7fffu) << 13u) + 0x38000000u, 0x7f800000u | ((x & 0x3ffu) << 13u), exponent == 31u));
    return select(1.0, -1.0, (x & 0x8000u) != 0u) * select(usual, small, exponent == 0u);
}

// Bit `i` of the bits from byte `at` on.
fn bit(at: u32, i: u32) -> u32 { return (byte(at + i / 8u) >> (i % 8u)) & 1u; }

// Nibble `i` of 16 bytes: the low halves, then the high ones.
fn nibble(at: u32, i: u32) -> u32 { return (byte(at + i % 16u) >> (4u * (i / 16u))) & 15u; }

fn element(i: u32) -> f32 { return block_element(i / SIZE * BYTES, i % SIZE); }
