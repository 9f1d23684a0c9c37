//! What a change does to each job.

use super::{slowdown, speed};
use crate::jobs::Jobs;
use crate::placement::{Assignment, Placement};
use elastico_core::{JobId, PoolId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What happens to a job, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EffectKind {
    /// It runs now and would wait.
    Stops,
    /// It would run slower.
    Slower,
    /// It would run as fast, but its bound on the slowdown rises over what it bears.
    Risks,
    /// It would run faster.
    Faster,
    /// It waits now and would run.
    Starts,
}

impl EffectKind {
    /// The name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stops => "stops",
            Self::Slower => "slower",
            Self::Risks => "risks",
            Self::Faster => "faster",
            Self::Starts => "starts",
        }
    }

    /// Whether the job is worse off.
    pub const fn is_harm(self) -> bool {
        matches!(self, Self::Stops | Self::Slower | Self::Risks)
    }
}

/// How a job runs in one of two placements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct State {
    /// The pool.
    #[schemars(with = "String")]
    pub pool: PoolId,
    /// GPUs.
    pub gpus: u32,
    /// Normalised throughput, slowdown included.
    pub throughput: f64,
    /// Predicted slowdown by its co-runner, 1 where it has none.
    pub slowdown: f64,
    /// Upper bound of it.
    pub slowdown_upper: f64,
    /// Its co-runner.
    #[schemars(with = "Option<String>")]
    pub beside: Option<JobId>,
}

impl State {
    pub(super) fn of(assignment: &Assignment) -> Self {
        Self {
            pool: assignment.pool.clone(),
            gpus: assignment.shape.gpus,
            throughput: speed(assignment),
            slowdown: slowdown(assignment),
            slowdown_upper: assignment.beside.as_ref().map_or(1.0, |beside| beside.slowdown_upper),
            beside: assignment.beside.as_ref().map(|beside| beside.job.clone()),
        }
    }
}

/// What a change does to one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Effect {
    /// The job.
    #[schemars(with = "String")]
    pub job: JobId,
    /// What happens.
    pub kind: EffectKind,
    /// Now; absent where it waits.
    pub now: Option<State>,
    /// Then; absent where it would wait.
    pub then: Option<State>,
    /// Throughput then over throughput now; 0 where it stops, absent where it starts.
    pub ratio: Option<f64>,
    /// Its bound on slowdowns: its SLO where it has one, else the limit of the present options.
    pub limit: f64,
    /// Whether the job has an SLO.
    pub has_slo: bool,
    /// Whether it would be past its bound: the upper slowdown exceeds it, or the job has an SLO and would wait.
    pub breach: bool,
}

fn states(placement: &Placement) -> BTreeMap<&JobId, State> {
    placement.assignments.iter().map(|assignment| (&assignment.job, State::of(assignment))).collect()
}

/// The jobs whose speed or risk changes, the worst first.
pub(super) fn effects(now: &Placement, then: &Placement, jobs: &Jobs) -> Vec<Effect> {
    let limit = now.options.limit;
    let (mut before, mut after) = (states(now), states(then));
    let of_job = |job: &crate::Job| {
        let (now, then) = (before.remove(&job.id), after.remove(&job.id));
        let bears = job.slo_slowdown.map_or(limit, |slo| slo.min(limit));
        let exceeds = |state: &Option<State>| {
            state.as_ref().is_some_and(|state| state.slowdown_upper > bears * (1.0 + 1e-9))
        };
        let speeds = [&now, &then].map(|state| state.as_ref().map_or(0.0, |state| state.throughput));
        let tolerance = 1e-6 * speeds[0].max(speeds[1]);
        let kind = match (&now, &then) {
            (Some(_), None) => EffectKind::Stops,
            (None, Some(_)) => EffectKind::Starts,
            (Some(_), Some(_)) if speeds[1] < speeds[0] - tolerance => EffectKind::Slower,
            (Some(_), Some(_)) if exceeds(&then) && !exceeds(&now) => EffectKind::Risks,
            (Some(_), Some(_)) if speeds[1] > speeds[0] + tolerance => EffectKind::Faster,
            _ => return None,
        };
        Some(Effect {
            job: job.id.clone(),
            kind,
            ratio: (speeds[0] > 0.0).then(|| speeds[1] / speeds[0]),
            limit: bears,
            has_slo: job.slo_slowdown.is_some(),
            breach: exceeds(&then) || (job.slo_slowdown.is_some() && kind == EffectKind::Stops),
            now,
            then,
        })
    };
    let mut effects: Vec<Effect> = jobs.job.iter().filter_map(of_job).collect();
    effects.sort_by(|a, b| {
        let ratio = |effect: &Effect| effect.ratio.unwrap_or(f64::INFINITY);
        a.kind.cmp(&b.kind).then(ratio(a).total_cmp(&ratio(b))).then(a.job.cmp(&b.job))
    });
    effects
}
