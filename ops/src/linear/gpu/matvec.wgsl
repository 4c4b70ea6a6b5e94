// A row of a times b^T: 32 lanes for each element of the result, row group.z of a.
const LANES = 32u;
const OUTPUTS = 8u;
var<workgroup> partial: array<f32, 256>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    fill_values(lane);
    let q = flat(group, groups) * OUTPUTS + lane / LANES;
    let first_a = p.a_first + group.z * p.a_stride;
    let first_b = p.b_first + q * p.b_stride;
    var sum = 0.0;
    if q < p.n {
        for (var s = 4u * (lane % LANES); s < p.k; s += 4u * LANES) {
            sum += dot(left(first_a + s, p.k - s), right(load_right(first_b + s, p.k - s)));
        }
    }
    partial[lane] = sum;
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if lane % LANES < step { partial[lane] += partial[lane + step]; }
    }
    workgroupBarrier();
    // One lane stores four: several that write parts of one vector may undo each other's.
    if lane % (4u * LANES) == 0u {
        store(group.z, q, vec4(partial[lane], partial[lane + LANES], partial[lane + 2u * LANES], partial[lane + 3u * LANES]));
    }
}
