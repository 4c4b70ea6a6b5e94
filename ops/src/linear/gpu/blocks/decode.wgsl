// All elements as plain floats, in f32 or f16 as `put` has it, four for each lane.
struct Parameters { fours: u32 }
var<immediate> p: Parameters;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = flat(group, groups) * 256u + lane;
    if i >= p.fours { return; }
    put(i, vec4(element(4u * i), element(4u * i + 1u), element(4u * i + 2u), element(4u * i + 3u)));
}
