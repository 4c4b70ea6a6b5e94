// c = base + factor a b + bias by cooperative matrices: a [m, k] and b in f16, sums in f32; k, n and row lengths are multiples of 4.
// What stands before this text says how large the fragments (T) and the workgroup (WG) are.
//
// A workgroup of four subgroups, two by two, makes a tile of 8 T x 8 T, each subgroup 4 x 4 fragments of it, from slices of 2 T
// steps of k in its memory. The next slice is on its way to registers while one is multiplied. Fragments have names of their
// own, as drivers keep arrays in registers only where every index is a constant.
struct Parameters {
    m: u32, n: u32, k: u32,
    b_stride: u32, b_first: u32,
    c_first: u32,
    factor: f32,
}
var<immediate> p: Parameters;
// Whether b is stored as [n, k].
override B_TRANSPOSED: bool;
override BASE: bool;
override BIAS: bool;
override GATED: bool;
@group(0) @binding(0) var<storage, read> a: array<vec4<f16>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f16>>;
// What a was multiplied by, and its inverse.
@group(0) @binding(2) var<storage, read> scale: array<f32>;
@group(0) @binding(3) var<storage, read> base: array<f32>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read> gate: array<f32>;
@group(0) @binding(6) var<storage, read_write> c: array<f32>;

const BM = 8u * T;
const BN = 8u * T;
const BK = 2u * T;
// Elements of a row of a slice: eight of padding spread the rows over the banks.
const SA = BK + 8u;
const SB = BN + 8u;
const SB_SIZE = max(BN * SA, BK * SB);
// Vectors that a lane fetches of each slice, at most 8.
const PER = BM * BK / 4u / WG;
// A fragment of each subgroup on its way out.
var<workgroup> patches: array<f32, 4u * T * T>;

// Row and column of vector `i` of this lane in a slice of rows `width` long.
fn place(i: u32, lane: u32, width: u32) -> vec2<u32> {
    let at = i * WG + lane;
    return vec2(at / (width / 4u), 4u * (at % (width / 4u)));
}

fn fetch_a(i: u32, lane: u32, row: u32, first: u32) -> vec4<f16> {
    let place = place(i, lane, BK);
    let r = row + place.x;
    let s = first + place.y;
    if i >= PER || r >= p.m || s >= p.k { return vec4<f16>(); }
    return a[(r * p.k + s) / 4u];
}

fn fetch_b(i: u32, lane: u32, column: u32, first: u32) -> vec4<f16> {
    if B_TRANSPOSED {
        let place = place(i, lane, BK);
        let q = column + place.x;
        let s = first + place.y;
        if i >= PER || q >= p.n || s >= p.k { return vec4<f16>(); }
        return b[(p.b_first + q * p.b_stride + s) / 4u];
    }
    let place = place(i, lane, BN);
    let s = first + place.x;
    let q = column + place.y;
    if i >= PER || q >= p.n || s >= p.k { return vec4<f16>(); }
    return b[(p.b_first + s * p.b_stride + q) / 4u];
}

fn keep_a(i: u32, lane: u32, v: vec4<f16>) {
    let place = place(i, lane, BK);
    if i < PER { put_a(place.x * SA + place.y, v); }
}

fn keep_b(i: u32, lane: u32, v: vec4<f16>) {
    if i >= PER { return; }
    if B_TRANSPOSED {
        let place = place(i, lane, BK);
        put_b(place.x * SA + place.y, v);
    } else {
        let place = place(i, lane, BN);
        put_b(place.x * SB + place.y, v);
    }
}

// Fragment (i, j) of every subgroup, from `patches` to the result.
fn drain(i: u32, j: u32, lane: u32, row: u32, column: u32) {
    workgroupBarrier();
    var factor = p.factor * scale[1];
    if GATED { factor *= gate[0]; }
    for (var at = lane; at < 4u * T * T; at += WG) {
        let part = at / (T * T);
        let r = row + ((part / 2u) * 4u + i) * T + (at / T) % T;
        let q = column + ((part % 2u) * 4u + j) * T + at % T;
        if r < p.m && q < p.n {
            let to = r * p.n + q;
            var value = factor * patches[at];
            if BASE { value += base[to]; }
            if BIAS { value += bias[q]; }
            c[p.c_first + to] = value;
        }
    }
    workgroupBarrier();
}

// Tiles are taken down a band of 8 rows of them before the next column, so that those at work share what they read.
fn tile_of(flat: u32) -> vec2<u32> {
    const BAND = 8u;
    let down = (p.m + BM - 1u) / BM;
    let across = (p.n + BN - 1u) / BN;
    let band = flat / (BAND * across);
    let height = max(1u, min(BAND, down - min(down, band * BAND)));
    let within = flat % (BAND * across);
    return vec2(band * BAND + within % height, within / height);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
) {
    let tile = tile_of(flat(group, groups));
    let row = tile.x * BM;
    let column = tile.y * BN;
    // No early return for tiles beyond the last, of which a folded grid may have a few: matrix operations must be in uniform
    // control flow. Nothing is read or written for them.
    // Where this subgroup's fragments begin in the tile.
    let sm = (subgroup / 2u) * 4u * T;
    let sn = (subgroup % 2u) * 4u * T;

    var c00: FC; var c01: FC; var c02: FC; var c03: FC;
    var c10: FC; var c11: FC; var c12: FC; var c13: FC;
    var c20: FC; var c21: FC; var c22: FC; var c23: FC;
    var c30: FC; var c31: FC; var c32: FC; var c33: FC;
    var x0 = fetch_a(0u, lane, row, 0u);
    var x1 = fetch_a(1u, lane, row, 0u);
    var x2 = fetch_a(2u, lane, row, 0u);
    var x3 = fetch_a(3u, lane, row, 0u);
    var x4 = fetch_a(4u, lane, row, 0u);
    var x5 = fetch_a(5u, lane, row, 0u);
    var x6 = fetch_a(6u, lane, row, 0u);
    var x7 = fetch_a(7u, lane, row, 0u);
    var y0 = fetch_b(0u, lane, column, 0u);
    var y1 = fetch_b(1u, lane, column, 0u);
    var y2 = fetch_b(2u, lane, column, 0u);
    var y3 = fetch_b(3u, lane, column, 0u);
    var y4 = fetch_b(4u, lane, column, 0u);
    var y5 = fetch_b(5u, lane, column, 0u);
    var y6 = fetch_b(6u, lane, column, 0u);
    var y7 = fetch_b(7u, lane, column, 0u);
    for (var first = 0u; first < p.k; first += BK) {
        workgroupBarrier();
        keep_a(0u, lane, x0);
        keep_a(1u, lane, x1);
        keep_a(2u, lane, x2);
        keep_a(3u, lane, x3);
        keep_a(4u, lane, x4);
        keep_a(5u, lane, x5);
        keep_a(6u, lane, x6);
        keep_a(7u, lane, x7);
        keep_b(0u, lane, y0);
        keep_b(1u, lane, y1);
        keep_b(2u, lane, y2);
        keep_b(3u, lane, y3);
        keep_b(4u, lane, y4);
        keep_b(5u, lane, y5);
        keep_b(6u, lane, y6);
        keep_b(7u, lane, y7);
        workgroupBarrier();
        let next = first + BK;
        if next < p.k {
            x0 = fetch_a(0u, lane, row, next);
            x1 = fetch_a(1u, lane, row, next);
            x2 = fetch_a(2u, lane, row, next);
            x3 = fetch_a(3u, lane, row, next);
            x4 = fetch_a(4u, lane, row, next);
            x5 = fetch_a(5u, lane, row, next);
            x6 = fetch_a(6u, lane, row, next);
            x7 = fetch_a(7u, lane, row, next);
            y0 = fetch_b(0u, lane, column, next);
            y1 = fetch_b(1u, lane, column, next);
            y2 = fetch_b(2u, lane, column, next);
            y3 = fetch_b(3u, lane, column, next);
            y4 = fetch_b(4u, lane, column, next);
            y5 = fetch_b(5u, lane, column, next);
            y6 = fetch_b(6u, lane, column, next);
            y7 = fetch_b(7u, lane, column, next);
        }
        for (var s = 0u; s < BK; s += T) {
            // coopLoadT reads rows, coopLoad columns.
            let a0 = coopLoadT<FA>(&sa[((sm + 0u * T) * SA + s) / CELL], SA / CELL);
            let a1 = coopLoadT<FA>(&sa[((sm + 1u * T) * SA + s) / CELL], SA / CELL);
            let a2 = coopLoadT<FA>(&sa[((sm + 2u * T) * SA + s) / CELL], SA / CELL);
            let a3 = coopLoadT<FA>(&sa[((sm + 3u * T) * SA + s) / CELL], SA / CELL);
            var b0: FB; var b1: FB; var b2: FB; var b3: FB;
            if B_TRANSPOSED {
                b0 = coopLoad<FB>(&sb[((sn + 0u * T) * SA + s) / CELL], SA / CELL);
                b1 = coopLoad<FB>(&sb[((sn + 1u * T) * SA + s) / CELL], SA / CELL);
                b2 = coopLoad<FB>(&sb[((sn + 2u * T) * SA + s) / CELL], SA / CELL);
                b3 = coopLoad<FB>(&sb[((sn + 3u * T) * SA + s) / CELL], SA / CELL);
            } else {
                b0 = coopLoadT<FB>(&sb[(s * SB + sn + 0u * T) / CELL], SB / CELL);
                b1 = coopLoadT<FB>(&sb[(s * SB + sn + 1u * T) / CELL], SB / CELL);
                b2 = coopLoadT<FB>(&sb[(s * SB + sn + 2u * T) / CELL], SB / CELL);
                b3 = coopLoadT<FB>(&sb[(s * SB + sn + 3u * T) / CELL], SB / CELL);
            }
            c00 = coopMultiplyAdd(a0, b0, c00);
            c01 = coopMultiplyAdd(a0, b1, c01);
            c02 = coopMultiplyAdd(a0, b2, c02);
            c03 = coopMultiplyAdd(a0, b3, c03);
            c10 = coopMultiplyAdd(a1, b0, c10);
            c11 = coopMultiplyAdd(a1, b1, c11);
            c12 = coopMultiplyAdd(a1, b2, c12);
            c13 = coopMultiplyAdd(a1, b3, c13);
            c20 = coopMultiplyAdd(a2, b0, c20);
            c21 = coopMultiplyAdd(a2, b1, c21);
            c22 = coopMultiplyAdd(a2, b2, c22);
            c23 = coopMultiplyAdd(a2, b3, c23);
            c30 = coopMultiplyAdd(a3, b0, c30);
            c31 = coopMultiplyAdd(a3, b1, c31);
            c32 = coopMultiplyAdd(a3, b2, c32);
            c33 = coopMultiplyAdd(a3, b3, c33);
        }
    }
    // A stride or an index that is computed must have a name before a store, or naga 30 panics.
    let mine = subgroup * T * T;
    coopStoreT(c00, &patches[mine], T);
    drain(0u, 0u, lane, row, column);
    coopStoreT(c01, &patches[mine], T);
    drain(0u, 1u, lane, row, column);
    coopStoreT(c02, &patches[mine], T);
    drain(0u, 2u, lane, row, column);
    coopStoreT(c03, &patches[mine], T);
    drain(0u, 3u, lane, row, column);
    coopStoreT(c10, &patches[mine], T);
    drain(1u, 0u, lane, row, column);
    coopStoreT(c11, &patches[mine], T);
    drain(1u, 1u, lane, row, column);
    coopStoreT(c12, &patches[mine], T);
    drain(1u, 2u, lane, row, column);
    coopStoreT(c13, &patches[mine], T);
    drain(1u, 3u, lane, row, column);
    coopStoreT(c20, &patches[mine], T);
    drain(2u, 0u, lane, row, column);
    coopStoreT(c21, &patches[mine], T);
    drain(2u, 1u, lane, row, column);
    coopStoreT(c22, &patches[mine], T);
    drain(2u, 2u, lane, row, column);
    coopStoreT(c23, &patches[mine], T);
    drain(2u, 3u, lane, row, column);
    coopStoreT(c30, &patches[mine], T);
    drain(3u, 0u, lane, row, column);
    coopStoreT(c31, &patches[mine], T);
    drain(3u, 1u, lane, row, column);
    coopStoreT(c32, &patches[mine], T);
    drain(3u, 2u, lane, row, column);
    coopStoreT(c33, &patches[mine], T);
    drain(3u, 3u, lane, row, column);
}
