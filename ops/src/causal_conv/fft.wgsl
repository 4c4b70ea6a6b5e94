// Fourier transforms of lines of complex numbers, 2048 elements to a workgroup: as many lines of M elements side by side as
// that gives, by Stockham's algorithm with radix 8. Lines longer than M are transformed in two launches (Bailey's four steps):
// element t = i stride_i + j stride_j, over i with twiddle factors for every j, then the other way round. What is multiplied in
// between may be in any order of frequencies, so nothing is ever put back in order.
struct Parameters {
    // Of the signal [batch, steps, width]; `lines` of its columns from `column` on take part, or as many pairs of columns.
    batch: u32, steps: u32, width: u32, column: u32, lines: u32,
    // Length of a transform, and how the elements of a line lie.
    n: u32, outer: u32, stride_i: u32, stride_j: u32,
    // Groups of lines, and workgroups to each.
    quantity: u32, per: u32,
}
var<immediate> p: Parameters;
override M: u32;
// What is read and written: 0 complex numbers in place, 1 the signal, 2 taps [lines, steps], 3 complex numbers from elsewhere.
override LOAD: u32;
override STORE: u32;
override FORWARD: bool;
// By the spectrum (1) or its conjugate (2) between the two transforms.
override MULTIPLY: u32;
override INVERSE: bool;
override TWIDDLE: bool;
// A complex number is two neighbouring columns of a sequence, and not a column of two sequences.
override PAIRS: bool;
// `first` [batch, width] is added to the first step.
override FIRST: bool;
@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read> first: array<f32>;
@group(0) @binding(2) var<storage, read> spectrum: array<vec2<f32>>;
// exp(-2 pi i k / 2048), then exp(-2 pi i k / n), k < 2048.
@group(0) @binding(3) var<storage, read> roots: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;
const ELEMENTS = 2048u;
const LANES = 256u;
const ROOT = 0.7071067811865476;
var<workgroup> data: array<vec2<f32>, 2048>;

fn times(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    return vec2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

fn conjugate(a: vec2<f32>) -> vec2<f32> {
    return vec2(a.x, -a.y);
}

// Times -i.
fn turned(a: vec2<f32>) -> vec2<f32> {
    return vec2(a.y, -a.x);
}

// Element `r` of butterfly `id`, of radix R, in a pass after `span` elements are transformed.
fn gather(id: u32, r: u32, radix: u32, span: u32) -> vec2<f32> {
    let side = ELEMENTS / M;
    let j = id / side;
    let element = data[(j + r * (M / radix)) * side + id % side];
    // All lengths are powers of two.
    return times(element, roots[(j & (span - 1u)) * r * (ELEMENTS / (radix * span))]);
}

fn scatter(id: u32, r: u32, radix: u32, span: u32, value: vec2<f32>) {
    let side = ELEMENTS / M;
    let j = id / side;
    let k = j & (span - 1u);
    data[((j - k) * radix + k + r * span) * side + id % side] = value;
}

fn dft4(a: vec2<f32>, b: vec2<f32>, c: vec2<f32>, d: vec2<f32>) -> array<vec2<f32>, 4> {
    let even = a + c;
    let odd = turned(b - d);
    return array(even + (b + d), (a - c) + odd, even - (b + d), (a - c) - odd);
}

fn transform(lane: u32) {
    for (var span = 1u; span < M; span *= 8u) {
        var v: array<vec2<f32>, 8>;
        let radix = min(M / span, 8u);
        if radix == 8u {
            for (var r = 0u; r < 8u; r++) { v[r] = gather(lane, r, 8u, span); }
            workgroupBarrier();
            let even = dft4(v[0], v[2], v[4], v[6]);
            let odd = dft4(v[1], v[3], v[5], v[7]);
            let one = times(odd[1], vec2(ROOT, -ROOT));
            let two = turned(odd[2]);
            let three = times(odd[3], vec2(-ROOT, -ROOT));
            scatter(lane, 0u, 8u, span, even[0] + odd[0]);
            scatter(lane, 1u, 8u, span, even[1] + one);
            scatter(lane, 2u, 8u, span, even[2] + two);
            scatter(lane, 3u, 8u, span, even[3] + three);
            scatter(lane, 4u, 8u, span, even[0] - odd[0]);
            scatter(lane, 5u, 8u, span, even[1] - one);
            scatter(lane, 6u, 8u, span, even[2] - two);
            scatter(lane, 7u, 8u, span, even[3] - three);
        } else if radix == 4u {
            for (var r = 0u; r < 8u; r++) { v[r] = gather(lane + LANES * (r / 4u), r % 4u, 4u, span); }
            workgroupBarrier();
            let low = dft4(v[0], v[1], v[2], v[3]);
            let high = dft4(v[4], v[5], v[6], v[7]);
            for (var r = 0u; r < 4u; r++) {
                scatter(lane, r, 4u, span, low[r]);
                scatter(lane + LANES, r, 4u, span, high[r]);
            }
        } else {
            for (var r = 0u; r < 8u; r++) { v[r] = gather(lane + LANES * (r / 2u), r % 2u, 2u, span); }
            workgroupBarrier();
            for (var b = 0u; b < 4u; b++) {
                scatter(lane + LANES * b, 0u, 2u, span, v[2u * b] + v[2u * b + 1u]);
                scatter(lane + LANES * b, 1u, 2u, span, v[2u * b] - v[2u * b + 1u]);
            }
        }
        workgroupBarrier();
    }
}

// Where the first number of a line's step lies in the signal, and the second in the same sequence or the next.
fn place(group: u32, t: u32, line: u32) -> u32 {
    if PAIRS { return (group * p.steps + t) * p.width + p.column + 2u * line; }
    return (2u * group * p.steps + t) * p.width + p.column + line;
}

fn partner(at: u32) -> u32 {
    if PAIRS { return at + 1u; }
    return at + p.steps * p.width;
}

fn has_partner(group: u32) -> bool {
    return PAIRS || 2u * group + 1u < p.batch;
}

fn driven(group: u32, t: u32, line: u32) -> vec2<f32> {
    if t >= p.steps { return vec2(0.0); }
    let at = place(group, t, line);
    var value = vec2(source[at], 0.0);
    if has_partner(group) { value.y = source[partner(at)]; }
    if FIRST && t == 0u {
        if PAIRS {
            let at = group * p.width + p.column + 2u * line;
            value += vec2(first[at], first[at + 1u]);
        } else {
            let at = 2u * group * p.width + p.column + line;
            value.x += first[at];
            if has_partner(group) { value.y += first[at + p.width]; }
        }
    }
    return value;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let id = flat(group_id, groups);
    let group = id / p.per;
    if group >= p.quantity { return; }
    let side = ELEMENTS / M;
    let before = (id % p.per) * side;
    for (var e = lane; e < ELEMENTS; e += LANES) {
        let i = e / side;
        let slot = before + e % side;
        let j = slot / p.lines;
        let line = slot % p.lines;
        let t = i * p.stride_i + j * p.stride_j;
        var value = vec2(0.0);
        if slot < p.outer * p.lines {
            let at = (group * p.n + t) * p.lines + line;
            switch LOAD {
                case 0u: { value = vec2(out[2u * at], out[2u * at + 1u]); }
                case 1u: { value = driven(group, t, line); }
                case 2u: { if t < p.steps { value.x = source[line * p.steps + t]; } }
                default: { value = vec2(source[2u * at], source[2u * at + 1u]); }
            }
        }
        if !FORWARD {
            value = conjugate(value);
            if TWIDDLE { value = times(value, twiddle(i * j)); }
        }
        data[e] = value;
    }
    workgroupBarrier();
    if FORWARD { transform(lane); }
    if FORWARD && INVERSE {
        for (var e = lane; e < ELEMENTS; e += LANES) {
            let slot = before + e % side;
            let t = (e / side) * p.stride_i + (slot / p.lines) * p.stride_j;
            if slot < p.outer * p.lines {
                let factor = spectrum[t * p.lines + slot % p.lines];
                if MULTIPLY == 2u { data[e] = conjugate(times(data[e], conjugate(factor))); }
                else { data[e] = conjugate(times(data[e], factor)); }
            }
        }
        workgroupBarrier();
    }
    if INVERSE { transform(lane); }
    for (var e = lane; e < ELEMENTS; e += LANES) {
        let i = e / side;
        let slot = before + e % side;
        if slot >= p.outer * p.lines { continue; }
        let j = slot / p.lines;
        let line = slot % p.lines;
        let t = i * p.stride_i + j * p.stride_j;
        var value = data[e];
        if INVERSE { value = conjugate(value); }
        if FORWARD && !INVERSE && TWIDDLE { value = times(value, twiddle(i * j)); }
        if STORE == 0u {
            let at = (group * p.n + t) * p.lines + line;
            out[2u * at] = value.x;
            out[2u * at + 1u] = value.y;
        } else if t < p.steps {
            value /= f32(p.n);
            if STORE == 2u {
                out[line * p.steps + t] = value.x;
            } else {
                let at = place(group, t, line);
                out[at] = value.x;
                if has_partner(group) { out[partner(at)] = value.y; }
            }
        }
    }
}

// exp(-2 pi i k / n): a coarse and a fine root.
fn twiddle(k: u32) -> vec2<f32> {
    return times(roots[(k / ELEMENTS) * (ELEMENTS / (p.n / ELEMENTS))], roots[ELEMENTS + k % ELEMENTS]);
}
