// dx = g f'(x), from f(x) for exp, expm1 and soft_cap and from x for the others.
struct Parameters { elements: u32, a: f32, b: f32 }
var<immediate> p: Parameters;
override OP: u32;
@group(0) @binding(0) var<storage, read> g: array<f32>;
@group(0) @binding(1) var<storage, read> saved: array<f32>;
@group(0) @binding(2) var<storage, read_write> dx: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 256u + lane;
    if i >= p.elements { return; }
    let v = saved[i];
    var slope = 0.0;
    switch OP {
        case 1u: { slope = v; }
        case 2u: { slope = v + 1.0; }
        case 3u: { slope = 1.0 / (1.0 + exp(-v)); }
        case 5u: { slope = 1.0 - (v / p.a) * (v / p.a); }
        case 6u: { slope = circle(v, 1); }
        case 7u: { slope = circle(v, 2); }
        default: { slope = f32(v >= p.a && v <= p.b); }
    }
    dx[i] = g[i] * slope;
}
