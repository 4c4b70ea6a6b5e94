// Sums of squares of pieces of a gradient: a workgroup to a piece. Squares may overflow or vanish where the norm does neither:
// they are also summed of elements divided and multiplied by 2^80, by their exponents: a compiler may put the factors of a square
// together. Whether all is finite is told from the bits.
struct Parameters { elements: u32, first: u32 }
struct Sum { plain: f32, reduced: f32, enlarged: f32, wrong: u32 }
var<immediate> p: Parameters;
const PIECE = 8192u;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> sums: array<Sum>;
var<workgroup> lanes: array<Sum, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let piece = flat(group, groups);
    if piece * PIECE >= p.elements { return; }
    let last = min((piece + 1u) * PIECE, p.elements);
    var sum = Sum(0.0, 0.0, 0.0, 0u);
    for (var i = piece * PIECE + lane; i < last; i += 256u) {
        let v = x[i];
        let small = ldexp(v, -80);
        sum.plain += v * v;
        sum.reduced += small * small;
        let large = ldexp(v, 80);
        sum.enlarged += large * large;
        sum.wrong |= u32((bitcast<u32>(v) & 0x7f800000u) == 0x7f800000u);
    }
    lanes[lane] = sum;
    workgroupBarrier();
    for (var half = 128u; half > 0u; half /= 2u) {
        if lane < half {
            let other = lanes[lane + half];
            lanes[lane].plain += other.plain;
            lanes[lane].reduced += other.reduced;
            lanes[lane].enlarged += other.enlarged;
            lanes[lane].wrong |= other.wrong;
        }
        workgroupBarrier();
    }
    if lane == 0u { sums[p.first + piece] = lanes[0]; }
}
