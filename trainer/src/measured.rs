//! What was measured already.

use crate::Error;
use elastico_core::{Outcome, SharingMode, WorkloadId};
use elastico_datasets::Dataset;
use std::collections::{BTreeMap, BTreeSet};

/// Pairs that were tried on a device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Measured {
    pairs: BTreeSet<(WorkloadId, WorkloadId, SharingMode)>,
}

impl Measured {
    /// The pairs of a dataset that have times on this device, or that cannot run on it: another run would teach
    /// nothing new. Trials that crashed or timed out may be proposed again.
    ///
    /// # Errors
    /// [`Error::Cell`] for a row without workloads, or with a sharing mode that does not exist.
    pub fn of(dataset: &Dataset, device: &str) -> Result<Self, Error> {
        let table = &dataset.pairs;
        let (subject, co_runner) = (table.text("subject_workload")?, table.text("co_runner_workload")?);
        let (on, sharing, outcome) = (table.text("device")?, table.text("sharing")?, table.text("outcome")?);
        let mut seen = BTreeSet::new();
        let mut measured = Self::default();
        for row in (0..table.rows()).filter(|row| on.get(*row) == Some(device)) {
            // Rows repeat: each combination of words is read once.
            let codes = [subject, co_runner, sharing, outcome].map(|column| column.code(row));
            if !seen.insert(codes) {
                continue;
            }
            let outcome: Option<Outcome> = outcome.get(row).and_then(|text| text.parse().ok());
            let is_final = |outcome: Outcome| {
                outcome.has_times()
                    || matches!(outcome, Outcome::Oom | Outcome::OomPredicted | Outcome::Unsupported)
            };
            if !outcome.is_some_and(is_final) {
                continue;
            }
            let cell = |column: &'static str, text: Option<&str>| Error::Cell {
                table: "pairs",
                row,
                column,
                found: text.map_or("nothing".to_owned(), |text| format!("`{text}`")),
            };
            let id = |column: &'static str, text: Option<&str>| {
                text.and_then(|text| WorkloadId::new(text).ok()).ok_or_else(|| cell(column, text))
            };
            let mode = sharing.get(row).and_then(|text| text.parse().ok());
            measured.insert(
                id("subject_workload", subject.get(row))?,
                id("co_runner_workload", co_runner.get(row))?,
                mode.ok_or_else(|| cell("sharing", sharing.get(row)))?,
            );
        }
        Ok(measured)
    }

    /// Adds a pair, seen from either side.
    pub fn insert(&mut self, subject: WorkloadId, co_runner: WorkloadId, sharing: SharingMode) {
        self.pairs.insert(from_one_side(subject, co_runner, sharing));
    }

    /// Whether the pair was tried, seen from either side.
    pub fn contains(&self, subject: &WorkloadId, co_runner: &WorkloadId, sharing: &SharingMode) -> bool {
        self.pairs.contains(&from_one_side(subject.clone(), co_runner.clone(), sharing.clone()))
    }

    /// How many pairs each workload was tried in, whatever the mode.
    pub(crate) fn partners(&self) -> BTreeMap<WorkloadId, u32> {
        let mut partners = BTreeMap::new();
        let pairs: BTreeSet<[&WorkloadId; 2]> = self
            .pairs
            .iter()
            .map(|(subject, co_runner, _)| [subject.min(co_runner), subject.max(co_runner)])
            .collect();
        for workload in pairs.into_iter().flatten() {
            *partners.entry(workload.clone()).or_default() += 1;
        }
        partners
    }

    /// How many pairs and modes there are.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether nothing was tried.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}

/// The lesser id first, so that a pair is the same from both sides.
fn from_one_side(
    subject: WorkloadId,
    co_runner: WorkloadId,
    sharing: SharingMode,
) -> (WorkloadId, WorkloadId, SharingMode) {
    let swapped = sharing.swapped();
    if (&subject, &sharing) <= (&co_runner, &swapped) {
        (subject, co_runner, sharing)
    } else {
        (co_runner, subject, swapped)
    }
}
