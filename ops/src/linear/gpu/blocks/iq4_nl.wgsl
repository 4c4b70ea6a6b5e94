const SIZE = 32u;
const BYTES = 18u;

// The 16 values of the codebook as signed bytes, in the order of the codes.
fn value(code: u32) -> f32 {
    var word = 0xbfad9881u;
    if code >= 4u { word = 0xf6eaddcfu; }
    if code >= 8u { word = 0x26190d01u; }
    if code >= 12u { word = 0x71594535u; }
    return f32(bitcast<i32>(word << (24u - 8u * (code % 4u))) >> 24u);
}

fn block_element(at: u32, i: u32) -> f32 { return half(at) * value(nibble(at + 2u, i)); }
