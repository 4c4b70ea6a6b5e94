// A lane to each plane: (x0, x1) turned by the angle of its token and dimension, or with BACK by the opposite angle.
struct Parameters { planes: u32, half: u32, steps: u32, width: u32, first: u32 }
var<immediate> p: Parameters;
override BACK: bool;
@group(0) @binding(0) var<storage, read> x: array<f32>;
// [positions, half] of cosine and sine; the first token is at position `first`.
@group(0) @binding(1) var<storage, read> turns: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 256u + lane;
    if i >= p.planes { return; }
    let k = i % p.half;
    let at = (i / p.half) * 2u * p.half + k;
    let position = p.first + (at / p.width) % p.steps;
    var turn = turns[position * p.half + k];
    if BACK { turn.y = -turn.y; }
    let x0 = x[at];
    let x1 = x[at + p.half];
    y[at] = x0 * turn.x - x1 * turn.y;
    y[at + p.half] = x0 * turn.y + x1 * turn.x;
}
