// c = base + factor a b + bias by cooperative matrices: a [m, k] and b in f16, sums in f32; k, n and row lengths are multiples of 4.
// What stands before this text says how large the fragments (T) and the workgroup (WG) are.
//
// A workgroup of 16 subgroups, four by four, makes a tile of 8 T x 8 T, each subgroup 2 x 2 fragments of it, from slices of 4 T
// steps of k in its memory. The next slice is on its way to registers while one is multiplied. Fragments have names of their
// own, as drivers keep arrays in registers only where every index is a constant.
//
// Vulkan wants fragments loaded from and stored to multiples of 16 bytes, or results are wrong:
// sizes of what stands in a workgroup's memory are such multiples, since a driver may put it in any order.
struct Parameters {
    m: u32, n: u32, k: u32,
    b_stride: u32, b_first: u32,
    c_first: u32,
    factor: f32,
    // Of this launch: a large product takes several.
    first_tile: u32,
}
var<immediate> p: Parameters;
// Whether b is stored as [n, k].
override B_TRANSPOSED: bool;
override BASE: bool;
override BIAS: bool;
override GATED: bool;
// Whether fragments go to the result as they are: all tiles lie within it, and there is no bias.
override DIRECT: bool;
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
const BK = 4u * T;
// Elements of a row of a slice: eight of padding spread the rows over the banks.
const SA = BK + 8u;
const SB = BN + 8u;
const SB_SIZE = max(BN * SA, BK * SB);
// Vectors that a lane fetches of each slice, at most 4.
const PER = BM * BK / 4u / WG;
// A fragment of each of eight subgroups on its way out.
const PATCHES = 8u * T * T;
var<workgroup> patches: array<f32, PATCHES>;

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

// Fragments of the slices, from a row of a or a column of b and a step on. coopLoadT reads rows, coopLoad columns.
fn part_of_a(row: u32, s: u32) -> FA { return coopLoadT<FA>(&sa[(row * SA + s) / CELL], SA / CELL); }

fn part_of_b(column: u32, s: u32) -> FB {
    if B_TRANSPOSED { return coopLoad<FB>(&sb[(column * SA + s) / CELL], SA / CELL); }
    return coopLoadT<FB>(&sb[(s * SB + column) / CELL], SB / CELL);
}

// Fragment (i, j) of every subgroup to the result, by the workgroup's memory: half of the subgroups, then the others.
fn drain(fragment: FC, i: u32, j: u32, lane: u32, subgroup: u32, row: u32, column: u32, factor: f32) {
    let mine = subgroup % 8u * T * T;
    for (var half = 0u; half < 2u; half++) {
        if subgroup / 8u == half { coopStoreT(fragment, &patches[mine], T); }
        workgroupBarrier();
        for (var at = lane; at < PATCHES; at += WG) {
            let part = half * 8u + at / (T * T);
            let r = row + (part / 4u * 2u + i) * T + at / T % T;
            let q = column + (part % 4u * 2u + j) * T + at % T;
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
    let tile = tile_of(p.first_tile + flat(group, groups));
    let row = tile.x * BM;
    let column = tile.y * BN;
    // No early return for tiles beyond the last, of which a folded grid may have a few: matrix operations must be in uniform
    // control flow. Nothing is read or written for them.
    // Where this subgroup's fragments begin in the tile.
    let sm = subgroup / 4u * 2u * T;
    let sn = subgroup % 4u * 2u * T;

    var c00: FC; var c01: FC;
    var c10: FC; var c11: FC;
    var x0 = fetch_a(0u, lane, row, 0u);
    var x1 = fetch_a(1u, lane, row, 0u);
    var x2 = fetch_a(2u, lane, row, 0u);
    var x3 = fetch_a(3u, lane, row, 0u);
    var y0 = fetch_b(0u, lane, column, 0u);
    var y1 = fetch_b(1u, lane, column, 0u);
    var y2 = fetch_b(2u, lane, column, 0u);
    var y3 = fetch_b(3u, lane, column, 0u);
    for (var first = 0u; first < p.k; first += BK) {
        workgroupBarrier();
        keep_a(0u, lane, x0);
        keep_a(1u, lane, x1);
        keep_a(2u, lane, x2);
        keep_a(3u, lane, x3);
        keep_b(0u, lane, y0);
        keep_b(1u, lane, y1);
        keep_b(2u, lane, y2);
        keep_b(3u, lane, y3);
        workgroupBarrier();
        let next = first + BK;
        if next < p.k {
            x0 = fetch_a(0u, lane, row, next);
            x1 = fetch_a(1u, lane, row, next);
            x2 = fetch_a(2u, lane, row, next);
            x3 = fetch_a(3u, lane, row, next);
            y0 = fetch_b(0u, lane, column, next);
            y1 = fetch_b(1u, lane, column, next);
            y2 = fetch_b(2u, lane, column, next);
            y3 = fetch_b(3u, lane, column, next);
        }
        // Written out: a loop takes up to 8 % longer on an H200.
        {
            let a0 = part_of_a(sm, 0u);
            let a1 = part_of_a(sm + T, 0u);
            let b0 = part_of_b(sn, 0u);
            c00 = coopMultiplyAdd(a0, b0, c00);
            c10 = coopMultiplyAdd(a1, b0, c10);
            let b1 = part_of_b(sn + T, 0u);
            c01 = coopMultiplyAdd(a0, b1, c01);
            c11 = coopMultiplyAdd(a1, b1, c11);
        }
        {
            let a0 = part_of_a(sm, T);
            let a1 = part_of_a(sm + T, T);
            let b0 = part_of_b(sn, T);
            c00 = coopMultiplyAdd(a0, b0, c00);
            c10 = coopMultiplyAdd(a1, b0, c10);
            let b1 = part_of_b(sn + T, T);
            c01 = coopMultiplyAdd(a0, b1, c01);
            c11 = coopMultiplyAdd(a1, b1, c11);
        }
        {
            let a0 = part_of_a(sm, 2u * T);
            let a1 = part_of_a(sm + T, 2u * T);
            let b0 = part_of_b(sn, 2u * T);
            c00 = coopMultiplyAdd(a0, b0, c00);
            c10 = coopMultiplyAdd(a1, b0, c10);
            let b1 = part_of_b(sn + T, 2u * T);
            c01 = coopMultiplyAdd(a0, b1, c01);
            c11 = coopMultiplyAdd(a1, b1, c11);
        }
        {
            let a0 = part_of_a(sm, 3u * T);
            let a1 = part_of_a(sm + T, 3u * T);
            let b0 = part_of_b(sn, 3u * T);
            c00 = coopMultiplyAdd(a0, b0, c00);
            c10 = coopMultiplyAdd(a1, b0, c10);
            let b1 = part_of_b(sn + T, 3u * T);
            c01 = coopMultiplyAdd(a0, b1, c01);
            c11 = coopMultiplyAdd(a1, b1, c11);
        }
    }
    var factor = p.factor * scale[1];
    if GATED { factor *= gate[0]; }
    if DIRECT {
        let r = row + sm;
        let q = column + sn;
        if row < p.m && column < p.n {
            put_c(c00, r, q, factor);
            put_c(c01, r, q + T, factor);
            put_c(c10, r + T, q, factor);
            put_c(c11, r + T, q + T, factor);
        }
    } else {
        drain(c00, 0u, 0u, lane, subgroup, row, column, factor);
        drain(c01, 0u, 1u, lane, subgroup, row, column, factor);
        drain(c10, 1u, 0u, lane, subgroup, row, column, factor);
        drain(c11, 1u, 1u, lane, subgroup, row, column, factor);
    }
}
