//! Whatever can be configured survives being written and read back.

use super::*;
use crate::tasks::automaton::TableKind;
use crate::tasks::bytes::BytesConfig;
use crate::tasks::dfa::{DfaConfig, DfaVariant, MaxWindow};
use crate::tasks::linear_system::LinearSystemConfig;
use crate::tasks::maestro::MaestroConfig;
use crate::tasks::parity::{ParityConfig, ParityVariant};
use crate::tasks::selective_copy::SelectiveCopyConfig;
use crate::tasks::settings::GeneratedData;
use crate::tasks::word_problem::WordProblemConfig;
use hankel_models::TinyGptConfig as TinyGptModel;
use hankel_models::adapters::kind;
use hankel_models::linear::NormKind;
use hankel_models::lti::Method;
use hankel_models::settings::Table;
use hankel_models::tiny_gpt::Init;
use proptest::prelude::*;
use serde_json::{Value, json};

fn option<T: std::fmt::Debug + Clone>(inner: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    proptest::option::of(inner)
}

fn tasks() -> impl Strategy<Value = TaskConfig> {
    let counts = || (option(0_u64..99), 1_usize..5000, 1_usize..500, 0_usize..500);
    let sequences = move || {
        counts().prop_map(|(data_seed, train_sequences, validation_sequences, test_sequences)| GeneratedData {
            data_seed,
            train_sequences,
            validation_sequences,
            test_sequences,
        })
    };
    let sizes = || (1_usize..300, sequences());
    let dfa = (sizes(), 1_usize..9, 1_usize..4, any::<[bool; 2]>(), option(0_u64..99)).prop_map(
        |((length, sequences), states, symbols, [variant, table], table_seed)| {
            TaskConfig::Dfa(DfaConfig {
                variant: if variant { DfaVariant::FinalState } else { DfaVariant::PerPosition },
                states,
                symbols,
                table: if table { TableKind::Permutation } else { TableKind::Random },
                table_seed,
                max_window: (!variant && (table || states >= 4)).then_some(MaxWindow { symbols: 1, accuracy: 1.0 }),
                transitions: (!table && !variant && states < 4).then(|| vec![vec![0; symbols]; states]),
                length,
                sequences,
            })
        },
    );
    let parity = (sizes(), any::<bool>()).prop_map(|((length, sequences), sequence)| {
        TaskConfig::Parity(ParityConfig {
            variant: if sequence { ParityVariant::Sequence } else { ParityVariant::PerPosition },
            length,
            sequences,
        })
    });
    let bytes = (sizes(), "[a-z \"\\\\./']{1,12}").prop_map(|((length, sequences), path)| {
        TaskConfig::Bytes(BytesConfig { path: path.into(), length, sequences })
    });
    let maestro = (sizes(), "[a-z ]{1,12}").prop_map(|((length, sequences), path)| {
        TaskConfig::Maestro(MaestroConfig { path: path.into(), length, sequences })
    });
    let copying = (sizes(), 1_usize..9).prop_map(|((length, sequences), symbols)| {
        TaskConfig::SelectiveCopy(SelectiveCopyConfig { symbols, items: 1, length, sequences })
    });
    let systems = (sizes(), 1_usize..25, option(0_u64..99), any::<bool>()).prop_map(
        |((length, sequences), order, system_seed, shuffled_targets)| {
            TaskConfig::LinearSystem(LinearSystemConfig {
                order,
                system_seed,
                shuffled_targets,
                length,
                sequences,
                ..LinearSystemConfig::default()
            })
        },
    );
    let words =
        (sizes(), 0_usize..99, option(200_usize..300)).prop_map(|((length, sequences), first_token, start_token)| {
            let test_length = length.next_power_of_two();
            let own =
                WordProblemConfig { length, test_length, first_token, start_token, ..WordProblemConfig::default() };
            TaskConfig::WordProblem(WordProblemConfig { sequences, ..own })
        });
    prop_oneof![dfa, parity, copying, systems, words, bytes, maestro]
}

fn training() -> impl Strategy<Value = TrainConfig> {
    let length = prop_oneof![
        Just((None, None)),
        (1_u64..10_000).prop_map(|n| (Some(n), None)),
        (0.1..50.0).prop_map(|x| (None, Some(x)))
    ];
    let warmup = prop_oneof![Just((None, None)), Just((Some(1), None)), (0.0..1.0).prop_map(|x| (None, Some(x)))];
    let schedule = prop_oneof![Just(Schedule::Cosine), Just(Schedule::Linear), Just(Schedule::Constant)];
    let rates = (1e-6..1.0, option(0.0..1.0), option(0.0..1.0), 0.0..1.0, 0.0..0.999, 0.0..10.0, 0.0..0.9);
    let every = (option(1_u64..100), option(1_u64..100), option(1_u64..100), option(1_usize..64));
    (length, warmup, schedule, rates, every, 1_usize..64, 1_usize..9).prop_map(
        |(length, warmup, schedule, rates, every, batch_size, accumulation)| TrainConfig {
            steps: length.0,
            epochs: length.1,
            warmup_steps: warmup.0,
            warmup_ratio: warmup.1,
            batch_size,
            accumulation,
            micro_batch_size: every.3,
            lr: rates.0,
            rate_lr: rates.1,
            gate_lr: rates.2,
            weight_decay: rates.3,
            betas: [rates.4, 0.95],
            clip: rates.5,
            label_smoothing: rates.6,
            schedule,
            log_every: every.0,
            eval_every: every.1,
            checkpoint_every: every.2,
            eval_batch_size: every.3,
            ..TrainConfig::default()
        },
    )
}

fn methods() -> impl Strategy<Value = AdapterMethod> {
    let adapter = |name: &str, budget, given: Vec<(&str, Option<Value>)>| {
        let given = given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        AdapterMethod::Adapter(AdapterSettings { kind: kind(name).unwrap(), budget, settings: given.collect() })
    };
    let size =
        prop_oneof![(1_usize..64).prop_map(|n| (Some(n), None)), (1_u64..1_000_000).prop_map(|n| (None, Some(n)))];
    let sites = prop_oneof![Just(json!(["mlp"])), Just(json!(["attention", "mlp"])), Just(json!("mlp"))];
    let scan = prop_oneof![Just("auto"), Just("fft"), Just("sequential"), Just("chunked")];
    let gates = (option(-1.0..1.0), option(any::<bool>()), option(0.0..2.0), option(0.01..0.4));
    let hrm = (size.clone(), option(sites), scan, any::<bool>(), gates).prop_map(
        move |(size, sites, scan, released, gates)| {
            let given = vec![
                ("preset", Some(json!(if released { "released" } else { "paper" }))),
                ("state_dim", size.0.map(|n| json!(n))),
                ("sites", sites),
                ("scan", Some(json!(scan))),
                ("gate_init", gates.0.map(|x| json!(x))),
                ("train_gate", gates.1.map(|x| json!(x))),
                ("b_std", gates.2.map(|x| json!(x))),
                // The released rates are not between two poles.
                ("a_min", gates.3.filter(|_| !released).map(|x| json!(x))),
                ("a_max", gates.3.filter(|_| !released).map(|a| json!(a + 0.5))),
            ];
            adapter("hrm", size.1, given)
        },
    );
    let lora = (size, option(0.0..64.0), 0.0..0.9).prop_map(move |(size, lora_alpha, dropout)| {
        let given = vec![
            ("rank", size.0.map(|n| json!(n))),
            ("lora_alpha", lora_alpha.map(|x| json!(x))),
            ("dropout", Some(json!(dropout))),
        ];
        adapter("lora", size.1, given)
    });
    prop_oneof![hrm, lora, Just(AdapterMethod::None), Just(AdapterMethod::Full)]
}

fn adapters() -> impl Strategy<Value = Vec<AdapterConfig>> {
    let truncate = prop_oneof![
        (0.0..1.0).prop_map(|x| TruncateConfig { epsilon: Some(x), ..TruncateConfig::default() }),
        (0_usize..9).prop_map(|n| TruncateConfig { order: Some(n), ..TruncateConfig::default() }),
        (1_usize..9).prop_map(|n| TruncateConfig { total: Some(n), ..TruncateConfig::default() }),
        (0_usize..9).prop_map(|n| TruncateConfig {
            order: Some(n),
            method: Method::named("svd"),
            ..TruncateConfig::default()
        }),
    ];
    let reduce = (0.1..3.0, 0..9_u64, 0.0..1.0).prop_map(|(after_epoch, warmup_steps, epsilon)| ReduceConfig {
        timing: Timing { after_epoch, warmup_steps },
        rule: TruncateConfig { epsilon: Some(epsilon), ..TruncateConfig::default() },
    });
    let rules = proptest::collection::vec(truncate, 0..3).prop_map(|mut rules| {
        rules.dedup();
        rules
    });
    let probe = proptest::collection::vec((-1.0..1.0).prop_map(|gate| ProbeConfig { gate }), 0..3);
    let exactness = option((1_usize..9).prop_map(|sequences| ExactnessConfig { sequences }));
    let one = (methods(), rules, (option(reduce), probe, exactness), 0.0..1.0, option(training()), any::<bool>());
    proptest::collection::vec(one, 1..4).prop_map(|adapters| {
        let build = |(index, one): (usize, (AdapterMethod, _, (_, _, _), f64, _, bool))| {
            let (method, truncate, (reduce, probe, exactness), hsv_regularization, train, path) = one;
            let recurrent = method.kind() == "hrm";
            AdapterConfig {
                name: format!("{}-{index}", method.kind()),
                path: (path && method.adapter().is_some()).then(|| "some/where".into()),
                truncate: if recurrent { truncate } else { Vec::new() },
                reduce: if recurrent { reduce } else { None },
                hsv_regularization: if recurrent { hsv_regularization } else { 0.0 },
                probe: if recurrent { probe } else { Vec::new() },
                exactness: if recurrent { exactness } else { None },
                train,
                method: match (path, method) {
                    (true, AdapterMethod::Adapter(adapter)) => {
                        AdapterMethod::Adapter(AdapterSettings { budget: None, settings: Table::new(), ..adapter })
                    }
                    (_, method) => method,
                },
            }
        };
        adapters.into_iter().enumerate().map(build).collect()
    })
}

fn backbones() -> impl Strategy<Value = BackboneConfig> {
    let sizes = (option(1_usize..9), option(1_usize..9), option(1_usize..99), option(300_usize..2000));
    (sizes, any::<[bool; 5]>(), option(any::<bool>()), 0.0..0.9).prop_map(|(sizes, flags, biases, dropout)| {
        let usual = TinyGptModel::default();
        let model = TinyGptModel {
            layers: sizes.0.unwrap_or(usual.layers),
            heads: sizes.1.unwrap_or(usual.heads),
            d_model: sizes.1.map_or(usual.d_model, |heads| 8 * heads),
            d_ff: sizes.2.unwrap_or(usual.d_ff),
            context: sizes.3.map_or(usual.context, |context| context + 1000),
            norm: if flags[1] { NormKind::RmsNorm } else { usual.norm },
            tied_embeddings: biases.unwrap_or(usual.tied_embeddings),
            biases: biases.unwrap_or(usual.biases),
            dropout,
            init: if flags[2] { Init::Normal } else { usual.init },
            init_std: if flags[0] { 0.1 } else { usual.init_std },
            ..usual
        };
        let given = [
            ("layers", sizes.0.is_some()),
            ("heads", sizes.1.is_some()),
            ("d_model", sizes.1.is_some()),
            ("d_ff", sizes.2.is_some()),
            ("context", sizes.3.is_some()),
            ("norm", flags[1]),
            ("tied_embeddings", biases.is_some()),
            ("biases", biases.is_some()),
            ("dropout", true),
            ("init", flags[2]),
            ("init_std", flags[0]),
        ];
        let given = |key: &&'static str| given.contains(&(*key, true));
        BackboneConfig::TinyGpt(TinyGptConfig {
            freeze: flags[3],
            train_head: flags[4],
            model,
            given: TinyGptConfig::model_keys().into_iter().filter(given).collect(),
            ..TinyGptConfig::default()
        })
    })
}

proptest! {
    #[test]
    fn round_trip(
        task in tasks(),
        backbone in backbones(),
        train in training(),
        pretrain in option(training()),
        adapter in adapters(),
        seed in 0..=i64::MAX as u64,
        gpu_memory in option(0.5..100.0),
    ) {
        let pretrain = pretrain.map(|mut train| {
            if train.steps.is_none() && train.epochs.is_none() {
                train.steps = Some(5);
            }
            PretrainConfig { task: None, train }
        });
        let config = Config {
            name: "round-trip".into(),
            seed,
            device: "cpu".into(),
            gpu_memory,
            precision: Precision::F64,
            task,
            backbone,
            pretrain,
            forgetting: None,
            train,
            adapter,
        };
        // Keys of [train] left out of [pretrain] are inherited, so only the resolved form is a fixed point.
        let text = config.to_toml();
        let resolved = match Config::load(&text, "x.toml", &[]) {
            Ok((resolved, _)) => resolved,
            Err(error) => return Err(TestCaseError::fail(format!("{error}\n{text}"))),
        };
        let text = resolved.to_toml();
        let (again, _) = Config::load(&text, "y.toml", &[]).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(&again, &resolved, "{}", text);
        // Nothing that was given is lost on the way.
        for (given, read) in config.adapter.iter().zip(&resolved.adapter) {
            prop_assert_eq!((&given.name, &given.path, &given.truncate), (&read.name, &read.path, &read.truncate));
            prop_assert_eq!((given.reduce, given.hsv_regularization), (read.reduce, read.hsv_regularization));
            prop_assert_eq!((&given.probe, given.exactness), (&read.probe, read.exactness));
        }
        prop_assert_eq!((config.train.lr, config.gpu_memory), (resolved.train.lr, resolved.gpu_memory));
        prop_assert_eq!(config.task.sequence_length(), resolved.task.sequence_length());
    }
}
