//! What the data sets differ in: prompts, fields, metrics.

use crate::metrics::TextMetric;

/// A data set's format: `task.kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum TextFormat {
    /// QuALITY: articles with multiple-choice questions.
    Quality,
    /// QMSum: meetings with queries.
    #[value(name = "qmsum")]
    QmSum,
    /// NarrativeQA: stories with questions.
    #[value(name = "narrativeqa")]
    NarrativeQa,
    /// LongBench: contexts with inputs, prompt and metric by data set.
    #[value(name = "longbench")]
    LongBench,
    /// One's own prompts and completions, or conversations.
    #[default]
    Jsonl,
    /// Pairs of answers, one preferred, for direct preference optimization.
    Dpo,
}

impl TextFormat {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Quality, Self::QmSum, Self::NarrativeQa, Self::LongBench, Self::Jsonl, Self::Dpo];

    /// Whether its records are one's own, with whatever fields or messages they have.
    pub const fn is_own(self) -> bool {
        matches!(self, Self::Jsonl | Self::Dpo)
    }

    /// The name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quality => "quality",
            Self::QmSum => "qmsum",
            Self::NarrativeQa => "narrativeqa",
            Self::LongBench => "longbench",
            Self::Jsonl => "jsonl",
            Self::Dpo => "dpo",
        }
    }

    /// The default prompt: those of the released code; LongBench has one for each data set.
    pub const fn prompt(self) -> Option<&'static str> {
        match self {
            Self::Quality => Some("Article:\n{article}\n\nQuestion: {question}\n{options}\nAnswer:"),
            Self::QmSum => Some("Meeting transcript:\n{query}\n\n{transcript}\n\nSummary:"),
            Self::NarrativeQa => Some("Document:\n{text}\n\nQuestion: {question}\nAnswer:"),
            Self::LongBench => None,
            Self::Jsonl | Self::Dpo => Some("{prompt}"),
        }
    }

    /// The default answer.
    pub const fn answer(self) -> &'static str {
        match self {
            Self::Jsonl => "{completion}",
            Self::Dpo => "{chosen}",
            _ => " {answer}",
        }
    }

    /// What a prompt may name, the document first; `None` when each line has fields of its own.
    pub const fn prompt_fields(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Quality => Some(&["article", "question", "options", "title"]),
            Self::QmSum => Some(&["transcript", "query", "kind"]),
            Self::NarrativeQa => Some(&["text", "question", "title"]),
            Self::LongBench => Some(&["context", "input", "dataset"]),
            Self::Dpo => Some(&["prompt", "system"]),
            Self::Jsonl => None,
        }
    }

    /// What an answer may name.
    pub const fn answer_fields(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Quality => Some(&["answer", "answer_text"]),
            Self::Dpo => Some(&["chosen"]),
            Self::Jsonl => None,
            _ => Some(&["answer"]),
        }
    }

    /// The default repetition penalty: the released one for the data sets of the paper.
    pub const fn repetition_penalty(self) -> f64 {
        match self {
            Self::Quality | Self::QmSum | Self::NarrativeQa => 1.3,
            Self::LongBench | Self::Jsonl | Self::Dpo => 1.0,
        }
    }

    /// Metrics of generated answers, besides the accuracy of choices.
    pub const fn metrics(self) -> &'static [TextMetric] {
        match self {
            Self::Quality | Self::LongBench | Self::Dpo => &[],
            Self::QmSum => &[
                TextMetric::Rouge1,
                TextMetric::Rouge2,
                TextMetric::RougeL,
                TextMetric::LongBenchRougeL,
                TextMetric::ReleasedRouge1Recall,
                TextMetric::ReleasedRouge2Recall,
            ],
            Self::NarrativeQa => &[TextMetric::TokenF1, TextMetric::ExactMatch, TextMetric::RougeL],
            Self::Jsonl => &[TextMetric::ExactMatch, TextMetric::TokenF1, TextMetric::RougeL],
        }
    }
}
