// sin(x + turns pi / 2). The shading language promises its own sine between -pi and pi only, and to 2^-11; this is the rest r of x
// after multiples of pi / 2, taken off in three parts (W. Cody and W. Waite, 1980) by fma, since a compiler may add up constants, and the
// polynomials of Cephes on |r| <= pi / 4.
fn circle(x: f32, turns: i32) -> f32 {
    let q = round(x * 0.63661977);
    let r = fma(-q, 7.5497899548918821e-8, fma(-q, 4.8375129699707031e-4, fma(-q, 1.5703125, x)));
    let z = r * r;
    let odd = r + r * z * (-1.6666654611e-1 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
    let even = 1.0 - 0.5 * z + z * z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5));
    let quarter = (i32(q) + turns) & 3;
    let value = select(odd, even, (quarter & 1) == 1);
    return select(value, -value, quarter >= 2);
}

