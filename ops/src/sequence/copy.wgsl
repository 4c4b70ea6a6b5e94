// `steps` steps of every sequence from one place to another.
struct Parameters { elements: u32, steps: u32, width: u32, from_steps: u32, from_first: u32, to_steps: u32, to_first: u32 }
var<immediate> p: Parameters;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 256u + lane;
    if i >= p.elements { return; }
    let row = i / p.width;
    let column = i % p.width;
    let batch = row / p.steps;
    let step = row % p.steps;
    let from_row = batch * p.from_steps + p.from_first + step;
    let to_row = batch * p.to_steps + p.to_first + step;
    y[to_row * p.width + column] = x[from_row * p.width + column];
}
