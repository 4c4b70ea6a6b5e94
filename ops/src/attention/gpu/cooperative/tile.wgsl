// Tiles of 2 T rows of queries x 2 T keys by four subgroups, two by two, with fragments of T x T.
//
// What stands before this text says how large the fragments (T) and the workgroup (WG) are. A subgroup makes one fragment of the
// scores, and of the results [2 T, WIDTH] those of half of the rows and of every second column of fragments: at most 8, which have
// names of their own, as drivers keep arrays in registers only where every index is a constant.

// Elements of a head, with zeros up to a multiple of 32.
override WIDTH: u32;
const ROWS = 2u * T;
// Lengths of rows of operands and of weights in the workgroup's memory: eight elements of padding spread them over the banks.
override STRIDE = WIDTH + 8u;
override TILE = ROWS * STRIDE;
const W_STRIDE = ROWS + 8u;
// Scores in f32. What fills `floats` first is also room for a fragment of each subgroup.
const SCORES = ROWS * ROWS;
var<workgroup> floats: array<f32, FLOATS>;

// Between the products scores are spread over the lanes: `BY` lanes have a row, each `QUADS` vectors of four keys side by side.
const ACTIVE = min(WG, SCORES / 4u);
const BY = ACTIVE / ROWS;
const QUADS = ROWS / 4u / BY;

// The rows of a tile from `first` on, to the workgroup's memory.
fn keep(source: u32, first: u32, to: u32, lane: u32) {
    for (var at = lane; at < ROWS * WIDTH / 4u; at += WG) {
        let row = at / (WIDTH / 4u);
        let d = 4u * (at % (WIDTH / 4u));
        put(to + row * STRIDE + d, fetch(source, first + row, d));
    }
}

// The products of the rows of two tiles, to `floats` from `to` on, [ROWS, ROWS]. coopLoadT reads rows, coopLoad columns.
fn product(left: u32, right: u32, to: u32, subgroup: u32) {
    let i = (subgroup / 2u) * T;
    let j = (subgroup % 2u) * T;
    let stride = STRIDE / CELL;
    var s: FC;
    for (var d = 0u; d < WIDTH; d += T) {
        let at_a = (left + i * STRIDE + d) / CELL;
        let at_b = (right + j * STRIDE + d) / CELL;
        let a = coopLoadT<FA>(&halves[at_a], stride);
        let b = coopLoad<FB>(&halves[at_b], stride);
        s = coopMultiplyAdd(a, b, s);
    }
    let at = to + i * ROWS + j;
    coopStoreT(s, &floats[at], ROWS);
}

// Four products that stand in `floats` from `at` on.
fn four(at: u32) -> vec4<f32> { return vec4(floats[at], floats[at + 1u], floats[at + 2u], floats[at + 3u]); }

// c + w X for a fragment of the T rows of X that begins at `base`.
fn add(w: FA, base: u32, c: FC) -> FC {
    let at = base / CELL;
    let stride = STRIDE / CELL;
    let x = coopLoadT<FB>(&halves[at], stride);
    return coopMultiplyAdd(w, x, c);
}

// A fragment of every subgroup to `floats`, where all lanes see it.
fn show(c: FC, subgroup: u32) {
    workgroupBarrier();
    let at = subgroup * T * T;
    coopStoreT(c, &floats[at], T);
    workgroupBarrier();
}

// Row in the tile of element `at` of what `show` shows, and its column for fragments `j`.
fn place(at: u32, j: u32) -> vec2<u32> {
    let part = at / (T * T);
    return vec2((part / 2u) * T + (at / T) % T, (2u * j + part % 2u) * T + at % T);
}
