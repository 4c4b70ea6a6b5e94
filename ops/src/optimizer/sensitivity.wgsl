// Running means of |w g| and of its distance from its mean, in place.
struct Parameters { elements: u32, keep1: f32, keep2: f32, add1: f32, add2: f32, factor: f32 }
var<immediate> p: Parameters;
@group(0) @binding(0) var<storage, read_write> mean: array<f32>;
@group(0) @binding(1) var<storage, read_write> uncertainty: array<f32>;
@group(0) @binding(2) var<storage, read> value: array<f32>;
@group(0) @binding(3) var<storage, read> gradient: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 256u + lane;
    if i >= p.elements { return; }
    let importance = abs(value[i] * gradient[i] * p.factor);
    let j = p.keep1 * mean[i] + p.add1 * importance;
    mean[i] = j;
    uncertainty[i] = p.keep2 * uncertainty[i] + p.add2 * abs(importance - j);
}
