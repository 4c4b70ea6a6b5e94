struct Parameters {
    m: u32, n: u32, k: u32,
    a_stride: u32, a_first: u32,
    b_stride: u32, b_first: u32,
    c_first: u32,
    block: u32,
    factor: f32,
    // Steps of k that one workgroup adds up.
    split_len: u32,
    // Of this launch: a large product takes several.
    first_tile: u32,
}
var<immediate> p: Parameters;
// What b is stored in: 0 f32, 1 bf16, 2 f16, 3 nf4 rounded to nothing, 4 nf4 rounded to bf16, 5 nf4 rounded to f16.
override STORED: u32 = 0u;

// The 16 values of nf4, here because a constant array would be copied at every access.
var<workgroup> values: array<f32, 16>;

fn fill_values(lane: u32) {
    if STORED >= 3u {
        if lane < 16u { values[lane] = codebook[lane]; }
        workgroupBarrier();
    }
}

fn rounded(value: vec4<f32>) -> vec4<f32> {
    if STORED == 4u {
        let bits = bitcast<vec4<u32>>(value);
        return bitcast<vec4<f32>>((bits + 0x7fffu + ((bits >> vec4(16u)) & vec4(1u))) & vec4(0xffff0000u));
    }
    if STORED == 5u {
        let bits = bitcast<vec4<u32>>(value);
        let halves = vec4(to_f16(bits.x), to_f16(bits.y), to_f16(bits.z), to_f16(bits.w));
        return bitcast<vec4<f32>>(vec4(from_f16(halves.x), from_f16(halves.y), from_f16(halves.z), from_f16(halves.w)));
    }
    return value;
}
