// y = x s, or its gradient g (s + x s (1 - s) u'), s = sigmoid(u), u = 2 sqrt(2 / pi) (x + 0.044715 x^3).
var<immediate> elements: u32;
override GRADIENT: bool;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> g: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 256u + lane;
    if i >= elements { return; }
    let v = x[i];
    // Beyond it the sigmoid is 0 or 1, and within it the exponential does not overflow.
    let near = clamp(v, -10.0, 10.0);
    let square = near * near;
    let s = 1.0 / (1.0 + exp(-near * (1.5957691216 + 0.0713548163 * square)));
    if GRADIENT { y[i] = g[i] * (s + v * s * (1.0 - s) * (1.5957691216 + 0.2140644488 * square)); } else { y[i] = v * s; }
}
