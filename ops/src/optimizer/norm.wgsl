// The root of all sums of squares together, in one workgroup; NaN if an element was not finite.
struct Sum { plain: f32, reduced: f32, enlarged: f32, wrong: u32 }
var<immediate> count: u32;
@group(0) @binding(0) var<storage, read> sums: array<Sum>;
@group(0) @binding(1) var<storage, read_write> norm: array<u32>;
var<workgroup> lanes: array<Sum, 256>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    var sum = Sum(0.0, 0.0, 0.0, 0u);
    for (var i = lane; i < count; i += 256u) {
        let other = sums[i];
        sum.plain += other.plain;
        sum.reduced += other.reduced;
        sum.enlarged += other.enlarged;
        sum.wrong |= other.wrong;
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
    if lane == 0u {
        let total = lanes[0];
        var root = bitcast<u32>(sqrt(total.plain));
        // Far from where one sum goes wrong, and far inside of where the other is right.
        if !(total.plain < 0x1p100) { root = bitcast<u32>(sqrt(total.reduced) * 0x1p80); }
        if total.plain < 0x1p-60 { root = bitcast<u32>(sqrt(total.enlarged) * 0x1p-80); }
        norm[0] = select(root, 0x7fc00000u, total.wrong != 0u);
    }
}
