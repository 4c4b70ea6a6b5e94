// Elements as plain floats, in f32 or f16 as `put` has it, four for each lane; `p.k` is how many times four, from `p.b_first` on.
override SCALED: bool = false;
@group(0) @binding(2) var<storage, read> scales: array<f32>;
@group(0) @binding(3) var<storage, read> codebook: array<f32>;
// What they are multiplied by, where they are.
@group(0) @binding(4) var<storage, read> scale: array<f32>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    fill_values(lane);
    let i = flat(group, groups) * 256u + lane;
    if i >= p.k { return; }
    var value = right(load_right(p.b_first + 4u * i, 4u));
    if SCALED { value *= scale[0]; }
    put(i, value);
}
