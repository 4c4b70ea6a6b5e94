// D = the sum over a head's row of dO O, [batch, heads, queries].
struct Parameters { batch: u32, heads: u32, queries: u32 }
var<immediate> p: Parameters;
override HEAD_DIM: u32;
@group(0) @binding(0) var<storage, read> out: array<f32>;
@group(0) @binding(1) var<storage, read> g: array<f32>;
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 64u + lane;
    if i >= p.batch * p.heads * p.queries { return; }
    let row = i % p.queries;
    let head = (i / p.queries) % p.heads;
    let batch = i / p.queries / p.heads;
    let at = ((batch * p.queries + row) * p.heads + head) * HEAD_DIM;
    var sum = 0.0;
    for (var d = 0u; d < HEAD_DIM; d++) { sum += out[at + d] * g[at + d]; }
    sums[i] = sum;
}
