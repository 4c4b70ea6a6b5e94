// 8 x 8 of the result for each lane: 4 x 4 in each quarter of the tile. Every index is a constant: drivers keep an array in
// registers only then.
const EDGE = 8u;
alias Sums = array<vec4<f32>, 16>;

fn multiply(sums: ptr<function, Sums>, y: u32, x: u32) {
    for (var s = 0u; s < STEPS; s++) {
        let l = a_slice[s * A_ROW + y];
        let m = a_slice[s * A_ROW + TILE_M / 8u + y];
        let r = b_slice[s * B_ROW + x];
        let q = b_slice[s * B_ROW + TILE_N / 8u + x];
        (*sums)[0] += l.x * r;
        (*sums)[1] += l.x * q;
        (*sums)[2] += l.y * r;
        (*sums)[3] += l.y * q;
        (*sums)[4] += l.z * r;
        (*sums)[5] += l.z * q;
        (*sums)[6] += l.w * r;
        (*sums)[7] += l.w * q;
        (*sums)[8] += m.x * r;
        (*sums)[9] += m.x * q;
        (*sums)[10] += m.y * r;
        (*sums)[11] += m.y * q;
        (*sums)[12] += m.z * r;
        (*sums)[13] += m.z * q;
        (*sums)[14] += m.w * r;
        (*sums)[15] += m.w * q;
    }
}

fn finish(sums: ptr<function, Sums>, i: u32, j: u32) {
    let below = i + TILE_M / 2u;
    let beside = j + TILE_N / 2u;
    store(i, j, (*sums)[0]);
    store(i, beside, (*sums)[1]);
    store(i + 1u, j, (*sums)[2]);
    store(i + 1u, beside, (*sums)[3]);
    store(i + 2u, j, (*sums)[4]);
    store(i + 2u, beside, (*sums)[5]);
    store(i + 3u, j, (*sums)[6]);
    store(i + 3u, beside, (*sums)[7]);
    store(below, j, (*sums)[8]);
    store(below, beside, (*sums)[9]);
    store(below + 1u, j, (*sums)[10]);
    store(below + 1u, beside, (*sums)[11]);
    store(below + 2u, j, (*sums)[12]);
    store(below + 2u, beside, (*sums)[13]);
    store(below + 3u, j, (*sums)[14]);
    store(below + 3u, beside, (*sums)[15]);
}
