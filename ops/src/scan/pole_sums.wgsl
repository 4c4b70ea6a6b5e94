// sums[piece, mode] = over the rows (sequence, step) of a piece, lam_t . s_{t-1} and the cross product, the derivatives by the
// real and the imaginary part of the mode's pole.
struct Parameters { batch: u32, steps: u32, dim: u32, real: u32, modes: u32, piece: u32, blocks: u32 }
var<immediate> p: Parameters;
override START: bool;
@group(0) @binding(0) var<storage, read> adjoint: array<f32>;
@group(0) @binding(1) var<storage, read> states: array<f32>;
@group(0) @binding(2) var<storage, read> start: array<f32>;
@group(0) @binding(3) var<storage, read_write> sums: array<vec2<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let id = flat(group, groups);
    let piece = id / p.blocks;
    let mode = (id % p.blocks) * 64u + lane;
    if mode >= p.modes || piece * p.piece >= p.batch * p.steps { return; }
    let pair = mode >= p.real;
    let column = select(mode, 2u * mode - p.real, pair);
    let last = min((piece + 1u) * p.piece, p.batch * p.steps);
    var sum = vec2(0.0);
    for (var row = piece * p.piece; row < last; row++) {
        let t = row % p.steps;
        let at = row * p.dim + column;
        var before = vec2(0.0);
        if t > 0u {
            before.x = states[at - p.dim];
            if pair { before.y = states[at - p.dim + 1u]; }
        } else if START {
            let first = (row / p.steps) * p.dim + column;
            before.x = start[first];
            if pair { before.y = start[first + 1u]; }
        }
        var lam = vec2(adjoint[at], 0.0);
        if pair { lam.y = adjoint[at + 1u]; }
        sum += vec2(dot(lam, before), lam.y * before.x - lam.x * before.y);
    }
    sums[piece * p.modes + mode] = sum;
}
