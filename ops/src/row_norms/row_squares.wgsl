// squares_i = sum_j w_ij^2: a workgroup to a row of a weight in any storage.
struct Parameters { rows: u32, width: u32, block: u32 }
var<immediate> p: Parameters;
// What w is stored in: 0 f32, 1 bf16, 2 f16, 3 nf4 rounded to nothing, 4 nf4 rounded to bf16, 5 nf4 rounded to f16.
override STORED: u32;
@group(0) @binding(0) var<storage, read> w: array<u32>;
@group(0) @binding(1) var<storage, read> scales: array<f32>;
@group(0) @binding(2) var<storage, read> codebook: array<f32>;
@group(0) @binding(3) var<storage, read_write> squares: array<f32>;
var<workgroup> sums: array<f32, 64>;

fn element(i: u32) -> f32 {
    switch STORED {
        case 0u: { return bitcast<f32>(w[i]); }
        case 1u: { return bitcast<f32>(((w[i / 2u] >> (16u * (i % 2u))) & 0xffffu) << 16u); }
        case 2u: { return unpack2x16float(w[i / 2u])[i % 2u]; }
        default: {
            // Bytes in the order of memory, the first element of each in its high nibble.
            let code = (w[i / 8u] >> (8u * ((i / 2u) % 4u) + select(0u, 4u, i % 2u == 0u))) & 0xfu;
            let value = codebook[code] * scales[i / p.block];
            if STORED == 4u {
                let bits = bitcast<u32>(value);
                return bitcast<f32>((bits + 0x7fffu + ((bits >> 16u) & 1u)) & 0xffff0000u);
            }
            if STORED == 5u { return bitcast<f32>(from_f16(to_f16(bitcast<u32>(value)))); }
            return value;
        }
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = flat(group, groups);
    if row >= p.rows { return; }
    var sum = 0.0;
    for (var j = lane; j < p.width; j += 64u) {
        let value = element(row * p.width + j);
        sum += value * value;
    }
    sums[lane] = sum;
    workgroupBarrier();
    for (var half = 32u; half > 0u; half /= 2u) {
        if lane < half { sums[lane] += sums[lane + half]; }
        workgroupBarrier();
    }
    if lane == 0u { squares[row] = sums[0]; }
}
