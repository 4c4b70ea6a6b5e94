// Chains of multiply-adds in registers: 8 vectors of 4 in each lane, as many as hide the latency.
struct Parameters { turns: u32, factor: f32 }
var<immediate> p: Parameters;
@group(0) @binding(0) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = flat(group, groups) * 256u + lane;
    let f = vec4(p.factor);
    let o = vec4(f32(i), 1.0, 2.0, 3.0);
    var a = o; var b = o + 1.0; var c = o + 2.0; var d = o + 3.0;
    var e = o + 4.0; var g = o + 5.0; var h = o + 6.0; var k = o + 7.0;
    for (var turn = 0u; turn < p.turns; turn++) {
        a = a * f + o; b = b * f + o; c = c * f + o; d = d * f + o;
        e = e * f + o; g = g * f + o; h = h * f + o; k = k * f + o;
        a = a * f + o; b = b * f + o; c = c * f + o; d = d * f + o;
        e = e * f + o; g = g * f + o; h = h * f + o; k = k * f + o;
        a = a * f + o; b = b * f + o; c = c * f + o; d = d * f + o;
        e = e * f + o; g = g * f + o; h = h * f + o; k = k * f + o;
        a = a * f + o; b = b * f + o; c = c * f + o; d = d * f + o;
        e = e * f + o; g = g * f + o; h = h * f + o; k = k * f + o;
    }
    let sum = (a + b + c + d) + (e + g + h + k);
    if i < arrayLength(&out) { out[i] = sum.x + sum.y + sum.z + sum.w; }
}
