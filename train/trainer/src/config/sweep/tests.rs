use super::*;

const TEXT: &str = r#"
[sweep]
scale = "small"
[sweep.grid]
"task.length" = [64, 128]
tier = [
    { label = "1", "adapter.lora.rank" = 8, "adapter.hrm.state_dim" = 16 },
    { label = "2", "adapter.lora.rank" = 16, "adapter.hrm.state_dim" = 32 },
]
seed = [0, 1, 2]
[sweep.scales.small]
"train.steps" = 30
[sweep.scales.smoke]
"train.steps" = 2
seed = [0]
tier = ["1"]

[task]
kind = "dfa"
[[adapter]]
kind = "hrm"
[[adapter]]
kind = "lora"
"#;

fn cells(overrides: &[&str]) -> Result<Vec<Cell>, String> {
    let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
    let experiment = Experiment::load(TEXT, "dir/grid.toml", &overrides).map_err(|e| e.to_string())?;
    experiment.cells().map_err(|e| e.to_string())
}

#[test]
fn more_cells_than_anybody_runs_are_refused() {
    let values = ["0,"].repeat(1000).concat();
    let axes: Vec<String> = (0..12).map(|axis| format!("x{axis} = [{values}]")).collect();
    let experiment = Experiment::load(&format!("[sweep.grid]\n{}", axes.join("\n")), "grid.toml", &[]).unwrap();
    assert_eq!(experiment.size(), usize::MAX);
    let message = experiment.cells().unwrap_err().to_string();
    assert!(message.starts_with("grid.toml: the grid has more than 100000 cells (1000 of `x0`, "), "{message}");
}

#[test]
fn every_combination_is_a_cell() {
    let all = cells(&[]).unwrap();
    assert_eq!(all.len(), 12);
    assert_eq!(all[0].slug, "length-64_tier-1_seed-0");
    assert_eq!(all[1].slug, "length-64_tier-1_seed-1");
    let axes: Vec<(&str, &str)> = all[1].axes.iter().map(|(name, label)| (name.as_str(), label.as_str())).collect();
    assert_eq!(axes, [("length", "64"), ("tier", "1"), ("seed", "1")]);
    assert_eq!(all[11].slug, "length-128_tier-2_seed-2");
    let last = all[11].config.as_ref().unwrap();
    assert_eq!((last.name.as_str(), last.seed, last.train.steps), ("grid_length-128_tier-2_seed-2", 2, Some(30)));
    assert!(last.to_toml().contains("state_dim = 32"));
    let smoke = cells(&["scale=smoke", "task.length=32"]).unwrap();
    assert_eq!(smoke.iter().map(|cell| cell.slug.as_str()).collect::<Vec<_>>(), ["length-32_tier-1_seed-0"]);
    assert_eq!(smoke[0].config.as_ref().unwrap().train.steps, Some(2));
    assert_eq!(cells(&["tier=2", "seed=[7, 8]"]).unwrap()[1].slug, "length-64_tier-2_seed-8");
}

#[test]
fn a_scale_can_have_axes_of_its_own() {
    let more =
        format!("{TEXT}\n[sweep.scales.rates]\nseed = [5]\n[sweep.scales.rates.grid]\n\"train.lr\" = [1e-3, 1e-2]\n");
    let cells = |scale: &str, overrides: &[&str]| {
        let overrides: Vec<String> =
            overrides.iter().map(|text| (*text).to_owned()).chain([format!("scale={scale}")]).collect();
        Experiment::load(&more, "grid.toml", &overrides).unwrap().cells().unwrap()
    };
    let rates = cells("rates", &["tier=2", "task.length=[64]"]);
    assert_eq!(
        rates.iter().map(|cell| cell.slug.as_str()).collect::<Vec<_>>(),
        ["length-64_tier-2_seed-5_lr-0.001", "length-64_tier-2_seed-5_lr-0.01"]
    );
    assert_eq!(rates[1].config.as_ref().unwrap().train.lr, 1e-2);
    assert!(cells("small", &[]).iter().all(|cell| cell.axes.iter().all(|(axis, _)| axis != "lr")));
    let twice = more.replace("\"train.lr\" = [1e-3, 1e-2]", "seed = [1]");
    let message = Experiment::load(&twice, "grid.toml", &["scale=rates".to_owned()]).unwrap_err().to_string();
    assert!(message.contains("the axis `seed` is in the grid of every scale"), "{message}");
}

#[test]
fn a_scale_can_leave_out_adapters() {
    let with = |only: &str| {
        let text = TEXT.replace("[sweep.scales.smoke]", &format!("[sweep.scales.smoke]\nonly = {only}"));
        let names = |scale: &str| {
            let cells = Experiment::load(&text, "grid.toml", &[format!("scale={scale}")])?.cells()?;
            let adapters = &cells[0].config.as_ref().unwrap().adapter;
            Ok(adapters.iter().map(|adapter| adapter.name.clone()).collect::<Vec<_>>().join(","))
        };
        (names("smoke").map_err(|error: ConfigError| error.to_string()), names("small").unwrap())
    };
    assert_eq!(with("[\"lora\"]"), (Ok("lora".to_owned()), "hrm,lora".to_owned()));
    for (only, expected) in [
        ("[]", "grid.toml:14: `sweep.scales.smoke.only` is empty"),
        (
            "[\"lara\"]",
            "grid.toml:14: `sweep.scales.smoke.only` names `lara`, which is no adapter here: they are `hrm` or `lora`",
        ),
        ("3", "grid.toml:14: `sweep.scales.smoke.only` must be"),
    ] {
        let message = with(only).0.unwrap_err();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_plan_is_read_and_complete() {
    let keys = ["units", "controls", "test", "stopping", "power"];
    let words = keys.map(|key| format!("{key} = \"words\"\n")).concat();
    let with = |plan: &str| Experiment::load(&format!("{TEXT}\n[plan]\n{plan}"), "grid.toml", &[]);
    let plan = with(&format!("hypotheses = [\"a\", \"b\"]\n{words}")).unwrap().plan.unwrap();
    assert_eq!((plan.hypotheses.len(), plan.units.as_str()), (2, "words"));
    assert_eq!(Experiment::load(TEXT, "grid.toml", &[]).unwrap().plan, None);
    let message = with(&words).unwrap_err().to_string();
    assert!(message.contains("plan.hypotheses"), "{message}");
    let message = with(&format!("hypotheses = []\nstop = 1\n{words}")).unwrap_err().to_string();
    assert!(message.contains("unknown key `plan.stop`"), "{message}");
}

#[test]
fn what_is_wrong_is_named() {
    for (overrides, expected) in [
        (&["scale=smal"][..], "--set scale=smal: dir/grid.toml has no scale `smal`; it has `small` or `smoke`"),
        (&["tier=3"], "--set tier=3: the axis `tier` has no `3`; it has `1` or `2`"),
        (&["adapter.lora.rank=4"], "`adapter.lora.rank` is set by the axis `tier` of the grid"),
        (&["seed=[]"], "--set seed=[]: the axis `seed` must be an array of at least one value"),
        (&["task.length=[0]"], "--set task.length=[0]: `task.length` must be"),
        (&["seed=[1, 1]"], "two cells are called length-64_tier-1_seed-1"),
        (&["train.lrr=1"], "unknown key `train.lrr`"),
    ] {
        let message = cells(overrides).unwrap_err();
        assert!(message.contains(expected), "{overrides:?}: {message}");
    }
    let wrong = TEXT.replace("[sweep.grid]", "[sweep.gird]");
    let message = Experiment::load(&wrong, "grid.toml", &[]).unwrap_err().to_string();
    assert!(message.contains("grid.toml:4: unknown key `sweep.gird`; did you mean `grid`?"), "{message}");
    for (replaced, by, expected) in [
        ("\"train.steps\" = 30", "train.steps = 30", "grid.toml:12: a table here would replace all of `train`"),
        (
            "\"adapter.lora.rank\" = 8",
            "adapter.lora.rank = 8",
            "grid.toml:7: a table here would replace all of `adapter`",
        ),
        (
            "seed = [0, 1, 2]",
            "\"adapter.lora.rank\" = [4]",
            "`adapter.lora.rank` is set by two axes of the grid, `tier`",
        ),
        ("seed = [0, 1, 2]", "\"adapter. 1.rank\" = [4]", "`adapter. 1.rank` is set by two axes of the grid, `tier`"),
        ("scales.smoke", "scales.\"a/b\"", "grid.toml:13: the name of a scale must be made of letters"),
        ("[sweep]", "name = \"..\"\n[sweep]", "grid.toml:2: `name` must be made of letters"),
    ] {
        let wrong = TEXT.replacen(replaced, by, 1).replace("kind = \"dfa\"", "kind = \"dfa\"\n[train]\nlr = 1.0");
        let message = Experiment::load(&wrong, "grid.toml", &[]).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    // The table of a key that takes one is quoted, and stays.
    let rule = "\"task.max_window\" = { symbols = 2, accuracy = 0.9 }";
    Experiment::load(&TEXT.replace("\"train.steps\" = 30", rule), "grid.toml", &[]).unwrap();
    let message = Config::load(TEXT, "grid.toml", &[]).unwrap_err().to_string();
    assert!(message.contains("train sweep"), "{message}");
}

#[test]
fn the_example_of_the_documentation() {
    let page = include_str!("../../../../../docs/sweeps.md");
    let text = page.split("```toml").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let cells = |scale: &str| Experiment::load(text, "length.toml", &[format!("scale={scale}")]).unwrap().cells();
    assert_eq!((cells("small").unwrap().len(), cells("full").unwrap().len()), (12, 24));
}

#[test]
fn a_configuration_without_a_grid_is_one_cell() {
    let text = "[task]\nkind = \"dfa\"\n[[adapter]]\nkind = \"hrm\"\nstate_dim = 4\n";
    let experiment = Experiment::load(text, "plain.toml", &[]).unwrap();
    assert_eq!((experiment.directory_name(), experiment.cells().unwrap().len()), ("plain".to_owned(), 1));
}

#[test]
fn a_name_that_no_directory_can_have_is_refused() {
    let tier = |length: usize| {
        let label = "x".repeat(length);
        format!("tier=[{{ label = \"{label}\", \"adapter.lora.rank\" = 8, \"adapter.hrm.state_dim\" = 16 }}]")
    };
    // Beside `length-64_tier-` and `_seed-0`.
    let longest = cells(&[&tier(255 - 22), "task.length=[64]"]).unwrap();
    assert_eq!(longest[0].slug.len(), 255);
    let message = cells(&[&tier(255 - 21), "task.length=[64]"]).unwrap_err();
    assert!(message.contains("a name of 256 bytes") && message.contains("length-64_tier-xxx"), "{message}");
}

/// The settings of all cells, which agree in what they share.
fn settings(text: &str, overrides: &[&str]) -> BTreeMap<String, String> {
    let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for cell in Experiment::load(text, "dir/grid.toml", &overrides).unwrap().cells().unwrap() {
        for (part, own) in cell.settings {
            assert_eq!(*all.entry(part.clone()).or_insert_with(|| own.clone()), own, "{part} of {}", cell.slug);
        }
    }
    all
}

/// Parts that two experiments have both, and in which they differ.
fn different(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> Vec<String> {
    let is_other = |(part, own): &(&String, &String)| other.get(*part).is_some_and(|others| others != *own);
    one.iter().filter(is_other).map(|(part, _)| part.clone()).collect()
}

#[test]
fn settings_are_all_but_the_axes() {
    let all = settings(TEXT, &[]);
    let parts: Vec<&str> = all.keys().map(String::as_str).collect();
    let sections = ["backbone", "forgetting", "precision", "pretrain", "seed", "task"];
    assert_eq!(parts[..2], ["adapter.hrm", "adapter.lora"]);
    assert_eq!(parts[2..8], sections);
    assert_eq!(parts[8..], ["tier=1", "tier=2", "train"]);
    for same in [
        &["seed=[7, 8]", "tier=2"][..],
        &["task.length=[32]"],
        &["train.log_every=7", "train.keep_checkpoints=1", "name=\"grid\""],
        &["device=gpu:1", "gpu_memory=1.5", "seed=[0]", "tier=1", "task.length=[64]"],
        &["train.steps=30", "train.keep=last"],
    ] {
        assert_eq!(different(&all, &settings(TEXT, same)), Vec::<String>::new(), "{same:?}");
    }
    for (change, parts) in [
        (&["train.lr=0.5"][..], &["train"][..]),
        (&["task.states=5", "precision=f32"], &["precision", "task"]),
        (&["tier=[{label = \"3\", \"adapter.hrm.state_dim\" = 8}]", "adapter.lora.rank=3"], &[]),
        (&["adapter.hrm.truncate.order=2"], &["adapter.hrm"]),
        (&["tier=[{label = \"1\", \"adapter.lora.rank\" = 9, \"adapter.hrm.state_dim\" = 16}]"], &["tier=1"]),
        (&["pretrain.steps=3"], &["pretrain"]),
    ] {
        assert_eq!(different(&all, &settings(TEXT, change)), parts, "{change:?}");
    }
    // An adapter that comes or goes changes nothing of the others.
    let more = TEXT.to_owned() + "[[adapter]]\nkind = \"dora\"\nrank = 2\n";
    let with = settings(&more, &[]);
    assert!(different(&all, &with).is_empty() && with.contains_key("adapter.dora"));
    let text = |folder: &str, file: &str| {
        let task = format!("kind = \"bytes\"\npath = \"{folder}/{file}\"");
        settings(&TEXT.replace("kind = \"dfa\"", &task), &[])
    };
    assert_eq!(different(&text("data", "a.txt"), &text("../data", "a.txt")), Vec::<String>::new());
    assert_eq!(different(&text("data", "a.txt"), &text("data", "b.txt")), ["task"]);
}
