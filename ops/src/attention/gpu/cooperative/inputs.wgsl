// Operands in f16, in vectors of four elements of a head, and what each was multiplied by, with its inverse.
@group(0) @binding(0) var<storage, read> q: array<vec4<f16>>;
@group(0) @binding(1) var<storage, read> k: array<vec4<f16>>;
@group(0) @binding(2) var<storage, read> v: array<vec4<f16>>;
@group(0) @binding(3) var<storage, read> g: array<vec4<f16>>;
@group(0) @binding(4) var<storage, read> scale_q: array<f32>;
@group(0) @binding(5) var<storage, read> scale_k: array<f32>;
@group(0) @binding(6) var<storage, read> scale_v: array<f32>;
@group(0) @binding(7) var<storage, read> scale_g: array<f32>;

const Q = 0u;
const K = 1u;
const V = 2u;
const G = 3u;

// Elements d .. d + 4 of a row; zeros where there are none.
fn fetch(source: u32, row: u32, d: u32) -> vec4<f16> {
    let of_queries = source == Q || source == G;
    let count = select(p.keys, p.queries * shared_by(), of_queries);
    if row >= count || d >= p.head_dim { return vec4<f16>(); }
    let i = (select(key_at(row), query_at(row), of_queries) + d) / 4u;
    switch source {
        case Q: { return q[i]; }
        case K: { return k[i]; }
        case V: { return v[i]; }
        default: { return g[i]; }
    }
}
