//! From a campaign to cells and trials: what will be measured, in which order, what is left out and why.

mod builder;
mod commands;

use crate::campaign::Campaign;
use crate::device::DeviceIdentity;
use crate::protocol::Protocol;
use crate::{Error, sampling};
use builder::{Builder, percent};
use elastico_core::{
    DeviceKind, Digest, FamilyId, Outcome, Seed, SharingMode, TrialId, WorkloadId, WorkloadKind,
};
use elastico_workloads::{Benchmark, Catalogue, Demand, StepProgram};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Version of the plan and journal formats; part of every trial id.
const SCHEMA: &str = "elastico.plan/1";

/// Everything that a campaign will measure on one device.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Facts of the campaign and device.
    pub header: PlanHeader,
    /// The workloads that take part, sorted by id.
    pub workloads: Vec<WorkloadFacts>,
    /// What is measured, isolated cells first.
    pub cells: Vec<Cell>,
    /// What is not, and why.
    pub skipped: Vec<Skipped>,
}

/// The first line of `plan.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanHeader {
    /// `elastico.plan/1`.
    pub schema: String,
    /// Name of the campaign.
    pub name: String,
    /// Digest of the campaign.
    pub campaign: Digest,
    /// The campaign's seed.
    pub seed: Seed,
    /// The device as the user named it.
    pub device: String,
    /// Its model, for example `h100`.
    pub model: String,
    /// What kind of numbers it yields.
    pub device_kind: DeviceKind,
    /// Settings of the protocol.
    pub protocol: Protocol,
    /// Least repeats, most repeats.
    pub repeats: (u32, u32),
    /// Half-width that ends a cell.
    pub half_width: f64,
    /// Level of intervals.
    pub level: f64,
}

/// What a dataset says about a workload beside its times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadFacts {
    /// Its id.
    pub id: WorkloadId,
    /// Its family.
    pub family: FamilyId,
    /// Its kind.
    pub kind: WorkloadKind,
    /// Items per step.
    pub batch: u64,
    /// Operations on the tensor pipe per step.
    pub tensor_flops: f64,
    /// Operations on the FMA pipe per step.
    pub fp32_flops: f64,
    /// Operations on the FP64 pipe per step.
    pub fp64_flops: f64,
    /// Bytes through L2 per step.
    pub l2_bytes: f64,
    /// Compulsory DRAM bytes per step, read and written.
    pub dram_bytes: f64,
    /// Bytes over the host link per step, both directions.
    pub copy_bytes: f64,
    /// Kernel launches per step.
    pub launches: u64,
    /// Host seconds per step without device work.
    pub host_seconds: f64,
    /// Bytes touched again and again within a step.
    pub working_set: f64,
    /// Device memory held.
    pub footprint: f64,
    /// Whether it is a program of the user's: then all numbers here are unknown, not 0.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_opaque: bool,
}

impl WorkloadFacts {
    fn of(benchmark: &Benchmark, kind: DeviceKind) -> Self {
        let program = program_on(benchmark, kind);
        let demand: Demand = program.demand();
        Self {
            id: benchmark.id.clone(),
            family: benchmark.family.clone(),
            kind: benchmark.kind,
            batch: benchmark.batch,
            tensor_flops: demand.tensor_flops.get(),
            fp32_flops: demand.fp32_flops.get(),
            fp64_flops: demand.fp64_flops.get(),
            l2_bytes: demand.l2_bytes.get(),
            dram_bytes: demand.dram_read.get() + demand.dram_write.get(),
            copy_bytes: demand.host_to_device.get() + demand.device_to_host.get(),
            launches: demand.launches,
            host_seconds: demand.host.get(),
            working_set: demand.working_set.get(),
            footprint: program.footprint().get(),
            is_opaque: benchmark.is_opaque(),
        }
    }
}

/// The program that a benchmark runs on a kind of device: axes of CPU size on CPU cores.
pub fn program_on(benchmark: &Benchmark, kind: DeviceKind) -> &StepProgram {
    if kind == DeviceKind::Cpu { benchmark.cpu_program() } else { benchmark.program() }
}

/// Why a cell is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// One workload alone.
    Isolated,
    /// A pair that the campaign asks for.
    Pair,
    /// A workload beside an idle context; its interference must be 1.
    Null,
    /// The pair measured again and again to see the device drift over the campaign.
    Sentinel,
}

/// One configuration that is measured in several repeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Digest of the configuration, 16 digits.
    pub id: String,
    /// Why it is measured.
    pub role: Role,
    /// The first side.
    pub subject: WorkloadId,
    /// The second side of a pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub co_runner: Option<WorkloadId>,
    /// `exclusive` or the subject's share for an isolated cell.
    pub sharing: SharingMode,
    /// Rough seconds of one trial, to weigh progress.
    pub seconds: f64,
    /// The wave in which it is measured.
    #[serde(default, skip_serializing_if = "is_first")]
    pub wave: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
const fn is_first(wave: &u32) -> bool {
    *wave == 0
}

/// One configuration in one repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// The cell's id and the repeat: `3f2a….r0`, or `3f2a….s0` for a sentinel.
    pub id: TrialId,
    /// The cell.
    pub cell: String,
    /// Which repeat, from 0.
    pub repeat: u32,
    /// The first side.
    pub subject: WorkloadId,
    /// The second side of a pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub co_runner: Option<WorkloadId>,
    /// The sharing.
    pub sharing: SharingMode,
}

/// A configuration that is not measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    /// The first side.
    pub subject: WorkloadId,
    /// The second side; absent for an isolated cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub co_runner: Option<WorkloadId>,
    /// The sharing.
    pub sharing: SharingMode,
    /// `oom_predicted`, the outcome that its rows get.
    pub outcome: Outcome,
    /// The reason in words.
    pub reason: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Plan(PlanHeader),
    Workload(WorkloadFacts),
    Cell(Cell),
    Skipped(Skipped),
    Trial(Trial),
}

impl Cell {
    /// The trial of one repeat.
    pub fn trial(&self, repeat: u32) -> Trial {
        // Sentinels are told apart, so that a replay finds its own.
        let letter = if self.role == Role::Sentinel { 's' } else { 'r' };
        Trial {
            id: TrialId::new(format!("{}.{letter}{repeat}", self.id)).expect("hexadecimal digits make an id"),
            cell: self.id.clone(),
            repeat,
            subject: self.subject.clone(),
            co_runner: self.co_runner.clone(),
            sharing: self.sharing.clone(),
        }
    }
}

impl Plan {
    /// Plans a single-device campaign.
    ///
    /// # Errors
    /// A pattern that selects nothing, a campaign without any pair that fits, or more than one device.
    pub fn new(campaign: &Campaign, catalogue: &Catalogue, device: &DeviceIdentity) -> Result<Self, Error> {
        let [named] = campaign.device.as_slice() else {
            return Err(Error::WrongDevice {
                device: device.model.clone(),
                devices: campaign.device.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            });
        };
        let kind = device.kind;
        let sized_as = if device.facts.get("recorded_kind").is_some_and(|kind| kind == "cpu") {
            DeviceKind::Cpu
        } else {
            kind
        };
        let null =
            catalogue.iter().find(|benchmark| benchmark.kind == WorkloadKind::Null).ok_or(Error::NoNull)?;
        let chosen = sampling::pairs(campaign, catalogue)?;
        let Some(first) = chosen.first().and_then(|drawn| drawn.orders.first()).cloned() else {
            return Err(Error::EmptyPlan {
                name: campaign.name.clone(),
                reason: "nothing is selected".to_owned(),
            });
        };

        let recorded_kind = device.facts.get("recorded_kind").and_then(|kind| kind.parse().ok());
        let protocol = campaign.protocol(recorded_kind.unwrap_or(kind));
        let header = PlanHeader {
            schema: SCHEMA.to_owned(),
            name: campaign.name.clone(),
            campaign: campaign.digest(),
            seed: campaign.seed,
            device: named.to_string(),
            model: device.model.clone(),
            device_kind: kind,
            protocol,
            repeats: (campaign.stopping.min_repeats, campaign.stopping.max_repeats),
            half_width: campaign.stopping.half_width,
            level: campaign.stopping.level,
        };
        let mut builder = Builder {
            catalogue,
            header: &header,
            sized_as,
            memory: device.memory.get(),
            workloads: BTreeMap::new(),
            cells: BTreeMap::new(),
            skipped: Vec::new(),
            wave: 0,
        };

        let sentinel = sampling::sentinel(campaign, catalogue)?.unwrap_or(first);
        // The first mode of every pair before the next mode of any: what counts in waves, and sorted away without.
        for sharing in &campaign.sharing {
            for (subject, co_runner) in chosen.iter().flat_map(|drawn| &drawn.orders) {
                builder.pair(subject, co_runner, sharing, Role::Pair)?;
                builder.wave = campaign.wave.map_or(0, |size| builder.cells.len() as u32 / size);
            }
        }
        if builder.cells.is_empty() {
            let reason = builder.skipped.first().map_or_else(String::new, |skipped| skipped.reason.clone());
            return Err(Error::EmptyPlan { name: campaign.name.clone(), reason });
        }
        let last = builder.cells.values().map(|cell| cell.wave).max().unwrap_or(0);
        for sharing in &campaign.sharing {
            // A mode's control belongs to the wave that brings the mode.
            builder.wave = builder
                .cells
                .values()
                .filter(|cell| cell.sharing == *sharing || cell.sharing == sharing.swapped())
                .map(|cell| cell.wave)
                .min()
                .unwrap_or(last);
            builder.pair(&sentinel.0, &null.id, sharing, Role::Null)?;
        }
        builder.wave = 0;
        builder.pair(&sentinel.0, &sentinel.1, &campaign.sharing[0], Role::Sentinel)?;

        let mut percents: BTreeSet<u8> =
            campaign.isolated_shares.iter().map(|share| percent(*share)).collect();
        percents.insert(100);
        for mode in campaign.sharing.iter().filter(|mode| matches!(mode, SharingMode::Mps { .. })) {
            let (subject, co_runner) = mode.shares();
            percents.extend([percent(subject), percent(co_runner)]);
        }
        let taking_part: Vec<WorkloadId> = builder.workloads.keys().cloned().collect();
        for workload in &taking_part {
            // The full device is the reference of every slowdown, so it is measured with the first pair that needs it;
            // smaller shares alone come last.
            let first = builder.wave_of(workload);
            for share in &percents {
                builder.wave = if *share == 100 { first } else { last };
                builder.isolated(workload, *share)?;
            }
        }
        let Builder { workloads, cells, skipped, .. } = builder;
        Ok(Self { header, workloads: workloads.into_values().collect(), cells: in_order(cells), skipped })
    }

    /// The cell that is measured again and again; absent where it does not fit the device.
    pub fn sentinel(&self) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.role == Role::Sentinel)
    }

    /// A workload that takes part.
    pub fn workload(&self, id: &WorkloadId) -> Option<&WorkloadFacts> {
        self.workloads.binary_search_by(|facts| facts.id.cmp(id)).ok().map(|index| &self.workloads[index])
    }

    /// Rough seconds with the fewest and with the most repeats.
    pub fn seconds(&self) -> (f64, f64) {
        let once: f64 =
            self.cells.iter().filter(|cell| cell.role != Role::Sentinel).map(|cell| cell.seconds).sum();
        let count = self.cells.len() as f64;
        let sentinel = self.sentinel().map_or(0.0, |cell| cell.seconds);
        let total = |repeats: u32| {
            let sentinels =
                (count * f64::from(repeats) / f64::from(self.header.protocol.sentinel_every)).ceil();
            once * f64::from(repeats) + sentinels * sentinel
        };
        (total(self.header.repeats.0), total(self.header.repeats.1))
    }

    /// The plan as JSON lines: header, workloads, cells, skipped, and the trials of the rounds that are certain.
    pub fn to_jsonl(&self) -> String {
        let mut text = String::new();
        let mut put = |line: Line| {
            text.push_str(&serde_json::to_string(&line).expect("a plan is plain data"));
            text.push('\n');
        };
        put(Line::Plan(self.header.clone()));
        self.workloads.iter().for_each(|facts| put(Line::Workload(facts.clone())));
        self.cells.iter().for_each(|cell| put(Line::Cell(cell.clone())));
        self.skipped.iter().for_each(|skipped| put(Line::Skipped(skipped.clone())));
        crate::schedule::Schedule::new(self).certain().into_iter().for_each(|trial| put(Line::Trial(trial)));
        text
    }

    /// Reads back what [`to_jsonl`](Self::to_jsonl) wrote.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with the line.
    pub fn from_jsonl(text: &str, path: &std::path::Path) -> Result<Self, Error> {
        let corrupt = |line: usize, reason: String| Error::Corrupt { path: path.to_owned(), line, reason };
        let (mut header, mut workloads, mut cells, mut skipped) = (None, Vec::new(), Vec::new(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            match serde_json::from_str(line).map_err(|error| corrupt(index + 1, error.to_string()))? {
                Line::Plan(found) => header = Some(found),
                Line::Workload(facts) => workloads.push(facts),
                Line::Cell(cell) => cells.push(cell),
                Line::Skipped(found) => skipped.push(found),
                Line::Trial(_) => {}
            }
        }
        let header = header.ok_or_else(|| corrupt(1, "the plan has no header".to_owned()))?;
        if header.schema != SCHEMA {
            return Err(corrupt(
                1,
                format!("the schema is `{}`, this version reads `{SCHEMA}`", header.schema),
            ));
        }
        Ok(Self { header, workloads, cells, skipped })
    }
}

/// Cells in the order of the plan.
fn in_order(cells: BTreeMap<String, Cell>) -> Vec<Cell> {
    let mut cells: Vec<Cell> = cells.into_values().collect();
    cells.sort_by(|a, b| {
        (a.role, &a.subject, &a.co_runner, &a.sharing).cmp(&(b.role, &b.subject, &b.co_runner, &b.sharing))
    });
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use crate::devices::simulated::Simulated;
    use std::path::Path;

    fn plan(text: &str) -> Result<Plan, Error> {
        let campaign = Campaign::parse(text, Path::new("campaign.toml"))?;
        let device = Simulated::new("h100").unwrap();
        Plan::new(&campaign, &Catalogue::bundled(), device.identity())
    }

    const TEXT: &str = "schema = 1\nname = \"t\"\ndevice = \"sim:h100\"\nsharing = [\"mps(0.3,0.7)\", \"time_slice\"]\nmax_pairs = 12\n[workloads]\nsubjects = [\"training\"]\nco_runners = [\"inference\", \"training\"]\n";

    #[test]
    fn controls_and_isolated_cells_are_always_there() {
        let plan = plan(TEXT).unwrap();
        let count = |role| plan.cells.iter().filter(|cell| cell.role == role).count();
        assert_eq!(count(Role::Null), 2, "one null pair per sharing mode");
        assert_eq!(count(Role::Sentinel), 1);
        let oom = plan.skipped.len();
        assert_eq!(count(Role::Pair) + oom, 24);
        // Shares 0.3, 0.7 and 1 of each workload that takes part.
        assert_eq!(count(Role::Isolated), 3 * plan.workloads.len());
    }

    #[test]
    fn a_plan_survives_its_file_and_repeats() {
        let first = plan(TEXT).unwrap();
        let text = first.to_jsonl();
        assert_eq!(Plan::from_jsonl(&text, Path::new("plan.jsonl")).unwrap(), first);
        assert_eq!(plan(TEXT).unwrap().to_jsonl(), text);
        let reseeded = plan(&TEXT.replace("name", "seed = 5\nname")).unwrap();
        assert_ne!(reseeded.to_jsonl(), text);
    }

    #[test]
    fn a_pair_and_its_mirror_are_one_cell() {
        let catalogue = Catalogue::bundled();
        let ids: Vec<String> =
            catalogue.select("stressor").unwrap().iter().take(2).map(|b| b.id.to_string()).collect();
        let text = |a: &str, b: &str, sharing: &str| {
            format!(
                "schema = 1\nname = \"t\"\ndevice = \"sim:h100\"\nsharing = [\"{sharing}\"]\n[workloads]\npairs = [[\"{a}\", \"{b}\"]]\n"
            )
        };
        let cells = |text: &str| {
            let mut cells = plan(text).unwrap().cells;
            cells.retain(|cell| cell.role == Role::Pair);
            cells.into_iter().map(|cell| (cell.id, cell.subject, cell.co_runner)).collect::<Vec<_>>()
        };
        assert_eq!(
            cells(&text(&ids[0], &ids[1], "mps(0.3,0.7)")),
            cells(&text(&ids[1], &ids[0], "mps(0.7,0.3)"))
        );
    }

    #[test]
    fn pairs_that_cannot_fit_are_named() {
        let campaign = Campaign::parse(TEXT, Path::new("campaign.toml")).unwrap();
        let device = Simulated::new("h100").unwrap();
        let small = DeviceIdentity { memory: elastico_core::units::Bytes(1e6), ..device.identity().clone() };
        let error = Plan::new(&campaign, &Catalogue::bundled(), &small).unwrap_err();
        assert!(error.to_string().contains("exceed the memory"), "{error}");
    }

    #[test]
    fn an_unknown_workload_is_refused_with_its_line() {
        let error = plan(&TEXT.replace("\"training\"]\nco", "\"trainnig\"]\nco")).unwrap_err();
        assert!(
            matches!(&error, Error::Workload { line: 7, pattern, .. } if pattern == "trainnig"),
            "{error:?}"
        );
    }

    #[test]
    fn waves_follow_the_list_and_bring_what_they_need() {
        let names = [
            "tr_mlp.b64_h512_bf16",
            "in_encoder.b1_s128_h768_fp16",
            "in_decode.b1_c2048_h4096_bf16",
            "st_fma.m10k_n66",
        ];
        let pairs: Vec<String> = [(0, 1), (0, 2), (3, 2)]
            .map(|(a, b): (usize, usize)| format!("[\"{}\", \"{}\"]", names[a], names[b]))
            .to_vec();
        let text = format!(
            "schema = 1\nname = \"t\"\ndevice = \"sim:h100\"\nsharing = [\"time_slice\", \"mps(0.5,0.5)\"]\nwave = 2\n[workloads]\npairs = [{}]\n",
            pairs.join(", ")
        );
        let plan = plan(&text).unwrap();
        let wave = |role, subject: &str, sharing: &str| {
            let cell = plan.cells.iter().find(|cell| {
                cell.role == role
                    && (cell.subject.as_str() == subject
                        || cell.co_runner.as_ref().is_some_and(|id| id.as_str() == subject))
                    && cell.sharing.to_string() == sharing
            });
            cell.unwrap_or_else(|| panic!("no {role:?} {subject} {sharing}")).wave
        };
        assert_eq!(wave(Role::Pair, names[1], "time_slice"), 0);
        assert_eq!(wave(Role::Pair, names[3], "time_slice"), 1);
        assert_eq!(wave(Role::Pair, names[3], "mps(0.5,0.5)"), 2);
        assert_eq!(wave(Role::Isolated, names[0], "exclusive"), 0);
        assert_eq!(wave(Role::Isolated, names[3], "exclusive"), 1, "with its first pair");
        assert_eq!(wave(Role::Isolated, names[0], "mps(0.5,1)"), 2, "shares alone come last");
        assert_eq!(wave(Role::Null, "null", "mps(0.5,0.5)"), 1, "with the first pair of its mode");

        // The schedule goes wave by wave and deals each cell its least repeats.
        let waves: BTreeMap<&str, u32> =
            plan.cells.iter().map(|cell| (cell.id.as_str(), cell.wave)).collect();
        let trials = crate::schedule::Schedule::new(&plan).certain();
        let order: Vec<u32> = trials
            .iter()
            .filter(|trial| !trial.id.as_str().contains(".s"))
            .map(|trial| waves[trial.cell.as_str()])
            .collect();
        assert!(order.is_sorted(), "{order:?}");
        let cells = plan.cells.iter().filter(|cell| cell.role != Role::Sentinel).count();
        assert_eq!(order.len(), 3 * cells);
    }
}
