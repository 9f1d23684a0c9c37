//! From the journal to the dataset.
//!
//! The dataset is a function of `plan.jsonl` and `journal.jsonl`: rows stand in the order of the plan's cells and
//! repeats, whatever order they were measured in, and no time of day goes into them.
//!
//! **Slowdown.** `slowdown = partition effect x interference`. The interference is that of the trial, against its own
//! bracketing isolated runs. The partition effect is the bracketing isolated time at the side's share over the
//! campaign-wide median of the isolated trials at the full device. Where the share is 1 (`time_slice`, `streams`,
//! `mps(1,1)`) it is 1 *by definition*: dividing by trials from another time would add the drift between them and
//! nothing else.
//!
//! **Outcomes.** An otherwise good row of a cell whose interval stayed too wide is `inconclusive`. Pairs that were not
//! launched because they cannot fit are rows without numbers, `oom_predicted`. Attempts that a retry replaced are no
//! rows; the manifest counts them as exclusions.
//!
//! **Flags**, beside those of the protocol (`drift`, `low_overlap`, `throttled`, `not_steady`, `counters_failed`):
//! `null_pair`, `sentinel`, and `no_isolated_full` where the slowdown is null for want of an isolated trial.

use crate::Error;
use crate::observation::{Interval, Observation, SideMeasured};
use crate::plan::{Cell, Plan, Role, Skipped, WorkloadFacts};
use crate::run::{read_journal, read_plan};
use crate::schedule::{Results, State};
use elastico_core::{Outcome, Provenance, SharingMode, WorkloadId, median};
use elastico_datasets::{Dataset, IsolatedRow, PairRow, Table};
use std::collections::BTreeMap;
use std::path::Path;

/// Makes the dataset of a campaign's folder from its plan and journal, also while or after an interrupted run.
///
/// # Errors
/// [`Error::NoCampaign`], a damaged file, or [`Error::Dataset`].
pub fn assemble(folder: &Path) -> Result<Dataset, Error> {
    let plan = read_plan(folder)?;
    let content = read_journal(folder)?;
    let header = content
        .header
        .ok_or_else(|| Error::NoCampaign { folder: folder.to_owned(), missing: "the journal's header" })?;
    let mut results = Results::default();
    let mut by_cell: BTreeMap<&str, BTreeMap<u32, &Observation>> = BTreeMap::new();
    for observation in &content.observations {
        results.add(observation);
        by_cell.entry(&observation.cell).or_default().insert(observation.repeat, observation);
    }
    let full = isolated_full(&plan, &by_cell);
    let mut rows = Rows { plan: &plan, full, isolated: Vec::new(), pairs: Vec::new() };
    let mut replaced: BTreeMap<String, u64> = BTreeMap::new();
    for cell in &plan.cells {
        let state = results.final_state(&plan, &cell.id);
        for observation in
            by_cell.get(cell.id.as_str()).into_iter().flatten().map(|(_, observation)| *observation)
        {
            let outcome = match (observation.outcome, state, cell.role) {
                (Outcome::Ok, State::Inconclusive, Role::Isolated | Role::Pair | Role::Null) => {
                    Outcome::Inconclusive
                }
                (outcome, ..) => outcome,
            };
            let per_trial = if observation.co_runner.is_some() { 2 } else { 1 };
            let kept = kept_attempt(observation);
            for (_, attempt) in observation.attempts.iter().enumerate().filter(|(index, _)| *index != kept) {
                *replaced.entry(format!("attempt_{}", attempt.outcome)).or_default() += per_trial;
            }
            rows.add(cell, observation, outcome, kept);
        }
    }
    plan.skipped.iter().for_each(|skipped| rows.add_skipped(skipped));
    let provenance = Provenance {
        elastico_version: header.version,
        device_kind: header.device_kind,
        device: plan.header.device.clone(),
        seed: Some(plan.header.seed),
        source: format!("campaign {}", plan.header.name),
        source_digest: Some(plan.header.campaign.clone()),
        facts: header.facts,
    };
    Ok(Dataset::new(Table::isolated(&rows.isolated), Table::pairs(&rows.pairs), provenance, replaced)?)
}

/// Index of the attempt that the numbers are of: the last with times, or the last.
fn kept_attempt(observation: &Observation) -> usize {
    let timed = observation.attempts.iter().rposition(|attempt| attempt.outcome.has_times());
    timed.unwrap_or(observation.attempts.len().saturating_sub(1))
}

/// Campaign-wide median of the isolated step time at the full device, over good trials.
fn isolated_full(
    plan: &Plan,
    by_cell: &BTreeMap<&str, BTreeMap<u32, &Observation>>,
) -> BTreeMap<WorkloadId, f64> {
    plan.cells
        .iter()
        .filter(|cell| cell.role == Role::Isolated && cell.sharing == SharingMode::Exclusive)
        .filter_map(|cell| {
            let steps: Vec<f64> = by_cell
                .get(cell.id.as_str())?
                .values()
                .filter(|observation| observation.outcome == Outcome::Ok)
                .filter_map(|observation| Some(observation.measured.as_ref()?.subject.isolated.point))
                .collect();
            (!steps.is_empty()).then(|| (cell.subject.clone(), median(&steps)))
        })
        .collect()
}

struct Rows<'a> {
    plan: &'a Plan,
    full: BTreeMap<WorkloadId, f64>,
    isolated: Vec<IsolatedRow>,
    pairs: Vec<PairRow>,
}

impl Rows<'_> {
    fn add(&mut self, cell: &Cell, observation: &Observation, outcome: Outcome, kept: usize) {
        let mut flags = observation.flags.clone();
        match cell.role {
            Role::Null => flags.push("null_pair".to_owned()),
            Role::Sentinel => flags.push("sentinel".to_owned()),
            Role::Isolated | Role::Pair => {}
        }
        match &observation.co_runner {
            None => self.isolated.push(self.isolated_row(observation, outcome, &flags)),
            Some(co_runner) => {
                let requested = &observation.sharing;
                let effective = observation.effective.as_ref().unwrap_or(requested);
                for (side, subject, other) in
                    [("a", &observation.subject, co_runner), ("b", co_runner, &observation.subject)]
                {
                    let turn = |mode: &SharingMode| if side == "a" { mode.clone() } else { mode.swapped() };
                    let mut row = self.pair_row(side, subject, other, &turn(requested), &turn(effective));
                    let mut flags = flags.clone();
                    row.trial_id = observation.trial.to_string();
                    row.repeat_total = f64::from(observation.repeat);
                    row.attempt_total = kept as f64;
                    if let Some(measured) = &observation.measured {
                        let numbers =
                            if side == "a" { Some(&measured.subject) } else { measured.co_runner.as_ref() };
                        if let Some(numbers) = numbers {
                            fill(&mut row, numbers, &mut flags);
                        }
                        row.overlap_ratio = or_null(measured.overlap);
                        row.drift_ratio = or_null(measured.drift);
                        row.clock_hertz = or_null(measured.telemetry.clock);
                        row.power_watts = or_null(measured.telemetry.power);
                        let telemetry = &measured.telemetry;
                        row.throttled_ratio = or_null(telemetry.throttled);
                        row.memory_clock_hertz = or_null(telemetry.memory_clock);
                        row.temperature_celsius = or_null(telemetry.temperature);
                        row.memory_temperature_celsius = or_null(telemetry.memory_temperature);
                        row.power_capped_ratio = or_null(telemetry.power_capped);
                    }
                    if let Some(reported) = &observation.reported {
                        let place = usize::from(side == "b");
                        row.multiprocessors_total = or_null(reported.multiprocessors[place].map(f64::from));
                        row.memory_peak_bytes = or_null(reported.memory_peak[place]);
                        row.telemetry_status = reported.telemetry_status.as_deref().map(plain);
                        row.counters_status = Some(plain(&observation.counters_status));
                    }
                    let counter = |name: &str| or_null(observation.counters.get(name).copied());
                    row.corun_sm_active_ratio = counter("sm_active_ratio");
                    row.corun_dram_throughput_ratio = counter("dram_throughput_ratio");
                    row.corun_l2_hit_ratio = counter("l2_hit_ratio");
                    row.outcome = outcome.to_string();
                    if outcome == Outcome::Ok && row.slowdown_ratio.is_nan() {
                        // A good row has a label; without its reference it is none.
                        row.outcome = Outcome::Inconclusive.to_string();
                    }
                    row.flags = joined(&flags);
                    self.pairs.push(row);
                }
            }
        }
    }

    fn add_skipped(&mut self, skipped: &Skipped) {
        let Some(co_runner) = &skipped.co_runner else { return };
        for (side, subject, other) in [("a", &skipped.subject, co_runner), ("b", co_runner, &skipped.subject)]
        {
            let mode = if side == "a" { skipped.sharing.clone() } else { skipped.sharing.swapped() };
            let mut row = self.pair_row(side, subject, other, &mode, &mode);
            row.trial_id = format!("skipped {} + {co_runner} {}", skipped.subject, skipped.sharing);
            row.trial_id.truncate(200);
            row.outcome = skipped.outcome.to_string();
            self.pairs.push(row);
        }
    }

    fn facts(&self, id: &WorkloadId) -> Option<&WorkloadFacts> {
        self.plan.workload(id)
    }

    fn isolated_row(&self, observation: &Observation, outcome: Outcome, flags: &[String]) -> IsolatedRow {
        let header = &self.plan.header;
        let effective = observation.effective.as_ref().unwrap_or(&observation.sharing);
        let mut row = IsolatedRow {
            trial_id: observation.trial.to_string(),
            workload: observation.subject.to_string(),
            device_kind: header.device_kind.to_string(),
            device: header.model.clone(),
            source: header.campaign.to_string(),
            share_ratio: effective.shares().0,
            repeat_total: f64::from(observation.repeat),
            counters_status: plain(&observation.counters_status),
            outcome: outcome.to_string(),
            flags: joined(flags),
            ..IsolatedRow::default()
        };
        if let Some(facts) = self.facts(&observation.subject) {
            row.family = facts.family.to_string();
            row.kind = facts.kind.to_string();
            // Of a user's program nothing is known but its names.
            if !facts.is_opaque {
                row.batch_total = facts.batch as f64;
                row.step_tensor_flops_total = facts.tensor_flops;
                row.step_fp32_flops_total = facts.fp32_flops;
                row.step_fp64_flops_total = facts.fp64_flops;
                row.step_l2_bytes = facts.l2_bytes;
                row.step_dram_bytes = facts.dram_bytes;
                row.step_copy_bytes = facts.copy_bytes;
                row.step_launches_total = facts.launches as f64;
                row.step_host_seconds = facts.host_seconds;
                row.working_set_bytes = facts.working_set;
                row.footprint_bytes = facts.footprint;
            }
        }
        if let Some(measured) = &observation.measured {
            let Interval { point, lower, upper } = measured.subject.isolated;
            row.step_seconds = point;
            row.step_lower_seconds = or_null(lower);
            row.step_upper_seconds = or_null(upper);
            row.steps_total = f64::from(measured.subject.steps);
            row.clock_hertz = or_null(measured.telemetry.clock);
            let telemetry = &measured.telemetry;
            row.power_watts = or_null(telemetry.power);
            row.memory_clock_hertz = or_null(telemetry.memory_clock);
            row.temperature_celsius = or_null(telemetry.temperature);
            row.memory_temperature_celsius = or_null(telemetry.memory_temperature);
            row.power_capped_ratio = or_null(telemetry.power_capped);
            // Simulated and CPU rows keep the columns that they had.
            row.throttled_ratio = or_null(telemetry.throttled.filter(|_| observation.reported.is_some()));
        }
        if let Some(reported) = &observation.reported {
            row.multiprocessors_total = or_null(reported.multiprocessors[0].map(f64::from));
            row.memory_peak_bytes = or_null(reported.memory_peak[0]);
            row.telemetry_status = reported.telemetry_status.as_deref().map(plain);
        }
        let counter = |name: &str| or_null(observation.counters.get(name).copied());
        row.kernel_active_ratio = counter("kernel_active_ratio");
        row.sm_active_ratio = counter("sm_active_ratio");
        row.sm_occupancy_ratio = counter("sm_occupancy_ratio");
        row.tensor_active_ratio = counter("tensor_active_ratio");
        row.fp32_active_ratio = counter("fp32_active_ratio");
        row.fp64_active_ratio = counter("fp64_active_ratio");
        row.l2_throughput_ratio = counter("l2_throughput_ratio");
        row.l2_hit_ratio = counter("l2_hit_ratio");
        row.dram_throughput_ratio = counter("dram_throughput_ratio");
        row.copy_active_ratio = counter("copy_active_ratio");
        row.launch_rate_hertz = counter("launch_rate_hertz");
        row
    }

    /// Names and shares of one side, without numbers.
    fn pair_row(
        &self,
        side: &str,
        subject: &WorkloadId,
        co_runner: &WorkloadId,
        requested: &SharingMode,
        effective: &SharingMode,
    ) -> PairRow {
        let header = &self.plan.header;
        let shares = effective.shares();
        let mut row = PairRow {
            pair_id: elastico_datasets::pair_id(
                subject.as_str(),
                co_runner.as_str(),
                &header.model,
                requested,
            ),
            side: side.to_owned(),
            subject_workload: subject.to_string(),
            co_runner_workload: co_runner.to_string(),
            device_kind: header.device_kind.to_string(),
            device: header.model.clone(),
            source: header.campaign.to_string(),
            sharing: effective.to_string(),
            sharing_requested: requested.to_string(),
            subject_share_ratio: shares.0,
            co_runner_share_ratio: shares.1,
            isolated_full_step_seconds: or_null(self.full.get(subject).copied()),
            ..PairRow::default()
        };
        if let Some(facts) = self.facts(subject) {
            row.subject_family = facts.family.to_string();
            row.subject_kind = facts.kind.to_string();
        }
        if let Some(facts) = self.facts(co_runner) {
            row.co_runner_family = facts.family.to_string();
            row.co_runner_kind = facts.kind.to_string();
        }
        row
    }
}

/// The numbers of one side, and the label.
fn fill(row: &mut PairRow, numbers: &SideMeasured, flags: &mut Vec<String>) {
    row.isolated_step_seconds = numbers.isolated.point;
    row.colocated_step_seconds = or_null(numbers.colocated);
    row.steps_total = f64::from(numbers.steps);
    row.blocks_total = f64::from(numbers.blocks);
    let is_whole = row.subject_share_ratio >= 1.0;
    row.partition_effect_ratio =
        if is_whole { 1.0 } else { numbers.isolated.point / row.isolated_full_step_seconds };
    if row.partition_effect_ratio.is_nan() {
        flags.push("no_isolated_full".to_owned());
    }
    if let Some(interference) = numbers.interference {
        row.interference_ratio = interference.point;
        row.slowdown_ratio = interference.point * row.partition_effect_ratio;
        row.slowdown_lower_ratio = or_null(interference.lower) * row.partition_effect_ratio;
        row.slowdown_upper_ratio = or_null(interference.upper) * row.partition_effect_ratio;
    }
}

fn or_null(value: Option<f64>) -> f64 {
    value.unwrap_or(f64::NAN)
}

fn joined(flags: &[String]) -> Option<String> {
    (!flags.is_empty()).then(|| flags.join(";"))
}

/// A reason that fits a column: one line of at most 200 bytes.
fn plain(text: &str) -> String {
    let mut plain: String =
        text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let mut end = plain.len().min(200);
    while !plain.is_char_boundary(end) {
        end -= 1;
    }
    plain.truncate(end);
    plain
}
