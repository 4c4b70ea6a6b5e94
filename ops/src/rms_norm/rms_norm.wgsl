// A workgroup to a row: y = x w / deviation, or with GRADIENT that of x (and of w before the sum over rows, with GAIN).
struct Parameters { rows: u32, width: u32, eps: f32 }
var<immediate> p: Parameters;
override GRADIENT: bool;
override GAIN: bool;
override SUM: bool;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read> g: array<f32>;
// What the gradient of x is added to, with SUM.
@group(0) @binding(3) var<storage, read> so_far: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(0) @binding(5) var<storage, read_write> gain: array<f32>;
var<workgroup> sums: array<vec2<f32>, 128>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = flat(group, groups);
    if row >= p.rows { return; }
    let at = row * p.width;
    var sum = vec2(0.0);
    for (var j = lane; j < p.width; j += 128u) {
        let v = x[at + j];
        sum.x += v * v;
        if GRADIENT { sum.y += v * w[j] * g[at + j]; }
    }
    sums[lane] = sum;
    workgroupBarrier();
    for (var half = 64u; half > 0u; half /= 2u) {
        if lane < half { sums[lane] += sums[lane + half]; }
        workgroupBarrier();
    }
    let total = sums[0] / f32(p.width);
    let inverse = 1.0 / sqrt(total.x + p.eps);
    let slope = total.y * inverse * inverse;
    for (var j = lane; j < p.width; j += 128u) {
        let v = x[at + j];
        if GRADIENT {
            var d = (g[at + j] * w[j] - v * slope) * inverse;
            if SUM { d += so_far[at + j]; }
            y[at + j] = d;
            if GAIN { gain[at + j] = g[at + j] * v * inverse; }
        } else {
            y[at + j] = v * inverse * w[j];
        }
    }
}
