//! Draws one chart of each kind into a directory: `cargo run -p hankel-plots --example gallery -- DIR`.

use hankel_plots::terminal::DecayPlot;
use hankel_plots::{Axis, BarChart, Chart, Ink, Scale, Series, XyChart};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("usage: gallery DIR")?;
    let dir = Path::new(&dir);
    std::fs::create_dir_all(dir)?;
    save(&loss_curves(), dir, "loss")?;
    save(&bands(), dir, "bands")?;
    save(&singular_values(), dir, "singular-values")?;
    save(&many_layers(), dir, "many-layers")?;
    save(&gates(), dir, "gates")?;
    save(&window_baselines(), dir, "window-baselines")?;
    save(&scatter(), dir, "scatter")?;
    save(&all_slots(), dir, "all-slots")?;
    let values = decay(32, 0.0);
    print!("{}", DecayPlot::new(&values).kept(12).threshold(0.01 * values[0], "0.01 σ₁").render());
    Ok(())
}

fn save(chart: &impl Chart, dir: &Path, name: &str) -> Result<(), Box<dyn std::error::Error>> {
    std::fs::write(dir.join(name).with_extension("svg"), chart.to_svg()?)?;
    Ok(std::fs::write(dir.join(name).with_extension("png"), chart.to_png()?)?)
}

/// Noise without a random number generator: the fractional parts of multiples of an irrational number.
fn noise(i: usize) -> f64 {
    ((i as f64 * 0.754_877_666).fract() + (i as f64 * 0.569_840_29).fract() + (i as f64 * i as f64 * 0.31).fract())
        / 1.5
        - 1.0
}

fn decay(n: usize, shift: f64) -> Vec<f64> {
    (0..n).map(|i| 3.2 * (-0.42 * i as f64 - shift).exp() * (1.0 + 0.3 * noise(i))).collect()
}

fn loss_curves() -> XyChart {
    let curve = |end: f64, speed: f64| {
        let raw: Vec<f64> = (0..3000)
            .map(|i| end + (5.5 - end) * (-speed * f64::from(i) / 3000.0).exp() + 0.12 * noise(i as usize))
            .collect();
        let mean = |i: usize| {
            let near = &raw[i.saturating_sub(25)..(i + 25).min(raw.len())];
            near.iter().sum::<f64>() / near.len() as f64
        };
        let smoothed: Vec<f64> = (0..raw.len()).map(mean).collect();
        let points = |ys: Vec<f64>| ys.into_iter().enumerate().map(|(i, y)| (i as f64 * 5.0, y)).collect::<Vec<_>>();
        (points(raw), points(smoothed))
    };
    let mut chart = XyChart::new("Training loss")
        .subtitle("Cross-entropy per token; pale: every step, bold: mean over 50 steps")
        .x(Axis::new("step").integers())
        .y(Axis::new("loss (nats)"))
        .vertical_line(2000.0, "warm-up ends")
        .vertical_line(2900.0, "evaluation");
    for (slot, (name, end, speed)) in [("HRM d = 32", 3.1, 6.0), ("LoRA r = 16", 2.9, 5.0)].into_iter().enumerate() {
        let (raw, smooth) = curve(end, speed);
        chart = chart
            .series(Series::line("", raw).ink(Ink::Slot(slot)).faint())
            .series(Series::line(name, smooth).ink(Ink::Slot(slot)));
    }
    chart
}

fn bands() -> XyChart {
    let lengths = [64.0, 128.0, 256.0, 512.0];
    let series = |label: &str, means: [f64; 4], deviations: [f64; 4]| {
        Series::line_and_points(label, lengths.into_iter().zip(means)).deviations(&deviations)
    };
    XyChart::new("Accuracy over sequence length")
        .subtitle("DFA with 4 states, mean ± standard deviation over 3 seeds")
        .x(Axis::new("sequence length T").scale(Scale::Log2))
        .y(Axis::new("accuracy"))
        .series(series("HRM", [0.83, 0.87, 0.856, 0.843], [0.02, 0.015, 0.02, 0.03]))
        .series(series("HRM truncated", [0.831, 0.868, 0.854, 0.84], [0.02, 0.015, 0.022, 0.031]))
        .series(series("LoRA", [0.643, 0.476, 0.342, 0.291], [0.05, 0.04, 0.03, 0.02]))
        .horizontal_line(0.25, "chance")
        .horizontal_line(0.314, "constant guess")
}

fn singular_values() -> XyChart {
    let mut chart = XyChart::new("Hankel singular values")
        .subtitle("filled: kept, hollow: discarded")
        .x(Axis::new("index i").integers())
        .y(Axis::new("σᵢ / σ₁").scale(Scale::Log10))
        .horizontal_line(0.01, "ε = 0.01");
    for layer in 0..4 {
        let values = decay(32, f64::from(layer) * 0.2);
        let points: Vec<_> = values
            .iter()
            .enumerate()
            .map(|(i, s)| (i as f64 + 1.0, (s / values[0]).powf(1.0 + 0.1 * f64::from(layer))))
            .collect();
        let cut = points.iter().position(|p| p.1 < 0.01).unwrap_or(points.len());
        let ink = Ink::Ramp(f64::from(layer) / 3.0);
        chart = chart
            .series(Series::line_and_points(format!("layer {layer}, order {cut}"), points[..cut].to_vec()).ink(ink))
            .series(Series::points("", points[cut..].to_vec()).ink(ink).hollow());
    }
    chart
}

fn many_layers() -> XyChart {
    (0..32).fold(
        XyChart::new("Hankel singular values of 32 layers")
            .x(Axis::new("index i").integers())
            .y(Axis::new("σᵢ").scale(Scale::Log10)),
        |chart, layer| {
            let points = decay(64, f64::from(layer) * 0.15).into_iter().enumerate().map(|(i, s)| (i as f64 + 1.0, s));
            chart.series(Series::line(format!("layer {layer}"), points).ink(Ink::Ramp(f64::from(layer) / 31.0)))
        },
    )
}

fn gates() -> BarChart {
    BarChart::new("Gates after training", (0..4).map(|l| format!("layer {l}")))
        .y(Axis::new("gate α"))
        .bars("seed 0", [0.13, 0.16, 0.17, -0.08])
        .bars("seed 1", [0.22, 0.02, 0.15, 0.11])
        .bars("seed 2", [0.05, 0.037, -0.02, 0.012])
        .horizontal_line(0.1, "initial 0.1")
        .show_values(2)
}

fn window_baselines() -> BarChart {
    BarChart::new("What a window of symbols can know", ["constant", "1", "2", "3", "4", "6", "8"])
        .subtitle("Best accuracy of a predictor that sees the last w symbols and the position")
        .x_label("window w")
        .y(Axis::new("accuracy").include(1.0))
        .bars("", [0.314, 0.388, 0.458, 0.512, 0.557, 0.635, 0.699])
        .show_values(3)
        .horizontal_line(0.462, "HRM 0.462")
        .horizontal_line(0.680, "LoRA 0.680")
        .horizontal_line(0.414, "none 0.414")
}

fn scatter() -> XyChart {
    let cloud = |slot: usize, x: f64, y: f64| {
        (0..40)
            .map(move |i| (x * (1.0 + 0.6 * noise(i + slot * 77)), y + 0.08 * noise(3 * i + slot)))
            .collect::<Vec<_>>()
    };
    XyChart::new("Accuracy against trainable parameters")
        .x(Axis::new("trainable parameters").scale(Scale::Log10))
        .y(Axis::new("accuracy"))
        .series(Series::points("HRM", cloud(0, 3e4, 0.55)))
        .series(Series::points("LoRA", cloud(1, 6e4, 0.5)))
        .series(Series::points("DoRA", cloud(2, 2e5, 0.6)).hollow())
}

fn all_slots() -> XyChart {
    (0..12).fold(XyChart::new("Twelve series").x(Axis::new("time (s)")).y(Axis::new("value (bits)")), |chart, slot| {
        let points = (0..=20).map(move |i| (f64::from(i) * 0.5, f64::from(slot) + (f64::from(i) * 0.4).sin()));
        chart.series(Series::line_and_points(format!("series {slot}"), points))
    })
}
