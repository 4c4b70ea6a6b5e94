// c = base + factor a b + bias: a [m, k] and b [k, n] by the lengths of their stored rows, c [m, n] row-major from c_first on.
//
// A workgroup of 256 lanes makes a tile of TILE_M x TILE_N, each lane EDGE x EDGE of it in registers, from slices of STEPS
// steps of k in its memory: both with k outermost, so that a lane reads its rows and columns as vectors. The next slice is
// on its way to registers while one is multiplied, and decoded only then: whoever decodes waits for it.
override A_TRANSPOSED: bool = false;
override B_TRANSPOSED: bool = false;

// Vectors of a row of a slice; one of padding spreads the columns that are written over the banks.
const A_ROW = TILE_M / 4u + 1u;
const B_ROW = TILE_N / 4u + 1u;
var<workgroup> a_slice: array<vec4<f32>, STEPS * A_ROW>;
var<workgroup> b_slice: array<vec4<f32>, STEPS * B_ROW>;
// Vectors of a slice, and how many a lane fetches (one or two).
const A_VECTORS = TILE_M * STEPS / 4u;
const B_VECTORS = TILE_N * STEPS / 4u;

// Where vector `at` of a slice lies: x the row or column within the tile and y the step of k at which it begins. With rows
// of a matrix along k it is four steps of one row, otherwise four rows at one step. Neighbouring lanes read neighbours.
fn place(at: u32, edge: u32, along_k: bool) -> vec2<u32> {
    if along_k { return vec2(at / (STEPS / 4u), 4u * (at % (STEPS / 4u))); }
    return vec2(4u * (at % (edge / 4u)), at / (edge / 4u));
}

// How many of the four elements exist.
fn inside(i: u32, rows: u32, s: u32, end: u32, along_k: bool) -> u32 {
    if i >= rows || s >= end { return 0u; }
    if along_k { return end - s; }
    return rows - i;
}

fn fetch_a(at: u32, row: u32, first: u32, end: u32) -> vec4<f32> {
    let place = place(at, TILE_M, !A_TRANSPOSED);
    let i = row + place.x;
    let s = first + place.y;
    let count = inside(i, p.m, s, end, !A_TRANSPOSED);
    return left(p.a_first + select(i * p.a_stride + s, s * p.a_stride + i, A_TRANSPOSED), count);
}

fn fetch_b(at: u32, column: u32, first: u32, end: u32) -> vec4<u32> {
    let place = place(at, TILE_N, B_TRANSPOSED);
    let j = column + place.x;
    let s = first + place.y;
    let count = inside(j, p.n, s, end, B_TRANSPOSED);
    return load_right(p.b_first + select(s * p.b_stride + j, j * p.b_stride + s, B_TRANSPOSED), count);
}

fn put_a(at: u32, v: vec4<f32>) {
    let place = place(at, TILE_M, !A_TRANSPOSED);
    let to = place.y * A_ROW + place.x / 4u;
    if A_TRANSPOSED {
        a_slice[to] = v;
    } else {
        let i = place.x % 4u;
        a_slice[to][i] = v.x;
        a_slice[to + A_ROW][i] = v.y;
        a_slice[to + 2u * A_ROW][i] = v.z;
        a_slice[to + 3u * A_ROW][i] = v.w;
    }
}

fn put_b(at: u32, v: vec4<f32>) {
    let place = place(at, TILE_N, B_TRANSPOSED);
    let to = place.y * B_ROW + place.x / 4u;
    if !B_TRANSPOSED {
        b_slice[to] = v;
    } else {
        let j = place.x % 4u;
        b_slice[to][j] = v.x;
        b_slice[to + B_ROW][j] = v.y;
        b_slice[to + 2u * B_ROW][j] = v.z;
        b_slice[to + 3u * B_ROW][j] = v.w;
    }
}

// Tiles are taken down a band of 8 rows of them before the next column, so that those at work share what they read.
fn tile_of(flat: u32) -> vec2<u32> {
    const BAND = 8u;
    let down = (p.m + TILE_M - 1u) / TILE_M;
    let across = (p.n + TILE_N - 1u) / TILE_N;
    let band = flat / (BAND * across);
    let height = min(BAND, down - min(down, band * BAND));
    let within = flat % (BAND * across);
    let i = within % max(height, 1u);
    return vec2(band * BAND + i, within / max(height, 1u));
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let tile = tile_of(flat(group, groups));
    let row = tile.x * TILE_M;
    let column = tile.y * TILE_N;
    if row >= p.m || column >= p.n { return; }
    split_index = group.z;
    let begin = group.z * p.split_len;
    let end = min(p.k, begin + p.split_len);
    // 32 neighbouring lanes are a block of 4 x 8 thread tiles: few different vectors for each read.
    let block = lane / 32u;
    const ACROSS = TILE_N / EDGE / 8u;
    let x = (block % ACROSS) * 8u + lane % 8u;
    let y = (block / ACROSS) * 4u + (lane / 8u) % 4u;

    fill_values(lane);
    var sums: Sums;
    var a0 = fetch_a(lane, row, begin, end);
    var b0 = fetch_b(lane, column, begin, end);
    var a1 = vec4(0.0);
    var b1 = vec4(0u);
    if A_VECTORS > 256u { a1 = fetch_a(lane + 256u, row, begin, end); }
    if B_VECTORS > 256u { b1 = fetch_b(lane + 256u, column, begin, end); }
    for (var first = begin; first < end; first += STEPS) {
        workgroupBarrier();
        if lane < A_VECTORS { put_a(lane, a0); }
        if lane < B_VECTORS { put_b(lane, right(b0)); }
        if A_VECTORS > 256u { put_a(lane + 256u, a1); }
        if B_VECTORS > 256u { put_b(lane + 256u, right(b1)); }
        workgroupBarrier();
        let next = first + STEPS;
        if next < end {
            a0 = fetch_a(lane, row, next, end);
            b0 = fetch_b(lane, column, next, end);
            if A_VECTORS > 256u { a1 = fetch_a(lane + 256u, row, next, end); }
            if B_VECTORS > 256u { b1 = fetch_b(lane + 256u, column, next, end); }
        }
        multiply(&sums, y, x);
    }
    finish(&sums, row + 4u * y, column + 4u * x);
}
