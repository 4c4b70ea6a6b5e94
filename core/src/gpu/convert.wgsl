// Between f32 and floats of 16 bits, two to a word, the first in the low half. By bits: what conversions of the shading language
// do between two neighbouring values is up to the driver.
var<immediate> elements: u32;
// f32 to 16 bits, or back.
override NARROW: bool;
// f16, or bf16.
override HALF: bool;
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

fn to_bf16(x: u32) -> u32 {
    if (x & 0x7fffffffu) > 0x7f800000u { return (x >> 16u) | 0x40u; }
    return (x >> 16u) + rounds_up(x, 0x8000u);
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
