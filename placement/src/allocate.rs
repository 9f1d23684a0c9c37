//! From a cluster and jobs to a placement.

use crate::Error;
use crate::cluster::Cluster;
use crate::dual::{self, Dual, Start};
use crate::instance::Instance;
use crate::jobs::Jobs;
use crate::kept::{self, Kept};
use crate::nodes::Nodes;
use crate::options::Options;
use crate::pairing::{PairTable, find};
use crate::placement::Placement;
use crate::prices::Prices;
use crate::problem::Choice;
use crate::provenance::Basis;
use crate::report::report;
use crate::resources::{Amounts, RESOURCES};
use crate::rounding::Rounder;
use crate::warm::Warm;
use elastico_models::{Predictor, Profiles};
use std::collections::BTreeSet;

/// Places jobs on one cluster under one set of options.
#[derive(Clone, Debug)]
pub struct Allocator {
    cluster: Cluster,
    options: Options,
}

/// The gap at which the exact search of close calls stops.
const SEARCHED_GAP: f64 = 1e-3;

impl Allocator {
    /// An allocator; the options are checked when it solves.
    pub const fn new(cluster: Cluster, options: Options) -> Self {
        Self { cluster, options }
    }

    /// The cluster.
    pub const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The options.
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// Asks the predictor about all pairs of the jobs' workloads; the table serves any jobs with these workloads.
    ///
    /// # Errors
    /// [`Error::Predictor`] where the model fails.
    pub fn pair_table(
        &self,
        jobs: &Jobs,
        profiles: &Profiles,
        predictor: &dyn Predictor,
    ) -> Result<PairTable, Error> {
        let workloads =
            jobs.job.iter().filter(|job| job.allow_sharing).filter_map(|job| job.workload.clone());
        PairTable::predict(workloads, &self.cluster, &self.options.sharing, profiles, predictor)
    }

    /// Places the jobs. Without a predictor no job shares a GPU.
    ///
    /// # Errors
    /// [`Error::Option`] or [`Error::Predictor`]; jobs that cannot run are no error.
    pub fn solve(
        &self,
        jobs: &Jobs,
        profiles: &Profiles,
        predictor: Option<&dyn Predictor>,
    ) -> Result<Placement, Error> {
        let table = predictor.map(|predictor| self.pair_table(jobs, profiles, predictor)).transpose()?;
        self.solve_with(jobs, profiles, table.as_ref(), None)
    }

    /// Places the jobs, starting from the prices of an earlier round: fewer steps where little has changed.
    ///
    /// Jobs that run say so by `current`: they change their shape only for more than a restart costs, and where `current`
    /// names their GPUs they keep these as long as they keep the shape. [`Session`](crate::Session) does this bookkeeping, and
    /// follows the progress of the jobs, for a caller that solves again and again.
    ///
    /// # Errors
    /// As [`Self::solve`].
    pub fn update(
        &self,
        earlier: &Prices,
        jobs: &Jobs,
        profiles: &Profiles,
        predictor: Option<&dyn Predictor>,
    ) -> Result<Placement, Error> {
        let table = predictor.map(|predictor| self.pair_table(jobs, profiles, predictor)).transpose()?;
        self.solve_with(jobs, profiles, table.as_ref(), Some(earlier))
    }

    /// Places the jobs with a table of pairs that is already there; what a simulator calls every round.
    ///
    /// # Errors
    /// [`Error::Option`].
    pub fn solve_with(
        &self,
        jobs: &Jobs,
        profiles: &Profiles,
        table: Option<&PairTable>,
        earlier: Option<&Prices>,
    ) -> Result<Placement, Error> {
        let earlier = earlier.map(|prices| Warm::at(prices.clone()));
        Ok(self.solve_warm(jobs, profiles, table, earlier.as_ref(), None)?.0)
    }

    /// The same from all that an earlier solution tells; returns what this one tells. A placement that is `kept` stays as far as
    /// nothing better is found, and so does how the jobs run by their `current`.
    pub(crate) fn solve_warm(
        &self,
        jobs: &Jobs,
        profiles: &Profiles,
        table: Option<&PairTable>,
        earlier: Option<&Warm>,
        kept: Option<Kept<'_>>,
    ) -> Result<(Placement, Warm), Error> {
        let (mut instance, dual) = self.price(jobs, profiles, table, earlier)?;
        let mut present: Vec<(Vec<Choice>, f64)> = Vec::new();
        present.extend(kept::running(&mut instance).map(|choices| (choices, 0.0)));
        if let Some(kept) = kept {
            let ids: Vec<_> = jobs.job.iter().map(|job| &job.id).collect();
            present.push((kept.choices(&mut instance, &ids), kept.within * dual.bound));
        }
        let (_, nodes) = seat(&instance, &dual, &present);
        let model = table.and_then(|table| table.model().cloned());
        let workloads: BTreeSet<_> = jobs.job.iter().filter_map(|job| job.workload.as_ref()).collect();
        let kinds = workloads.into_iter().flat_map(|workload| {
            let pools = self.cluster.pool.iter();
            pools.filter_map(|pool| Some(find(profiles, workload, &pool.device)?.device_kind))
        });
        let basis = Basis::new(kinds.collect::<BTreeSet<_>>(), model);
        let placement = report(&instance, &jobs.job, &dual, &nodes, basis);
        let warm = Warm::of(&instance, jobs, &dual, placement.prices.clone());
        Ok((placement, warm))
    }

    /// The prices and the bound alone: no job is placed, and nothing is used.
    pub(crate) fn bound(
        &self,
        jobs: &Jobs,
        profiles: &Profiles,
        table: Option<&PairTable>,
        earlier: Option<&Warm>,
    ) -> Result<Prices, Error> {
        let (instance, dual) = self.price(jobs, profiles, table, earlier)?;
        let nothing = vec![[0.0; RESOURCES]; self.cluster.pool.len()];
        Ok(Prices {
            bound: dual.bound,
            bound_lower: dual.lower,
            calls: dual.calls,
            rounds: dual.rounds,
            ..Prices::of(&self.cluster, &instance.problem, &dual.prices, &nothing)
        })
    }

    fn price<'a>(
        &'a self,
        jobs: &'a Jobs,
        profiles: &'a Profiles,
        table: Option<&'a PairTable>,
        earlier: Option<&Warm>,
    ) -> Result<(Instance<'a>, Dual), Error> {
        self.options.check()?;
        self.options.objective.check_jobs(&jobs.job)?;
        let mut instance = Instance::new(&self.cluster, &self.options, jobs, profiles, table);
        let earlier = earlier.filter(|warm| !warm.prices.prices.is_empty());
        let known = earlier.map(|warm| warm.known(&self.cluster, jobs)).unwrap_or_default();
        let prices = earlier.map(|warm| warm.prices.table(&self.cluster));
        let start = Start { prices: prices.as_ref(), pairs: &known.0, surplus: &known.1 };
        let dual = dual::solve(&mut instance, &start);
        Ok((instance, dual))
    }
}

/// Rounds, searches and seats; tries again with head room where nodes were too torn, and keeps the best. Beside it stands
/// the best value without nodes.
///
/// Each of the solutions that are `present` stands for election too, as it is and with what gains taken over from the one that
/// was found; it wins where it is worth no less, or less by no more than the amount beside it.
pub(crate) fn seat<'a>(
    instance: &'a Instance<'_>,
    dual: &Dual,
    present: &[(Vec<Choice>, f64)],
) -> (f64, Nodes<'a>) {
    let problem = &instance.problem;
    let mut best: Option<Nodes<'a>> = None;
    let mut of_pools = 0.0_f64;
    for headroom in [1.0, 0.97, 0.94] {
        let capacity: Vec<Amounts> = problem
            .capacity
            .iter()
            .map(|amounts| amounts.map(|amount| (amount * headroom).ceil().min(amount)))
            .collect();
        let rounder = Rounder::new(problem, dual, capacity);
        let mut rounded = rounder.round(&dual.answer, &dual.others);
        let options = instance.options;
        let tolerance = options.tolerance.max(SEARCHED_GAP);
        rounder.search(&mut rounded, tolerance, options.search, options.seed);
        of_pools = of_pools.max(rounded.value);
        let mut nodes = Nodes::new(instance);
        let mut failed = nodes.place(&rounded.choices, dual);
        for (choices, within) in present {
            let kept = rounder.keep(choices, &rounded, *within);
            of_pools = of_pools.max(kept.value);
            let mut seated = Nodes::new(instance);
            let failed_kept = seated.place(&kept.choices, dual);
            if seated.value >= nodes.value - within {
                (nodes, failed) = (seated, failed_kept);
            }
        }
        if best.as_ref().is_none_or(|best| nodes.value > best.value) {
            best = Some(nodes);
        }
        if failed == 0 {
            break;
        }
    }
    (of_pools, best.unwrap_or_else(|| Nodes::new(instance)))
}
