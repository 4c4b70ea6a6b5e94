// One step of AdamW in place; none where the norm of the gradients is not finite.
struct Parameters {
    elements: u32, keep1: f32, keep2: f32, add1: f32, add2: f32, size: f32, root: f32, eps: f32, shrink: f32,
    // A factor of the gradient, or with CLIP the largest norm (0 for none).
    scale: f32,
}
var<immediate> p: Parameters;
override CLIP: bool;
@group(0) @binding(0) var<storage, read_write> value: array<f32>;
@group(0) @binding(1) var<storage, read_write> first: array<f32>;
@group(0) @binding(2) var<storage, read_write> second: array<f32>;
@group(0) @binding(3) var<storage, read> gradient: array<f32>;
@group(0) @binding(4) var<storage, read> norm: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 256u + lane;
    if i >= p.elements { return; }
    var factor = p.scale;
    if CLIP {
        let size = norm[0];
        // By the bits: compilers may take it that floats are finite.
        if (bitcast<u32>(size) & 0x7f800000u) == 0x7f800000u { return; }
        factor = 1.0;
        if p.scale > 0.0 { factor = min(p.scale / (size + 1e-6), 1.0); }
    }
    let g = gradient[i] * factor;
    let m = p.keep1 * first[i] + p.add1 * g;
    let v = p.keep2 * second[i] + p.add2 * g * g;
    first[i] = m;
    second[i] = v;
    value[i] = value[i] * p.shrink - p.size * m / (sqrt(v) * p.root + p.eps);
}
