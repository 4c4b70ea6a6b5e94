// Sizes of attention, and how its rows are numbered.
//
// The query heads that share a head of keys are rows of one matrix, all heads of a token one after the other: a tile of rows
// reads its keys and values once for all of them.
struct Parameters {
    batch: u32, heads: u32, kv_heads: u32, head_dim: u32, queries: u32, keys: u32,
    // The first query's position among the keys, and the window (0: none).
    offset: u32, window: u32,
    scale: f32,
    // Scores s become cap tanh(s / cap) (0: they stay).
    cap: f32,
    // Of this launch, and of all: long sequences take several.
    first_tile: u32, tiles: u32,
}
var<immediate> p: Parameters;

// What this workgroup is about: a sequence, and a head of keys and values.
var<private> batch: u32;
var<private> kv_head: u32;

// Query heads that share a head of keys.
fn shared_by() -> u32 { return p.heads / p.kv_heads; }

// The first element of a row of queries, or of anything else of their shape.
fn query_at(row: u32) -> u32 {
    let token = batch * p.queries + row / shared_by();
    return (token * p.heads + kv_head * shared_by() + row % shared_by()) * p.head_dim;
}

// The first element of a key, or of anything else of their shape.
fn key_at(key: u32) -> u32 { return ((batch * p.keys + key) * p.kv_heads + kv_head) * p.head_dim; }

// Where a row of queries is in what has one number for each, [batch, heads, queries].
fn number_at(row: u32) -> u32 {
    return (batch * p.heads + kv_head * shared_by() + row % shared_by()) * p.queries + row / shared_by();
}

fn position(row: u32) -> u32 { return p.offset + row / shared_by(); }

// Keys from the first to before the last that rows `first .. first + count` see.
fn keys_seen(first: u32, count: u32) -> vec2<u32> {
    let last = position(min(first + count, p.queries * shared_by()) - 1u);
    let begin = position(first) + 1u;
    return vec2(select(0u, begin - p.window, p.window > 0u && begin > p.window), last + 1u);
}

// Rows from the first to before the last that see keys `first .. first + count`.
fn rows_seeing(first: u32, count: u32) -> vec2<u32> {
    let begin = select(0u, first - p.offset, first > p.offset);
    var end = p.queries;
    if p.window > 0u {
        let beyond = first + count - 1u + p.window;
        end = min(end, select(0u, beyond - p.offset, beyond > p.offset));
    }
    return vec2(begin, end) * shared_by();
}

fn sees(positions: vec4<u32>, keys: vec4<u32>) -> vec4<bool> {
    return (keys <= positions) & ((keys + p.window > positions) | vec4(p.window == 0u));
}

fn capped(s: vec4<f32>) -> vec4<f32> {
    let scores = p.scale * s;
    if p.cap == 0.0 { return scores; }
    return vec4(soft_cap(scores.x, p.cap), soft_cap(scores.y, p.cap), soft_cap(scores.z, p.cap), soft_cap(scores.w, p.cap));
}
