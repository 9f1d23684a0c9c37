use super::Policy;
use super::max_min::{Sharer, fractions};
use super::rounds::Rounds;
use crate::{Round, Shape, Target, TraceJob};
use std::collections::BTreeMap;

/// Gavel, max-min fairness, heterogeneity aware (Narayanan et al., OSDI 2020): a linear program gives each job its fractions
/// of time on each pool, and rounds realise them, first whom they owe most.
///
/// Simplified: the program is solved once for the smallest throughput, not again for those above it; what that leaves free is
/// given out by the same priorities. With space sharing pairs do not enter the program: jobs that a round leaves without
/// GPUs join those with which the planner expects the most, if both together do more than one alone.
#[derive(Debug)]
pub(super) struct Gavel {
    rounds: Rounds,
    shares_space: bool,
    jobs: BTreeMap<usize, Account>,
    last: f64,
}

/// What one job should have and has had.
#[derive(Debug)]
struct Account {
    since: f64,
    fractions: Vec<f64>,
    seconds: Vec<f64>,
}

impl Gavel {
    pub(super) const fn new(round_seconds: f64, shares_space: bool) -> Self {
        Self { rounds: Rounds::new(round_seconds), shares_space, jobs: BTreeMap::new(), last: 0.0 }
    }

    /// Writes down the time since the last round, and who is here now. Says whether the program must be solved again.
    fn account(&mut self, round: &Round<'_, '_>) -> bool {
        let now = round.now();
        let pools = round.cluster().pools().len();
        let before = self.jobs.len();
        self.jobs.retain(|job, _| round.is_running(*job) || round.is_waiting(*job));
        let mut is_new = before != self.jobs.len();
        for (job, account) in &mut self.jobs {
            if let Some(shape) = round.shape_of(*job) {
                account.seconds[shape.pool] += now - self.last;
            }
        }
        for job in round.waiting() {
            self.jobs.entry(job).or_insert_with(|| {
                is_new = true;
                Account { since: now, fractions: Vec::new(), seconds: vec![0.0; pools] }
            });
        }
        self.last = now;
        is_new
    }

    fn solve(&mut self, round: &Round<'_, '_>) {
        let capacity: Vec<f64> = round.cluster().pools().iter().map(|pool| f64::from(pool.gpus())).collect();
        let mut kinds: BTreeMap<(u32, u64), usize> = BTreeMap::new();
        let mut sharers: Vec<Sharer> = Vec::new();
        let mut of_jobs = Vec::with_capacity(self.jobs.len());
        for job in self.jobs.keys() {
            let TraceJob { gpus, weight, .. } = *round.job(*job);
            let kind = *kinds.entry((round.alike(*job), weight.to_bits())).or_insert(sharers.len());
            if kind == sharers.len() {
                let rates = (0..capacity.len()).map(|pool| round.rate(*job, Shape { pool, gpus })).collect();
                sharers.push(Sharer { count: 0.0, gpus: f64::from(gpus), weight, rates });
            }
            sharers[kind].count += 1.0;
            of_jobs.push(kind);
        }
        let fractions = fractions(&sharers, &capacity);
        for (account, kind) in self.jobs.values_mut().zip(of_jobs) {
            account.fractions.clone_from(&fractions[kind]);
        }
    }

    /// Jobs and pools by what the rounds so far owe them (section 5 of the paper).
    fn priorities(&self, now: f64) -> Vec<(f64, usize, usize)> {
        let mut priorities = Vec::new();
        for (job, account) in &self.jobs {
            let life = now - account.since;
            for (pool, fraction) in account.fractions.iter().enumerate() {
                if *fraction > 0.0 {
                    let received = if life > 0.0 { account.seconds[pool] / life } else { 0.0 };
                    // Who was never here comes before everybody who was.
                    let priority = if received > 0.0 { fraction / received } else { fraction * 1e9 };
                    priorities.push((priority, *job, pool));
                }
            }
        }
        priorities.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        priorities
    }
}

impl Policy for Gavel {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        if !self.rounds.begins(round) {
            return;
        }
        if self.account(round) {
            self.solve(round);
        }
        let mut free: Vec<u32> = round.cluster().pools().iter().map(crate::PoolSpec::gpus).collect();
        let mut targets: BTreeMap<usize, Target> = BTreeMap::new();
        let priorities = self.priorities(round.now());
        for (_, job, pool) in &priorities {
            let shape = Shape { pool: *pool, gpus: round.job(*job).gpus };
            if free[*pool] >= shape.gpus && !targets.contains_key(job) && round.rate(*job, shape).is_some() {
                free[*pool] -= shape.gpus;
                targets.insert(*job, Target::Alone(shape));
            }
        }
        if self.shares_space {
            share_space(round, &priorities, &mut targets);
        }
        for job in self.jobs.keys() {
            targets.entry(*job).or_insert(Target::Wait);
        }
        let targets: Vec<(usize, Target)> = targets.into_iter().collect();
        round.apply(&targets);
        // Where everybody runs where it should nothing changes until somebody comes or goes.
        if !round.waiting().is_empty() || round.cluster().pools().len() > 1 {
            self.rounds.ask_again(round);
        }
    }
}

fn share_space(
    round: &Round<'_, '_>,
    priorities: &[(f64, usize, usize)],
    targets: &mut BTreeMap<usize, Target>,
) {
    let mut hosts: BTreeMap<usize, Shape> = targets
        .iter()
        .filter_map(|(job, target)| match target {
            Target::Alone(shape) => Some((*job, *shape)),
            _ => None,
        })
        .collect();
    for (_, guest, _) in priorities {
        if targets.contains_key(guest) {
            continue;
        }
        let gpus = round.job(*guest).gpus;
        let best = hosts
            .iter()
            .filter(|(_, shape)| shape.gpus == gpus && round.rate(*guest, **shape).is_some())
            .filter_map(|(host, shape)| {
                let [(a, _), (b, _)] = round.expect(*guest, *host, shape.pool)?;
                let gain = 1.0 / a + 1.0 / b;
                // Who shares already goes on, for moving costs a restart.
                let is_partner = round.partner_of(*guest) == Some(*host);
                (gain > 1.0).then_some((is_partner, gain, *host, *shape))
            })
            .max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(b.2.cmp(&a.2)));
        if let Some((_, _, host, shape)) = best {
            hosts.remove(&host);
            targets.insert(*guest, Target::Beside(host, shape));
        }
    }
}
