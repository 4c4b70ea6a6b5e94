// Gradients of attention by tiles of 32 x 32 scores, which are computed again from q, k and the rows' logarithms of sums.
//
// With KEYS a workgroup has 32 keys of a head of keys and goes through the queries of all heads that share it, for dK and dV;
// without, it has 32 queries and goes through the keys, for dQ (first output). P = softmax, dS = scale P (dO V^T - D).
struct Parameters {
    batch: u32, heads: u32, kv_heads: u32, queries: u32, keys: u32,
    offset: u32, window: u32,
    scale: f32,
    // Scores s become cap tanh(s / cap) (0: they stay).
    cap: f32,
}
var<immediate> p: Parameters;
override HEAD_DIM: u32;
override KEYS: bool;
@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(2) var<storage, read> v: array<f32>;
@group(0) @binding(3) var<storage, read> g: array<f32>;
@group(0) @binding(4) var<storage, read> lse: array<f32>;
@group(0) @binding(5) var<storage, read> sums: array<f32>;
@group(0) @binding(6) var<storage, read_write> first_out: array<f32>;
@group(0) @binding(7) var<storage, read_write> second_out: array<f32>;

// tanh, to the last digits also where the language allows 1e-5.
const TILE = 32u;
const PIECE = 16u;
const MOST = 16u;
var<workgroup> left: array<f32, 544>;
var<workgroup> right: array<f32, 544>;
// P and dS of the tile, rows of queries.
var<workgroup> weights: array<f32, 1056>;
var<workgroup> slopes: array<f32, 1056>;

// 32 rows and 16 columns of a matrix of rows `stride` apart into workgroup memory; zeros beyond `count` rows.
fn load_q(of_g: bool, at: u32, stride: u32, count: u32, d: u32, lane: u32) {
    for (var i = lane; i < TILE * PIECE; i += 256u) {
        let row = i / PIECE;
        let column = d + i % PIECE;
        var value = 0.0;
        if row < count && column < HEAD_DIM {
            let place = at + row * stride + column;
            if of_g { value = g[place]; } else { value = q[place]; }
        }
        left[row * 17u + i % PIECE] = value;
    }
}

fn load_k(of_v: bool, at: u32, stride: u32, count: u32, d: u32, lane: u32) {
    for (var i = lane; i < TILE * PIECE; i += 256u) {
        let row = i / PIECE;
        let column = d + i % PIECE;
        var value = 0.0;
        if row < count && column < HEAD_DIM {
            let place = at + row * stride + column;
            if of_v { value = v[place]; } else { value = k[place]; }
        }
        right[row * 17u + i % PIECE] = value;
    }
}

// The tile of P and dS for queries from `query` and keys from `key` on.
fn tile(batch: u32, head: u32, kv_head: u32, query: u32, key: u32, lane: u32) {
    let y = lane / 16u;
    let x = lane % 16u;
    let q_row = p.heads * HEAD_DIM;
    let k_row = p.kv_heads * HEAD_DIM;
    let q_at = (batch * p.queries + query) * q_row + head * HEAD_DIM;
    let k_at = (batch * p.keys + key) * k_row + kv_head * HEAD_DIM;
    var s = mat2x2<f32>(0.0, 0.0, 0.0, 0.0);
    var t = mat2x2<f32>(0.0, 0.0, 0.0, 0.0);
    for (var d = 0u; d < HEAD_DIM; d += PIECE) {
        workgroupBarrier();
        load_q(false, q_at, q_row, p.queries - query, d, lane);
        load_k(false, k_at, k_row, p.keys - key, d, lane);
        workgroupBarrier();
        for (var c = 0u; c < PIECE; c++) {
            let a = vec2(left[y * 17u + c], left[(y + 16u) * 17u + c]);
            s[0] += a * right[x * 17u + c];
            s[1] += a * right[(x + 16u) * 17u + c];
        }
        workgroupBarrier();
        load_q(true, q_at, q_row, p.queries - query, d, lane);
        load_k(true, k_at, k_row, p.keys - key, d, lane);
        workgroupBarrier();
        for (var c = 0u; c < PIECE; c++) {
            let a = vec2(left[y * 17u + c], left[(y + 16u) * 17u + c]);
            t[0] += a * right[x * 17u + c];
            t[1] += a * right[(x + 16u) * 17u + c];
        }
    }
    for (var i = 0u; i < 2u; i++) {
        let row = query + y + 16u * i;
        let position = p.offset + row;
        let of_row = (batch * p.heads + head) * p.queries + row;
        for (var j = 0u; j < 2u; j++) {
            let at = key + x + 16u * j;
            let seen = row < p.queries && at <= position && at < p.keys && (p.window == 0u || at + p.window > position);
            var weight = 0.0;
            var slope = 0.0;
            if seen {
                let score = soft_cap(p.scale * s[j][i], p.cap);
                weight = exp(score - lse[of_row]);
                slope = p.scale * weight * (t[j][i] - sums[of_row]);
                if p.cap != 0.0 { slope *= 1.0 - (score / p.cap) * (score / p.cap); }
            }
            weights[(y + 16u * i) * 33u + x + 16u * j] = weight;
            slopes[(y + 16u * i) * 33u + x + 16u * j] = slope;
        }
    }
    workgroupBarrier();
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let first = group.x * TILE;
    let batch = group.z;
    let y = lane / 16u;
    let x = lane % 16u;
    let q_row = p.heads * HEAD_DIM;
    let k_row = p.kv_heads * HEAD_DIM;
    let shared_by = p.heads / p.kv_heads;
    var own: array<vec2<f32>, MOST>;
    var other: array<vec2<f32>, MOST>;
    for (var i = 0u; i < MOST; i++) { own[i] = vec2(0.0); other[i] = vec2(0.0); }
    if KEYS {
        let kv_head = group.y;
        // Queries that see any of these keys.
        var begin = 0u;
        if first > p.offset { begin = (first - p.offset) / TILE * TILE; }
        var end = p.queries;
        if p.window > 0u {
            let beyond = first + TILE + p.window;
            end = min(end, select(0u, beyond - p.offset, beyond > p.offset));
        }
        for (var head = kv_head * shared_by; head < (kv_head + 1u) * shared_by; head++) {
            for (var query = begin; query < end; query += TILE) {
                tile(batch, head, kv_head, query, first, lane);
                let q_at = (batch * p.queries + query) * q_row + head * HEAD_DIM;
                for (var i = 0u; i * 16u < HEAD_DIM; i++) {
                    workgroupBarrier();
                    load_q(false, q_at, q_row, p.queries - query, i * 16u, lane);
                    workgroupBarrier();
                    for (var r = 0u; r < TILE; r++) {
                        own[i] += vec2(slopes[r * 33u + y], slopes[r * 33u + y + 16u]) * left[r * 17u + x];
                    }
                    workgroupBarrier();
                    load_q(true, q_at, q_row, p.queries - query, i * 16u, lane);
                    workgroupBarrier();
                    for (var r = 0u; r < TILE; r++) {
                        other[i] += vec2(weights[r * 33u + y], weights[r * 33u + y + 16u]) * left[r * 17u + x];
                    }
                }
            }
        }
        for (var r = 0u; r < 2u; r++) {
            let row = first + y + 16u * r;
            if row < p.keys {
                let at = (batch * p.keys + row) * k_row + kv_head * HEAD_DIM;
                for (var i = 0u; i * 16u + x < HEAD_DIM; i++) {
                    first_out[at + i * 16u + x] = own[i][r];
                    second_out[at + i * 16u + x] = other[i][r];
                }
            }
        }
        return;
    }
    let head = group.y;
    let kv_head = head / shared_by;
    let last = min(p.offset + min(first + TILE, p.queries), p.keys);
    var start = 0u;
    if p.window > 0u && p.offset + first + 1u > p.window { start = (p.offset + first + 1u - p.window) / TILE * TILE; }
    for (var key = start; key < last; key += TILE) {
        tile(batch, head, kv_head, first, key, lane);
        let k_at = (batch * p.keys + key) * k_row + kv_head * HEAD_DIM;
        for (var i = 0u; i * 16u < HEAD_DIM; i++) {
            workgroupBarrier();
            load_k(false, k_at, k_row, p.keys - key, i * 16u, lane);
            workgroupBarrier();
            for (var c = 0u; c < TILE; c++) {
                own[i] += vec2(slopes[y * 33u + c], slopes[(y + 16u) * 33u + c]) * right[c * 17u + x];
            }
        }
    }
    for (var r = 0u; r < 2u; r++) {
        let row = first + y + 16u * r;
        if row < p.queries {
            let at = (batch * p.queries + row) * q_row + head * HEAD_DIM;
            for (var i = 0u; i * 16u + x < HEAD_DIM; i++) { first_out[at + i * 16u + x] = own[i][r]; }
        }
    }
}
