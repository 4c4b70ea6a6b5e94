// States of s_t = a s_{t-1} + u_t in chunks of steps, in three passes. A lane holds a mode: a real pole and its state, or a
// pair and the two states of its block [re -im; im re], as one complex number. REVERSED runs backwards in time with the
// transposed blocks; then, with VARYING poles, step t is led by the pole of step t + 1.
//
//   PASS 0: every chunk from rest; its last state and the product of its poles go to `ends`.
//   PASS 1: what every chunk should have begun with, from chunk to chunk, takes the place of the last states.
//   PASS 2: each state gets its share of that.
struct Parameters { batch: u32, steps: u32, dim: u32, real: u32, modes: u32, chunk: u32, chunks: u32 }
var<immediate> p: Parameters;
override PASS: u32;
override REVERSED: bool;
override VARYING: bool;
override START: bool;
// [modes] complex, or with VARYING [batch, steps, dim] real.
@group(0) @binding(0) var<storage, read> poles: array<f32>;
@group(0) @binding(1) var<storage, read> u: array<f32>;
@group(0) @binding(2) var<storage, read> start: array<f32>;
// [batch, chunks, modes] of a state and a product, both complex.
@group(0) @binding(3) var<storage, read_write> ends: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> states: array<f32>;

fn times(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    return vec2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

fn column(mode: u32) -> u32 {
    return select(2u * mode - p.real, mode, mode < p.real);
}

// The n-th step in the order of evaluation.
fn step_of(n: u32) -> u32 {
    return select(n, p.steps - 1u - n, REVERSED);
}

fn pole(batch: u32, mode: u32, t: u32) -> vec2<f32> {
    if VARYING {
        let at = select(t, t + 1u, REVERSED);
        if at >= p.steps { return vec2(0.0); }
        return vec2(poles[(batch * p.steps + at) * p.dim + mode], 0.0);
    }
    let value = vec2(poles[2u * mode], poles[2u * mode + 1u]);
    return select(value, vec2(value.x, -value.y), REVERSED);
}

fn driven(batch: u32, mode: u32, t: u32) -> vec2<f32> {
    let at = (batch * p.steps + t) * p.dim + column(mode);
    if mode < p.real { return vec2(u[at], 0.0); }
    return vec2(u[at], u[at + 1u]);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 64u + lane;
    let mode = i % p.modes;
    if PASS == 1u {
        let batch = i / p.modes;
        if batch >= p.batch { return; }
        var state = vec2(0.0);
        if START {
            let at = batch * p.dim + column(mode);
            state.x = start[at];
            if mode >= p.real { state.y = start[at + 1u]; }
        }
        for (var c = 0u; c < p.chunks; c++) {
            let at = (batch * p.chunks + c) * p.modes + mode;
            let end = ends[at];
            ends[at] = vec4(state, end.zw);
            state = times(end.zw, state) + end.xy;
        }
        return;
    }
    let c = (i / p.modes) % p.chunks;
    let batch = i / p.modes / p.chunks;
    if batch >= p.batch { return; }
    let last = min((c + 1u) * p.chunk, p.steps);
    let end = (batch * p.chunks + c) * p.modes + mode;
    var state = vec2(0.0);
    var product = vec2(1.0, 0.0);
    if PASS == 2u { state = ends[end].xy; }
    for (var n = c * p.chunk; n < last; n++) {
        let t = step_of(n);
        let a = pole(batch, mode, t);
        state = times(a, state);
        let at = (batch * p.steps + t) * p.dim + column(mode);
        if PASS == 0u {
            state += driven(batch, mode, t);
            product = times(a, product);
            states[at] = state.x;
            if mode >= p.real { states[at + 1u] = state.y; }
        } else {
            states[at] += state.x;
            if mode >= p.real { states[at + 1u] += state.y; }
        }
    }
    if PASS == 0u { ends[end] = vec4(state, product); }
}
