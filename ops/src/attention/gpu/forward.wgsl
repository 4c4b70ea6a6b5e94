// Attention of 64 rows of queries over tiles of 64 keys with a running softmax, whose maxima and sums every lane has of its rows.
@group(0) @binding(4) var<storage, read_write> out: array<f32>;
@group(0) @binding(5) var<storage, read_write> lse: array<f32>;

const LOWEST = -3.0e38;

fn score(s: vec4<f32>, positions: vec4<u32>, key: u32) -> vec4<f32> {
    return select(vec4(LOWEST), capped(s), sees(positions, vec4(key)));
}

// A key that is not seen has no weight, also while none was seen.
fn weight(score: vec4<f32>, top: vec4<f32>) -> vec4<f32> {
    return select(exp(score - top), vec4(0.0), score == vec4(LOWEST));
}

// `value` of all 16 lanes that have these rows, to be read by each.
fn share(value: vec4<f32>, lane: u32) {
    workgroupBarrier();
    memory[(lane % 16u) * WEIGHT_ROW + lane / 16u] = value;
    workgroupBarrier();
}

fn largest(value: vec4<f32>, lane: u32) -> vec4<f32> {
    share(value, lane);
    var found = memory[lane / 16u];
    for (var i = 1u; i < 16u; i++) { found = max(found, memory[i * WEIGHT_ROW + lane / 16u]); }
    return found;
}

fn total(value: vec4<f32>, lane: u32) -> vec4<f32> {
    share(value, lane);
    var found = memory[lane / 16u];
    for (var i = 1u; i < 16u; i++) { found += memory[i * WEIGHT_ROW + lane / 16u]; }
    return found;
}

fn times(x: Patch, factor: vec4<f32>) -> Patch {
    return Patch(x.a * factor.x, x.b * factor.y, x.c * factor.z, x.d * factor.w);
}

fn put_four(row: u32, d: u32, value: vec4<f32>) {
    if row >= p.queries * shared_by() { return; }
    let at = query_at(row) + d;
    if d < p.head_dim { out[at] = value.x; }
    if d + 1u < p.head_dim { out[at + 1u] = value.y; }
    if d + 2u < p.head_dim { out[at + 2u] = value.z; }
    if d + 3u < p.head_dim { out[at + 3u] = value.w; }
}

fn put(row: u32, d: u32, value: Patch) {
    put_four(row, d, value.a);
    put_four(row + 1u, d, value.b);
    put_four(row + 2u, d, value.c);
    put_four(row + 3u, d, value.d);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    // The last rows see the most keys: they come first.
    let first = (p.tiles - 1u - p.first_tile - group.x) * TILE;
    kv_head = group.y;
    batch = group.z;
    let x = lane % 16u;
    let row = first + 4u * (lane / 16u);
    let positions = vec4(position(row), position(row + 1u), position(row + 2u), position(row + 3u));
    var top = vec4(LOWEST);
    // Of this lane's columns; scaled as its rows are.
    var sum = vec4(0.0);
    var sums = Rows();
    let seen = keys_seen(first, TILE);
    for (var key = seen.x; key < seen.y; key += TILE) {
        let s = product(Q, first, K, key, lane);
        let scores = Patch(
            score(s.a, positions, key + x),
            score(s.b, positions, key + x + 16u),
            score(s.c, positions, key + x + 32u),
            score(s.d, positions, key + x + 48u),
        );
        let best = max(top, largest(max(max(scores.a, scores.b), max(scores.c, scores.d)), lane));
        let factor = exp(top - best);
        top = best;
        let weights =
            Patch(weight(scores.a, top), weight(scores.b, top), weight(scores.c, top), weight(scores.d, top));
        sum = sum * factor + (weights.a + weights.b) + (weights.c + weights.d);
        sums.a = times(sums.a, factor);
        if WIDTH > 64u { sums.b = times(sums.b, factor); }
        if WIDTH > 128u {
            sums.c = times(sums.c, factor);
            sums.d = times(sums.d, factor);
        }
        accumulate(&sums, weights, V, key, lane);
    }
    let norm = total(sum, lane);
    put(row, 4u * x, times(sums.a, 1.0 / norm));
    if WIDTH > 64u { put(row, 64u + 4u * x, times(sums.b, 1.0 / norm)); }
    if WIDTH > 128u {
        put(row, 128u + 4u * x, times(sums.c, 1.0 / norm));
        put(row, 192u + 4u * x, times(sums.d, 1.0 / norm));
    }
    if x < 4u && row + x < p.queries * shared_by() { lse[number_at(row + x)] = top[x] + log(norm[x]); }
}
