// The right operand, if it is not in blocks, element by element.
@group(0) @binding(1) var<storage, read> b: array<u32>;

fn element(i: u32) -> f32 {
    switch STORED {
        case 0u: { return bitcast<f32>(b[i]); }
        case 1u: { return bitcast<f32>(((b[i / 2u] >> (16u * (i % 2u))) & 0xffffu) << 16u); }
        case 2u: { return unpack2x16float(b[i / 2u])[i % 2u]; }
        default: {
            // Bytes in the order of memory, the first element of each in its high nibble.
            let code = (b[i / 8u] >> (8u * ((i / 2u) % 4u) + select(0u, 4u, i % 2u == 0u))) & 0xfu;
            return rounded(vec4(values[code] * scales[i / p.block])).x;
        }
    }
}
