// Poles as complex numbers from what is learned, and with GRADIENT back: `poles` then holds the derivatives by the real and the
// imaginary parts, and d_radius and d_angle are written.
struct Parameters { real: u32, pairs: u32 }
var<immediate> p: Parameters;
override GRADIENT: bool;
// Radii are the poles themselves: no signs, no pairs.
override DIAGONAL: bool;
@group(0) @binding(0) var<storage, read> radius: array<f32>;
@group(0) @binding(1) var<storage, read> angle: array<f32>;
@group(0) @binding(2) var<storage, read> sign_of: array<f32>;
@group(0) @binding(3) var<storage, read_write> poles: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read_write> d_radius: array<f32>;
@group(0) @binding(5) var<storage, read_write> d_angle: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 64u + lane;
    if i >= p.real + p.pairs { return; }
    let r = radius[i];
    if i < p.real {
        var s = 1.0;
        if !DIAGONAL { s = sign_of[i]; }
        if GRADIENT { d_radius[i] = s * poles[i].x; } else { poles[i] = vec2(s * r, 0.0); }
        return;
    }
    let t = angle[i - p.real];
    let turn = vec2(cos(t), sin(t));
    if GRADIENT {
        let g = poles[i];
        d_radius[i] = dot(g, turn);
        d_angle[i - p.real] = r * (g.y * turn.x - g.x * turn.y);
    } else {
        poles[i] = r * turn;
    }
}
