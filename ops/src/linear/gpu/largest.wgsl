// The largest finite magnitude of `count` elements from `first` on, by its bits, which are ordered as the numbers are; in the last
// pass the power of two that brings it between 2^13 and 2^14, and its inverse.
struct Parameters {
    first: u32, count: u32,
}
var<immediate> p: Parameters;
override LAST: bool;
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
var<workgroup> largest: array<u32, 256>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    var found = 0u;
    for (var i = group.x * 256u + lane; i < p.count; i += groups.x * 256u) {
        let bits = x[p.first + i] & 0x7fffffffu;
        if bits < 0x7f800000u { found = max(found, bits); }
    }
    largest[lane] = found;
    for (var step = 128u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if lane < step { largest[lane] = max(largest[lane], largest[lane + step]); }
    }
    if lane != 0u { return; }
    if !LAST {
        out[group.x] = largest[0];
        return;
    }
    // Exponents as they are stored, 127 for 1; a power of two that is stored has one from 1 to 254.
    let exponent = i32(largest[0] >> 23u);
    let power = select(clamp(127 + 13 + 127 - exponent, 1, 253), 127, largest[0] == 0u);
    out[0] = u32(power) << 23u;
    out[1] = u32(254 - power) << 23u;
}
