// The slices element by element, as Metal wants them.
const CELL = 1u;
var<workgroup> sa: array<f16, BM * SA>;
var<workgroup> sb: array<f16, SB_SIZE>;

fn put_a(at: u32, v: vec4<f16>) {
    sa[at] = v.x;
    sa[at + 1u] = v.y;
    sa[at + 2u] = v.z;
    sa[at + 3u] = v.w;
}

fn put_b(at: u32, v: vec4<f16>) {
    sb[at] = v.x;
    sb[at + 1u] = v.y;
    sb[at + 2u] = v.z;
    sb[at + 3u] = v.w;
}

// Metal has no products of fragments and numbers, and never stores them directly.
fn put_c(fragment: FC, r: u32, q: u32, factor: f32) {}
