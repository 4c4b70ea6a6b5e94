// 1 for every mode at the first step and nothing afterwards: its states are the powers of the poles.
struct Parameters { elements: u32, dim: u32, real: u32 }
var<immediate> p: Parameters;
@group(0) @binding(0) var<storage, read_write> u: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 256u + lane;
    if i >= p.elements { return; }
    u[i] = f32(i < p.dim && (i < p.real || (i - p.real) % 2u == 0u));
}
