// Attention of 32 queries of a head in a workgroup of 16 x 16 lanes, over tiles of 32 keys with a running softmax.
//
// A lane holds rows y and y + 16 of the tile of scores, at columns x and x + 16, and of the output every 16th element from x on.
struct Parameters {
    batch: u32, heads: u32, kv_heads: u32, queries: u32, keys: u32,
    // The first query's position among the keys, and the window (0: none).
    offset: u32, window: u32,
    scale: f32,
    // Scores s become cap tanh(s / cap) (0: they stay).
    cap: f32,
}
var<immediate> p: Parameters;
override HEAD_DIM: u32;
@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(2) var<storage, read> v: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
@group(0) @binding(4) var<storage, read_write> lse: array<f32>;

// tanh, to the last digits also where the language allows 1e-5.
const TILE = 32u;
const PIECE = 16u;
// Elements of the output that a lane has of a row: heads of at most 256.
const MOST = 16u;
const LOWEST = -3.0e38;
var<workgroup> left: array<f32, 544>;
var<workgroup> right: array<f32, 544>;
var<workgroup> scores: array<f32, 1056>;
var<workgroup> factors: array<f32, 32>;
var<workgroup> tops: array<f32, 32>;
var<workgroup> sums: array<f32, 32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let first = group.x * TILE;
    let head = group.y;
    let batch = group.z;
    let kv_head = head / (p.heads / p.kv_heads);
    let y = lane / 16u;
    let x = lane % 16u;
    let q_row = p.heads * HEAD_DIM;
    let k_row = p.kv_heads * HEAD_DIM;
    let q_first = (batch * p.queries) * q_row + head * HEAD_DIM;
    let k_first = (batch * p.keys) * k_row + kv_head * HEAD_DIM;
    if lane < TILE { tops[lane] = LOWEST; sums[lane] = 0.0; }
    var own: array<vec2<f32>, MOST>;
    for (var i = 0u; i < MOST; i++) { own[i] = vec2(0.0); }

    // Keys that any query of the tile sees.
    let last = min(p.offset + min(first + TILE, p.queries), p.keys);
    var start = 0u;
    if p.window > 0u && p.offset + first + 1u > p.window { start = (p.offset + first + 1u - p.window) / TILE * TILE; }
    for (var key = start; key < last; key += TILE) {
        var s = mat2x2<f32>(0.0, 0.0, 0.0, 0.0);
        for (var d = 0u; d < HEAD_DIM; d += PIECE) {
            workgroupBarrier();
            for (var i = lane; i < TILE * PIECE; i += 256u) {
                let row = i / PIECE;
                let column = i % PIECE;
                var a = 0.0;
                var b = 0.0;
                if d + column < HEAD_DIM {
                    if first + row < p.queries { a = q[q_first + (first + row) * q_row + d + column]; }
                    if key + row < p.keys { b = k[k_first + (key + row) * k_row + d + column]; }
                }
                left[row * 17u + column] = a;
                right[row * 17u + column] = b;
            }
            workgroupBarrier();
            for (var c = 0u; c < PIECE; c++) {
                let a = vec2(left[y * 17u + c], left[(y + 16u) * 17u + c]);
                let b = vec2(right[x * 17u + c], right[(x + 16u) * 17u + c]);
                s[0] += a * b.x;
                s[1] += a * b.y;
            }
        }
        for (var i = 0u; i < 2u; i++) {
            for (var j = 0u; j < 2u; j++) {
                let position = p.offset + first + y + 16u * i;
                let at = key + x + 16u * j;
                let seen = at <= position && at < p.keys && (p.window == 0u || at + p.window > position);
                scores[(y + 16u * i) * 33u + x + 16u * j] = select(LOWEST, soft_cap(p.scale * s[j][i], p.cap), seen);
            }
        }
        workgroupBarrier();
        if lane < TILE {
            var top = tops[lane];
            for (var j = 0u; j < TILE; j++) { top = max(top, scores[lane * 33u + j]); }
            // Of a row that has seen nothing yet there is nothing to rescale.
            let factor = select(exp(tops[lane] - top), 0.0, tops[lane] == LOWEST);
            var sum = sums[lane] * factor;
            for (var j = 0u; j < TILE; j++) {
                let score = scores[lane * 33u + j];
                let weight = select(exp(score - top), 0.0, score == LOWEST);
                scores[lane * 33u + j] = weight;
                sum += weight;
            }
            factors[lane] = factor;
            sums[lane] = sum;
            tops[lane] = top;
        }
        workgroupBarrier();
        let rescale = vec2(factors[y], factors[y + 16u]);
        for (var i = 0u; i * 16u < HEAD_DIM; i++) {
            workgroupBarrier();
            for (var e = lane; e < TILE * PIECE; e += 256u) {
                let row = e / PIECE;
                let column = i * 16u + e % PIECE;
                var value = 0.0;
                if key + row < p.keys && column < HEAD_DIM { value = v[k_first + (key + row) * k_row + column]; }
                right[row * 17u + e % PIECE] = value;
            }
            workgroupBarrier();
            var sum = own[i] * rescale;
            for (var j = 0u; j < TILE; j++) {
                sum += vec2(scores[y * 33u + j], scores[(y + 16u) * 33u + j]) * right[j * 17u + x];
            }
            own[i] = sum;
        }
    }
    workgroupBarrier();
    for (var r = 0u; r < 2u; r++) {
        let row = y + 16u * r;
        if first + row < p.queries {
            for (var i = 0u; i * 16u + x < HEAD_DIM; i++) {
                out[q_first + (first + row) * q_row + i * 16u + x] = own[i][r] / sums[row];
            }
            if x == 0u { lse[(batch * p.heads + head) * p.queries + first + row] = tops[row] + log(sums[row]); }
        }
    }
}
