// out[piece, j] = sum over the rows of a piece of a_ij, times b_ij where they are WEIGHED. A workgroup has SIDE columns side by
// side, and as many rows at once as lanes are left.
struct Parameters { rows: u32, width: u32, piece: u32, pieces: u32, blocks: u32 }
var<immediate> p: Parameters;
override WEIGHED: bool;
override SIDE: u32;
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;
const LANES = 256u;
var<workgroup> lanes: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let id = flat(group, groups);
    if id >= p.pieces * p.blocks { return; }
    let piece = id / p.blocks;
    let j = (id % p.blocks) * SIDE + lane % SIDE;
    let last = min((piece + 1u) * p.piece, p.rows);
    var sum = 0.0;
    if j < p.width {
        for (var i = piece * p.piece + lane / SIDE; i < last; i += LANES / SIDE) {
            let at = i * p.width + j;
            if WEIGHED { sum += a[at] * b[at]; } else { sum += a[at]; }
        }
    }
    lanes[lane] = sum;
    workgroupBarrier();
    for (var half = LANES / 2u; half >= SIDE; half /= 2u) {
        if lane < half { lanes[lane] += lanes[lane + half]; }
        workgroupBarrier();
    }
    if lane < SIDE && j < p.width { sums[piece * p.width + j] = lanes[lane]; }
}
