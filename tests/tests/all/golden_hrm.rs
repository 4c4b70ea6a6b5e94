//! The recurrent adapter against `golden/hrm`: an f64 sequential recurrence and its automatic gradient, computed with
//! independent software, for every parameterisation and evaluation, in both precisions.

use hankel_core::{DType, Result, Tensor};
use hankel_models::adapters::{Discretization, Dynamics};
use hankel_models::{Parameter, Role};
use hankel_ops::{Gate, Poles, ScanPath, add, add_linear, linear, narrow_time, scan};
use hankel_tests::golden::Golden;

const PATHS: [ScanPath; 3] = [ScanPath::Sequential, ScanPath::Chunked, ScanPath::Fft];

/// Leaves of one run, by the name of their gradient.
struct Run {
    dtype: DType,
    leaves: Vec<(String, Tensor)>,
}

impl Run {
    fn leaf(&mut self, golden: &Golden, name: &str) -> Tensor {
        self.leaf_of(name, &golden.tensor(name, self.dtype))
    }

    fn leaf_of(&mut self, name: &str, value: &Tensor) -> Tensor {
        let leaf = value.parameter().unwrap();
        self.leaves.push((name.to_owned(), leaf.clone()));
        leaf
    }
}

/// `sum(x * weight)` as a tensor with one element.
fn contract(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let n = x.elements();
    linear(&x.reshape([1, n])?, &weight.reshape([1, n])?, None)?.reshape([1])
}

/// Runs the adapter, checks outputs, and gives the gradients of the leaves.
fn check(
    golden: &Golden,
    run: &Run,
    states: &Tensor,
    h: &Tensor,
    c: &Tensor,
    alpha: &Tensor,
    b_rows: Option<&Tensor>,
) -> Vec<(String, Vec<f64>)> {
    let dtype = run.dtype;
    let out = add_linear(h, states, c, None, Gate::Learned(alpha)).unwrap();
    golden.check("out", dtype, &out.to_f64_vec());
    let (batch, steps, d) = (states.shape()[0], states.shape()[1], states.shape()[2]);
    let last = narrow_time(states, steps - 1, 1).unwrap().reshape([batch, d]).unwrap();
    for (name, value) in [("states", Some(states)), ("final_state", Some(&last)), ("b_bar", b_rows)] {
        if let (true, Some(value)) = (golden.has(name), value) {
            golden.check(name, dtype, &value.to_f64_vec());
        }
    }
    let mut loss = contract(&out, &golden.tensor("g_out", dtype)).unwrap();
    if golden.has("g_state") {
        loss = add(&loss, &contract(&last, &golden.tensor("g_state", dtype)).unwrap()).unwrap();
    }
    golden.check("loss", dtype, &loss.to_f64_vec());
    let gradients = loss.backward().unwrap();
    let gradient = |(name, leaf): &(String, Tensor)| (name.clone(), gradients.get(leaf).unwrap().to_f64_vec());
    run.leaves.iter().map(gradient).collect()
}

fn check_gradients(golden: &Golden, dtype: DType, gradients: &[(String, Vec<f64>)]) {
    for (name, gradient) in gradients {
        golden.check(&format!("grad.{name}"), dtype, gradient);
    }
}

/// Cases with real poles: given directly, or by a parameterisation of the adapter.
fn diagonal(name: &str, dtype: DType, path: ScanPath) {
    let golden = Golden::read(&format!("hrm/{name}"));
    let mut run = Run { dtype, leaves: Vec::new() };
    let [h, b, c, alpha] = ["h", "b", "c", "alpha"].map(|name| run.leaf(&golden, name));
    let (poles, b_bar) = if golden.has("a") {
        (Poles::Diagonal(run.leaf(&golden, "a")), b)
    } else {
        let log_a = run.leaf(&golden, "log_a");
        let d = log_a.elements();
        let log_dt = if golden.has("log_dt") {
            let log_dt = run.leaf(&golden, "log_dt");
            // One step for all states: repeated d times.
            let ones = Tensor::full([d, 1], 1.0_f64).to_dtype(dtype).unwrap();
            if log_dt.elements() == d {
                log_dt
            } else {
                linear(&ones, &log_dt.reshape([1, 1]).unwrap(), None).unwrap().reshape([d]).unwrap()
            }
        } else {
            Tensor::zeros_of(dtype, [d]).unwrap()
        };
        let discretization = match name {
            "param_zoh" | "param_zoh_scalar_dt" => Discretization::Zoh,
            "param_zoh_clamped" => Discretization::ZohClamped,
            _ => Discretization::Free,
        };
        let parameter = |name: &str, value: &Tensor| {
            let parameter = Parameter::new(name, Role::Rate, value);
            parameter.update(|slot| *slot = value.clone());
            parameter
        };
        let (log_a, log_dt) = (parameter("log_a", &log_a), parameter("log_dt", &log_dt));
        let coefficients = Dynamics::Diagonal { log_a, log_dt, discretization }.coefficients(&b).unwrap();
        let Poles::Diagonal(a) = &coefficients.poles else { panic!("real poles") };
        golden.check("a_bar", dtype, &a.to_f64_vec());
        (coefficients.poles, coefficients.b)
    };
    let u = linear(&h, &b_bar, None).unwrap();
    let initial = golden.has("s0").then(|| run.leaf(&golden, "s0"));
    let states = scan(&u, &poles, initial.as_ref(), path).unwrap();
    let gradients = check(&golden, &run, &states, &h, &c, &alpha, Some(&b_bar));
    check_gradients(&golden, dtype, &gradients);
}

fn for_all(check: impl Fn(DType, ScanPath)) {
    for dtype in [DType::F64, DType::F32] {
        PATHS.iter().for_each(|&path| check(dtype, path));
    }
}

#[test]
fn poles_given_directly() {
    for name in ["basic", "mid", "T1", "T2_d1", "T3", "repeated_poles", "carry_state"] {
        for_all(|dtype, path| diagonal(name, dtype, path));
    }
}

#[test]
fn four_thousand_steps_with_poles_at_0_and_0_9999() {
    for_all(|dtype, path| diagonal("long_4096", dtype, path));
}

#[test]
fn parameterisations() {
    let names =
        ["param_log_a", "param_log_a_dt", "param_zoh", "param_zoh_scalar_dt", "param_zoh_clamped", "param_extreme"];
    for name in names {
        for_all(|dtype, path| diagonal(name, dtype, path));
    }
}

#[test]
fn dense_state_matrix() {
    let golden = Golden::read("hrm/dense");
    for dtype in [DType::F64, DType::F32] {
        let mut run = Run { dtype, leaves: Vec::new() };
        let [h, b, c, alpha, a] = ["h", "b", "c", "alpha", "A"].map(|name| run.leaf(&golden, name));
        let states = scan(&linear(&h, &b, None).unwrap(), &Poles::Dense(a), None, ScanPath::Sequential).unwrap();
        let gradients = check(&golden, &run, &states, &h, &c, &alpha, None);
        check_gradients(&golden, dtype, &gradients);
    }
}

#[test]
fn complex_modes() {
    let golden = Golden::read("hrm/complex_modes");
    for_all(|dtype, path| {
        let mut run = Run { dtype, leaves: Vec::new() };
        let [h, alpha, radius, angle] = ["h", "alpha", "radius", "angle"].map(|name| run.leaf(&golden, name));
        // s = re + i im: two states; y = Re(C s) = C_re re - C_im im.
        let [b_re, b_im, c_re, c_im] =
            ["b_re", "b_im", "c_re", "c_im"].map(|name| golden.tensor(name, DType::F64).to_f64_vec());
        let (d, width) = (radius.elements(), h.shape().last());
        let rows =
            (0..d).flat_map(|i| [&b_re, &b_im].map(|b| b[i * width..(i + 1) * width].to_vec()).concat()).collect();
        let columns = (0..width * d).flat_map(|i| [c_re[i], -c_im[i]]).collect();
        let tensor =
            |data: Vec<f64>, shape: [usize; 2]| Tensor::from_vec(data, shape).unwrap().to_dtype(dtype).unwrap();
        let b = run.leaf_of("b", &tensor(rows, [2 * d, width]));
        let c = run.leaf_of("c", &tensor(columns, [width, 2 * d]));
        let none = Tensor::zeros_of(dtype, [0]).unwrap();
        let poles = Poles::modal(&radius, &angle, &none).unwrap();
        let states = scan(&linear(&h, &b, None).unwrap(), &poles, None, path).unwrap();
        let values = states.to_f64_vec();
        for (name, first) in [("states_re", 0), ("states_im", 1)] {
            golden.check(name, dtype, &values.iter().skip(first).step_by(2).copied().collect::<Vec<_>>());
        }
        let gradients = check(&golden, &run, &states, &h, &c, &alpha, None);
        let of = |name: &str| &gradients.iter().find(|(n, _)| n == name).unwrap().1;
        for name in ["h", "alpha", "radius", "angle"] {
            golden.check(&format!("grad.{name}"), dtype, of(name));
        }
        let part = |rows: &[f64], first: usize| {
            rows.chunks(width).skip(first).step_by(2).flatten().copied().collect::<Vec<f64>>()
        };
        golden.check("grad.b_re", dtype, &part(of("b"), 0));
        golden.check("grad.b_im", dtype, &part(of("b"), 1));
        golden.check("grad.c_re", dtype, &of("c").iter().step_by(2).copied().collect::<Vec<_>>());
        golden.check("grad.c_im", dtype, &of("c").iter().skip(1).step_by(2).map(|g| -g).collect::<Vec<_>>());
    });
}
