// A workgroup to a row of logits: -log p of the target, the mean of -log p, and the most probable class (the lowest of equals).
struct Parameters { rows: u32, classes: u32, first: u32, cap: f32 }
var<immediate> p: Parameters;
@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> targets: array<u32>;
@group(0) @binding(2) var<storage, read_write> scores: array<u32>;
var<workgroup> values: array<vec2<f32>, 128>;
var<workgroup> classes_of: array<u32, 128>;

fn logit(i: u32) -> f32 { return soft_cap(logits[i], p.cap); }

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = flat(group, groups);
    if row >= p.rows { return; }
    let at = row * p.classes;
    var top = -3.4e38;
    var best = 0xffffffffu;
    for (var j = lane; j < p.classes; j += 128u) {
        let z = logit(at + j);
        if z > top || best == 0xffffffffu { top = z; best = j; }
    }
    values[lane].x = top;
    classes_of[lane] = best;
    workgroupBarrier();
    for (var half = 64u; half > 0u; half /= 2u) {
        if lane < half {
            let other = values[lane + half].x;
            let class_of = classes_of[lane + half];
            if other > values[lane].x || (other == values[lane].x && class_of < classes_of[lane]) {
                values[lane].x = other;
                classes_of[lane] = class_of;
            }
        }
        workgroupBarrier();
    }
    top = values[0].x;
    best = classes_of[0];
    workgroupBarrier();
    var sums = vec2(0.0);
    for (var j = lane; j < p.classes; j += 128u) {
        let z = logit(at + j) - top;
        sums += vec2(exp(z), z);
    }
    values[lane] = sums;
    workgroupBarrier();
    for (var half = 64u; half > 0u; half /= 2u) {
        if lane < half { values[lane] += values[lane + half]; }
        workgroupBarrier();
    }
    if lane == 0u {
        let log_sum = log(values[0].x);
        let i = 3u * (p.first + row);
        // As words: a class is a subnormal number by its bits, which may be flushed to 0.
        scores[i] = bitcast<u32>(log_sum - (logit(at + targets[p.first + row]) - top));
        scores[i + 1u] = bitcast<u32>(log_sum - values[0].y / f32(p.classes));
        scores[i + 2u] = best;
    }
}
