// y[i, :] = table[ids[i], :], with BASE added to base[i, :]; a word of the table holds one element, or with NARROW (1: bf16, 2: f16) two.
struct Parameters { elements: u32, width: u32 }
var<immediate> p: Parameters;
override NARROW: u32;
override BASE: bool;
@group(0) @binding(0) var<storage, read> ids: array<u32>;
@group(0) @binding(1) var<storage, read> table: array<u32>;
@group(0) @binding(2) var<storage, read> base: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 256u + lane;
    if i >= p.elements { return; }
    let at = ids[i / p.width] * p.width + i % p.width;
    var value: f32;
    switch NARROW {
        case 0u: { value = bitcast<f32>(table[at]); }
        case 1u: { value = bitcast<f32>(((table[at / 2u] >> (16u * (at % 2u))) & 0xffffu) << 16u); }
        default: { value = unpack2x16float(table[at / 2u])[at % 2u]; }
    }
    if BASE { value += base[i]; }
    y[i] = value;
}
