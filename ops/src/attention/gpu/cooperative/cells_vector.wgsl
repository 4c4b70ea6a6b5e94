// Operands in vectors: one store for four elements. Indices and strides count vectors.
const CELL = 4u;
// Named, or naga 30 loses count of its overrides.
override CELLS = HALVES / CELL;
var<workgroup> halves: array<vec4<f16>, CELLS>;

fn put(at: u32, value: vec4<f16>) { halves[at / 4u] = value; }
