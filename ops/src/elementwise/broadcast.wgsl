struct Parameters { elements: u32, width: u32 }
var<immediate> p: Parameters;
override ROWS: bool;
override BIAS: bool;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> factor: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 256u + lane;
    if i >= p.elements { return; }
    let column = i % p.width;
    if ROWS { y[i] = x[i] * factor[i / p.width]; } else { y[i] = x[i] * factor[column]; }
    if BIAS { y[i] += bias[column]; }
}
