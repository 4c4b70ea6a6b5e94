// out[piece, j] = sum over the rows of a piece of a_ij, times b_ij where they are WEIGHED.
struct Parameters { rows: u32, width: u32, piece: u32 }
var<immediate> p: Parameters;
override WEIGHED: bool;
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let j = group.x * 64u + lane;
    if j >= p.width { return; }
    let last = min((group.y + 1u) * p.piece, p.rows);
    var sum = 0.0;
    for (var i = group.y * p.piece; i < last; i++) {
        let at = i * p.width + j;
        if WEIGHED { sum += a[at] * b[at]; } else { sum += a[at]; }
    }
    sums[group.y * p.width + j] = sum;
}
