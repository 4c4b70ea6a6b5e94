// D = the sum over a head's row of dO O, [batch, heads, queries]: 16 rows of a workgroup, by 16 lanes each.
struct Parameters { batch: u32, heads: u32, queries: u32, head_dim: u32 }
var<immediate> p: Parameters;
@group(0) @binding(0) var<storage, read> out: array<f32>;
@group(0) @binding(1) var<storage, read> g: array<f32>;
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;
var<workgroup> parts: array<f32, 256>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    // Rows as they lie in memory, [batch, queries, heads].
    let row = flat(group, groups) * 16u + lane / 16u;
    let exists = row < p.batch * p.queries * p.heads;
    var sum = 0.0;
    if exists {
        for (var d = lane % 16u; d < p.head_dim; d += 16u) { sum += out[row * p.head_dim + d] * g[row * p.head_dim + d]; }
    }
    parts[lane] = sum;
    workgroupBarrier();
    if exists && lane % 16u == 0u {
        for (var i = 1u; i < 16u; i++) { sum += parts[lane + i]; }
        let token = row / p.heads;
        sums[(token / p.queries * p.heads + row % p.heads) * p.queries + token % p.queries] = sum;
    }
}
