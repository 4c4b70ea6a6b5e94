// c = base + factor (sum over splits of partial sums) + bias, in the order of the splits.
struct Parameters {
    elements: u32, n: u32, splits: u32,
    c_first: u32,
    factor: f32,
}
var<immediate> p: Parameters;
override BASE: bool = false;
override BIAS: bool = false;
override GATED: bool = false;
@group(0) @binding(0) var<storage, read> partial: array<f32>;
@group(0) @binding(1) var<storage, read> base: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read> gate: array<f32>;
@group(0) @binding(4) var<storage, read_write> c: array<f32>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = flat(group, groups) * 256u + lane;
    if i >= p.elements { return; }
    var sum = 0.0;
    for (var split = 0u; split < p.splits; split++) { sum += partial[split * p.elements + i]; }
    var factor = p.factor;
    if GATED { factor *= gate[0]; }
    var value = factor * sum;
    if BASE { value += base[i]; }
    if BIAS { value += bias[i % p.n]; }
    c[p.c_first + i] = value;
}
