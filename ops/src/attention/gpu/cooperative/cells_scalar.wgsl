// Operands element by element, as Metal wants them.
const CELL = 1u;
var<workgroup> halves: array<f16, HALVES>;

fn put(at: u32, value: vec4<f16>) {
    halves[at] = value.x;
    halves[at + 1u] = value.y;
    halves[at + 2u] = value.z;
    halves[at + 3u] = value.w;
}
