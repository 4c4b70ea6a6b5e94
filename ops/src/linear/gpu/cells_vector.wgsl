// The slices in vectors: one store for four elements. Indices and strides count vectors.
const CELL = 4u;
var<workgroup> sa: array<vec4<f16>, BM * SA / 4u>;
var<workgroup> sb: array<vec4<f16>, SB_SIZE / 4u>;

fn put_a(at: u32, v: vec4<f16>) { sa[at / 4u] = v; }
fn put_b(at: u32, v: vec4<f16>) { sb[at / 4u] = v; }
