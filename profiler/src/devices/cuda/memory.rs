//! Whether a session fits the device's memory, by what its sides took before.

use crate::device::Fault;
use elastico_core::{Outcome, WorkloadId};
use std::collections::BTreeMap;

/// Device memory of a context and its kernels, where it has not been measured yet: the context of a data centre GPU
/// takes some 500 MB, cuBLASLt's kernels as much again.
pub(super) const CONTEXT: f64 = 1e9;
/// Share of the memory that is left free: allocations are rounded up and fragment.
const HEADROOM: f64 = 0.01;
/// Memory that may stay taken after a session without being called a leak: drivers keep caches.
pub(super) const LEAK: f64 = 256e6;

/// What is known of memory.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Device memory that each workload took when it ran alone, its context included.
    peaks: BTreeMap<WorkloadId, f64>,
    /// Device memory in use by others before our first session.
    pub(super) baseline: Option<f64>,
}

impl Ledger {
    /// Notes what a workload took alone.
    pub(super) fn note(&mut self, workload: &WorkloadId, bytes: f64) {
        let peak = self.peaks.entry(workload.clone()).or_insert(0.0);
        *peak = peak.max(bytes);
    }

    /// What a workload will take: measured, or its buffers and a context.
    fn needs(&self, workload: &WorkloadId, footprint: f64) -> (f64, &'static str) {
        match self.peaks.get(workload) {
            Some(peak) => (*peak, "measured"),
            None => (footprint + CONTEXT, "planned"),
        }
    }

    /// Refuses sides, each with its planned bytes, that do not fit into `total` bytes together.
    pub(super) fn admit(&self, total: f64, sides: &[(&WorkloadId, f64)]) -> Result<(), Fault> {
        let room = total * (1.0 - HEADROOM) - self.baseline.unwrap_or(0.0);
        let needs: Vec<(f64, &str)> = sides.iter().map(|(id, bytes)| self.needs(id, *bytes)).collect();
        let sum: f64 = needs.iter().map(|(bytes, _)| bytes).sum();
        if sum <= room {
            return Ok(());
        }
        let parts: Vec<String> =
            needs.iter().map(|(bytes, how)| format!("{:.1} GB ({how})", bytes / 1e9)).collect();
        Err(Fault {
            outcome: Outcome::OomPredicted,
            detail: format!("{} do not fit into {:.1} GB that are free", parts.join(" and "), room / 1e9),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_peaks_replace_the_plan() {
        let (a, b) = (WorkloadId::new("a").unwrap(), WorkloadId::new("b").unwrap());
        let mut ledger = Ledger { baseline: Some(1e9), ..Ledger::default() };
        let admit = |ledger: &Ledger| ledger.admit(20e9, &[(&a, 8e9), (&b, 8e9)]);
        assert!(admit(&ledger).is_ok());
        ledger.note(&a, 10e9);
        ledger.note(&a, 9e9);
        let fault = admit(&ledger).unwrap_err();
        assert_eq!(fault.outcome, Outcome::OomPredicted);
        assert_eq!(
            fault.detail,
            "10.0 GB (measured) and 9.0 GB (planned) do not fit into 18.8 GB that are free"
        );
        ledger.note(&b, 8.1e9);
        assert!(admit(&ledger).is_ok());
    }
}
