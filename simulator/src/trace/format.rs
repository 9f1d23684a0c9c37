//! The formats there are.

use elastico_core::suggest;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// The formats that [`Trace::read`](crate::Trace::read) knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TraceFormat {
    /// Our own JSON, `elastico.trace/1`.
    Elastico,
    /// CSV of Tiresias, Muri, Chronus and ElasticFlow.
    Tiresias,
    /// Tab-separated lines of Gavel (7 or 10 columns) and Shockwave (12).
    Gavel,
    /// The `cluster_job_log` of Philly, JSON.
    Philly,
    /// The flattened CSV of Philly.
    PhillyFlat,
    /// Workload CSV of Pollux and Sia.
    Pollux,
    /// Pods of Alibaba's `openb` cluster.
    Openb,
    /// Requests of Azure's LLM inference traces.
    AzureLlm,
    /// Requests of Mooncake, JSON lines.
    Mooncake,
    /// Requests of BurstGPT.
    Burstgpt,
    /// Request lengths of Vidur, without times.
    Vidur,
    /// Any CSV, by a mapping of its columns.
    Mapped,
}

impl TraceFormat {
    /// Every format, in order of declaration.
    pub const ALL: [Self; 12] = [
        Self::Elastico,
        Self::Tiresias,
        Self::Gavel,
        Self::Philly,
        Self::PhillyFlat,
        Self::Pollux,
        Self::Openb,
        Self::AzureLlm,
        Self::Mooncake,
        Self::Burstgpt,
        Self::Vidur,
        Self::Mapped,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Elastico => "elastico",
            Self::Tiresias => "tiresias",
            Self::Gavel => "gavel",
            Self::Philly => "philly",
            Self::PhillyFlat => "philly-flat",
            Self::Pollux => "pollux",
            Self::Openb => "openb",
            Self::AzureLlm => "azure-llm",
            Self::Mooncake => "mooncake",
            Self::Burstgpt => "burstgpt",
            Self::Vidur => "vidur",
            Self::Mapped => "mapped",
        }
    }

    /// What it is, in a few words.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Elastico => "ElastiCo's own JSON",
            Self::Tiresias => "a job list of the Tiresias family (Tiresias, Muri, ElasticFlow)",
            Self::Gavel => "a trace of Gavel or Shockwave",
            Self::Philly => "Philly's cluster_job_log",
            Self::PhillyFlat => "the flat CSV of Philly",
            Self::Pollux => "a workload of Pollux or Sia",
            Self::Openb => "pods of Alibaba's openb cluster",
            Self::AzureLlm => "requests of Azure's LLM inference traces",
            Self::Mooncake => "requests of Mooncake",
            Self::Burstgpt => "requests of BurstGPT",
            Self::Vidur => "request lengths of Vidur",
            Self::Mapped => "a CSV with mapped columns",
        }
    }

    /// What a file of it needs beyond itself, if anything.
    pub const fn needs(self) -> Option<&'static str> {
        match self {
            Self::Gavel => Some("--throughputs, unless it has the durations of Shockwave"),
            Self::Pollux => Some("--profiles"),
            Self::AzureLlm | Self::Mooncake | Self::Burstgpt | Self::Vidur => {
                Some("--tokens-per-second or --token-table")
            }
            Self::Mapped => Some("--mapping"),
            _ => None,
        }
    }

    /// Columns by which a CSV is known to be of this format. All of them are needed by its reader.
    pub(super) const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Tiresias => &["job_id", "num_gpu", "submit_time", "model_name", "duration"],
            Self::PhillyFlat => &["timestamp", "duration", "num_gpus"],
            Self::Pollux => &["name", "time", "application", "num_replicas", "batch_size"],
            Self::Openb => &["name", "num_gpu", "gpu_milli"],
            Self::AzureLlm => &["TIMESTAMP", "ContextTokens", "GeneratedTokens"],
            Self::Burstgpt => &["Timestamp", "Request tokens", "Response tokens"],
            Self::Vidur => &["num_prefill_tokens", "num_decode_tokens"],
            Self::Elastico | Self::Gavel | Self::Philly | Self::Mooncake | Self::Mapped => &[],
        }
    }
}

impl fmt::Display for TraceFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for TraceFormat {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| {
            let near = suggest(text, Self::ALL.iter().map(|format| format.name()));
            let near = near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
            format!("there is no trace format `{text}`{near}")
        })
    }
}
