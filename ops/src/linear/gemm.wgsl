// c = base + factor a b + bias: a [m, k] and b [k, n] by their strides, c [m, n] row-major from c_first on.
//
// A workgroup of 16 x 16 lanes makes a tile of 64 x 64, each lane 4 x 4 of it, from slices of 16 steps of k in its memory.
struct Parameters {
    m: u32, n: u32, k: u32,
    a_row: u32, a_column: u32, a_first: u32,
    b_row: u32, b_column: u32, b_first: u32,
    c_first: u32,
    block: u32,
    factor: f32,
}
var<immediate> p: Parameters;
// What b is stored in: 0 f32, 1 bf16, 2 f16, 3 nf4 rounded to nothing, 4 nf4 rounded to bf16, 5 nf4 rounded to f16.
override STORED: u32;
override BASE: bool;
override BIAS: bool;
// The factor is that of the parameters times an element on the device.
override GATED: bool;
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<f32>;
@group(0) @binding(3) var<storage, read> book: array<f32>;
@group(0) @binding(4) var<storage, read> base: array<f32>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;
@group(0) @binding(6) var<storage, read> gate: array<f32>;
@group(0) @binding(7) var<storage, read_write> c: array<f32>;

const TILE = 64u;
const STEPS = 16u;
// A row of a slice, and a column of padding against conflicts of banks.
const ROW = 65u;
var<workgroup> a_slice: array<f32, 1040>;
var<workgroup> b_slice: array<f32, 1040>;
var<workgroup> values: array<f32, 16>;

fn element(i: u32) -> f32 {
    switch STORED {
        case 0u: { return bitcast<f32>(b[i]); }
        case 1u: { return bitcast<f32>(((b[i / 2u] >> (16u * (i % 2u))) & 0xffffu) << 16u); }
        case 2u: { return unpack2x16float(b[i / 2u])[i % 2u]; }
        default: {
            // Bytes in the order of memory, the first element of each in its high nibble.
            let code = (b[i / 8u] >> (8u * ((i / 2u) % 4u) + select(0u, 4u, i % 2u == 0u))) & 0xfu;
            let value = values[code] * scales[i / p.block];
            if STORED == 4u {
                let bits = bitcast<u32>(value);
                return bitcast<f32>((bits + 0x7fffu + ((bits >> 16u) & 1u)) & 0xffff0000u);
            }
            if STORED == 5u { return unpack2x16float(pack2x16float(vec2(value, 0.0))).x; }
            return value;
        }
    }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y * TILE;
    let column = group.x * TILE;
    let y = lane / 16u;
    let x = lane % 16u;
    if STORED >= 3u && lane < 16u { values[lane] = book[lane]; }
    workgroupBarrier();
    var sums: array<vec4<f32>, 4>;
    for (var i = 0u; i < 4u; i++) { sums[i] = vec4(0.0); }
    for (var first = 0u; first < p.k; first += STEPS) {
        for (var part = 0u; part < 4u; part++) {
            let at = part * 256u + lane;
            // Neighbouring lanes read neighbouring elements.
            var i = at / STEPS;
            var s = at % STEPS;
            if p.a_column != 1u { i = at % TILE; s = at / TILE; }
            var value = 0.0;
            if row + i < p.m && first + s < p.k {
                value = a[p.a_first + (row + i) * p.a_row + (first + s) * p.a_column];
            }
            a_slice[s * ROW + i] = value;
            var j = at % TILE;
            var t = at / TILE;
            if p.b_column != 1u { j = at / STEPS; t = at % STEPS; }
            value = 0.0;
            if column + j < p.n && first + t < p.k {
                value = element(p.b_first + (first + t) * p.b_row + (column + j) * p.b_column);
            }
            b_slice[t * ROW + j] = value;
        }
        workgroupBarrier();
        for (var s = 0u; s < STEPS; s++) {
            let at = s * ROW;
            let right = vec4(b_slice[at + x], b_slice[at + x + 16u], b_slice[at + x + 32u], b_slice[at + x + 48u]);
            for (var i = 0u; i < 4u; i++) { sums[i] += a_slice[at + y + 16u * i] * right; }
        }
        workgroupBarrier();
    }
    var factor = p.factor;
    if GATED { factor *= gate[0]; }
    for (var i = 0u; i < 4u; i++) {
        let r = row + y + 16u * i;
        for (var j = 0u; j < 4u; j++) {
            let q = column + x + 16u * j;
            if r < p.m && q < p.n {
                let at = r * p.n + q;
                var value = factor * sums[i][j];
                if BASE { value += base[at]; }
                if BIAS { value += bias[q]; }
                c[p.c_first + at] = value;
            }
        }
    }
}
