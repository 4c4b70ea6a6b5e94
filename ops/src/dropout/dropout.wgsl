// A lane to each four elements, whose words are one block of Philox-4x32-10, as in core/src/random.rs.
struct Parameters { elements: u32, threshold: u32, key: vec2<u32>, step: vec2<u32>, scale: f32 }
var<immediate> p: Parameters;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

// The high word of a product.
fn high(a: u32, b: u32) -> u32 {
    let al = a & 0xffffu; let ah = a >> 16u;
    let bl = b & 0xffffu; let bh = b >> 16u;
    let cross = ah * bl + ((al * bl) >> 16u);
    let rest = al * bh + (cross & 0xffffu);
    return ah * bh + (cross >> 16u) + (rest >> 16u);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let block = flat(group, groups) * 64u + lane;
    if 4u * block >= p.elements { return; }
    var c = vec4(block, 0u, p.step.x, p.step.y);
    var key = p.key;
    for (var round = 0u; round < 10u; round++) {
        c = vec4(
            high(c.z, 0xCD9E8D57u) ^ c.y ^ key.x, c.z * 0xCD9E8D57u,
            high(c.x, 0xD2511F53u) ^ c.w ^ key.y, c.x * 0xD2511F53u,
        );
        key += vec2(0x9E3779B9u, 0xBB67AE85u);
    }
    for (var k = 0u; k < 4u; k++) {
        let i = 4u * block + k;
        if i < p.elements { y[i] = select(0.0, x[i] * p.scale, c[k] >= p.threshold); }
    }
}
