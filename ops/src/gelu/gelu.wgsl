// y = x w, or its gradient g (w + x w'). Exact: w = F(x), F and its density f of the standard normal distribution by the fit of kernels/elementary.rs.
// TANH: w = s = sigmoid(u), u = 2 sqrt(2 / pi) (x + 0.044715 x^3).
var<immediate> elements: u32;
override TANH: bool;
override GRADIENT: bool;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> g: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

// w and x w'.
fn gaussian(v: f32) -> vec2<f32> {
    let z = abs(v);
    let e = exp(-0.5 * z * z);
    let t = 1.0 / (1.0 + 0.25 * z);
    let s = 2.0 * t - 1.0;
    var mills = 4.065408e-5;
    mills = mills * s + 3.233503e-5;
    mills = mills * s - 3.93938e-4;
    mills = mills * s - 8.690491e-4;
    mills = mills * s + 1.8803139e-3;
    mills = mills * s + 1.5098828e-2;
    mills = mills * s + 4.6631046e-2;
    mills = mills * s + 9.678439e-2;
    mills = mills * s + 1.5197415e-1;
    mills = mills * s + 1.8882128e-1;
    let tail = e * t * mills;
    return vec2(select(tail, 1.0 - tail, v > 0.0), v * 0.3989422804 * e);
}

fn gate(v: f32) -> vec2<f32> {
    // Beyond it the sigmoid is 0 or 1, and within it the exponential does not overflow.
    let near = clamp(v, -10.0, 10.0);
    let square = near * near;
    let s = 1.0 / (1.0 + exp(-near * (1.5957691216 + 0.0713548163 * square)));
    return vec2(s, v * s * (1.0 - s) * (1.5957691216 + 0.2140644488 * square));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 256u + lane;
    if i >= elements { return; }
    let v = x[i];
    var w: vec2<f32>;
    if TANH { w = gate(v); } else { w = gaussian(v); }
    if GRADIENT { y[i] = g[i] * (w.x + w.y); } else { y[i] = v * w.x; }
}
