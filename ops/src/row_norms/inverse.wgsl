// A lane to a row: 1 / sqrt(squares_i + 2 scale <b_i, product_i> + scale^2 b_i gram b_i), 0 for a row of zeros.
struct Parameters { rows: u32, rank: u32, scale: f32 }
var<immediate> p: Parameters;
@group(0) @binding(0) var<storage, read> squares: array<f32>;
@group(0) @binding(1) var<storage, read> product: array<f32>;
@group(0) @binding(2) var<storage, read> gram: array<f32>;
@group(0) @binding(3) var<storage, read> b: array<f32>;
@group(0) @binding(4) var<storage, read_write> inverse: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 64u + lane;
    if i >= p.rows { return; }
    var cross = 0.0;
    var own = 0.0;
    for (var k = 0u; k < p.rank; k++) {
        let factor = b[i * p.rank + k];
        cross += factor * product[k * p.rows + i];
        var sum = 0.0;
        for (var l = 0u; l < p.rank; l++) { sum += gram[k * p.rank + l] * b[i * p.rank + l]; }
        own += factor * sum;
    }
    let terms = vec3(squares[i], 2.0 * p.scale * cross, p.scale * p.scale * own);
    let sizes = abs(terms);
    // Where the update all but cancels the row, what is left is rounding.
    let floor = 1.1920929e-7 * max(sizes.x, max(sizes.y, sizes.z));
    let square = max(terms.x + terms.y + terms.z, floor);
    inverse[i] = 0.0;
    if square > 0.0 { inverse[i] = 1.0 / sqrt(square); }
}
