use super::*;
use hankel_models::settings::Table;

const SMALL: &str = "\
[task]
kind = \"dfa\"
length = 32

[pretrain]
epochs = 2
lr = 1e-3
[pretrain.task]
table_seed = 7

[train]
steps = 100
batch_size = 16

[[adapter]]
kind = \"hrm\"
state_dim = 8
truncate = { epsilon = 0.01 }

[[adapter]]
kind = \"lora\"
rank = 4
[adapter.train]
lr = 2e-4
";

fn settings(config: &Config, index: usize) -> &Table {
    &config.adapter[index].method.adapter().unwrap().settings
}

fn load(text: &str, overrides: &[&str]) -> Result<Config, String> {
    let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
    Config::load(text, "dir/small.toml", &overrides).map(|(config, _)| config).map_err(|error| error.to_string())
}

#[test]
fn defaults_are_written_out() {
    let config = load(SMALL, &["seed=3"]).unwrap();
    assert_eq!(config.name, "small");
    let TaskConfig::Dfa(task) = &config.task else { panic!() };
    assert_eq!((task.table_seed, task.sequences.data_seed), (Some(3), Some(3)));
    let pretrain = config.pretrain.as_ref().unwrap();
    let Some(TaskConfig::Dfa(other)) = &pretrain.task else { panic!() };
    assert_eq!((other.table_seed, other.length), (Some(7), 32), "keys left out come from [task]");
    assert_eq!((pretrain.train.lr, pretrain.train.batch_size), (1e-3, 16), "keys left out come from [train]");
    assert_eq!(pretrain.train.steps, Some(1250));
    let hrm = settings(&config, 0);
    assert_eq!((&hrm["input"], &hrm["a_max"]), (&"norm".into(), &(1.0 - 1.0 / 32.0).into()));
    assert_eq!(config.training_of(&config.adapter[0]).lr, 3e-3);
    let lora = config.training_of(&config.adapter[1]);
    assert_eq!((lora.lr, lora.rate_lr, lora.steps), (2e-4, Some(2e-4), Some(100)));
    let text = config.to_toml();
    assert_eq!(Config::load(&text, "again.toml", &[]).unwrap().0, config, "{text}");
}

#[test]
fn precision_is_left_to_the_processor_and_told() {
    let (config, notes) = Config::load(&format!("precision = \"auto\"\n{SMALL}"), "t.toml", &[]).unwrap();
    assert_eq!(config.precision, Precision::fastest(Device::Cpu));
    assert!(matches!(config.precision, Precision::F32 | Precision::Bf16), "{:?}", config.precision);
    let told = format!("precision = \"auto\" takes {}, the fastest that cpu has", config.precision.of_products());
    assert!(notes.contains(&told), "{notes:?}");
    // The run keeps what was taken.
    assert_eq!(Config::load(&config.to_toml(), "again.toml", &[]).unwrap().0, config);
    assert_eq!(load(SMALL, &[]).unwrap().precision, Precision::F32);
    let message = load(SMALL, &["precision=fp16"]).unwrap_err();
    let expected = "--set precision=fp16: `precision` must be `f32`, `f64`, `bf16`, `f16` or `auto`, found \"fp16\"; did you mean `f16`?";
    assert_eq!(message, expected);
}

#[test]
fn hrm_begins_as_the_identity_on_a_pretrained_backbone() {
    let start = |text: &str, overrides: &[&str]| {
        let config = load(text, overrides).unwrap();
        let hrm = settings(&config, 0);
        (hrm["preset"].as_str().unwrap().to_owned(), hrm["gate_init"].as_f64().unwrap())
    };
    let (before, rest) = SMALL.split_once("[pretrain]").unwrap();
    let random = format!("{before}[train]{}", rest.split_once("[train]").unwrap().1);
    assert_eq!(start(&random, &[]), ("paper".to_owned(), 0.1));
    assert_eq!(start(SMALL, &[]), ("identity".to_owned(), 1.0));
    assert_eq!(start(SMALL, &["adapter.hrm.preset=paper"]), ("paper".to_owned(), 0.1));
    assert_eq!(start(SMALL, &["adapter.hrm.gate_init=0.5"]), ("identity".to_owned(), 0.5));
}

#[test]
fn a_table_by_a_rule_is_written_out() {
    let with = |more: &[&str]| load(SMALL, &[&["task.max_window={ symbols = 3, accuracy = 0.6 }"], more].concat());
    let config = with(&["seed=3"]).unwrap();
    let TaskConfig::Dfa(task) = &config.task else { panic!() };
    let TaskConfig::Dfa(other) = config.pretrain_task() else { panic!() };
    assert!(task.table_seed.is_some_and(|seed| seed % 1000 == 3) && task.sequences.data_seed == Some(3), "{task:?}");
    assert!(other.table_seed.is_some_and(|seed| seed % 1000 == 7), "{other:?}");
    let (again, notes) = Config::load(&config.to_toml(), "again.toml", &[]).unwrap();
    assert_eq!(again, config);
    assert!(notes[0].contains("; 0 of those from table_seed"), "{notes:?}");
    for (setting, expected) in [
        ("task.max_window.accuracy=0.2", "`task.max_window` allows none of 1000 tables, of table_seed = 0, 1000, ..."),
        ("pretrain.task.max_window.accuracy=0.2", "`pretrain.task.max_window` allows none"),
        ("task.max_window.accuracy=2", "`task.max_window.accuracy` must be above 0 and at most 1, found 2"),
        ("task.max_window.symbols=30", "`task.max_window.symbols` = 30 makes every table take 3e13 transitions"),
        ("task.max_window.length=3", "unknown key `task.max_window.length`"),
        ("task.variant=final-state", "`task.max_window` is for a table that is drawn once"),
    ] {
        let message = with(&[setting]).unwrap_err();
        assert!(message.contains(expected), "{setting}: {message}");
    }
}

#[test]
fn the_released_preset_and_single_fields() {
    let config =
        load(SMALL, &["adapter.hrm.preset=released", "adapter.hrm.input=sublayer", "adapter.hrm.gate_init=0.01"])
            .unwrap();
    let hrm = settings(&config, 0);
    assert_eq!((&hrm["discretization"], &hrm["rate_init"]), (&"zoh-clamped".into(), &"s4d_real".into()));
    assert!(!hrm.contains_key("a_min") && !hrm.contains_key("a_max"));
    assert_eq!((&hrm["input"], &hrm["gate_init"]), (&"sublayer".into(), &0.01.into()));
    assert_eq!(hrm["b_std"], 1.0);
}

#[test]
fn settings_without_an_effect_are_refused_where_they_are_given() {
    let released = "adapter.hrm.preset=released";
    for (overrides, key, what) in [
        (&[released, "adapter.hrm.a_max=0.9"][..], "a_max", "has no effect with `rate_init = \"s4d_real\"`"),
        (&["adapter.hrm.rate_init=s4d_real", "adapter.hrm.a_min=0.4"], "a_min", "has no effect with `rate_init"),
        (&["adapter.hrm.init_states=40"], "init_states", "is for `init = \"empirical-bt\"`: set that, too"),
    ] {
        let message = load(SMALL, overrides).unwrap_err();
        let setting = overrides.last().unwrap();
        assert!(message.starts_with(&format!("--set {setting}: `adapter.hrm.{key}` {what}")), "{message}");
        // A run that was begun with it goes on.
        let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
        let of_run = Config::load_of_run(SMALL, "run/config.toml", &Path::to_path_buf, &overrides).unwrap();
        assert!(settings(&of_run, 0).contains_key(key));
    }
    // Beside others they have one, and what they are by default changes nothing.
    let log_spaced = "adapter.hrm.rate_init=log_spaced";
    let by_data = "adapter.hrm.init=empirical-bt";
    for overrides in [
        &[released, log_spaced, "adapter.hrm.a_max=0.9"][..],
        &[by_data, "adapter.hrm.init_states=40"],
        &[released, "adapter.hrm.a_max=0.96875", "adapter.hrm.a_min=0.5", "adapter.hrm.init_states=32"],
    ] {
        let config = load(SMALL, overrides).unwrap();
        assert_eq!(Config::load(&config.to_toml(), "again.toml", &[]).unwrap().0, config);
    }
}

const KIND: &str = "\n[[adapter]]\nkind = \"selective\"\nselection_rank = 2\na_max = 0.9\n";

#[test]
fn registered_kinds_are_configured_like_the_others() {
    let text = SMALL.to_owned() + KIND;
    let config = load(&text, &["adapter.selective.budget=50000", "adapter.selective.sites=[\"attention\"]"]).unwrap();
    let own = |key: &str| settings(&config, 2)[key].clone();
    assert_eq!((own("selection_rank"), own("a_max"), own("a_min")), (2.into(), 0.9.into(), 0.5.into()));
    // 4 (2 d D + 2 d + 1 + 2 D + 6 d) with D = 128.
    assert_eq!((own("state_dim"), config.adapter[2].method.adapter().unwrap().budget), (46.into(), None));
    // SMALL pretrains its backbone.
    assert_eq!((own("gate_init"), own("c_std"), own("input")), (1.0.into(), 0.0.into(), "norm".into()));
    assert_eq!(Config::load(&config.to_toml(), "again.toml", &[]).unwrap().0, config);
    for (overrides, expected) in [
        (
            &["adapter.selective.state_dim=x"][..],
            "--set adapter.selective.state_dim=x: `adapter.selective.state_dim` must be a whole number of at least 0, found",
        ),
        (
            &["adapter.selective.state_dim=0"],
            "--set adapter.selective.state_dim=0: `adapter.selective.state_dim` must be from 1 to 1048576, found 0",
        ),
        (&["adapter.selective.a_max=1"], "`adapter.selective.a_max` must be above 0 and below 1, found 1.0"),
        (&["adapter.selective.b_std=-1"], "`adapter.selective.b_std` must be finite and at least 0, found -1.0"),
        (&["adapter.selective.gate_init=1e39"], "`adapter.selective.gate_init` must be finite in single precision"),
        (&["adapter.selective.probe.gate=1e39"], "must be finite in single precision, found 1e39"),
        (&["adapter.selective.budget=9", "adapter.selective.state_dim=1"], "and `state_dim` are both given: keep one"),
        (&["adapter.selective.sites=[]"], "`adapter.selective.sites` must name `mlp`, `attention` or both"),
        (&["adapter.selective.path=x"], "names a saved adapter, which has its own settings"),
        (&["adapter.selective.truncate.bound=2"], "has no bound, no total and no other method than `bt`"),
        (
            &["adapter.lora.kind=state-offset", "adapter.state-offset.truncate.order=2"],
            "unknown key `adapter.state-offset.rank`",
        ),
    ] {
        let message = load(&text, overrides).unwrap_err();
        assert!(message.contains(expected), "{overrides:?}: {message}");
    }
}

#[test]
fn a_budget_of_what_has_no_size_is_refused() {
    for kind in ["full", "none", "ia3"] {
        let text = format!("{SMALL}\n[[adapter]]\nkind = \"{kind}\"\nbudget = 9\n");
        let message = load(&text, &[]).unwrap_err();
        assert!(message.contains("budget` is not for") && message.contains("which has no size"), "{message}");
    }
}

#[test]
fn problems_name_place_and_key() {
    for (overrides, expected) in [
        (&["tran.lr=1"][..], "--set tran.lr=1: unknown key `tran`; did you mean `train`?"),
        (&[&format!("task.{}=1", vec!["a"; 5000].join("."))], "a key of 5001 parts: no setting is deeper than 32"),
        (
            &["train.learning_rate=1"],
            "--set train.learning_rate=1: unknown key `train.learning_rate`; did you mean `lr`?",
        ),
        (&["train.batchsize=1"], "--set train.batchsize=1: unknown key `train.batchsize`; did you mean `batch_size`?"),
        (
            &["task.kind=dfaa"],
            "--set task.kind=dfaa: `task.kind` must be `dfa`, `parity`, `selective-copy`, `linear-system`, `word-problem`, `bytes`, `maestro`, `text`, `quality`, `qmsum`, `narrativeqa`, `longbench`, \
             `jsonl` or `dpo`, found \"dfaa\"; did you mean `dfa`?",
        ),
        (&["learning_rate=1"], "unknown key `learning_rate`; it is called `lr` here, a key of [train]"),
        (&["train.max_grad_norm=1"], "unknown key `train.max_grad_norm`; did you mean `clip`?"),
        (
            &["train.output_dir=x"],
            "unknown key `train.output_dir`; the directory of a run is given on the command line, `train fit --out",
        ),
        (&["adapter.lora.lora_r=1"], "unknown key `adapter.lora.lora_r`; did you mean `rank`?"),
        (&["adapter.lora.lora_dropout=1"], "unknown key `adapter.lora.lora_dropout`; did you mean `dropout`?"),
        (&["adapter.hrm.target_modules=1"], "unknown key `adapter.hrm.target_modules`; it is called `targets` here"),
        (&["adapter.lora.kind=LoRA"], "found \"LoRA\"; did you mean `lora`?"),
        (&["backbone.kind=qwen3"], "found \"qwen3\"; models of every family in docs/models.md are `decoder`"),
        (&["adapter.hrm.rank=3"], "--set adapter.hrm.rank=3: unknown key `adapter.hrm.rank`"),
        (&["adapter.hrm.truncat=3"], "unknown key `adapter.hrm.truncat`; did you mean `truncate`?"),
        (&["backbone.layers=4294967296"], "`backbone.layers` must be at most 1048576, found 4294967296"),
        (&["backbone.context=9223372036854775807"], "`backbone.context` must be at most 16777216"),
        (&["train.betas=[0.9, 0.99, 0.9]"], "`train.betas` has 3 elements, expected 2"),
        (&["train.eps=1e-46"], "`train.eps` must be at least 1.2e-38"),
        (&["adapter.lora.rank=0"], "--set adapter.lora.rank=0: `adapter.lora.rank` must be at least 1, found 0"),
        (&["adapter.lora.budget=10"], "`adapter.lora.budget` and `rank` are both given: keep one"),
        (&["adapter.lora.name=hrm"], "`adapter.hrm.name` makes \"hrm\" the name of two rows"),
        (
            &["adapter.lora.name=hrm-epsilon-0.01"],
            "`adapter.hrm-epsilon-0.01.name` makes \"hrm-epsilon-0.01\" the name of two rows",
        ),
        (&["adapter.hrm.mode=complex", "adapter.hrm.state_dim=7"], "`adapter.hrm.state_dim` must be even for `mode"),
        (
            &["adapter.hrm.mode=signed", "adapter.hrm.preset=released"],
            "\"signed\" goes with `discretization = \"free\"`",
        ),
        (
            &["adapter.hrm.mode=complex", "adapter.hrm.hsv_regularization=1"],
            "`adapter.hrm.hsv_regularization` cannot be used: hankel_sum: the gradient of the Hankel singular values needs real",
        ),
        (
            &["adapter.hrm.mode=negative"],
            "`adapter.hrm.mode` must be `positive`, `signed` or `complex`, found \"negative\"",
        ),
        (
            &["adapter=[{ kind = \"delta\", budget = 100000000 }]"],
            "`adapter.delta.budget` of 100000000 cannot be met: ",
        ),
        (&["adapter.hrm.truncate.order=4"], "`adapter.hrm.truncate` must hold exactly one of"),
        (
            &["adapter.hrm.truncate={ bound = 0.1, method = \"svd\" }"],
            "`adapter.hrm.truncate.method` `svd` has no error bound for `bound` to choose by",
        ),
        (
            &["adapter.lora.probe.gate=1"],
            "`adapter.lora.probe` is for adapters with a gate, which `kind = \"lora\"` has",
        ),
        (&["adapter.hrm.probe=[{gate=1},{gate=1}]"], "`adapter.hrm.probe` has `gate = 1` twice"),
        (&["adapter.hrm.probe.gat=1"], "unknown key `adapter.hrm.probe.gat`; did you mean `gate`?"),
        (
            &["adapter.lora.exactness.sequences=1"],
            "`adapter.lora.exactness` is for `kind = \"hrm\"`, not for `kind = \"lora\"`",
        ),
        (&["adapter.hrm.exactness.sequences=0"], "`adapter.hrm.exactness.sequences` must be at least 1, found 0"),
        (
            &["adapter.hrm.exactness.sequences=100001"],
            "`adapter.hrm.exactness.sequences` must be at most 100000, found 100001",
        ),
        (
            &["backbone.context=16"],
            "--set backbone.context=16: `backbone.context` is 16 tokens, but sequences of the task have 32: shorten `task.length`",
        ),
        (&["backbone.heads=5"], "`backbone.heads` does not fit: d_model = 128 cannot be split over 5 heads"),
        (&["task.train_sequences=1000000000000000000"], "`task.train_sequences` must be at most 100000000 (shuffling"),
        (&["task.validation_sequences=100000001"], "`task.validation_sequences` must be at most 100000000"),
        (&["task.test_sequences=100000001"], "`task.test_sequences` must be at most 100000000"),
        (
            &["task.transitions=[[0, 0], [1, 1], [2, 2], [3, 3]]", "task.table=permutation"],
            "`task.table` is how a table is drawn, and `transitions` gives one",
        ),
        (&["task.transitions=[[0, 1]]"], "`task.transitions` must have 4 rows (states) of 2 entries (symbols)"),
        (&["pretrain.task.states=5"], "`pretrain.task` has a vocabulary of 7, but the adapters' task has one of 6"),
        (&["device=gpu", "precision=f64"], "--set precision=f64: `precision` \"f64\" is for the CPU"),
        (&["device="], "--set device=: `device` must name a device"),
        (&["gpu_memory=0"], "--set gpu_memory=0: `gpu_memory` must be above 0, found 0"),
        (&["adapter=[]"], "`adapter` is missing"),
        (&["adapter.lora.kind=selectve"], "found \"selectve\"; did you mean `selective`?"),
        (
            &["adapter.lora.kind=complex"],
            "`adapter.complex.kind`: \"complex\" was removed: `kind = \"hrm\"` has these poles: write `mode = \"complex\"`",
        ),
        (&["adapter.hrm.gate_init=nan"], "`adapter.hrm.gate_init` must be finite, found the number NaN"),
        (&["adapter.lora.targets=[1]"], "`adapter.lora.targets.0` must be a string, found the number 1"),
        (&["adapter.lora.kind=ia3"], "unknown key `adapter.ia3.rank`"),
        (&["adapter.hrm.reduce.orde=2"], "unknown key `adapter.hrm.reduce.orde`; did you mean `order`?"),
        (&["adapter.lora.kind=selective"], ":22: unknown key `adapter.selective.rank`; did you mean `selection_rank`?"),
        (&["name=a/b"], "`name` must be made of letters"),
        (&["adapter.lora.targets=[\"q_prj\"]"], "target \"q_prj\" matches no projection; there are q_proj"),
        (&["adapter.hrm.path=x"], "`adapter.hrm.path` names a saved adapter, which has its own settings"),
        (&["adapter.lora.kind=full"], "unknown key `adapter.full.rank`"),
        (&["backbone.path=nowhere"], "`backbone.path` cannot be used: cannot read nowhere/config.json"),
        (&["train.warmup_steps=101"], "`train.warmup_steps` is 101, more than the 100 steps of the whole training"),
        (&["pretrain.warmup_steps=2000"], "`pretrain.warmup_steps` is 2000, more than the 1250 steps of the whole"),
        (&["adapter.lora.train.epochs=1e17"], "`adapter.lora.train.epochs` makes more steps than can be counted"),
        (&["train.betas=[0.9, 1]"], "`train.betas` must be at least 0 and below 1, found 1"),
        (&["train.lr=inf"], "`train.lr` must be finite, found inf"),
        (&["adapter.hrm.train.clip=-1"], "`adapter.hrm.train.clip` must be at least 0, found -1"),
    ] {
        let message = load(SMALL, overrides).unwrap_err();
        assert!(message.contains(expected), "{overrides:?}: {message}");
    }
    let message = load(&SMALL.replace("rank = 4", "rank = 0"), &[]).unwrap_err();
    assert_eq!(message, "dir/small.toml:22: `adapter.lora.rank` must be at least 1, found 0");
    let message = load(&SMALL.replace("kind = \"lora\"\n", ""), &[]).unwrap_err();
    assert!(
        message.contains("dir/small.toml:20: `adapter.1.kind` is missing: it is `hrm`, `lora`, `dora`, `adalora`, `ia3`, `selective`, `rotation`, `householder`, `delta`, `hankel-shared`, `state-offset`, `full` or `none`"),
        "{message}"
    );
    assert_eq!(load("", &[]).unwrap_err(), "dir/small.toml: `task` is missing: write a [task] table");
    let message = load("[task]\nkind = \"dfa\"\n[train]\nsteps = 1", &[]).unwrap_err();
    assert!(message.starts_with("dir/small.toml: `adapter` is missing: write at least one"), "{message}");
}

/// Phi-3 with other angles beyond 32 tokens.
#[test]
fn longrope_is_not_run_in_parts() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/families/phi3_longrope/hf");
    let text =
        "[task]\nkind = \"dfa\"\n[backbone]\nkind = \"decoder\"\n[train]\nsteps = 1\n[[adapter]]\nkind = \"lora\"";
    let problem = |overrides: &[&str]| {
        let model = format!("backbone.model={model}");
        load(text, &[&[&model[..]], overrides].concat()).err().unwrap_or_default()
    };
    for key in ["train.chunk", "adapter.lora.train.chunk"] {
        let chunk = format!("{key}=8");
        let long = problem(&["task.length=64", &chunk]);
        assert!(long.contains(&format!("`{key}` is not for this model, whose rotary angles are others")), "{long}");
        let short = problem(&["task.length=16", &chunk]);
        assert!(!short.contains("chunk"), "{short}");
    }
}
