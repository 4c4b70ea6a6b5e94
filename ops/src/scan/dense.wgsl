// A workgroup to a sequence: s_t = A s_{t-1} + u_t step by step, or with REVERSED backwards in time with the transpose.
// Steps are counted in the order of evaluation; those from `first` to before `last` are of this launch.
struct Parameters { batch: u32, steps: u32, dim: u32, first: u32, last: u32 }
var<immediate> p: Parameters;
override REVERSED: bool;
override START: bool;
const WIDEST = 1024u;
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> u: array<f32>;
@group(0) @binding(2) var<storage, read> start: array<f32>;
@group(0) @binding(3) var<storage, read_write> states: array<f32>;
var<workgroup> state: array<f32, 2048>;

fn step_of(n: u32) -> u32 { return select(n, p.steps - 1u - n, REVERSED); }

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let batch = flat(group, groups);
    if batch >= p.batch { return; }
    for (var i = lane; i < p.dim; i += 64u) {
        var before = 0.0;
        if p.first > 0u {
            before = states[(batch * p.steps + step_of(p.first - 1u)) * p.dim + i];
        } else if START {
            before = start[batch * p.dim + i];
        }
        state[p.first % 2u * WIDEST + i] = before;
    }
    workgroupBarrier();
    for (var n = p.first; n < p.last; n++) {
        let t = step_of(n);
        // The state before and after the step, in turn.
        let before = (n % 2u) * WIDEST;
        let after = WIDEST - before;
        for (var i = lane; i < p.dim; i += 64u) {
            var sum = u[(batch * p.steps + t) * p.dim + i];
            for (var j = 0u; j < p.dim; j++) {
                sum += a[select(i * p.dim + j, j * p.dim + i, REVERSED)] * state[before + j];
            }
            state[after + i] = sum;
            states[(batch * p.steps + t) * p.dim + i] = sum;
        }
        workgroupBarrier();
    }
}
