//! A small dataset whose slowdown follows from the load, so that tests know what can be learnt.

use elastico_core::{DeviceKind, Provenance, Seed};
use elastico_datasets::{Dataset, IsolatedRow, PairRow, Table};
use rand::RngExt as _;
use std::collections::BTreeMap;

/// What to make.
pub(crate) struct MadeUp {
    pub(crate) families: usize,
    pub(crate) variants: usize,
    pub(crate) repeats: usize,
    pub(crate) device_kind: DeviceKind,
    pub(crate) counters: bool,
    /// Slowdown from both loads.
    pub(crate) law: fn(f64, f64) -> f64,
}

impl Default for MadeUp {
    fn default() -> Self {
        Self {
            families: 10,
            variants: 2,
            repeats: 2,
            device_kind: DeviceKind::Simulated,
            counters: true,
            law: |subject, co_runner| (subject + co_runner).max(1.0),
        }
    }
}

impl MadeUp {
    pub(crate) fn rows(&self) -> (Vec<IsolatedRow>, Vec<PairRow>) {
        let mut stream = Seed(11).stream("made up", &[]);
        let kind = self.device_kind.as_str().to_owned();
        let workloads: Vec<(String, String, f64)> = (0..self.families * self.variants)
            .map(|index| {
                let family = format!("family_{:02}", index / self.variants);
                (format!("{family}.v{}", index % self.variants), family, 0.2 + 0.7 * stream.random::<f64>())
            })
            .collect();
        let mut isolated = Vec::new();
        for (workload, family, load) in &workloads {
            for (share, factor) in [(1.0, 1.0), (0.5, 1.4)] {
                isolated.push(IsolatedRow {
                    trial_id: format!("alone {workload} {share}"),
                    workload: workload.clone(),
                    family: family.clone(),
                    kind: "training".into(),
                    device_kind: kind.clone(),
                    device: "h100".into(),
                    source: "made up".into(),
                    share_ratio: share,
                    step_seconds: 0.01 / load * factor,
                    batch_total: 8.0,
                    sm_active_ratio: if self.counters { *load } else { f64::NAN },
                    dram_throughput_ratio: if self.counters { 0.5 * load * load } else { f64::NAN },
                    counters_status: if self.counters { "ok" } else { "none" }.into(),
                    outcome: "ok".into(),
                    ..IsolatedRow::default()
                });
            }
        }
        let mut pairs = Vec::new();
        for (first, a) in workloads.iter().enumerate() {
            for b in &workloads[first..] {
                for repeat in 0..self.repeats {
                    for (side, subject, co_runner) in [("a", a, b), ("b", b, a)] {
                        let noise = 1.0 + 0.01 * (stream.random::<f64>() - 0.5);
                        let slowdown = (self.law)(subject.2, co_runner.2) * noise;
                        pairs.push(PairRow {
                            pair_id: format!("{} | {}", a.0, b.0),
                            trial_id: format!("{} | {} {repeat}", a.0, b.0),
                            repeat_total: repeat as f64,
                            side: side.into(),
                            subject_workload: subject.0.clone(),
                            subject_family: subject.1.clone(),
                            subject_kind: "training".into(),
                            co_runner_workload: co_runner.0.clone(),
                            co_runner_family: co_runner.1.clone(),
                            co_runner_kind: "training".into(),
                            device_kind: kind.clone(),
                            device: "h100".into(),
                            source: "made up".into(),
                            sharing: "time_slice".into(),
                            sharing_requested: "time_slice".into(),
                            subject_share_ratio: 1.0,
                            co_runner_share_ratio: 1.0,
                            slowdown_ratio: slowdown,
                            slowdown_lower_ratio: slowdown * 0.99,
                            slowdown_upper_ratio: slowdown * if side == "a" { 1.01 } else { 1.03 },
                            outcome: "ok".into(),
                            ..PairRow::default()
                        });
                    }
                }
            }
        }
        (isolated, pairs)
    }

    pub(crate) fn dataset(&self) -> Dataset {
        let (isolated, pairs) = self.rows();
        assemble(&isolated, &pairs)
    }
}

pub(crate) fn assemble(isolated: &[IsolatedRow], pairs: &[PairRow]) -> Dataset {
    let provenance = Provenance {
        elastico_version: "0.0.0".into(),
        device_kind: DeviceKind::Simulated,
        device: "sim:h100".into(),
        seed: Some(Seed(11)),
        source: "made up".into(),
        source_digest: None,
        facts: BTreeMap::new(),
    };
    Dataset::new(Table::isolated(isolated), Table::pairs(pairs), provenance, BTreeMap::new()).unwrap()
}
