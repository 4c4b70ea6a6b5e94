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
// Squares of 4 rows, or columns, by 4 steps: half of the lanes fetch one of a each, at most, the others one of b.
const A_SQUARES = TILE_M * STEPS / 16u;
const B_SQUARES = TILE_N * STEPS / 16u;
// As it is stored, in vectors along k or along the row or column, whichever the matrix has side by side.
struct Square { first: vec4<u32>, second: vec4<u32>, third: vec4<u32>, fourth: vec4<u32> }

// Where a square begins: x the row or column within the tile and y the step of k. Neighbouring lanes read neighbours.
fn corner(at: u32, edge: u32, along_k: bool) -> vec2<u32> {
    if along_k { return 4u * vec2(at / (STEPS / 4u), at % (STEPS / 4u)); }
    return 4u * vec2(at % (edge / 4u), at / (edge / 4u));
}

// How many of the four elements of a vector exist.
fn inside(i: u32, rows: u32, s: u32, end: u32, along_k: bool) -> u32 {
    if i >= rows || s >= end { return 0u; }
    if along_k { return end - s; }
    return rows - i;
}

fn vector_of_a(corner: vec2<u32>, line: u32, end: u32) -> vec4<u32> {
    let i = corner.x + select(line, 0u, A_TRANSPOSED);
    let s = corner.y + select(0u, line, A_TRANSPOSED);
    let count = inside(i, p.m, s, end, !A_TRANSPOSED);
    return bitcast<vec4<u32>>(left(p.a_first + select(i * p.a_stride + s, s * p.a_stride + i, A_TRANSPOSED), count));
}

fn vector_of_b(corner: vec2<u32>, line: u32, end: u32) -> vec4<u32> {
    let j = corner.x + select(0u, line, B_TRANSPOSED);
    let s = corner.y + select(line, 0u, B_TRANSPOSED);
    let count = inside(j, p.n, s, end, B_TRANSPOSED);
    return load_right(p.b_first + select(s * p.b_stride + j, j * p.b_stride + s, B_TRANSPOSED), count);
}

fn fetch(lane: u32, tile: vec2<u32>, first: u32, end: u32) -> Square {
    var square: Square;
    let at = lane % 128u;
    if lane < 128u {
        if at < A_SQUARES {
            let corner = corner(at, TILE_M, !A_TRANSPOSED) + vec2(tile.x, first);
            square.first = vector_of_a(corner, 0u, end);
            square.second = vector_of_a(corner, 1u, end);
            square.third = vector_of_a(corner, 2u, end);
            square.fourth = vector_of_a(corner, 3u, end);
        }
    } else if at < B_SQUARES {
        let corner = corner(at, TILE_N, B_TRANSPOSED) + vec2(tile.y, first);
        square.first = vector_of_b(corner, 0u, end);
        square.second = vector_of_b(corner, 1u, end);
        square.third = vector_of_b(corner, 2u, end);
        square.fourth = vector_of_b(corner, 3u, end);
    }
    return square;
}

// Columns of the square, whose rows lie in memory.
fn turned(m: mat4x4<f32>, along_k: bool) -> mat4x4<f32> {
    if along_k { return transpose(m); }
    return m;
}

// Whole vectors only: lanes that write parts of one may undo each other's, as WGSL has it, and on Metal they do.
fn put(lane: u32, square: Square) {
    let at = lane % 128u;
    if lane < 128u {
        if at < A_SQUARES {
            let corner = corner(at, TILE_M, !A_TRANSPOSED);
            let to = corner.y * A_ROW + corner.x / 4u;
            let steps = turned(mat4x4(
                bitcast<vec4<f32>>(square.first), bitcast<vec4<f32>>(square.second),
                bitcast<vec4<f32>>(square.third), bitcast<vec4<f32>>(square.fourth),
            ), !A_TRANSPOSED);
            a_slice[to] = steps[0];
            a_slice[to + A_ROW] = steps[1];
            a_slice[to + 2u * A_ROW] = steps[2];
            a_slice[to + 3u * A_ROW] = steps[3];
        }
    } else if at < B_SQUARES {
        let corner = corner(at, TILE_N, B_TRANSPOSED);
        let to = corner.y * B_ROW + corner.x / 4u;
        let steps = turned(mat4x4(
            right(square.first), right(square.second), right(square.third), right(square.fourth),
        ), B_TRANSPOSED);
        b_slice[to] = steps[0];
        b_slice[to + B_ROW] = steps[1];
        b_slice[to + 2u * B_ROW] = steps[2];
        b_slice[to + 3u * B_ROW] = steps[3];
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
    let tile = tile_of(p.first_tile + flat(group, groups));
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
    var square = fetch(lane, vec2(row, column), begin, end);
    for (var first = begin; first < end; first += STEPS) {
        workgroupBarrier();
        put(lane, square);
        workgroupBarrier();
        let next = first + STEPS;
        if next < end { square = fetch(lane, vec2(row, column), next, end); }
        multiply(&sums, y, x);
    }
    finish(&sums, row + 4u * y, column + 4u * x);
}
