// Gradients from adjoint states G: a lane to a head of a token, with c = G k and e = v - S k of its rows, S the state before.
//
//   WHICH 0: of the key, beta sum_i (e_i G_i - c_i S_i);   1: of the value, beta c;   2: of beta, e . c.
struct Parameters { batch: u32, steps: u32, heads: u32, keys: u32, values: u32 }
var<immediate> p: Parameters;
override WHICH: u32;
override START: bool;
@group(0) @binding(0) var<storage, read> k: array<f32>;
@group(0) @binding(1) var<storage, read> v: array<f32>;
@group(0) @binding(2) var<storage, read> beta: array<f32>;
@group(0) @binding(3) var<storage, read> states: array<f32>;
@group(0) @binding(4) var<storage, read> start: array<f32>;
@group(0) @binding(5) var<storage, read> adjoint: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 64u + lane;
    if i >= p.batch * p.steps * p.heads { return; }
    let token = i / p.heads;
    let h = i % p.heads;
    let size = p.values * p.keys;
    let state = p.heads * size;
    let first = token % p.steps == 0u;
    if WHICH == 0u { for (var j = 0u; j < p.keys; j++) { out[i * p.keys + j] = 0.0; } }
    var share = 0.0;
    for (var row = 0u; row < p.values; row++) {
        let g = token * state + h * size + row * p.keys;
        let before = select(g - state, (token / p.steps) * state + h * size + row * p.keys, first);
        var c = 0.0;
        var e = v[i * p.values + row];
        for (var j = 0u; j < p.keys; j++) {
            let key = k[i * p.keys + j];
            c += adjoint[g + j] * key;
            if !first { e -= states[before + j] * key; } else if START { e -= start[before + j] * key; }
        }
        if WHICH == 1u { out[i * p.values + row] = beta[i] * c; }
        share += e * c;
        if WHICH == 0u {
            for (var j = 0u; j < p.keys; j++) {
                var s = 0.0;
                if !first { s = states[before + j]; } else if START { s = start[before + j]; }
                out[i * p.keys + j] += beta[i] * (e * adjoint[g + j] - c * s);
            }
        }
    }
    if WHICH == 2u { out[i] = share; }
}
