// The gradient of the table: a lane to an element of a row that occurs, which adds up the tokens there in their order. `lists` has
// the rows, then where the places of each begin and the last ones end, then the places.
struct Parameters { rows: u32, width: u32 }
var<immediate> p: Parameters;
@group(0) @binding(0) var<storage, read> lists: array<u32>;
@group(0) @binding(1) var<storage, read> g: array<f32>;
@group(0) @binding(2) var<storage, read_write> sum: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 256u + lane;
    if i >= p.rows * p.width { return; }
    let k = i / p.width;
    let column = i % p.width;
    var total = 0.0;
    let last = lists[p.rows + k + 1u];
    for (var n = lists[p.rows + k]; n < last; n++) { total += g[lists[2u * p.rows + 1u + n] * p.width + column]; }
    sum[lists[k] * p.width + column] = total;
}
