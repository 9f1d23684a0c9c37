//! With whom a job could share its GPU, and what keeps each pair from being.

use crate::instance::Instance;
use crate::jobs::Jobs;
use crate::placement::{Assignment, Placement};
use crate::problem::PriceTable;
use crate::resources::cost;
use crate::settings::Settings;
use elastico_core::{JobId, PoolId, SharingMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Co-runners named at most.
const NAMED: usize = 5;

/// One co-runner at the prices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PricedPartner {
    /// The co-runner.
    #[schemars(with = "String")]
    pub job: JobId,
    /// The pool.
    #[schemars(with = "String")]
    pub pool: PoolId,
    /// The best sharing mode, seen from the job.
    #[schemars(with = "String")]
    pub sharing: SharingMode,
    /// Predicted slowdowns of the job and the co-runner.
    pub slowdown: [f64; 2],
    /// Upper bounds of both.
    pub upper: [f64; 2],
    /// Worth of the pair less the worth of the better of both alone on that GPU.
    pub gain: f64,
    /// What the job is started with in the pair.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    pub settings: Settings,
    /// What the co-runner is started with in the pair.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    pub co_runner_settings: Settings,
    /// Whether this is the pair of the placement.
    #[serde(default)]
    pub in_use: bool,
    /// Whether the co-runner runs in the placement.
    #[serde(default)]
    pub runs: bool,
    /// Who has the co-runner taken: the job beside it in the placement.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub taken_by: Option<JobId>,
    /// What keeps the pair from being: value less price of what the two and their present co-runners have, less what they would
    /// have with this pair, those left behind alone. Around 0 it is a tie; absent for the pair of the placement.
    #[serde(default)]
    pub lacks: Option<f64>,
}

impl PricedPartner {
    /// Where the co-runner is in the placement, in words.
    pub fn now(&self) -> String {
        match (&self.taken_by, self.runs) {
            _ if self.in_use => "this pair".to_owned(),
            (Some(other), _) => format!("beside {other}"),
            (None, true) => "alone".to_owned(),
            (None, false) => "waits".to_owned(),
        }
    }
}

/// What there is to say about the co-runners of a job.
pub(super) struct Partners<'p> {
    pub(super) instance: &'p Instance<'p>,
    pub(super) jobs: &'p Jobs,
    pub(super) placement: &'p Placement,
    pub(super) prices: &'p PriceTable,
}

impl Partners<'_> {
    /// The best co-runners, that of the placement first, and why the others are none.
    pub(super) fn of(&self, job: usize) -> (Vec<PricedPartner>, BTreeMap<String, u64>) {
        let Self { instance, jobs, .. } = *self;
        let present = self.assignment(job).and_then(|assignment| assignment.beside.as_ref());
        let mut found: Vec<(bool, f64, usize, usize)> = Vec::new();
        let mut refused = BTreeMap::new();
        for other in (0..jobs.job.len()).filter(|other| *other != job) {
            let in_use = present.is_some_and(|beside| beside.job == jobs.job[other].id);
            let mut best: Option<(f64, usize)> = None;
            let mut reason = None;
            for pool in 0..instance.cluster.pool.len() {
                match instance.pair_value(job, other, pool) {
                    // Of the pair that there is, the pool where it is.
                    Ok(_) if in_use && !self.is_in(job, pool) => {}
                    Ok(value) => {
                        let gain = value - self.alone_in(job, pool).max(self.alone_in(other, pool));
                        if best.is_none_or(|best| gain > best.0) {
                            best = Some((gain, pool));
                        }
                    }
                    Err(refusal) => reason = reason.max(Some(refusal)),
                }
            }
            match (best, reason) {
                (Some((gain, pool)), _) => found.push((in_use, gain, other, pool)),
                (None, Some(reason)) => *refused.entry(reason.as_str().to_owned()).or_insert(0) += 1,
                (None, None) => {}
            }
        }
        found.sort_by(|a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
        let best = found.into_iter().take(NAMED);
        (
            best.filter_map(|(in_use, gain, other, pool)| self.partner(job, other, pool, in_use, gain))
                .collect(),
            refused,
        )
    }

    fn partner(
        &self,
        job: usize,
        other: usize,
        pool: usize,
        in_use: bool,
        gain: f64,
    ) -> Option<PricedPartner> {
        let Self { instance, jobs, .. } = *self;
        let chosen = instance.pair_choice(job, other, pool).ok()?;
        let settings =
            |job: usize, at: usize| instance.family(job).shapes[chosen.shapes[at]].settings.clone();
        let its = self.assignment(other);
        Some(PricedPartner {
            job: jobs.job[other].id.clone(),
            pool: instance.cluster.pool[pool].id.clone(),
            settings: settings(job, 0),
            co_runner_settings: settings(other, 1),
            gain,
            in_use,
            runs: its.is_some(),
            taken_by: its.and_then(|its| its.beside.as_ref()).map(|beside| beside.job.clone()),
            lacks: (!in_use).then(|| self.lacks(job, other, pool)).flatten(),
            sharing: chosen.outcome.sharing,
            slowdown: chosen.outcome.slowdown,
            upper: chosen.outcome.upper,
        })
    }

    /// The surplus of all concerned as they are, less that with the pair.
    fn lacks(&self, job: usize, other: usize, pool: usize) -> Option<f64> {
        let pair = self.instance.pair_value(job, other, pool).ok()?
            - cost(&self.prices[pool], &self.instance.pair_demand(job, other, pool));
        let surplus = |run: Option<&Assignment>| run.map_or(0.0, |run| run.value - run.price);
        let (mut now, mut then) = (0.0, pair);
        for job in [job, other] {
            let run = self.assignment(job);
            now += surplus(run);
            if let Some(left) = run.and_then(|run| run.beside.as_ref()) {
                let (at, _) = self.jobs.get(left.job.as_str()).ok()?;
                now += surplus(self.assignment(at));
                then += self.best_alone(at);
            }
        }
        Some(now - then)
    }

    fn assignment(&self, job: usize) -> Option<&Assignment> {
        self.placement.assignment(self.jobs.job[job].id.as_str())
    }

    fn is_in(&self, job: usize, pool: usize) -> bool {
        self.assignment(job).is_some_and(|run| run.pool == self.instance.cluster.pool[pool].id)
    }

    /// What a job is worth alone on one GPU of a pool.
    fn alone_in(&self, job: usize, pool: usize) -> f64 {
        let columns = self.instance.problem.singles[job].iter();
        let one = columns.filter(|column| column.pool == pool && column.demand[0] <= 1.0);
        one.map(|column| column.value).fold(0.0, f64::max)
    }

    /// The most surplus of a job without a co-runner; it may wait.
    fn best_alone(&self, job: usize) -> f64 {
        let columns = self.instance.problem.singles[job].iter();
        columns.map(|column| column.reduced(self.prices)).fold(0.0, f64::max)
    }
}
