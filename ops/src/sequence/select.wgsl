// Steps of every sequence in another order, zeros for none.
struct Parameters { elements: u32, width: u32, steps: u32, total: u32 }
const NO_STEP = 0xffffffffu;
var<immediate> p: Parameters;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> selected: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 256u + lane;
    if i >= p.elements { return; }
    let row = i / p.width;
    let step = selected[row % p.steps];
    if step == NO_STEP {
        y[i] = 0.0;
        return;
    }
    y[i] = x[(row / p.steps * p.total + step) * p.width + i % p.width];
}
