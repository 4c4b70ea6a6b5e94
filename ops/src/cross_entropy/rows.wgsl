// A workgroup to a row of logits: its loss, and with GRADIENT the logits replaced by the gradient of it.
struct Parameters { rows: u32, classes: u32, first: u32, all: u32, smoothing: f32, scale: f32, cap: f32 }
var<immediate> p: Parameters;
override GRADIENT: bool;
@group(0) @binding(0) var<storage, read_write> logits: array<f32>;
// The targets of all rows, then their weights.
@group(0) @binding(1) var<storage, read> targets: array<u32>;
@group(0) @binding(2) var<storage, read_write> losses: array<f32>;
var<workgroup> shared_values: array<vec2<f32>, 128>;

fn largest(lane: u32, own: f32) -> f32 {
    shared_values[lane].x = own;
    workgroupBarrier();
    for (var half = 64u; half > 0u; half /= 2u) {
        if lane < half { shared_values[lane].x = max(shared_values[lane].x, shared_values[lane + half].x); }
        workgroupBarrier();
    }
    let value = shared_values[0].x;
    workgroupBarrier();
    return value;
}

fn total(lane: u32, own: vec2<f32>) -> vec2<f32> {
    shared_values[lane] = own;
    workgroupBarrier();
    for (var half = 64u; half > 0u; half /= 2u) {
        if lane < half { shared_values[lane] += shared_values[lane + half]; }
        workgroupBarrier();
    }
    return shared_values[0];
}

fn logit(i: u32) -> f32 { return soft_cap(logits[i], p.cap); }

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = flat(group, groups);
    if row >= p.rows { return; }
    let at = row * p.classes;
    var top = -3.4e38;
    for (var j = lane; j < p.classes; j += 128u) { top = max(top, logit(at + j)); }
    top = largest(lane, top);
    // Sums of exp(z - top) and of z - top.
    var sums = vec2(0.0);
    for (var j = lane; j < p.classes; j += 128u) {
        let z = logit(at + j) - top;
        sums += vec2(exp(z), z);
    }
    sums = total(lane, sums);
    let log_sum = log(sums.x);
    let goal = targets[p.first + row];
    let weight = bitcast<f32>(targets[p.all + p.first + row]) * p.scale;
    if lane == 0u {
        let nll = log_sum - (logit(at + goal) - top);
        var loss = nll;
        // A class of no probability makes the mean over all infinite, which counts only where it is asked for.
        if p.smoothing > 0.0 { loss = (1.0 - p.smoothing) * nll + p.smoothing * (log_sum - sums.y / f32(p.classes)); }
        losses[p.first + row] = weight * loss;
    }
    if !GRADIENT { return; }
    // The target's logit has been read, from memory that all lanes write from here on.
    storageBarrier();
    let share = p.smoothing / f32(p.classes);
    for (var j = lane; j < p.classes; j += 128u) {
        let z = logit(at + j);
        var slope = exp(z - top - log_sum) - share;
        if j == goal { slope -= 1.0 - p.smoothing; }
        if p.cap != 0.0 { slope *= 1.0 - (z / p.cap) * (z / p.cap); }
        logits[at + j] = slope * weight;
    }
}
