// Operands element by element, for rows of any length. `element` is that of the right one.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> scales: array<f32>;
@group(0) @binding(3) var<storage, read> codebook: array<f32>;
@group(0) @binding(4) var<storage, read> base: array<f32>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;
@group(0) @binding(6) var<storage, read> gate: array<f32>;
@group(0) @binding(7) var<storage, read_write> c: array<f32>;

// Up to four elements from `i` on, of which there are `inside`.
fn left(i: u32, inside: u32) -> vec4<f32> {
    var v = vec4(0.0);
    if inside > 0u { v.x = a[i]; }
    if inside > 1u { v.y = a[i + 1u]; }
    if inside > 2u { v.z = a[i + 2u]; }
    if inside > 3u { v.w = a[i + 3u]; }
    return v;
}

fn load_right(i: u32, inside: u32) -> vec4<u32> {
    var v = vec4(0.0);
    if inside > 0u { v.x = element(i); }
    if inside > 1u { v.y = element(i + 1u); }
    if inside > 2u { v.z = element(i + 2u); }
    if inside > 3u { v.w = element(i + 3u); }
    return bitcast<vec4<u32>>(v);
}

fn right(loaded: vec4<u32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(loaded);
}

fn store(r: u32, q: u32, sums: vec4<f32>) {
    if r < p.m {
        if q < p.n { store_one(r, q, sums.x); }
        if q + 1u < p.n { store_one(r, q + 1u, sums.y); }
        if q + 2u < p.n { store_one(r, q + 2u, sums.z); }
        if q + 3u < p.n { store_one(r, q + 3u, sums.w); }
    }
}

fn store_one(r: u32, q: u32, sum: f32) {
    let at = r * p.n + q;
    var value = scaled() * sum;
    if BASE { value += base[at]; }
    if BIAS { value += bias[q]; }
    c[first_out() + at] = value;
}
