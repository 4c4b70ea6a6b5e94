var<immediate> elements: u32;
override PRODUCT: bool;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> z: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 256u + lane;
    if i >= elements { return; }
    if PRODUCT { z[i] = x[i] * y[i]; } else { z[i] = x[i] + y[i]; }
}
