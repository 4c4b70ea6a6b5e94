// 4 x 4 of the result for each lane.
const EDGE = 4u;
alias Sums = array<vec4<f32>, 4>;

fn multiply(sums: ptr<function, Sums>, y: u32, x: u32) {
    for (var s = 0u; s < STEPS; s++) {
        let l = a_slice[s * A_ROW + y];
        let r = b_slice[s * B_ROW + x];
        (*sums)[0] += l.x * r;
        (*sums)[1] += l.y * r;
        (*sums)[2] += l.z * r;
        (*sums)[3] += l.w * r;
    }
}

fn finish(sums: ptr<function, Sums>, i: u32, j: u32) {
    store(i, j, (*sums)[0]);
    store(i + 1u, j, (*sums)[1]);
    store(i + 2u, j, (*sums)[2]);
    store(i + 3u, j, (*sums)[3]);
}
