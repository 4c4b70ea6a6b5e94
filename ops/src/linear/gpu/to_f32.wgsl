@group(0) @binding(0) var<storage, read_write> out: array<vec4<f32>>;

fn put(i: u32, value: vec4<f32>) { out[i] = value; }
