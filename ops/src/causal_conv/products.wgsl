// The sum over groups of g times the conjugate of u.
struct Parameters { elements: u32, quantity: u32 }
var<immediate> p: Parameters;
@group(0) @binding(0) var<storage, read> u: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> g: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> sums: array<vec2<f32>>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 256u + lane;
    if i >= p.elements { return; }
    var sum = vec2(0.0);
    for (var q = 0u; q < p.quantity; q++) {
        let a = g[q * p.elements + i];
        let b = u[q * p.elements + i];
        sum += vec2(dot(a, b), a.y * b.x - a.x * b.y);
    }
    sums[i] = sum;
}
