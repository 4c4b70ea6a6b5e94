// Operands in vectors of four, for rows whose lengths and beginnings are multiples of 4. `b` is declared by what follows.
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> scales: array<f32>;
@group(0) @binding(3) var<storage, read> codebook: array<f32>;
@group(0) @binding(4) var<storage, read> base: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> bias: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read> gate: array<f32>;
@group(0) @binding(7) var<storage, read_write> c: array<vec4<f32>>;

// Four elements from `i` on; there are `inside` of them, none or all.
fn left(i: u32, inside: u32) -> vec4<f32> {
    if inside == 0u { return vec4(0.0); }
    return a[i / 4u];
}

// Columns q .. q + 4 of row r of the result: all of them exist or none.
fn store(r: u32, q: u32, sums: vec4<f32>) {
    if r < p.m && q < p.n {
        let at = r * p.n + q;
        var value = scaled() * sums;
        if BASE { value += base[at / 4u]; }
        if BIAS { value += bias[q / 4u]; }
        c[(first_out() + at) / 4u] = value;
    }
}
