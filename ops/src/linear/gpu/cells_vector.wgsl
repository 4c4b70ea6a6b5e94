// The slices in vectors: one store for four elements. Indices and strides count vectors.
const CELL = 4u;
var<workgroup> sa: array<vec4<f16>, BM * SA / 4u>;
var<workgroup> sb: array<vec4<f16>, SB_SIZE / 4u>;

fn put_a(at: u32, v: vec4<f16>) { sa[at / 4u] = v; }
fn put_b(at: u32, v: vec4<f16>) { sb[at / 4u] = v; }

// A fragment to row r and column q of the result.
fn put_c(fragment: FC, r: u32, q: u32, factor: f32) {
    let at = r * p.n + q;
    // A stride or an index that is computed must have a name before a store, or naga 30 panics.
    let to = p.c_first + at;
    let stride = p.n;
    var value = fragment * factor;
    if BASE { value = value + coopLoadT<FC>(&base[at], stride); }
    coopStoreT(value, &c[to], stride);
}
