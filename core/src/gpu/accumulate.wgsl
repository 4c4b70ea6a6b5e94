var<immediate> elements: u32;
@group(0) @binding(0) var<storage, read_write> sum: array<f32>;
@group(0) @binding(1) var<storage, read> addend: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 256u + lane;
    if i < elements { sum[i] += addend[i]; }
}
