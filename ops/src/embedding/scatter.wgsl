// The gradient of the table: a lane to an element of a row that occurs, which adds up the tokens there in their order. The
// occurrences of row rows[k] are places[starts[k] .. starts[k + 1]].
struct Parameters { rows: u32, width: u32 }
var<immediate> p: Parameters;
@group(0) @binding(0) var<storage, read> rows: array<u32>;
@group(0) @binding(1) var<storage, read> starts: array<u32>;
@group(0) @binding(2) var<storage, read> places: array<u32>;
@group(0) @binding(3) var<storage, read> g: array<f32>;
@group(0) @binding(4) var<storage, read_write> sum: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 256u + lane;
    if i >= p.rows * p.width { return; }
    let k = i / p.width;
    let column = i % p.width;
    var total = 0.0;
    for (var place = starts[k]; place < starts[k + 1u]; place++) { total += g[places[place] * p.width + column]; }
    sum[rows[k] * p.width + column] = total;
}
