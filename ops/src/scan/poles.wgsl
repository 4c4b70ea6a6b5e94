// Poles as complex numbers from what is learned, and with GRADIENT back: `poles` then holds the derivatives by the real and the
// imaginary parts, and d_radius and d_angle are written.
struct Parameters { real: u32, pairs: u32 }
var<immediate> p: Parameters;
override GRADIENT: bool;
// Radii are the poles themselves: no signs, no pairs.
override DIAGONAL: bool;
@group(0) @binding(0) var<storage, read> radius: array<f32>;
@group(0) @binding(1) var<storage, read> angle: array<f32>;
@group(0) @binding(2) var<storage, read> sign_of: array<f32>;
@group(0) @binding(3) var<storage, read_write> poles: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read_write> d_radius: array<f32>;
@group(0) @binding(5) var<storage, read_write> d_angle: array<f32>;

// Cosine and sine to the last bit or two. Those of the shading language may be off by 5e-4, and what a pole is off by is
// multiplied by the steps that a state lasts. Reduced by multiples of pi / 2 (Cody and Waite), polynomials of Cephes.
fn turn(angle: f32) -> vec2<f32> {
    let quarters = round(angle * 0.636619772);
    let r = fma(-quarters, 7.54978995489e-8, fma(-quarters, 4.83751296997e-4, fma(-quarters, 1.5703125, angle)));
    let s = r * r;
    let sine = r + r * s * (-1.6666654611e-1 + s * (8.3321608736e-3 - s * 1.9515295891e-4));
    let cosine = 1.0 - 0.5 * s + s * s * (4.166664568298827e-2 + s * (-1.388731625493765e-3 + s * 2.443315711809948e-5));
    let quarter = u32(i32(quarters)) & 3u;
    let swapped = select(vec2(cosine, sine), vec2(-sine, cosine), (quarter & 1u) == 1u);
    return select(swapped, -swapped, (quarter & 2u) == 2u);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = flat(group, groups) * 64u + lane;
    if i >= p.real + p.pairs { return; }
    let r = radius[i];
    if i < p.real {
        var s = 1.0;
        if !DIAGONAL { s = sign_of[i]; }
        if GRADIENT { d_radius[i] = s * poles[i].x; } else { poles[i] = vec2(s * r, 0.0); }
        return;
    }
    let direction = turn(angle[i - p.real]);
    if GRADIENT {
        let g = poles[i];
        d_radius[i] = dot(g, direction);
        d_angle[i - p.real] = r * (g.y * direction.x - g.x * direction.y);
    } else {
        poles[i] = r * direction;
    }
}
