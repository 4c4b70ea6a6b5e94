//! What performance.md says of steps on a card, by the lines that programs printed there.

use super::{page, root};
use std::fs;

/// The last line that begins with `name`, of those from the last one that begins with `heading` on up to an empty one: its number before `unit`.
fn figure(heading: &str, name: &str, unit: &str) -> f64 {
    let text = fs::read_to_string(root().join("docs/results/performance/h200.txt")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.iter().rposition(|line| line.starts_with(heading)).unwrap_or_else(|| panic!("{heading}"));
    let block = lines[first..].iter().take_while(|line| !line.trim().is_empty());
    let line = block.filter(|line| line.trim_start().starts_with(name)).last().unwrap_or_else(|| panic!("{name}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == unit).unwrap();
    words[at - 1].replace(',', "").parse().unwrap()
}

#[test]
fn steps_on_a_card_are_their_lines() {
    const OURS: &str = "$ cargo bench -p hankel-models --bench gpu_step -- --precision f16";
    const THEIRS: &str = "$ python tests/peers/gpu_step.py tiny --precision f16";
    const QLORA: &str = "$ python tests/peers/gpu_step.py mistral";
    const BLOCKS: &str = "$ cargo bench -p hankel-models --bench gpu_step -- mistral";
    const F32: &str = "$ cargo bench -p hankel-models --bench gpu_step (f32";
    const TORCH: &str = "$ python tests/peers/gpu_step.py (for";
    let speed = |heading: &str, row: &str| figure(heading, row, "tokens/s");
    let tiny =
        |heading: &str, adapter: &str, tokens: u32| speed(heading, &format!("tiny_gpt {adapter} T={tokens} B=32 "));
    let block = |heading: &str, adapter: &str, tokens: u32| {
        speed(heading, &format!("mistral block nf4 {adapter} T={tokens} B=1 "))
    };
    let ratios = |ratio: &dyn Fn(u32) -> f64, at: &[u32]| {
        at.iter().map(|tokens| format!("{:.2}", ratio(*tokens))).collect::<Vec<_>>().join(", ")
    };
    let lengths = [512, 1024, 2048];
    let slower =
        |of: &dyn Fn(&str, u32) -> f64, at: &[u32]| ratios(&|tokens| of("lora", tokens) / of("hrm", tokens), at);
    let (in_f32, in_f16) = (slower(&|a, t| tiny(F32, a, t), &lengths), slower(&|a, t| tiny(OURS, a, t), &lengths));
    let mistral = |heading| slower(&|a, t| block(heading, a, t), &[512, 4096]).replace(", ", " and ");
    let faster = |tokens| ["hrm", "lora"].map(|a| tiny(F32, a, tokens) / tiny(TORCH, a, tokens));
    let [at_512, at_1024, at_2048] = lengths.map(faster).map(|[hrm, lora]| format!("{hrm:.2} and {lora:.2}"));
    let autocast = |tokens: u32| ["hrm", "lora"].map(|a| tiny(OURS, a, tokens) / tiny(THEIRS, a, tokens));
    let ([hrm, lora], slow) = (autocast(512), autocast(2048));
    let qlora = [512, 4096].map(|tokens| block(OURS, "lora", tokens) / block(QLORA, "lora", tokens));
    let page = page("performance.md");
    for said in [
        format!("in f32: TinyGPT {in_f32} at T = 512, 1024, 2048;"),
        format!("a layer of Mistral in nf4 {} at 512 and 4096.", mistral(BLOCKS)),
        format!("In f16 {in_f16}; {} |", mistral(OURS)),
        format!("{at_512} times as fast at T = 512; {at_1024} at 1024, {at_2048} at 2048."),
        format!("(ours {hrm:.1} and {lora:.1} times as fast)"),
        format!("and {:.1} and {:.1} times as fast as ours at 2048", slow[0].recip(), slow[1].recip()),
        format!("in f16: {:.2} times QLoRA's at T = 512, {:.2} at 4096", qlora[0], qlora[1]),
    ] {
        assert!(page.contains(&said), "{said}");
    }
}

#[test]
fn products_on_a_card_are_their_lines() {
    let page = page("performance.md");
    let torch = |of: &str| figure("PyTorch's products:", of, "TFLOP/s");
    let first = |name: &str, unit: &str| {
        figure("$ cargo bench -p hankel-ops --bench gpu_matmul -- '(Mistral up 1024|square", name, unit)
    };
    let square = first("f32, as chosen square 4096 x 4096 x 4096 NT f32:", "GFLOP/s,") / 1e3;
    let share = first("f32, as chosen square 4096 x 4096 x 4096 NT f32:", "%");
    let cooperative = |of: &str| {
        let heading = "$ cargo bench -p hankel-ops --bench gpu_matmul -- 'f16, cooperative";
        figure(heading, &format!("f16, cooperative {of}"), "GFLOP/s,") / 1e3
    };
    let (whole, up) = (cooperative("square 4096 x 4096 x 4096 NT"), cooperative("Mistral up 1024 x 14336 x 4096 NT"));
    let of_torch = torch("4096 4096 4096 torch.float16");
    let compared = |kernel: &str| figure("Kernels written for comparison", kernel, "TFLOP/s");
    let chosen = figure("Kernels written for comparison", "2 x 2, 4 x 4, 4:", "TFLOP/s");
    for said in [
        format!(
            "{square:.1} TFLOP/s at 4096 x 4096 x 4096: {:.0} % of the data sheet's 67, {share:.0} %",
            square / 0.67
        ),
        format!("in the same run; PyTorch {:.1} |", torch("4096 4096 4096 torch.float32")),
        format!("{whole:.0} TFLOP/s ({up:.0} at 1024 x 14336 x 4096)"),
        format!("PyTorch {of_torch:.0}: {:.0} %, short of the aim", 100.0 * whole / of_torch),
        format!("PyTorch {:.0} in f16.", torch("16384 512 128 torch.float16")),
        format!("two slices in memory by turns {:.1} times", chosen / compared("4 x 4, 2 x 2, 2, two slices")),
    ] {
        assert!(page.contains(&said), "{said}");
    }
    let speeds = ["hrm", "lora"]
        .map(|row| figure("$ train fit train/experiments/scale.toml", &format!("{row}  step 3/3"), "tokens/s"));
    let bytes = fs::read_to_string(root().join("docs/results/performance/h200.txt")).unwrap();
    let bytes: f64 =
        bytes.lines().find_map(|line| line.strip_prefix("\"peak_device_bytes\": ")).unwrap().parse().unwrap();
    let tens = speeds.map(|speed| hankel_trainer::format::thousands(((speed / 10.0).round() * 10.0) as u64));
    let said =
        format!("{:.2} GiB, {} tokens/s with an HRM and {} with LoRA", bytes / f64::from(1 << 30), tens[0], tens[1]);
    assert!(page.contains(&said), "{said}");
}

/// What performance.md says of kernels that were compared, and of a card that idles.
#[test]
fn kernels_on_a_card_are_their_lines() {
    let text = fs::read_to_string(root().join("docs/results/performance/h200.txt")).unwrap();
    let page = page("performance.md");
    // Speeds of a comparison, square and Mistral.
    let of = |name: &str| -> [f64; 2] {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}"));
        let figures: Vec<f64> = line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
        figures.try_into().unwrap()
    };
    let chosen = of("2 x 2, 4 x 4, 4:");
    let slower = |names: &[&str]| {
        let ratios = names.iter().flat_map(|name| [0, 1].map(|at| chosen[at] / of(name)[at]));
        ratios.fold((f64::MAX, 0.0_f64), |(low, high), x| (low.min(x), high.max(x)))
    };
    let (large, eight) =
        (slower(&["4 x 4, 2 x 2, 2:", "4 x 4, 2 x 4, 2:"]), slower(&["2 x 2, 4 x 4, 4, vectors of eight:"]));
    let attention = "$ cargo bench -p hankel-ops --bench gpu -- 'attention.*(2 x 2048|4 x 1024|8 x 512)'";
    let gains = ["8 x 512", "4 x 1024", "2 x 2048"].map(|shape| {
        let of = |precision: &str| {
            let name = format!("forward and backward {shape} tokens, 4/4 heads of 32, {precision}:");
            figure(attention, &name, "GFLOP/s,")
        };
        of("f16") / of("f32")
    });
    let (least, most) = gains.iter().fold((f64::MAX, 0.0_f64), |(low, high), x| (low.min(*x), high.max(*x)));
    let small = |kernel: &str, types: &str| {
        let name = format!("{kernel} TinyGPT up 16384 x 512 x 128 NT {types}:");
        let line = text.lines().rfind(|line| line.starts_with(&name)).unwrap();
        line[name.len()..].split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e3
    };
    // Whole products in f16 before and after, square and Mistral: the last two of their lines.
    let products = ["square 4096 x 4096 x 4096", "Mistral up 1024 x 14336 x 4096"].map(|shape| {
        let name = format!("f16, cooperative {shape} NT f16:");
        let speeds = text.lines().filter_map(|line| line.strip_prefix(&name));
        let speeds: Vec<f64> = speeds.map(|rest| rest.split_whitespace().next().unwrap().parse().unwrap()).collect();
        [speeds[speeds.len() - 2] / 1e3, speeds[speeds.len() - 1] / 1e3]
    });
    let [before, now] = [0, 1].map(|at| products.map(|product| product[at]));
    let idle = text.lines().find(|line| line.contains("the card had idled")).unwrap();
    let idle: Vec<f64> = idle.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let means = text.lines().find(|line| line.starts_with("means of the last lines: alone ")).unwrap();
    let means: Vec<f64> = means.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
    let [alone, both] = [means[0], means[1]].map(|mean| hankel_trainer::format::thousands(mean as u64));
    for said in [
        format!(
            "took {:.2} to {:.1} times as long, loads of eight elements {:.1} to {:.1} times",
            large.0, large.1, eight.0, eight.1
        ),
        format!("forward and backward: {least:.1} to {most:.1} times as fast as in f32 for heads of 32"),
        format!("reach {:.0} TFLOP/s, in f32 {:.0};", small("f16, cooperative", "f16"), small("f32, as chosen", "f16")),
        format!(
            "kernels without it, written for comparison, reached {:.0}\n  TFLOP/s where the one with it reached {:.0}.",
            chosen[0], before[0]
        ),
        format!("{:.0} ({:.0} where that had {:.0}).", now[0], now[1], before[1]),
        format!("from its first call on read {:.0} TFLOP/s for 160.", idle[idle.len() - 1] / 1e3),
        format!(
            "made {alone} tokens a second in steps of 16 conversations, one turn after the other, and two rows at once {both} together."
        ),
    ] {
        assert!(page.contains(&said), "{said}");
    }
}

#[test]
fn runs_that_share_a_card_are_their_lines() {
    let speed = |row: &str| figure("On these two, train sweep", row, "tokens/s");
    let thousands = |row| hankel_trainer::format::thousands(((speed(row) / 1e3).round() * 1e3) as u64);
    let slow = hankel_trainer::format::thousands(((speed("adalora  step 430") / 1e2).round() * 1e2) as u64);
    let page = page("performance.md");
    for said in [
        format!(
            "makes {} tokens a second, two at once {} each",
            thousands("pretrain  step 2760"),
            thousands("pretrain  step 2370")
        ),
        format!("{slow} tokens a second\n  with seven other runs on the card."),
        format!(
            "now: {} with two others, where LoRA makes {}.",
            thousands("adalora  step 1000"),
            thousands("lora  step 1000")
        ),
    ] {
        assert!(page.contains(&said), "{said}");
    }
}

#[test]
fn the_released_protocol_costs_what_its_tokens_take() {
    let tokens: u64 = [(512, 25), (1024, 40), (2048, 40)].map(|(length, epochs)| length * epochs * 10_000).iter().sum();
    // Three sizes, three seeds, two rows.
    let hours = 18.0 * tokens as f64 / figure("On these two, train sweep", "pretrain  step 2760", "tokens/s") / 3600.0;
    assert!(page("sweeps.md").contains(&format!("they take {hours:.1} hours;")), "{hours}");
}

#[test]
fn two_cards_ended_in_the_same_bits() {
    let text = fs::read_to_string(root().join("docs/results/reliability/h200-twice.json")).unwrap();
    let file: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = file["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    for row in rows {
        assert_eq!(row["validation_loss"][0], row["validation_loss"][1], "{row}");
        assert_eq!(row["same_training_curve"], true, "{row}");
    }
}
