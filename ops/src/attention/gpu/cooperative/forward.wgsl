// O = softmax(scale Q K^T + mask) V: products in f16 with sums in f32 by cooperative matrices, the softmax in f32.
//
// q [batch, queries, heads, head_dim], k and v [batch, keys, kv_heads, head_dim]; out as q; lse [batch, heads, queries], the
// logarithms of the rows' sums.
//
// Weights are exp(s - top) with a `top` that follows the largest score of its row only when that is more than SLACK above it:
// what was summed, in fragments whose rows cannot be scaled, is seldom taken through memory to be scaled. Weights are at most
// exp(SLACK) LIFT = 55,909, which f16 holds; LIFT keeps small ones from becoming subnormal, and cancels as sums have it too.
@group(0) @binding(8) var<storage, read_write> out: array<f32>;
@group(0) @binding(9) var<storage, read_write> lse: array<f32>;

const LOWEST = -3.0e38;
const SLACK = 4.0;
const LIFT = 1024.0;
const FLOATS = SCORES;
override HALVES = 3u * TILE + ROWS * W_STRIDE;
override OF_K = TILE;
override OF_V = 2u * TILE;
override WEIGHTS = 3u * TILE;
var<workgroup> parts: array<f32, ACTIVE>;
var<workgroup> factors: array<f32, ROWS>;
// Whether what a row has summed must be scaled: the first element.
var<workgroup> moved: array<atomic<u32>, 4>;

// The scores of a row and four keys.
fn scores(at: u32) -> vec4<f32> { return capped((four(at) * scale_q[1]) * scale_k[1]); }

fn scaled(c: FC, lane: u32, subgroup: u32) -> FC {
    show(c, subgroup);
    for (var at = lane; at < 4u * T * T; at += WG) { floats[at] *= factors[place(at, 0u).x]; }
    workgroupBarrier();
    let mine = subgroup * T * T;
    return coopLoadT<FC>(&floats[mine], T);
}

fn finish(c: FC, j: u32, first: u32, lane: u32, subgroup: u32) {
    show(c, subgroup);
    for (var at = lane; at < 4u * T * T; at += WG) {
        let place = place(at, j);
        let row = first + place.x;
        if row < p.queries * shared_by() && place.y < p.head_dim {
            out[query_at(row) + place.y] = floats[at] * factors[place.x];
        }
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
) {
    // The last rows see the most keys: they come first.
    let first = (p.tiles - 1u - p.first_tile - group.x) * ROWS;
    kv_head = group.y;
    batch = group.z;
    let strip = (subgroup / 2u) * T;
    let side = (subgroup % 2u) * T;
    // This lane's row, and its first key, in a tile.
    let r = min(lane, ACTIVE - 1u) / BY;
    let x = 4u * QUADS * (lane % BY);
    let row = first + r;
    let positions = vec4(position(row));
    var top = LOWEST;
    // Of this lane's keys.
    var sum = 0.0;
    var o0: FC; var o1: FC; var o2: FC; var o3: FC;
    var o4: FC; var o5: FC; var o6: FC; var o7: FC;
    keep(Q, first, 0u, lane);
    let seen = keys_seen(first, ROWS);
    for (var key = seen.x; key < seen.y; key += ROWS) {
        workgroupBarrier();
        keep(K, key, OF_K, lane);
        keep(V, key, OF_V, lane);
        if lane == 0u { atomicStore(&moved[0], 0u); }
        workgroupBarrier();
        product(0u, OF_K, 0u, subgroup);
        workgroupBarrier();
        var best = LOWEST;
        for (var i = 0u; i < QUADS; i++) {
            let column = x + 4u * i;
            let keys = key + column + vec4(0u, 1u, 2u, 3u);
            let s = select(vec4(LOWEST), scores(r * ROWS + column), sees(positions, keys));
            best = max(best, max(max(s.x, s.y), max(s.z, s.w)));
        }
        if lane < ACTIVE { parts[lane] = best; }
        workgroupBarrier();
        for (var i = 0u; i < BY; i++) { best = max(best, parts[r * BY + i]); }
        var factor = 1.0;
        if top == LOWEST {
            top = best;
        } else if best > top + SLACK {
            factor = exp(top - best);
            top = best;
            atomicStore(&moved[0], 1u);
        }
        sum *= factor;
        if lane < ACTIVE {
            factors[r] = factor;
            for (var i = 0u; i < QUADS; i++) {
                let column = x + 4u * i;
                let keys = key + column + vec4(0u, 1u, 2u, 3u);
                let s = scores(r * ROWS + column);
                let w = select(vec4(0.0), LIFT * exp(s - top), sees(positions, keys));
                sum += (w.x + w.y) + (w.z + w.w);
                put(WEIGHTS + r * W_STRIDE + column, vec4<f16>(w));
            }
        }
        if workgroupUniformLoad(&moved[0]) != 0u {
            o0 = scaled(o0, lane, subgroup);
            if WIDTH > 2u * T { o1 = scaled(o1, lane, subgroup); }
            if WIDTH > 4u * T { o2 = scaled(o2, lane, subgroup); }
            if WIDTH > 6u * T { o3 = scaled(o3, lane, subgroup); }
            if WIDTH > 8u * T { o4 = scaled(o4, lane, subgroup); }
            if WIDTH > 10u * T { o5 = scaled(o5, lane, subgroup); }
            if WIDTH > 12u * T { o6 = scaled(o6, lane, subgroup); }
            if WIDTH > 14u * T { o7 = scaled(o7, lane, subgroup); }
        }
        let stride = W_STRIDE / CELL;
        for (var s = 0u; s < ROWS; s += T) {
            let at = (WEIGHTS + strip * W_STRIDE + s) / CELL;
            let w = coopLoadT<FA>(&halves[at], stride);
            let base = OF_V + s * STRIDE + side;
            o0 = add(w, base, o0);
            if WIDTH > 2u * T { o1 = add(w, base + 2u * T, o1); }
            if WIDTH > 4u * T { o2 = add(w, base + 4u * T, o2); }
            if WIDTH > 6u * T { o3 = add(w, base + 6u * T, o3); }
            if WIDTH > 8u * T { o4 = add(w, base + 8u * T, o4); }
            if WIDTH > 10u * T { o5 = add(w, base + 10u * T, o5); }
            if WIDTH > 12u * T { o6 = add(w, base + 12u * T, o6); }
            if WIDTH > 14u * T { o7 = add(w, base + 14u * T, o7); }
        }
    }
    workgroupBarrier();
    if lane < ACTIVE { parts[lane] = sum; }
    workgroupBarrier();
    var total = 0.0;
    for (var i = 0u; i < BY; i++) { total += parts[r * BY + i]; }
    if lane < ACTIVE && lane % BY == 0u {
        factors[r] = scale_v[1] / total;
        if row < p.queries * shared_by() { lse[number_at(row)] = top + log(total / LIFT); }
    }
    finish(o0, 0u, first, lane, subgroup);
    if WIDTH > 2u * T { finish(o1, 1u, first, lane, subgroup); }
    if WIDTH > 4u * T { finish(o2, 2u, first, lane, subgroup); }
    if WIDTH > 6u * T { finish(o3, 3u, first, lane, subgroup); }
    if WIDTH > 8u * T { finish(o4, 4u, first, lane, subgroup); }
    if WIDTH > 10u * T { finish(o5, 5u, first, lane, subgroup); }
    if WIDTH > 12u * T { finish(o6, 6u, first, lane, subgroup); }
    if WIDTH > 14u * T { finish(o7, 7u, first, lane, subgroup); }
}
