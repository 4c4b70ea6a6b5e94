//! Charts as files: SVG that parses, PNG that decodes, errors that say what to do, and no input that panics.

use hankel_plots::{Axis, BarChart, Chart, Ink, PlotError, Scale, Series, XyChart};
use proptest::prelude::*;

fn sample() -> XyChart {
    XyChart::new("Loss & <accuracy>")
        .subtitle("mean ± deviation")
        .x(Axis::new("step").integers())
        .y(Axis::new("loss (nats)").scale(Scale::Log10))
        .series(Series::line("\"HRM\"", (1..=50).map(|i| (f64::from(i), 5.0 / f64::from(i)))).deviations(&[0.02; 50]))
        .series(Series::line_and_points("LoRA", (1..=10).map(|i| (f64::from(i * 5), 4.0 / f64::from(i)))))
        .horizontal_line(0.5, "threshold ε")
        .vertical_line(20.0, "end of warm-up")
}

fn texts(svg: &str) -> Vec<String> {
    let document = roxmltree::Document::parse(svg).expect("well-formed XML");
    let texts = document.descendants().filter(|n| n.has_tag_name("text"));
    texts.map(|n| n.text().unwrap_or_default().to_owned()).collect()
}

#[test]
fn svg_has_text_as_text_and_refers_to_nothing() {
    let svg = sample().to_svg().unwrap();
    let texts = texts(&svg);
    for expected in ["Loss & <accuracy>", "step", "loss (nats)", "\"HRM\"", "LoRA", "threshold ε", "end of warm-up"] {
        assert!(texts.iter().any(|t| t == expected), "{expected:?} in {texts:?}");
    }
    let document = roxmltree::Document::parse(&svg).unwrap();
    let root = document.root_element();
    assert_eq!((root.attribute("width"), root.attribute("height")), (Some("640"), Some("400")));
    assert_eq!(root.attribute("role"), Some("img"));
    let title = root.children().find(|n| n.has_tag_name("title")).and_then(|n| n.text());
    assert_eq!(title, Some("Loss & <accuracy>. mean ± deviation"));
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        for attribute in node.attributes() {
            assert!(!attribute.name().contains("href"), "{attribute:?}");
            assert!(!attribute.value().contains("url("), "{attribute:?}");
        }
    }
}

#[test]
fn svg_draws_series_bands_dashes_and_markers() {
    let svg = sample().to_svg().unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    let with = |tag: &str, key: &str, value: &str| {
        document.descendants().filter(|n| n.has_tag_name(tag) && n.attribute(key) == Some(value)).count()
    };
    assert!(with("polyline", "stroke", "#0072B2") >= 2, "the first series and its legend are solid lines");
    assert!(with("path", "stroke", "#D55E00") >= 2, "the second is dashed");
    assert_eq!(with("polygon", "opacity", "0.18"), 2, "one band, and one in the legend");
    assert_eq!(with("polygon", "fill", "#D55E00"), 11, "ten square markers and one in the legend");
}

#[test]
fn png_has_twice_the_size_and_a_density() {
    for (width, height) in [(640, 400), (301, 207)] {
        let bytes = sample().size(width, height).to_png().unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(&bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (2 * width, 2 * height));
        assert_eq!(reader.info().pixel_dims.map(|d| d.xppu), Some(7559));
        assert_eq!(pixels[..3], [255, 255, 255], "the corner is paper");
        let count = |rgb: [u8; 3]| pixels.chunks_exact(3).filter(|p| **p == rgb).count();
        assert!(count([0x00, 0x72, 0xB2]) > 300, "the first series is drawn");
        assert!(count([0xD5, 0x5E, 0x00]) > 300, "and the second");
        assert!(count([0x1F, 0x23, 0x28]) > 100, "and texts");
    }
}

#[test]
fn both_formats_are_deterministic() {
    assert_eq!(sample().to_svg().unwrap(), sample().to_svg().unwrap());
    assert_eq!(sample().to_png().unwrap(), sample().to_png().unwrap());
}

#[test]
fn sizes_that_cannot_be_drawn_are_errors() {
    for size in [(0, 400), (640, 159), (2001, 400), (u32::MAX, u32::MAX)] {
        let chart = sample().size(size.0, size.1);
        assert!(matches!(chart.to_svg(), Err(PlotError::Size { .. })), "{size:?}");
        assert!(matches!(chart.to_png(), Err(PlotError::Size { .. })), "{size:?}");
    }
}

#[test]
fn charts_without_data_say_so() {
    let nothing = [
        XyChart::new("empty").to_svg().unwrap(),
        XyChart::new("no points").series(Series::line("s", [])).to_svg().unwrap(),
        XyChart::new("nan").series(Series::points("s", [(f64::NAN, 1.0), (1.0, f64::INFINITY)])).to_svg().unwrap(),
        XyChart::new("log of zero")
            .y(Axis::new("y").scale(Scale::Log10))
            .series(Series::line("s", [(0.0, 0.0), (1.0, -5.0)]))
            .to_svg()
            .unwrap(),
        BarChart::new("no categories", Vec::<String>::new()).bars("b", [1.0, 2.0]).to_svg().unwrap(),
        BarChart::new("no bars", ["a", "b"]).to_svg().unwrap(),
    ];
    for svg in nothing {
        assert!(texts(&svg).iter().any(|t| t == "no data"), "{:?}", texts(&svg));
    }
}

#[test]
fn ticks_stand_at_values_of_choice_where_they_fit() {
    let rates = [(0.001, "0.001"), (0.003, "0.003"), (0.01, "0.01"), (0.03, "0.03")];
    let chart = XyChart::new("t")
        .x(Axis::new("rate").scale(Scale::Log10).ticks(rates))
        .y(Axis::new("loss").range(5.0..=6.0))
        .series(Series::line("s", rates.map(|(rate, _)| (rate, 5.5))));
    let shown = |width: u32| texts(&chart.clone().size(width, 380).to_svg().unwrap());
    let wide = shown(600);
    assert!(rates.iter().all(|(_, label)| wide.iter().any(|text| text == label)), "{wide:?}");
    let narrow = shown(160);
    assert!(!narrow.contains(&"0.003".to_owned()) && narrow.contains(&"0.01".to_owned()), "{narrow:?}");
}

#[test]
fn a_deviation_that_is_not_known_is_nowhere() {
    let bands = |deviations: &[f64]| {
        let line = Series::line("s", [(1.0, 1.0), (2.0, 3.0)]).deviations(deviations);
        let svg = XyChart::new("t").series(line).to_svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let polygons = document.descendants().filter(|node| node.has_tag_name("polygon"));
        polygons.filter(|node| node.attribute("opacity") == Some("0.18")).count()
    };
    assert_eq!(bands(&[0.5, 0.5]), 2, "one, and one in the legend");
    assert_eq!(bands(&[f64::NAN; 2]), 0);
}

#[test]
fn control_characters_do_not_break_the_document() {
    let chart = XyChart::new("a\u{0}b\nc\u{1b}[31m").series(Series::line("\u{7}\r\n", [(0.0, 1.0)]));
    assert!(texts(&chart.to_svg().unwrap()).iter().any(|t| t == "a b c [31m"));
    chart.to_png().unwrap();
}

fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        -10.0..10.0,
        Just(0.0),
        Just(f64::NAN),
        Just(f64::MAX),
        Just(f64::MIN_POSITIVE),
        Just(f64::from_bits(1)),
        1e16..1.000_001e16,
    ]
}

fn any_scale() -> impl Strategy<Value = Scale> {
    prop_oneof![Just(Scale::Linear), Just(Scale::Log10), Just(Scale::Log2)]
}

fn any_axis() -> impl Strategy<Value = Axis> {
    (".{0,30}", any_scale(), proptest::option::of((any_value(), any_value())), any::<bool>()).prop_map(
        |(label, scale, range, integers)| {
            let mut axis = Axis::new(label).scale(scale);
            if let Some((a, b)) = range {
                axis = axis.range(a..=b);
            }
            if integers { axis.integers() } else { axis }
        },
    )
}

fn any_series() -> impl Strategy<Value = Series> {
    let points = prop::collection::vec((any_value(), any_value()), 0..30);
    let band = prop::collection::vec((any_value(), any_value()), 0..30);
    (".{0,20}", points, band, 0_u8..3, any::<bool>(), any_value()).prop_map(|(label, points, band, kind, flag, t)| {
        let series = match kind {
            0 => Series::line(label, points),
            1 => Series::points(label, points),
            _ => Series::line_and_points(label, points),
        };
        let series = series.band(band);
        if flag { series.hollow().faint().ink(Ink::Ramp(t)) } else { series }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn no_numbers_or_texts_break_a_line_chart(
        title in ".{0,60}", x in any_axis(), y in any_axis(), series in prop::collection::vec(any_series(), 0..12),
        lines in prop::collection::vec((any_value(), ".{0,40}", any::<bool>()), 0..5),
        width in 160_u32..500, height in 160_u32..400,
    ) {
        let mut chart = XyChart::new(title).x(x).y(y).size(width, height);
        for s in series {
            chart = chart.series(s);
        }
        for (value, label, vertical) in lines {
            chart = if vertical { chart.vertical_line(value, label) } else { chart.horizontal_line(value, label) };
        }
        let svg = chart.to_svg().unwrap();
        prop_assert!(roxmltree::Document::parse(&svg).is_ok());
        prop_assert!(!svg.contains("NaN") || svg.contains("<text"));
        chart.to_png().unwrap();
    }

    #[test]
    fn no_numbers_or_texts_break_a_bar_chart(
        categories in prop::collection::vec(".{0,30}", 0..60), y in any_axis(),
        bars in prop::collection::vec(
            (".{0,20}", prop::collection::vec(any_value(), 0..60), prop::collection::vec(any_value(), 0..60)), 0..6),
        line in any_value(), width in 160_u32..500, height in 160_u32..400, decimals in 0_usize..20,
    ) {
        let mut chart = BarChart::new("bars", categories).y(y).horizontal_line(line, "line").size(width, height);
        chart = chart.show_values(decimals);
        for (label, values, deviations) in bars {
            chart = chart.bars(label, values).deviations(deviations);
        }
        prop_assert!(roxmltree::Document::parse(&chart.to_svg().unwrap()).is_ok());
        chart.to_png().unwrap();
    }
}
