// Rows `ids` of a table of blocks.
struct Parameters { elements: u32, width: u32 }
var<immediate> p: Parameters;
@group(0) @binding(0) var<storage, read> ids: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = flat(group, groups) * 256u + lane;
    if i >= p.elements { return; }
    y[i] = element(ids[i / p.width] * p.width + i % p.width);
}
