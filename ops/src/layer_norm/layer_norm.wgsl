// A workgroup to a row: y = n w + b with n = (x - mean) / deviation, or with GRADIENT that of x (and of w before the sum over
// rows, with GAIN).
struct Parameters { rows: u32, width: u32, eps: f32 }
var<immediate> p: Parameters;
override GRADIENT: bool;
override GAIN: bool;
override SUM: bool;
override BIAS: bool;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read> g: array<f32>;
// What the gradient of x is added to, with SUM.
@group(0) @binding(4) var<storage, read> so_far: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<storage, read_write> gain: array<f32>;
var<workgroup> sums: array<vec2<f32>, 128>;

fn total(lane: u32, own: vec2<f32>) -> vec2<f32> {
    workgroupBarrier();
    sums[lane] = own;
    workgroupBarrier();
    for (var half = 64u; half > 0u; half /= 2u) {
        if lane < half { sums[lane] += sums[lane + half]; }
        workgroupBarrier();
    }
    return sums[0] / f32(p.width);
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = flat(group, groups);
    if row >= p.rows { return; }
    let at = row * p.width;
    var sum = vec2(0.0);
    for (var j = lane; j < p.width; j += 128u) { sum.x += x[at + j]; }
    let mean = total(lane, sum).x;
    // The deviations themselves are squared: the difference of two sums would cancel.
    var squares = vec2(0.0);
    for (var j = lane; j < p.width; j += 128u) {
        let d = x[at + j] - mean;
        squares.x += d * d;
    }
    let inverse = 1.0 / sqrt(total(lane, squares).x + p.eps);
    var means = vec2(0.0);
    if GRADIENT {
        for (var j = lane; j < p.width; j += 128u) {
            let h = g[at + j] * w[j];
            means += vec2(h, h * (x[at + j] - mean) * inverse);
        }
        means = total(lane, means);
    }
    for (var j = lane; j < p.width; j += 128u) {
        let n = (x[at + j] - mean) * inverse;
        if GRADIENT {
            var d = (g[at + j] * w[j] - means.x - n * means.y) * inverse;
            if SUM { d += so_far[at + j]; }
            y[at + j] = d;
            if GAIN { gain[at + j] = g[at + j] * n; }
        } else if BIAS {
            y[at + j] = n * w[j] + b[j];
        } else {
            y[at + j] = n * w[j];
        }
    }
}
