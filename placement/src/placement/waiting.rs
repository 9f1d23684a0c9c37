//! A job that waits, and why. The sentence is made when it is read: of a long queue nobody reads all.

use super::{Entry, WaitReason};
use elastico_core::JobId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One job that waits.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Record", into = "Record")]
#[schemars(with = "Record")]
pub struct Waiting {
    /// The job.
    pub job: JobId,
    /// Why.
    pub reason: WaitReason,
    /// When it would enter; absent where it has no shape.
    pub entry: Option<Entry>,
    /// Whether it runs now, so that it must be stopped for this placement.
    pub stops: bool,
    said: Said,
}

/// What is said of a job that has GPUs now and none in the placement.
pub(crate) const STOPS: &str = "it runs now and must stop";

/// What there is to say beyond the entry.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Text(String),
    /// The job has no weight.
    Worthless,
    /// Its best shape costs more than it is worth.
    PricedOut,
    /// So many GPUs are free, and not as it needs them.
    Torn {
        free: f64,
    },
    /// It is worth its price, as are those that run.
    Tie,
    /// It is worth more than its price, and comes while nobody is moved.
    NoRoom,
}

/// The job as files have it.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Waiting")]
pub(super) struct Record {
    /// The job.
    #[schemars(with = "String")]
    job: JobId,
    /// Why.
    reason: WaitReason,
    /// The same in words, with numbers.
    detail: String,
    /// When it would enter; absent where it has no shape.
    entry: Option<Entry>,
    /// Whether it runs now, so that it must be stopped for this placement; `false` for a job that waited.
    #[serde(default)]
    stops: bool,
}

impl From<Record> for Waiting {
    fn from(record: Record) -> Self {
        let Record { job, reason, detail, entry, stops } = record;
        Self { job, reason, entry, stops, said: Said::Text(detail) }
    }
}

impl From<Waiting> for Record {
    fn from(waiting: Waiting) -> Self {
        let detail = waiting.detail();
        let Waiting { job, reason, entry, stops, .. } = waiting;
        Self { job, reason, detail, entry, stops }
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.job == other.job
            && self.reason == other.reason
            && self.entry == other.entry
            && self.stops == other.stops
            && self.detail() == other.detail()
    }
}

impl Waiting {
    /// As it is for a job that comes: a whole solution would make room for one that is worth its price.
    pub(crate) fn arriving(mut self) -> Self {
        if self.reason == WaitReason::Tie {
            (self.reason, self.said) = (WaitReason::NoRoom, Said::NoRoom);
        }
        self
    }

    /// Why a job waits; a sentence that is given whole says by itself that the job must stop.
    pub(crate) const fn new(
        job: JobId,
        reason: WaitReason,
        said: Said,
        entry: Option<Entry>,
        stops: bool,
    ) -> Self {
        Self { job, reason, entry, stops, said }
    }

    /// The reason in words, with numbers; for a job that runs now also that it must stop.
    pub fn detail(&self) -> String {
        let why = self.why();
        if self.stops && !matches!(self.said, Said::Text(_)) { format!("{why}; {STOPS}") } else { why }
    }

    fn why(&self) -> String {
        let Some(entry) = &self.entry else {
            return match &self.said {
                Said::Text(text) => text.clone(),
                _ => self.reason.as_str().to_owned(),
            };
        };
        match &self.said {
            Said::Text(text) => text.clone(),
            Said::Worthless => "its weight is 0".to_owned(),
            Said::PricedOut => format!(
                "its best shape, {} GPU{} of {}, is worth {:.3} and costs {:.3}; alone it enters when a GPU costs {:.3} instead of {:.3}",
                entry.gpus,
                if entry.gpus == 1 { "" } else { "s" },
                entry.pool,
                entry.value,
                entry.price,
                entry.entry_slot_price,
                entry.slot_price
            ),
            Said::Torn { free } => {
                format!("{free:.0} GPUs of {} are free, but not as its shape needs them on nodes", entry.pool)
            }
            Said::Tie => format!(
                "worth {:.3} at a price of {:.3}; no placement of whole jobs was found that runs it and is worth more",
                entry.value, entry.price
            ),
            Said::NoRoom => format!(
                "worth {:.3} at a price of {:.3}, but no place for it is free; a job that comes moves nobody, `solve` may",
                entry.value, entry.price
            ),
        }
    }
}
