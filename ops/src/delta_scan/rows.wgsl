// S_t = S_{t-1} + beta_t (v_t - S_{t-1} k_t) k_t^T: a lane to a row of S, all steps.
//
//   PASS 0: the states from `driving` = v.
//   PASS 1: the adjoint states from `driving` = g, backwards in time: G_t = g_t + G_{t+1} - beta_{t+1} (G_{t+1} k_{t+1}) k_{t+1}^T.
//   PASS 2: what is before the first of them, from `driving` = G.
// Steps from `first` to before `last`, in the order of evaluation, are of this launch.
struct Parameters { batch: u32, steps: u32, heads: u32, keys: u32, values: u32, first: u32, last: u32 }
var<immediate> p: Parameters;
override PASS: u32;
override START: bool;
@group(0) @binding(0) var<storage, read> k: array<f32>;
@group(0) @binding(1) var<storage, read> beta: array<f32>;
@group(0) @binding(2) var<storage, read> driving: array<f32>;
@group(0) @binding(3) var<storage, read> start: array<f32>;
@group(0) @binding(4) var<storage, read_write> states: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 64u + lane;
    let rows = p.heads * p.values;
    if i >= p.batch * rows { return; }
    let b = i / rows;
    let row = i % rows;
    let h = row / p.values;
    if PASS == 2u {
        let head = b * p.steps * p.heads + h;
        let origin = (b * p.steps * rows + row) * p.keys;
        var answer = 0.0;
        for (var j = 0u; j < p.keys; j++) { answer += driving[origin + j] * k[head * p.keys + j]; }
        for (var j = 0u; j < p.keys; j++) {
            states[i * p.keys + j] = driving[origin + j] - beta[head] * answer * k[head * p.keys + j];
        }
        return;
    }
    for (var n = p.first; n < p.last; n++) {
        let t = select(n, p.steps - 1u - n, PASS == 1u);
        let token = b * p.steps + t;
        let to = (token * rows + row) * p.keys;
        if PASS == 0u {
            let head = token * p.heads + h;
            // The row as it was, which the first step takes from `start` or is zero.
            for (var j = 0u; j < p.keys; j++) {
                var before = 0.0;
                if n > 0u { before = states[to - rows * p.keys + j]; } else if START { before = start[i * p.keys + j]; }
                states[to + j] = before;
            }
            var answer = 0.0;
            for (var j = 0u; j < p.keys; j++) { answer += states[to + j] * k[head * p.keys + j]; }
            let change = beta[head] * (driving[token * rows + row] - answer);
            for (var j = 0u; j < p.keys; j++) { states[to + j] += change * k[head * p.keys + j]; }
        } else {
            let head = (token + 1u) * p.heads + h;
            let later = to + rows * p.keys;
            var change = 0.0;
            if n > 0u {
                for (var j = 0u; j < p.keys; j++) { change += states[later + j] * k[head * p.keys + j]; }
                change *= beta[head];
            }
            for (var j = 0u; j < p.keys; j++) {
                var sum = driving[to + j];
                if n > 0u { sum += states[later + j] - change * k[head * p.keys + j]; }
                states[to + j] = sum;
            }
        }
    }
}
