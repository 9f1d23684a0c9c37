//! Questions that change nothing: can these two share, what is one more GPU worth, what does sharing bring.
//!
//! [`pair`] and [`partners`] ask the predictor alone; [`WhatIf`] solves again, so that its answers are exact and carry
//! the bound and the gap of both solutions.

use crate::Error;
use crate::allocate::Allocator;
use crate::cluster::Cluster;
use crate::jobs::Jobs;
use crate::options::Options;
use crate::pairing::{PairOutcome, PairTable, find};
use crate::placement::Placement;
use crate::provenance::Basis;
use crate::resources::Resource;
use elastico_core::{CHIPS, JobId, PoolId, SharingMode, WorkloadId, chip, suggest};
use elastico_models::{Predictor, Profiles};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The schema id of an answer about a pair.
pub const PAIR_SCHEMA: &str = "elastico.whatif.pair/1";
/// The schema id of an answer about partners.
pub const PARTNERS_SCHEMA: &str = "elastico.whatif.partners/1";
/// The schema id of an answer about a change.
pub const CHANGE_SCHEMA: &str = "elastico.whatif.change/1";

/// Whether two workloads may share a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Both upper bounds are within the limit, and memory fits.
    Yes,
    /// An upper bound exceeds the limit, or memory does not fit.
    No,
    /// The prediction extrapolates, or a profile or a footprint is missing.
    CannotTell,
}

/// One sharing mode of a pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairWay {
    /// The mode, seen from `a`.
    pub sharing: SharingMode,
    /// Predicted slowdowns of `a` and `b`.
    pub slowdown: [f64; 2],
    /// Upper bounds of both.
    pub upper: [f64; 2],
    /// Both normalised throughputs together; over 1, sharing beats taking turns.
    pub stp: f64,
    /// Whether the prediction is within the model's domain.
    pub in_domain: bool,
    /// Whether the mode is permitted.
    pub verdict: Verdict,
}

/// The answer to "can these two share a GPU".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairAnswer {
    /// `elastico.whatif.pair/1`.
    pub schema: String,
    /// One workload.
    pub a: WorkloadId,
    /// The other.
    pub b: WorkloadId,
    /// The chip.
    pub device: String,
    /// The limit on both upper bounds.
    pub limit: f64,
    /// Whether any mode is permitted.
    pub verdict: Verdict,
    /// What binds, in words.
    pub binds: String,
    /// Footprints of both where known.
    pub memory_bytes: [Option<f64>; 2],
    /// Memory of the GPU.
    pub gpu_memory_bytes: f64,
    /// Whether both fit; absent where a footprint is unknown.
    pub memory_fits: Option<bool>,
    /// The modes, permitted ones first, then by throughput together.
    pub ways: Vec<PairWay>,
    /// What it rests on.
    pub basis: Basis,
}

/// What to ask of a pair.
#[derive(Clone, Debug, PartialEq)]
pub struct PairQuestion {
    /// The chip.
    pub device: String,
    /// The sharing modes to try.
    pub sharing: Vec<SharingMode>,
    /// The limit on both upper bounds.
    pub limit: f64,
}

impl PairQuestion {
    /// The modes and the limit of the options, on a chip.
    pub fn on(device: impl Into<String>, options: &Options) -> Self {
        Self { device: device.into(), sharing: options.sharing.clone(), limit: options.limit }
    }
}

fn known_chip(device: &str) -> Result<&'static elastico_core::Chip, Error> {
    chip(device).ok_or_else(|| Error::Unknown {
        what: "chip",
        name: device.to_owned(),
        suggestion: suggest(device, CHIPS.iter().map(|chip| chip.name)).map(str::to_owned),
    })
}

fn known_workload(profiles: &Profiles, workload: &WorkloadId) -> Result<(), Error> {
    if profiles.iter().any(|profile| profile.workload == *workload) {
        return Ok(());
    }
    let names = profiles.iter().map(|profile| profile.workload.as_str());
    Err(Error::Unknown {
        what: "workload",
        name: workload.to_string(),
        suggestion: suggest(workload.as_str(), names).map(str::to_owned),
    })
}

fn one_chip(device: &str) -> Result<Cluster, Error> {
    let chip = known_chip(device)?;
    let text = format!("[[pool]]\nid = \"{0}\"\ndevice = \"{0}\"\nnodes = 1\ngpus_per_node = 1\n", chip.name);
    Cluster::from_toml(&text, std::path::Path::new("one chip"))
}

/// Can `a` and `b` share a GPU?
///
/// # Errors
/// [`Error::Unknown`] for an unknown workload or chip, [`Error::Predictor`] where the model fails.
pub fn pair(
    a: &WorkloadId,
    b: &WorkloadId,
    question: &PairQuestion,
    profiles: &Profiles,
    predictor: &dyn Predictor,
) -> Result<PairAnswer, Error> {
    known_workload(profiles, a)?;
    known_workload(profiles, b)?;
    let cluster = one_chip(&question.device)?;
    let table = PairTable::predict([a.clone(), b.clone()], &cluster, &question.sharing, profiles, predictor)?;
    answer(a, b, question, profiles, &table)
}

fn answer(
    a: &WorkloadId,
    b: &WorkloadId,
    question: &PairQuestion,
    profiles: &Profiles,
    table: &PairTable,
) -> Result<PairAnswer, Error> {
    let chip = known_chip(&question.device)?;
    let known = [a, b].map(|workload| find(profiles, workload, chip.name));
    let memory = known.map(|profile| {
        profile
            .and_then(|profile| profile.fields.get("footprint_bytes").copied())
            .filter(|bytes| bytes.is_finite())
    });
    let memory_fits = memory[0].zip(memory[1]).map(|(a, b)| a + b <= chip.memory.get());
    let way = |outcome: PairOutcome| {
        let verdict = if !outcome.in_domain || memory_fits.is_none() {
            Verdict::CannotTell
        } else if memory_fits == Some(true) && outcome.upper.iter().all(|upper| *upper <= question.limit) {
            Verdict::Yes
        } else {
            Verdict::No
        };
        PairWay {
            stp: outcome.slowdown.iter().map(|slowdown| slowdown.recip()).sum(),
            sharing: outcome.sharing,
            slowdown: outcome.slowdown,
            upper: outcome.upper,
            in_domain: outcome.in_domain,
            verdict,
        }
    };
    let mut ways: Vec<PairWay> = table.get(chip.name, a, b).into_iter().map(way).collect();
    ways.sort_by(|a, b| a.verdict.cmp(&b.verdict).then(b.stp.total_cmp(&a.stp)));
    let verdict = if memory_fits == Some(false) {
        Verdict::No
    } else if ways.iter().any(|way| way.verdict == Verdict::Yes) {
        Verdict::Yes
    } else if ways.is_empty() || ways.iter().any(|way| way.verdict == Verdict::CannotTell) {
        Verdict::CannotTell
    } else {
        Verdict::No
    };
    let binds = binds(a, b, &ways, known.map(|profile| profile.is_some()), memory_fits, question);
    let kinds = known.iter().flatten().map(|profile| profile.device_kind);
    Ok(PairAnswer {
        schema: PAIR_SCHEMA.to_owned(),
        a: a.clone(),
        b: b.clone(),
        device: chip.name.to_owned(),
        limit: question.limit,
        verdict,
        binds,
        memory_bytes: memory,
        gpu_memory_bytes: chip.memory.get(),
        memory_fits,
        ways,
        basis: Basis::new(kinds, table.model().cloned()),
    })
}

fn binds(
    a: &WorkloadId,
    b: &WorkloadId,
    ways: &[PairWay],
    known: [bool; 2],
    memory_fits: Option<bool>,
    question: &PairQuestion,
) -> String {
    if let Some(missing) = [a, b].into_iter().zip(known).find(|(_, known)| !known) {
        return format!("{} has no profile on {}", missing.0, question.device);
    }
    if memory_fits == Some(false) {
        return "device memory: both footprints together exceed it".to_owned();
    }
    if memory_fits.is_none() {
        return "device memory: a footprint is unknown".to_owned();
    }
    // The way nearest to the limit, and its worse side.
    let worst = |way: &PairWay| way.upper[0].max(way.upper[1]);
    let nearest = ways.iter().filter(|way| way.in_domain).min_by(|a, b| worst(a).total_cmp(&worst(b)));
    match nearest {
        None => "the model's domain: every prediction extrapolates".to_owned(),
        Some(way) => {
            let side = usize::from(way.upper[1] > way.upper[0]);
            format!(
                "the slowdown of {} by {}: at most {:.2}x against a limit of {:.2}x",
                if side == 0 { a } else { b },
                way.sharing,
                way.upper[side],
                question.limit
            )
        }
    }
}

/// The answer to "who should share with it".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartnersAnswer {
    /// `elastico.whatif.partners/1`.
    pub schema: String,
    /// The workload that looks for a co-runner.
    pub subject: WorkloadId,
    /// One answer per candidate: permitted ones first, then by throughput together.
    pub partners: Vec<PairAnswer>,
}

/// Who among the candidates should share a GPU with the subject? All profiled workloads where none are named.
///
/// # Errors
/// As [`pair`].
pub fn partners(
    subject: &WorkloadId,
    among: &[WorkloadId],
    question: &PairQuestion,
    profiles: &Profiles,
    predictor: &dyn Predictor,
) -> Result<PartnersAnswer, Error> {
    known_workload(profiles, subject)?;
    let cluster = one_chip(&question.device)?;
    let mut among: Vec<WorkloadId> = if among.is_empty() {
        let device = known_chip(&question.device)?.name;
        profiles
            .iter()
            .filter(|profile| profile.device == device)
            .map(|profile| profile.workload.clone())
            .collect()
    } else {
        among.iter().try_for_each(|workload| known_workload(profiles, workload))?;
        among.to_vec()
    };
    among.sort();
    among.dedup();
    let all = among.iter().cloned().chain([subject.clone()]);
    let table = PairTable::predict(all, &cluster, &question.sharing, profiles, predictor)?;
    let answers = among.iter().map(|other| answer(subject, other, question, profiles, &table));
    let mut partners = answers.collect::<Result<Vec<_>, _>>()?;
    let best = |answer: &PairAnswer| answer.ways.first().map_or(0.0, |way| way.stp);
    partners.sort_by(|a, b| a.verdict.cmp(&b.verdict).then(best(b).total_cmp(&best(a))).then(a.b.cmp(&b.b)));
    Ok(PartnersAnswer { schema: PARTNERS_SCHEMA.to_owned(), subject: subject.clone(), partners })
}

/// One of the two solutions that an answer compares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// GPUs of the cluster.
    pub gpus: u32,
    /// Value of the objective.
    pub value: f64,
    /// No placement is worth more.
    pub bound: f64,
    /// What at most could still be won, as a ratio of the bound.
    pub gap: f64,
    /// Jobs that run.
    pub running: usize,
    /// Pairs among them.
    pub pairs: usize,
    /// Jobs that wait.
    pub waiting: usize,
}

impl Side {
    fn of(placement: &Placement, cluster: &Cluster) -> Self {
        Self {
            gpus: cluster.gpu_count(),
            value: placement.value,
            bound: placement.bound,
            gap: placement.gap,
            running: placement.assignments.len(),
            pairs: placement.pairs(),
            waiting: placement.waiting.len(),
        }
    }
}

/// A change of capacity in one pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityChange {
    /// The pool.
    pub pool: PoolId,
    /// GPUs added, or removed where negative.
    pub gpus: i64,
    /// Value per GPU of this change, where it is the only one: exact, both solutions are solved.
    pub value_per_gpu: Option<f64>,
    /// The price of a GPU slot before the change: what the first small change would be worth.
    pub slot_price: f64,
    /// What one GPU costs per hour.
    pub price_per_gpu_hour: Option<f64>,
    /// Value per unit of money and hour, where both are known.
    pub value_per_money: Option<f64>,
}

/// The answer to a "what if" that is solved again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// `elastico.whatif.change/1`.
    pub schema: String,
    /// The question in words.
    pub question: String,
    /// As it is.
    pub before: Side,
    /// As it would be.
    pub after: Side,
    /// Value after less value before.
    pub value_delta: f64,
    /// The delta for certain: no placement of either side can make it less, or more, than this.
    pub value_delta_range: [f64; 2],
    /// Jobs that would begin to run.
    pub entering: Vec<JobId>,
    /// Jobs that would stop.
    pub leaving: Vec<JobId>,
    /// The changes of capacity, if any.
    pub capacity: Vec<CapacityChange>,
    /// What it rests on.
    pub basis: Basis,
}

/// A solved state to ask about.
#[derive(Debug)]
pub struct WhatIf<'a> {
    allocator: &'a Allocator,
    jobs: &'a Jobs,
    profiles: &'a Profiles,
    table: Option<&'a PairTable>,
    before: Placement,
}

impl<'a> WhatIf<'a> {
    /// Solves the state as it is.
    ///
    /// # Errors
    /// As [`Allocator::solve_with`].
    pub fn new(
        allocator: &'a Allocator,
        jobs: &'a Jobs,
        profiles: &'a Profiles,
        table: Option<&'a PairTable>,
    ) -> Result<Self, Error> {
        let before = allocator.solve_with(jobs, profiles, table, None)?;
        Ok(Self { allocator, jobs, profiles, table, before })
    }

    /// The placement as it is.
    pub const fn before(&self) -> &Placement {
        &self.before
    }

    /// What would more or fewer GPUs bring? Nodes are added whole, the last one perhaps not full.
    ///
    /// # Errors
    /// [`Error::Unknown`] for an unknown pool, [`Error::Option`] where more GPUs are removed than there are.
    pub fn capacity(&self, changes: &[(PoolId, i64)]) -> Result<Change, Error> {
        let mut cluster = self.allocator.cluster().clone();
        let mut described = Vec::new();
        for (id, gpus) in changes {
            let known = cluster.get(id.as_str())?;
            let count = i64::from(known.gpu_count()).checked_add(*gpus);
            let Some(count) = count.and_then(|count| u32::try_from(count).ok()) else {
                return Err(Error::Option {
                    field: "gpus",
                    value: gpus.to_string(),
                    rule: "the pool would have fewer than 0 GPUs, or too many to count",
                });
            };
            for pool in cluster.pool.iter_mut().filter(|pool| pool.id == *id) {
                pool.gpus_per_node = pool.gpus_per_node.max(1);
                pool.nodes = count.div_ceil(pool.gpus_per_node);
                pool.gpus = (count != pool.nodes * pool.gpus_per_node).then_some(count);
            }
            let sign = if *gpus < 0 { "-" } else { "+" };
            described.push(format!("{id} {sign}{} GPUs", gpus.unsigned_abs()));
        }
        let changed = Allocator::new(cluster, self.allocator.options().clone());
        let mut change = self.solve_again(&changed, described.join(", "))?;
        let grows = changes.iter().all(|(_, gpus)| *gpus >= 0);
        let shrinks = changes.iter().all(|(_, gpus)| *gpus <= 0);
        // What fits the smaller cluster fits the larger one, and what bounds the larger one bounds the smaller.
        let (small, large) = if grows {
            (&mut change.before, &mut change.after)
        } else {
            (&mut change.after, &mut change.before)
        };
        if grows || shrinks {
            large.value = large.value.max(small.value);
            small.bound = small.bound.min(large.bound);
            for side in [small, large] {
                side.gap = if side.bound > 0.0 { (side.bound - side.value) / side.bound } else { 0.0 };
            }
            change.measure();
        }
        let alone = changes.len() == 1;
        for (id, gpus) in changes {
            let money = self.allocator.cluster().get(id.as_str())?.price_per_gpu_hour;
            let per_gpu = (alone && *gpus != 0).then(|| change.value_delta / *gpus as f64);
            change.capacity.push(CapacityChange {
                pool: id.clone(),
                gpus: *gpus,
                value_per_gpu: per_gpu,
                slot_price: self.before.prices.get(id, Resource::GpuSlots),
                price_per_gpu_hour: money,
                value_per_money: per_gpu
                    .zip(money.filter(|money| *money > 0.0))
                    .map(|(value, money)| value / money),
            });
        }
        Ok(change)
    }

    /// What would be lost if no job shared a GPU?
    ///
    /// # Errors
    /// As [`Allocator::solve_with`].
    pub fn without_sharing(&self) -> Result<Change, Error> {
        let options = Options { sharing: Vec::new(), ..self.allocator.options().clone() };
        self.solve_again(
            &Allocator::new(self.allocator.cluster().clone(), options),
            "no job shares".to_owned(),
        )
    }

    /// What would another limit on slowdowns bring?
    ///
    /// # Errors
    /// [`Error::Option`] for a limit under 1.
    pub fn limit(&self, limit: f64) -> Result<Change, Error> {
        let options = Options { limit, ..self.allocator.options().clone() };
        let changed = Allocator::new(self.allocator.cluster().clone(), options);
        self.solve_again(
            &changed,
            format!("slowdown limit {limit} instead of {}", self.allocator.options().limit),
        )
    }

    fn solve_again(&self, changed: &Allocator, question: String) -> Result<Change, Error> {
        let after = changed.solve_with(self.jobs, self.profiles, self.table, Some(&self.before.prices))?;
        let missing_in = |placement: &Placement, job: &JobId| placement.assignment(job.as_str()).is_none();
        let ids = |of: &Placement, not_in: &Placement| -> Vec<JobId> {
            let jobs = of.assignments.iter().map(|assignment| &assignment.job);
            jobs.filter(|job| missing_in(not_in, job)).cloned().collect()
        };
        let mut change = Change {
            schema: CHANGE_SCHEMA.to_owned(),
            question,
            before: Side::of(&self.before, self.allocator.cluster()),
            after: Side::of(&after, changed.cluster()),
            value_delta: 0.0,
            value_delta_range: [0.0; 2],
            entering: ids(&after, &self.before),
            leaving: ids(&self.before, &after),
            capacity: Vec::new(),
            basis: after.basis.clone(),
        };
        change.measure();
        Ok(change)
    }
}

impl Change {
    fn measure(&mut self) {
        self.value_delta = self.after.value - self.before.value;
        self.value_delta_range = [self.after.value - self.before.bound, self.after.bound - self.before.value];
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::CannotTell => "cannot tell",
        })
    }
}

impl fmt::Display for PairAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let simulated = if self.basis.simulated { " (simulated)" } else { "" };
        writeln!(f, "{} beside {} on {}: {}{simulated}", self.a, self.b, self.device, self.verdict)?;
        writeln!(f, "  what binds: {}", self.binds)?;
        for way in &self.ways {
            writeln!(
                f,
                "  {:<14} {:.2}x (at most {:.2}x) and {:.2}x (at most {:.2}x), together {:.2}: {}",
                way.sharing,
                way.slowdown[0],
                way.upper[0],
                way.slowdown[1],
                way.upper[1],
                way.stp,
                way.verdict
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let simulated = if self.basis.simulated { " (simulated)" } else { "" };
        writeln!(f, "{}{simulated}: value {:+.3}", self.question, self.value_delta)?;
        for (name, side) in [("before", &self.before), ("after", &self.after)] {
            writeln!(
                f,
                "  {name:<6} {} GPUs, value {:.3}, bound {:.3}, gap {:.2} %, {} run, {} pairs, {} wait",
                side.gpus,
                side.value,
                side.bound,
                side.gap * 100.0,
                side.running,
                side.pairs,
                side.waiting
            )?;
        }
        for capacity in &self.capacity {
            if let Some(value) = capacity.value_per_gpu {
                writeln!(
                    f,
                    "  {}: {value:.3} per GPU, price before {:.3}",
                    capacity.pool, capacity.slot_price
                )?;
            }
        }
        Ok(())
    }
}
