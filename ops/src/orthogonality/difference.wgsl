// One workgroup: takes the unit matrix off, and the Frobenius norm of what is left; with GRADIENT nothing but the factor of the
// gradient, 2 g / norm.
var<immediate> size: u32;
override GRADIENT: bool;
@group(0) @binding(0) var<storage, read> g: array<f32>;
@group(0) @binding(1) var<storage, read_write> difference: array<f32>;
@group(0) @binding(2) var<storage, read_write> norm: array<f32>;
@group(0) @binding(3) var<storage, read_write> factor: array<f32>;
var<workgroup> sums: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    if GRADIENT {
        if lane == 0u { factor[0] = select(0.0, 2.0 * g[0] / norm[0], norm[0] > 0.0); }
        return;
    }
    var sum = 0.0;
    for (var i = lane; i < size * size; i += 256u) {
        var value = difference[i];
        if i / size == i % size {
            value -= 1.0;
            difference[i] = value;
        }
        sum += value * value;
    }
    sums[lane] = sum;
    workgroupBarrier();
    for (var half = 128u; half > 0u; half /= 2u) {
        if lane < half { sums[lane] += sums[lane + half]; }
        workgroupBarrier();
    }
    if lane == 0u { norm[0] = sqrt(sums[0]); }
}
