// silu(gate) b, or with GATE_GRADIENT that of the gate: g up p (1 + gate (1 - p)).
var<immediate> elements: u32;
override GATE_GRADIENT: bool;
@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read> g: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 256u + lane;
    if i >= elements { return; }
    let a = gate[i];
    let p = 1.0 / (1.0 + exp(-a));
    if GATE_GRADIENT { y[i] = g[i] * b[i] * p * (1.0 + a * (1.0 - p)); } else { y[i] = a * p * b[i]; }
}
