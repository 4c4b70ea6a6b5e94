//! Looks at the scenes that charts produce: texts keep clear of each other, of the data and of the edges.

use proptest::prelude::*;

use crate::chart::Draw;
use crate::scene::{Area, Scene, Shape, Text};
use crate::{Axis, BarChart, Scale, Series, XyChart};

fn texts(scene: &Scene) -> Vec<&Text> {
    scene.shapes.iter().filter_map(|s| if let Shape::Text(t) = s { Some(t) } else { None }).collect()
}

fn overlap(a: &Area, b: &Area) -> bool {
    a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
}

/// The frame is the path of three points that the axes are drawn with.
fn frame(scene: &Scene) -> Area {
    let corners = scene.shapes.iter().find_map(|s| match s {
        Shape::Path { points, .. } if points.len() == 3 && points[0].0 == points[1].0 && points[1].1 == points[2].1 => {
            Some([points[0], points[2]])
        }
        _ => None,
    });
    let [(left, top), (right, bottom)] = corners.expect("every chart has axes");
    Area { left, top, right, bottom }
}

/// Checks a scene; `inside` names the texts that belong inside the frame.
fn check(scene: &Scene, inside: &[&str]) -> Result<(), TestCaseError> {
    let texts = texts(scene);
    let frame = frame(scene);
    let (width, height) = (f64::from(scene.width), f64::from(scene.height));
    for (i, text) in texts.iter().enumerate() {
        let area = text.area();
        prop_assert!(
            area.left >= -1.0 && area.right <= width + 1.0 && area.top >= -1.0 && area.bottom <= height + 1.0,
            "{:?} leaves the scene: {area:?}",
            text.content
        );
        if !inside.contains(&text.content.as_str()) {
            prop_assert!(!overlap(&area, &frame), "{:?} at {area:?} lies over the data {frame:?}", text.content);
        }
        for other in &texts[..i] {
            // An exponent stands close to its base on purpose.
            if text.em == other.em || text.em > 12.0 || other.em > 12.0 {
                let other_area = other.area();
                prop_assert!(!overlap(&area, &other_area), "{:?} overlaps {:?}", text.content, other.content);
            }
        }
    }
    Ok(())
}

fn scale() -> impl Strategy<Value = Scale> {
    prop_oneof![Just(Scale::Linear), Just(Scale::Log10), Just(Scale::Log2)]
}

fn label() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-zα-ω0-9 ]{1,12}",
        Just("a label that is much longer than anybody would wish for in a chart of this size".to_owned()),
    ]
}

fn points() -> impl Strategy<Value = Vec<(f64, f64)>> {
    let value = || prop_oneof![-1e3..1e3, 1e-12..1.0, 1e3..1e12, Just(0.0), Just(f64::NAN)];
    prop::collection::vec((value(), value()), 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn line_charts_are_laid_out_without_overlap(
        title in label(), subtitle in label(), x in (label(), scale()), y in (label(), scale()),
        series in prop::collection::vec((label(), points()), 0..9),
        horizontal in prop::collection::vec((-10.0..1e3, label()), 0..4),
        vertical in prop::collection::vec((-10.0..1e3, label()), 0..3),
        width in 420_u32..1000, height in 340_u32..700, integers: bool,
    ) {
        let mut x_axis = Axis::new(x.0).scale(x.1);
        if integers {
            x_axis = x_axis.integers();
        }
        let mut chart =
            XyChart::new(title).subtitle(subtitle).x(x_axis).y(Axis::new(y.0).scale(y.1)).size(width, height);
        for (label, points) in series {
            chart = chart.series(Series::line_and_points(label, points));
        }
        for (value, label) in horizontal {
            chart = chart.horizontal_line(value, label);
        }
        for (value, label) in vertical {
            chart = chart.vertical_line(value, label);
        }
        check(&chart.scene(), &["no data"])?;
    }

    #[test]
    fn bar_charts_are_laid_out_without_overlap(
        title in label(), x_label in label(), y in (label(), scale()),
        categories in prop::collection::vec(label(), 0..40),
        bars in prop::collection::vec((label(), prop::collection::vec(-1e3..1e3, 0..40)), 0..5),
        width in 420_u32..1000, height in 340_u32..700,
    ) {
        let mut chart =
            BarChart::new(title, categories).x_label(x_label).y(Axis::new(y.0).scale(y.1)).size(width, height);
        for (label, values) in bars {
            chart = chart.bars(label, values);
        }
        check(&chart.scene(), &["no data"])?;
    }
}

#[test]
fn values_on_bars_clear_the_axis() {
    let chart = BarChart::new("gates", ["a", "b"]).bars("", [0.22, -0.08]).show_values(2);
    let scene = chart.scene();
    check(&scene, &["0.22", "−0.08"]).unwrap();
    let written: Vec<&str> = texts(&scene).iter().map(|t| t.content.as_str()).collect();
    assert!(written.contains(&"0.22") && written.contains(&"−0.08"), "{written:?}");
}

#[test]
fn data_stays_in_the_frame() {
    let far = (0..200).map(|i| (f64::from(i), (f64::from(i) * 0.7).sin() * 100.0));
    let chart = XyChart::new("cut")
        .x(Axis::new("x").range(50.0..=100.0))
        .y(Axis::new("y").range(-10.0..=10.0))
        .series(Series::line_and_points("s", far).deviations(&[30.0; 200]));
    let scene = chart.scene();
    let frame = frame(&scene);
    let slack =
        Area { left: frame.left - 0.01, top: frame.top - 0.01, right: frame.right + 0.01, bottom: frame.bottom + 0.01 };
    let blue = crate::Ink::Slot(0).color();
    let mut seen = 0;
    for shape in &scene.shapes {
        let points = match shape {
            Shape::Path { points, stroke } if stroke.color == blue => points,
            Shape::Polygon { points, fill, .. } if *fill == blue => points,
            _ => continue,
        };
        // The first two are the sample in the legend.
        seen += 1;
        if seen > 2 {
            assert!(points.iter().all(|p| slack.contains(*p)), "{points:?} leaves {frame:?}");
        }
    }
    assert!(seen > 10, "only {seen} shapes");
}

#[test]
fn points_that_cannot_be_drawn_leave_gaps() {
    let nan = f64::NAN;
    let ys = [1.0, 2.0, nan, 3.0, 4.0, 5.0, f64::INFINITY, 6.0];
    let chart = XyChart::new("").series(Series::line("s", ys.into_iter().enumerate().map(|(i, y)| (i as f64, y))));
    let scene = chart.scene();
    let blue = crate::Ink::Slot(0).color();
    let frame = frame(&scene);
    let lines: Vec<usize> = scene
        .shapes
        .iter()
        .filter_map(|s| match s {
            Shape::Path { points, stroke } if stroke.color == blue && frame.contains(points[0]) => Some(points.len()),
            _ => None,
        })
        .collect();
    assert_eq!(lines, [2, 3], "two runs of several points");
    let alone = scene.shapes.iter().any(|s| matches!(s, Shape::Circle { fill, .. } if *fill == blue));
    assert!(alone, "the single point at the end is seen");
}
