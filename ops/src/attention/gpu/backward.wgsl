// Gradients of attention by tiles of 64 x 64 scores, which are computed again from q, k and the rows' logarithms of sums:
// P = exp(scores - lse), dS = scale P (dO V^T - D).
//
// A workgroup has 64 rows of queries and goes through the keys they see, for dQ = dS K (the first output); or, with D_K or D_V,
// 64 keys and goes through the rows that see them, for dK = dS^T Q (the first output) and dV = P^T dO (the second).
override D_K: bool;
override D_V: bool;
@group(0) @binding(4) var<storage, read> lse: array<f32>;
@group(0) @binding(5) var<storage, read> row_sums: array<f32>;
@group(0) @binding(6) var<storage, read_write> first_out: array<f32>;
@group(0) @binding(7) var<storage, read_write> second_out: array<f32>;

// What a row's probabilities are found from.
struct Row { position: u32, lse: f32, sum: f32 }

// Of a row beyond the last every probability is 0.
fn row_of(row: u32) -> Row {
    if row >= p.queries * shared_by() { return Row(0u, 3.0e38, 0.0); }
    let at = number_at(row);
    return Row(position(row), lse[at], row_sums[at]);
}

struct Gradient { weight: vec4<f32>, slope: vec4<f32> }

// P and dS of four scores, given the products s = q k and t = dO v.
fn gradient(
    s: vec4<f32>, t: vec4<f32>, positions: vec4<u32>, keys: vec4<u32>, lse: vec4<f32>, sums: vec4<f32>,
) -> Gradient {
    let scores = capped(s);
    let weight = select(vec4(0.0), exp(scores - lse), sees(positions, keys));
    var slope = p.scale * weight * (t - sums);
    if p.cap != 0.0 { slope *= 1.0 - (scores / p.cap) * (scores / p.cap); }
    return Gradient(weight, slope);
}

fn put_four(second: bool, row: u32, d: u32, value: vec4<f32>) {
    let of_keys = D_K || D_V;
    if row >= select(p.queries * shared_by(), p.keys, of_keys) { return; }
    let at = select(query_at(row), key_at(row), of_keys) + d;
    for (var c = 0u; c < 4u; c++) {
        if d + c < p.head_dim {
            if second { second_out[at + c] = value[c]; } else { first_out[at + c] = value[c]; }
        }
    }
}

fn put_patch(second: bool, row: u32, d: u32, value: Patch) {
    put_four(second, row, d, value.a);
    put_four(second, row + 1u, d, value.b);
    put_four(second, row + 2u, d, value.c);
    put_four(second, row + 3u, d, value.d);
}

fn put(second: bool, row: u32, lane: u32, sums: Rows) {
    let d = 4u * (lane % 16u);
    put_patch(second, row, d, sums.a);
    if WIDTH > 64u { put_patch(second, row, 64u + d, sums.b); }
    if WIDTH > 128u {
        put_patch(second, row, 128u + d, sums.c);
        put_patch(second, row, 192u + d, sums.d);
    }
}

fn of_queries(first: u32, lane: u32) {
    let x = lane % 16u;
    let row = first + 4u * (lane / 16u);
    let r0 = row_of(row);
    let r1 = row_of(row + 1u);
    let r2 = row_of(row + 2u);
    let r3 = row_of(row + 3u);
    let positions = vec4(r0.position, r1.position, r2.position, r3.position);
    let lse = vec4(r0.lse, r1.lse, r2.lse, r3.lse);
    let sums = vec4(r0.sum, r1.sum, r2.sum, r3.sum);
    var d_q = Rows();
    let seen = keys_seen(first, TILE);
    for (var key = seen.x; key < seen.y; key += TILE) {
        let s = product(Q, first, K, key, lane);
        let t = product(G, first, V, key, lane);
        let slopes = Patch(
            gradient(s.a, t.a, positions, vec4(key + x), lse, sums).slope,
            gradient(s.b, t.b, positions, vec4(key + x + 16u), lse, sums).slope,
            gradient(s.c, t.c, positions, vec4(key + x + 32u), lse, sums).slope,
            gradient(s.d, t.d, positions, vec4(key + x + 48u), lse, sums).slope,
        );
        accumulate(&d_q, slopes, K, key, lane);
    }
    put(false, row, lane, d_q);
}

// P and dS of a row of queries and this lane's four keys.
fn of_row(s: vec4<f32>, t: vec4<f32>, row: u32, keys: vec4<u32>) -> Gradient {
    let r = row_of(row);
    return gradient(s, t, vec4(r.position), keys, vec4(r.lse), vec4(r.sum));
}

fn of_keys(first: u32, lane: u32) {
    let x = lane % 16u;
    let key = first + 4u * (lane / 16u);
    let keys = key + vec4(0u, 1u, 2u, 3u);
    var d_k = Rows();
    var d_v = Rows();
    let seen = rows_seeing(first, TILE);
    for (var row = seen.x; row < seen.y; row += TILE) {
        let s = product(K, first, Q, row, lane);
        var t = Patch();
        if D_K { t = product(V, first, G, row, lane); }
        let a = of_row(s.a, t.a, row + x, keys);
        let b = of_row(s.b, t.b, row + x + 16u, keys);
        let c = of_row(s.c, t.c, row + x + 32u, keys);
        let d = of_row(s.d, t.d, row + x + 48u, keys);
        if D_K { accumulate(&d_k, Patch(a.slope, b.slope, c.slope, d.slope), Q, row, lane); }
        if D_V { accumulate(&d_v, Patch(a.weight, b.weight, c.weight, d.weight), G, row, lane); }
    }
    if D_K { put(false, key, lane, d_k); }
    if D_V { put(true, key, lane, d_v); }
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    kv_head = group.y;
    batch = group.z;
    // The last queries see the most keys, and the first keys are seen by the most queries: they come first.
    let tile = p.first_tile + group.x;
    if D_K || D_V { of_keys(tile * TILE, lane); } else { of_queries((p.tiles - 1u - tile) * TILE, lane); }
}
