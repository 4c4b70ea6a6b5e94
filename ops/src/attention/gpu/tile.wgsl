// Products of tiles in a workgroup of 16 x 16 lanes.
//
// A tile is 64 x 64. Lane (y, x) holds of it, as vectors of four rows from 4 y on, the columns x, x + 16, x + 32 and x + 48;
// and of a result of 64 rows the same rows, of every 64 columns the four from 4 x on. Every index of what a lane holds is a
// constant: drivers keep it in registers only then.
const TILE = 64u;
// Columns of the slices of which a product is made, and rows of those that are weighed.
const PIECE = 16u;
// Room for the elements of a head: 64, 128 or 256.
override WIDTH: u32;
// What is read.
const Q = 0u;
const K = 1u;
const V = 2u;
const G = 3u;
// Lengths of rows, in vectors; one of padding spreads them over the banks.
const SLICE_ROW = PIECE / 4u + 1u;
const WEIGHT_ROW = TILE / 4u + 1u;
const VALUE_ROW = 32u;
// Two slices, or 16 columns of weights and 128 elements of what they weigh.
const SLICE = TILE * SLICE_ROW;
const WEIGHTS = PIECE * WEIGHT_ROW;
var<workgroup> memory: array<vec4<f32>, WEIGHTS + PIECE * VALUE_ROW>;

// Four columns of four rows of a tile, or four rows of four columns of a result.
struct Patch { a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32> }
// Four rows of a result: columns from 4 x, 64 + 4 x, 128 + 4 x and 192 + 4 x on.
struct Rows { a: Patch, b: Patch, c: Patch, d: Patch }

// Elements d .. d + 4 of a row; zeros where there are none.
fn fetch(source: u32, row: u32, d: u32) -> vec4<f32> {
    let of_queries = source == Q || source == G;
    let count = select(p.keys, p.queries * shared_by(), of_queries);
    if row >= count || d >= p.head_dim { return vec4(0.0); }
    return load(source, select(key_at(row), query_at(row), of_queries) + d, p.head_dim - d);
}

// The products of 64 rows of `left` from `i` on with 64 of `right` from `j` on.
fn product(left: u32, i: u32, right: u32, j: u32, lane: u32) -> Patch {
    let y = lane / 16u;
    let x = lane % 16u;
    // What this lane fetches of each slice.
    let row = lane / 4u;
    let part = lane % 4u;
    var s = Patch();
    var l = fetch(left, i + row, 4u * part);
    var r = fetch(right, j + row, 4u * part);
    for (var d = 0u; d < p.head_dim; d += PIECE) {
        workgroupBarrier();
        memory[row * SLICE_ROW + part] = l;
        memory[SLICE + row * SLICE_ROW + part] = r;
        workgroupBarrier();
        // The next slice is on its way while this one is multiplied.
        l = fetch(left, i + row, d + PIECE + 4u * part);
        r = fetch(right, j + row, d + PIECE + 4u * part);
        for (var c = 0u; c < PIECE / 4u; c++) {
            let l0 = memory[(4u * y) * SLICE_ROW + c];
            let l1 = memory[(4u * y + 1u) * SLICE_ROW + c];
            let l2 = memory[(4u * y + 2u) * SLICE_ROW + c];
            let l3 = memory[(4u * y + 3u) * SLICE_ROW + c];
            let r0 = memory[SLICE + x * SLICE_ROW + c];
            let r1 = memory[SLICE + (x + 16u) * SLICE_ROW + c];
            let r2 = memory[SLICE + (x + 32u) * SLICE_ROW + c];
            let r3 = memory[SLICE + (x + 48u) * SLICE_ROW + c];
            s.a += vec4(dot(l0, r0), dot(l1, r0), dot(l2, r0), dot(l3, r0));
            s.b += vec4(dot(l0, r1), dot(l1, r1), dot(l2, r1), dot(l3, r1));
            s.c += vec4(dot(l0, r2), dot(l1, r2), dot(l2, r2), dot(l3, r2));
            s.d += vec4(dot(l0, r3), dot(l1, r3), dot(l2, r3), dot(l3, r3));
        }
    }
    return s;
}

// Adds one row, weighed for each of the four rows of a result.
fn add_row(to: ptr<function, Patch>, w: vec4<f32>, value: vec4<f32>) {
    (*to).a += w.x * value;
    (*to).b += w.y * value;
    (*to).c += w.z * value;
    (*to).d += w.w * value;
}

// Adds 16 rows of `source` from `first` on, `w` being the weights of the one that this lane's column is: 128 of their elements
// from `d` on.
fn add_piece(near: ptr<function, Patch>, far: ptr<function, Patch>, w: vec4<f32>, source: u32, first: u32, d: u32, lane: u32) {
    let y = lane / 16u;
    let x = lane % 16u;
    let v0 = fetch(source, first + lane / VALUE_ROW, d + 4u * (lane % VALUE_ROW));
    let v1 = fetch(source, first + PIECE / 2u + lane / VALUE_ROW, d + 4u * (lane % VALUE_ROW));
    workgroupBarrier();
    memory[x * WEIGHT_ROW + y] = w;
    memory[WEIGHTS + lane] = v0;
    memory[WEIGHTS + 256u + lane] = v1;
    workgroupBarrier();
    for (var c = 0u; c < PIECE; c++) {
        let weights = memory[c * WEIGHT_ROW + y];
        add_row(near, weights, memory[WEIGHTS + c * VALUE_ROW + x]);
        if WIDTH > d + 64u { add_row(far, weights, memory[WEIGHTS + c * VALUE_ROW + 16u + x]); }
    }
}

fn add_pieces(sums: ptr<function, Rows>, w: vec4<f32>, source: u32, first: u32, lane: u32) {
    var near = (*sums).a;
    var far = (*sums).b;
    add_piece(&near, &far, w, source, first, 0u, lane);
    (*sums).a = near;
    (*sums).b = far;
    if WIDTH > 128u {
        near = (*sums).c;
        far = (*sums).d;
        add_piece(&near, &far, w, source, first, 128u, lane);
        (*sums).c = near;
        (*sums).d = far;
    }
}

// sums += w X of 64 rows of `source` from `first` on.
fn accumulate(sums: ptr<function, Rows>, w: Patch, source: u32, first: u32, lane: u32) {
    add_pieces(sums, w.a, source, first, lane);
    add_pieces(sums, w.b, source, first + 16u, lane);
    add_pieces(sums, w.c, source, first + 32u, lane);
    add_pieces(sums, w.d, source, first + 48u, lane);
}
