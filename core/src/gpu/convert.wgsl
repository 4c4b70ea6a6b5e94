// Between f32 and floats of 16 bits, two to a word, the first in the low half. By bits: what conversions of the shading language
// do between two neighbouring values is up to the driver.
var<immediate> elements: u32;
// f32 to 16 bits, or back.
override NARROW: bool;
// f16, or bf16.
override HALF: bool;
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

// Whether to round up what lies behind the bit above `bit`, the highest one that is dropped: to nearest, ties to even.
fn up(bits: u32, bit: u32) -> u32 {
    return u32((bits & bit) != 0u && (bits & (3u * bit - 1u)) != 0u);
}

fn to_bf16(x: u32) -> u32 {
    if (x & 0x7fffffffu) > 0x7f800000u { return (x >> 16u) | 0x40u; }
    return (x >> 16u) + up(x, 0x8000u);
}

fn to_f16(x: u32) -> u32 {
    let sign = (x >> 16u) & 0x8000u;
    let mantissa = x & 0x7fffffu;
    let biased = (x >> 23u) & 0xffu;
    if biased == 255u { return sign | 0x7c00u | select(0u, 0x200u, mantissa != 0u) | (mantissa >> 13u); }
    let exponent = i32(biased) - 112;
    if exponent >= 31 { return sign | 0x7c00u; }
    if exponent > 0 { return (sign | (u32(exponent) << 10u) | (mantissa >> 13u)) + up(mantissa, 0x1000u); }
    // Below the normal numbers.
    if exponent < -10 { return sign; }
    let whole = mantissa | 0x800000u;
    let drop = u32(14 - exponent);
    return (sign | (whole >> drop)) + up(whole, 1u << (drop - 1u));
}

fn from_f16(x: u32) -> u32 {
    let sign = (x & 0x8000u) << 16u;
    let mantissa = x & 0x3ffu;
    let exponent = (x >> 10u) & 0x1fu;
    if exponent == 31u { return sign | 0x7f800000u | select(0u, 0x400000u, mantissa != 0u) | (mantissa << 13u); }
    if exponent == 0u { return sign | bitcast<u32>(f32(mantissa) / 16777216.0); }
    return sign | ((exponent + 112u) << 23u) | (mantissa << 13u);
}

fn narrow(x: u32) -> u32 {
    if HALF { return to_f16(x); }
    return to_bf16(x);
}

fn widen(x: u32) -> u32 {
    if HALF { return from_f16(x); }
    return x << 16u;
}

// A lane to each pair of elements.
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 256u + lane;
    let first = 2u * i;
    if first >= elements { return; }
    let both = first + 1u < elements;
    if NARROW {
        var word = narrow(x[first]);
        if both { word |= narrow(x[first + 1u]) << 16u; }
        y[i] = word;
    } else {
        y[first] = widen(x[i] & 0xffffu);
        if both { y[first + 1u] = widen(x[i] >> 16u); }
    }
}
