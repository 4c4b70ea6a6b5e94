override BASE: bool = false;
override BIAS: bool = false;
// The factor is that of the parameters times an element on the device.
override GATED: bool = false;
// Which part of the sum this workgroup makes.
var<private> split_index: u32;

fn scaled() -> f32 {
    if GATED { return p.factor * gate[0]; }
    return p.factor;
}

// Partial sums lie one result after the other.
fn first_out() -> u32 {
    return p.c_first + split_index * p.m * p.n;
}
