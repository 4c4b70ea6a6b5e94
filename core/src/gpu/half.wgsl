// Between the bits of f32 and of f16: what conversions of the shading language do between two neighbouring values is up to the driver.

// Whether to round up what lies behind the bit above `bit`, the highest one that is dropped: to nearest, ties to even.
fn rounds_up(bits: u32, bit: u32) -> u32 {
    return u32((bits & bit) != 0u && (bits & (3u * bit - 1u)) != 0u);
}

fn to_f16(x: u32) -> u32 {
    let sign = (x >> 16u) & 0x8000u;
    let mantissa = x & 0x7fffffu;
    let biased = (x >> 23u) & 0xffu;
    if biased == 255u { return sign | 0x7c00u | select(0u, 0x200u, mantissa != 0u) | (mantissa >> 13u); }
    let exponent = i32(biased) - 112;
    if exponent >= 31 { return sign | 0x7c00u; }
    if exponent > 0 { return (sign | (u32(exponent) << 10u) | (mantissa >> 13u)) + rounds_up(mantissa, 0x1000u); }
    // Below the normal numbers.
    if exponent < -10 { return sign; }
    let whole = mantissa | 0x800000u;
    let drop = u32(14 - exponent);
    return (sign | (whole >> drop)) + rounds_up(whole, 1u << (drop - 1u));
}

fn from_f16(x: u32) -> u32 {
    let sign = (x & 0x8000u) << 16u;
    let mantissa = x & 0x3ffu;
    let exponent = (x >> 10u) & 0x1fu;
    if exponent == 31u { return sign | 0x7f800000u | select(0u, 0x400000u, mantissa != 0u) | (mantissa << 13u); }
    if exponent == 0u { return sign | bitcast<u32>(f32(mantissa) / 16777216.0); }
    return sign | ((exponent + 112u) << 23u) | (mantissa << 13u);
}
