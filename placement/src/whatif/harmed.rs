//! Who would be worse off?

use super::effects::{Effect, EffectKind, effects};
use super::resize::{PoolAmounts, resized};
use super::{CHANCE, Side, WhatIf};
use crate::Error;
use crate::cluster::Cluster;
use crate::jobs::Jobs;
use crate::provenance::Basis;
use elastico_core::PoolId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema id of an answer about harm.
pub const HARMED_SCHEMA: &str = "elastico.whatif.harmed/1";

/// A change of the state; what is left at its default stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Scenario {
    /// Another limit on slowdowns.
    pub limit: Option<f64>,
    /// No job shares a GPU.
    pub without_sharing: bool,
    /// More GPUs, one amount for a pool.
    pub add: Vec<PoolAmounts>,
    /// Fewer GPUs, one amount for a pool.
    pub remove: Vec<PoolAmounts>,
    /// Jobs that come.
    pub jobs: Jobs,
}

impl Scenario {
    /// The changes of capacity, as GPUs more in a pool.
    fn gpus(&self, cluster: &Cluster) -> Result<Vec<(PoolId, i64)>, Error> {
        let named = self.add.iter().map(|named| (named, true));
        let named = named.chain(self.remove.iter().map(|named| (named, false)));
        let of = |(named, grows): (&PoolAmounts, bool)| match named.amounts.as_slice() {
            [amount] => Ok((named.pool.clone(), amount.signed(cluster, &named.pool, grows)?)),
            amounts => Err(Error::Option {
                field: if grows { "add" } else { "remove" },
                value: format!("{} amounts for pool `{}`", amounts.len(), named.pool),
                rule: "one change has one amount for a pool; capacity compares several",
            }),
        };
        named.map(of).collect()
    }

    fn in_words(&self, gpus: &[(PoolId, i64)], limit: f64) -> String {
        let mut parts = Vec::new();
        if let Some(new) = self.limit {
            parts.push(format!("slowdown limit {new} instead of {limit}"));
        }
        if self.without_sharing {
            parts.push("no job shares".to_owned());
        }
        for (pool, gpus) in gpus {
            let sign = if *gpus < 0 { '-' } else { '+' };
            parts.push(format!("{pool} {sign}{} GPUs", gpus.unsigned_abs()));
        }
        if !self.jobs.job.is_empty() {
            let ids: Vec<&str> = self.jobs.job.iter().map(|job| job.id.as_str()).take(3).collect();
            let more = self.jobs.job.len().saturating_sub(ids.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            parts.push(format!("new: {}{more}", ids.join(", ")));
        }
        if parts.is_empty() { "nothing changes".to_owned() } else { parts.join("; ") }
    }
}

/// The answer to "who would be harmed".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HarmedAnswer {
    /// `elastico.whatif.harmed/1`.
    pub schema: String,
    /// The change in words.
    pub question: String,
    /// As it is.
    pub before: Side,
    /// As it would be.
    pub after: Side,
    /// Value after less value before.
    pub value_delta: f64,
    /// The delta for certain: better placements of either side cannot bring it outside.
    pub value_delta_range: [f64; 2],
    /// Jobs that would stop or run slower, or be at risk.
    pub harmed: usize,
    /// Jobs that would start or run faster.
    pub helped: usize,
    /// Jobs that would be past what they bear.
    pub breaches: usize,
    /// The least throughput then over throughput now; 0 where a job stops, absent where nobody is harmed.
    pub worst_ratio: Option<f64>,
    /// The jobs for which something changes, the worst first.
    pub effects: Vec<Effect>,
    /// What it rests on.
    pub basis: Basis,
}

impl WhatIf<'_> {
    /// Who would be harmed by a change? Jobs that come are counted among the helped.
    ///
    /// # Errors
    /// [`Error::Option`] for a limit below 1 or more GPUs removed than there are, [`Error::Unknown`] for a pool,
    /// [`Error::Duplicate`] for a new job with a known id.
    pub fn harmed(&self, change: &Scenario) -> Result<HarmedAnswer, Error> {
        let mut options = self.allocator.options().clone();
        options.limit = change.limit.unwrap_or(options.limit);
        if change.without_sharing {
            options.sharing.clear();
        }
        let mut cluster = self.allocator.cluster().clone();
        let gpus = change.gpus(&cluster)?;
        for (pool, gpus) in &gpus {
            cluster = resized(&cluster, pool, *gpus)?;
        }
        let jobs = self.with_jobs(&change.jobs)?;
        let solved = self.solve_within(cluster, options, &jobs, CHANCE)?;
        let effects = effects(&self.before, &solved.placement, &jobs);
        let (before, after) = (self.side(), solved.side());
        let harm = || effects.iter().filter(|effect| effect.kind.is_harm());
        Ok(HarmedAnswer {
            schema: HARMED_SCHEMA.to_owned(),
            question: change.in_words(&gpus, self.allocator.options().limit),
            value_delta: after.value - before.value,
            value_delta_range: before.delta_range(&after),
            before,
            after,
            harmed: harm().count(),
            helped: effects.len() - harm().count(),
            breaches: effects.iter().filter(|effect| effect.breach).count(),
            worst_ratio: harm()
                .filter(|effect| effect.kind != EffectKind::Risks)
                .filter_map(|effect| effect.ratio)
                .min_by(f64::total_cmp),
            effects,
            basis: solved.placement.basis,
        })
    }
}
