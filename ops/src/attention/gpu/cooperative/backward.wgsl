// Gradients of attention, products in f16 with sums in f32 by cooperative matrices: with the scores s computed again,
// P = exp(s - lse), dS = scale P (dO V^T - D), dQ = dS K, dK = dS^T Q, dV = P^T dO. With a cap dS has the factor 1 - (s / cap)^2.
//
// q and dO [batch, queries, heads, head_dim], k and v [batch, keys, kv_heads, head_dim], lse and D [batch, heads, queries].
// A workgroup has 2 T rows of queries and goes through the keys they see, for dQ (the first output); or, with D_K or D_V, 2 T
// keys and goes through the rows that see them, for dK (the first output) and dV (the second).
//
// In f16 stand P LIFT, at most 2^14, and dS without `scale`, in the units of the operands times FIT: those are at most 2^14, so
// a product of rows is at most WIDTH 2^28, as D is, and dS at most 2^15.
override D_K: bool;
override D_V: bool;
// Operators of short circuit would make control flow that naga does not take for uniform.
// 2^-14 / WIDTH rounded up to a power of two.
override FIT: f32;
@group(0) @binding(8) var<storage, read> lse: array<f32>;
@group(0) @binding(9) var<storage, read> row_sums: array<f32>;
@group(0) @binding(10) var<storage, read_write> first_out: array<f32>;
@group(0) @binding(11) var<storage, read_write> second_out: array<f32>;

const LIFT = 16384.0;
const FLOATS = 2u * SCORES;
override HALVES = 4u * TILE + 2u * ROWS * W_STRIDE;
override OF_K = TILE;
override OF_V = 2u * TILE;
override OF_G = 3u * TILE;
override WEIGHTS = 4u * TILE;
override SLOPES = 4u * TILE + ROWS * W_STRIDE;

// Scaled by the factors one after the other: their product may leave the range of f32.
fn finish(second: bool, c: FC, j: u32, first: u32, by: vec3<f32>, lane: u32, subgroup: u32) {
    show(c, subgroup);
    let of_keys = D_K | D_V;
    let count = select(p.queries * shared_by(), p.keys, of_keys);
    for (var at = lane; at < 4u * T * T; at += WG) {
        let place = place(at, j);
        let row = first + place.x;
        if row < count && place.y < p.head_dim {
            let to = select(query_at(row), key_at(row), of_keys) + place.y;
            let value = ((floats[at] * by.x) * by.y) * by.z;
            if second { second_out[to] = value; } else { first_out[to] = value; }
        }
    }
}

// P and dS of this lane's row of queries and keys, in f16, from the products in `floats`.
fn weigh(row: u32, key: u32, lane: u32) {
    if lane >= ACTIVE { return; }
    let r = lane / BY;
    let x = 4u * QUADS * (lane % BY);
    let exists = row + r < p.queries * shared_by();
    let number = number_at(select(0u, row + r, exists));
    let lse = lse[number];
    let d = (row_sums[number] * scale_g[0]) * scale_v[0];
    for (var i = 0u; i < QUADS; i++) {
        let column = x + 4u * i;
        let keys = key + column + vec4(0u, 1u, 2u, 3u);
        let seen = sees(vec4(position(row + r)), keys) & vec4(exists);
        let s = capped((four(r * ROWS + column) * scale_q[1]) * scale_k[1]);
        let weight = select(vec4(0.0), exp(s - lse), seen);
        if D_V { put(WEIGHTS + r * W_STRIDE + column, vec4<f16>(LIFT * weight)); }
        if D_K | !D_V {
            var slope = FIT * weight * (four(SCORES + r * ROWS + column) - d);
            if p.cap != 0.0 { slope *= 1.0 - (s / p.cap) * (s / p.cap); }
            put(SLOPES + r * W_STRIDE + column, vec4<f16>(select(vec4(0.0), slope, seen)));
        }
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
) {
    let of_keys = D_K | D_V;
    // The last queries see the most keys, and the first keys are seen by the most queries: they come first.
    let tile = p.first_tile + group.x;
    let first = select(p.tiles - 1u - tile, tile, of_keys) * ROWS;
    kv_head = group.y;
    batch = group.z;
    let strip = (subgroup / 2u) * T;
    let side = (subgroup % 2u) * T;
    // Of the first output, and of the second.
    var c0: FC; var c1: FC; var c2: FC; var c3: FC;
    var c4: FC; var c5: FC; var c6: FC; var c7: FC;
    var e0: FC; var e1: FC; var e2: FC; var e3: FC;
    var e4: FC; var e5: FC; var e6: FC; var e7: FC;
    if of_keys {
        keep(K, first, OF_K, lane);
        keep(V, first, OF_V, lane);
    } else {
        keep(Q, first, 0u, lane);
        keep(G, first, OF_G, lane);
    }
    let seen = select(keys_seen(first, ROWS), rows_seeing(first, ROWS), of_keys);
    for (var at = seen.x; at < seen.y; at += ROWS) {
        workgroupBarrier();
        if of_keys {
            keep(Q, at, 0u, lane);
            keep(G, at, OF_G, lane);
        } else {
            keep(K, at, OF_K, lane);
            keep(V, at, OF_V, lane);
        }
        workgroupBarrier();
        product(0u, OF_K, 0u, subgroup);
        if D_K | !D_V { product(OF_G, OF_V, SCORES, subgroup); }
        workgroupBarrier();
        weigh(select(first, at, of_keys), select(at, first, of_keys), lane);
        workgroupBarrier();
        let stride = W_STRIDE / CELL;
        for (var s = 0u; s < ROWS; s += T) {
            if D_K | !D_V {
                var w: FA;
                if of_keys {
                    let begin = (SLOPES + s * W_STRIDE + strip) / CELL;
                    w = coopLoad<FA>(&halves[begin], stride);
                } else {
                    let begin = (SLOPES + strip * W_STRIDE + s) / CELL;
                    w = coopLoadT<FA>(&halves[begin], stride);
                }
                let base = select(OF_K, 0u, of_keys) + s * STRIDE + side;
                c0 = add(w, base, c0);
                if WIDTH > 2u * T { c1 = add(w, base + 2u * T, c1); }
                if WIDTH > 4u * T { c2 = add(w, base + 4u * T, c2); }
                if WIDTH > 6u * T { c3 = add(w, base + 6u * T, c3); }
                if WIDTH > 8u * T { c4 = add(w, base + 8u * T, c4); }
                if WIDTH > 10u * T { c5 = add(w, base + 10u * T, c5); }
                if WIDTH > 12u * T { c6 = add(w, base + 12u * T, c6); }
                if WIDTH > 14u * T { c7 = add(w, base + 14u * T, c7); }
            }
            if D_V {
                let begin = (WEIGHTS + s * W_STRIDE + strip) / CELL;
                let w = coopLoad<FA>(&halves[begin], stride);
                let base = OF_G + s * STRIDE + side;
                e0 = add(w, base, e0);
                if WIDTH > 2u * T { e1 = add(w, base + 2u * T, e1); }
                if WIDTH > 4u * T { e2 = add(w, base + 4u * T, e2); }
                if WIDTH > 6u * T { e3 = add(w, base + 6u * T, e3); }
                if WIDTH > 8u * T { e4 = add(w, base + 8u * T, e4); }
                if WIDTH > 10u * T { e5 = add(w, base + 10u * T, e5); }
                if WIDTH > 12u * T { e6 = add(w, base + 12u * T, e6); }
                if WIDTH > 14u * T { e7 = add(w, base + 14u * T, e7); }
            }
        }
    }
    if D_K | !D_V {
        let by = vec3(p.scale / FIT * scale_g[1], scale_v[1], select(scale_k[1], scale_q[1], of_keys));
        finish(false, c0, 0u, first, by, lane, subgroup);
        if WIDTH > 2u * T { finish(false, c1, 1u, first, by, lane, subgroup); }
        if WIDTH > 4u * T { finish(false, c2, 2u, first, by, lane, subgroup); }
        if WIDTH > 6u * T { finish(false, c3, 3u, first, by, lane, subgroup); }
        if WIDTH > 8u * T { finish(false, c4, 4u, first, by, lane, subgroup); }
        if WIDTH > 10u * T { finish(false, c5, 5u, first, by, lane, subgroup); }
        if WIDTH > 12u * T { finish(false, c6, 6u, first, by, lane, subgroup); }
        if WIDTH > 14u * T { finish(false, c7, 7u, first, by, lane, subgroup); }
    }
    if D_V {
        let by = vec3(1.0 / LIFT, scale_g[1], 1.0);
        finish(true, e0, 0u, first, by, lane, subgroup);
        if WIDTH > 2u * T { finish(true, e1, 1u, first, by, lane, subgroup); }
        if WIDTH > 4u * T { finish(true, e2, 2u, first, by, lane, subgroup); }
        if WIDTH > 6u * T { finish(true, e3, 3u, first, by, lane, subgroup); }
        if WIDTH > 8u * T { finish(true, e4, 4u, first, by, lane, subgroup); }
        if WIDTH > 10u * T { finish(true, e5, 5u, first, by, lane, subgroup); }
        if WIDTH > 12u * T { finish(true, e6, 6u, first, by, lane, subgroup); }
        if WIDTH > 14u * T { finish(true, e7, 7u, first, by, lane, subgroup); }
    }
}
