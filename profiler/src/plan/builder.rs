//! Builds the cells of a plan.

use super::{Cell, PlanHeader, Role, SCHEMA, Skipped, WorkloadFacts};
use crate::Error;
use elastico_core::{DeviceKind, Digest, Outcome, SharingMode, WorkloadId, chip};
use elastico_workloads::Catalogue;
use std::collections::BTreeMap;

/// A share in whole percent, as MPS takes it.
pub(super) fn percent(share: f64) -> u8 {
    (share * 100.0).round().clamp(1.0, 100.0) as u8
}

/// Cells, and what could not be one, as they are found.
pub(super) struct Builder<'a> {
    pub(super) catalogue: &'a Catalogue,
    pub(super) header: &'a PlanHeader,
    pub(super) sized_as: DeviceKind,
    pub(super) memory: f64,
    pub(super) workloads: BTreeMap<WorkloadId, WorkloadFacts>,
    pub(super) cells: BTreeMap<String, Cell>,
    pub(super) skipped: Vec<Skipped>,
    /// The wave of the cells that are added next.
    pub(super) wave: u32,
}

impl Builder<'_> {
    fn facts(&mut self, id: &WorkloadId) -> Result<WorkloadFacts, Error> {
        if let Some(known) = self.workloads.get(id) {
            return Ok(known.clone());
        }
        let benchmark = self.catalogue.get(id.as_str()).map_err(|source| Error::Workload {
            file: std::path::PathBuf::new(),
            line: 0,
            pattern: id.to_string(),
            source: Box::new(source),
        })?;
        Ok(WorkloadFacts::of(benchmark, self.sized_as))
    }

    /// Adds a cell; of two sides the one with the lesser id is the subject, so that each pair is measured once.
    pub(super) fn pair(
        &mut self,
        a: &WorkloadId,
        b: &WorkloadId,
        sharing: &SharingMode,
        role: Role,
    ) -> Result<(), Error> {
        let (subject, co_runner, sharing) =
            if a <= b { (a, b, sharing.clone()) } else { (b, a, sharing.swapped()) };
        let (first, second) = (self.facts(subject)?, self.facts(co_runner)?);
        let footprint = first.footprint + second.footprint;
        if footprint > self.memory {
            let skipped = Skipped {
                subject: subject.clone(),
                co_runner: Some(co_runner.clone()),
                sharing,
                outcome: Outcome::OomPredicted,
                reason: format!(
                    "the footprints of {:.1} GB and {:.1} GB exceed the memory of {:.1} GB",
                    first.footprint / 1e9,
                    second.footprint / 1e9,
                    self.memory / 1e9
                ),
            };
            if !self.skipped.contains(&skipped) {
                self.skipped.push(skipped);
            }
            return Ok(());
        }
        let seconds = self.estimate(&[&first, &second]);
        self.workloads.insert(subject.clone(), first);
        self.workloads.insert(co_runner.clone(), second);
        self.add(role, subject, Some(co_runner), sharing, seconds);
        Ok(())
    }

    /// The first wave in which a workload takes part.
    pub(super) fn wave_of(&self, workload: &WorkloadId) -> u32 {
        let takes_part =
            |cell: &&Cell| cell.subject == *workload || cell.co_runner.as_ref() == Some(workload);
        self.cells.values().filter(takes_part).map(|cell| cell.wave).min().unwrap_or(0)
    }

    pub(super) fn isolated(&mut self, workload: &WorkloadId, percent: u8) -> Result<(), Error> {
        let facts = self.facts(workload)?;
        let sharing = if percent == 100 {
            SharingMode::Exclusive
        } else {
            SharingMode::Mps { subject_percent: percent, co_runner_percent: 100 }
        };
        let seconds = self.estimate(&[&facts]);
        self.add(Role::Isolated, workload, None, sharing, seconds);
        Ok(())
    }

    fn add(
        &mut self,
        role: Role,
        subject: &WorkloadId,
        co_runner: Option<&WorkloadId>,
        sharing: SharingMode,
        seconds: f64,
    ) {
        let protocol = serde_json::to_string(&self.header.protocol).expect("settings are plain data");
        // Two GPUs of one model are two devices: their trials must not be taken for repeats of each other.
        let device =
            if self.header.device_kind == DeviceKind::Cuda { self.header.device.as_str() } else { "" };
        let configuration = [
            SCHEMA,
            if role == Role::Sentinel { "sentinel" } else { "cell" },
            &self.header.model,
            self.header.device_kind.as_str(),
            &self.header.seed.0.to_string(),
            &protocol,
            subject.as_str(),
            co_runner.map_or("", WorkloadId::as_str),
            &sharing.to_string(),
        ];
        let configuration = configuration.into_iter().chain(Some(device).filter(|device| !device.is_empty()));
        let id = Digest::of(configuration).as_str()[..16].to_owned();
        let cell = Cell {
            id: id.clone(),
            role,
            subject: subject.clone(),
            co_runner: co_runner.cloned(),
            sharing,
            seconds,
            wave: self.wave,
        };
        self.cells.entry(id).or_insert(cell);
    }

    /// Windows of the protocol with a roofline guess of the step time; for progress and dry runs only.
    fn estimate(&self, sides: &[&WorkloadFacts]) -> f64 {
        let step = |facts: &WorkloadFacts| match chip(&self.header.model) {
            Some(chip) if self.sized_as != DeviceKind::Cpu => {
                let tensor = chip.half.unwrap_or(chip.fp32).get();
                let busy = (facts.tensor_flops / tensor)
                    .max(facts.fp32_flops / chip.fp32.get())
                    .max(facts.fp64_flops / chip.fp64.get())
                    .max(facts.dram_bytes / chip.dram_bandwidth.get())
                    .max(facts.copy_bytes / chip.link_bandwidth.get());
                1.5 * busy + facts.host_seconds + 3e-6 * facts.launches as f64
            }
            _ => 0.02,
        };
        let protocol = &self.header.protocol;
        // Three digits are more than the guess is worth, and survive decimal text exactly.
        let rounded = |seconds: f64| format!("{seconds:.2e}").parse().unwrap_or(seconds);
        let slowest = sides.iter().map(|facts| step(facts)).fold(1e-4, f64::max);
        let window = |step: f64| {
            (f64::from(protocol.min_steps + protocol.settle_steps) * step)
                .max(protocol.min_seconds)
                .min(protocol.max_seconds)
        };
        let soak = (f64::from(protocol.soak_windows) * protocol.soak_window_seconds.max(4.0 * slowest))
            .min(protocol.soak_seconds);
        match sides {
            [first, second] => {
                rounded(soak + 2.0 * (window(step(first)) + window(step(second))) + window(1.6 * slowest))
            }
            _ => rounded(soak + 2.0 * window(slowest)),
        }
    }
}
