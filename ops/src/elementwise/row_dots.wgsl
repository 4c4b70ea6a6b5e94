// dots_i = sum_j a_ij b_ij: a workgroup to a row.
struct Parameters { rows: u32, width: u32 }
var<immediate> p: Parameters;
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> dots: array<f32>;
var<workgroup> sums: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = flat(group, groups);
    if row >= p.rows { return; }
    var sum = 0.0;
    for (var j = lane; j < p.width; j += 64u) { sum += a[row * p.width + j] * b[row * p.width + j]; }
    sums[lane] = sum;
    workgroupBarrier();
    for (var half = 32u; half > 0u; half /= 2u) {
        if lane < half { sums[lane] += sums[lane + half]; }
        workgroupBarrier();
    }
    if lane == 0u { dots[row] = sums[0]; }
}
