use super::Policy;
use super::rounds::Rounds;
use crate::{Round, Shape, Target};
use std::collections::BTreeMap;

/// Muri-L (Zhao et al., SIGCOMM 2022): in every round the jobs with the least attained service, as many as two times the GPUs,
/// are grouped with others of equal GPU count whose demands complement each other; groups run in order of priority.
///
/// Simplified: pairs instead of up to four; how well two jobs complement each other is the planner's throughput of the pair
/// instead of the overlap of their stages; heaviest pair first instead of the exact matching. While there are GPUs for
/// everybody nobody is grouped.
#[derive(Debug)]
pub(super) struct Muri {
    rounds: Rounds,
}

impl Muri {
    pub(super) const fn new(round_seconds: f64) -> Self {
        Self { rounds: Rounds::new(round_seconds) }
    }
}

impl Policy for Muri {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        if !self.rounds.begins(round) {
            return;
        }
        let mut jobs = round.waiting();
        jobs.extend(round.running());
        jobs.sort_by(|a, b| {
            let service = |job: usize| round.attained_gpu_seconds(job);
            service(*a).total_cmp(&service(*b)).then(a.cmp(b))
        });
        let capacity = round.cluster().gpus();
        let mut demand = 0;
        let taken = jobs.iter().take_while(|job| {
            let before = demand;
            demand += round.job(**job).gpus;
            before < 2 * capacity
        });
        let taken: Vec<usize> = taken.copied().collect();
        let partners = if demand <= capacity { BTreeMap::new() } else { pairs(round, &taken) };
        let targets = plan(round, &jobs, &taken, &partners);
        round.apply(&targets);
        if super::can_improve(round) {
            self.rounds.ask_again(round);
        }
    }
}

/// Who goes with whom, by the heavier pair first. Whether two may share is asked of the pool that the first prefers.
fn pairs(round: &Round<'_, '_>, taken: &[usize]) -> BTreeMap<usize, usize> {
    let mut by_size: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for job in taken {
        by_size.entry(round.job(*job).gpus).or_default().push(*job);
    }
    let mut partners = BTreeMap::new();
    for jobs in by_size.values() {
        let mut edges = Vec::new();
        for (index, a) in jobs.iter().enumerate() {
            for b in &jobs[index + 1..] {
                let Some(shape) = round.requested(*a).first() else { continue };
                let Some([(of_a, _), (of_b, _)]) = round.expect(*a, *b, shape.pool) else { continue };
                let gain = 1.0 / of_a + 1.0 / of_b;
                if gain > 1.0 {
                    // Who shares already goes on, for moving costs a restart.
                    edges.push((round.partner_of(*a) == Some(*b), gain, *a, *b));
                }
            }
        }
        edges.sort_by(|x, y| y.0.cmp(&x.0).then(y.1.total_cmp(&x.1)).then((x.2, x.3).cmp(&(y.2, y.3))));
        for (_, _, a, b) in edges {
            if !partners.contains_key(&a) && !partners.contains_key(&b) {
                partners.insert(a, b);
                partners.insert(b, a);
            }
        }
    }
    partners
}

fn plan(
    round: &Round<'_, '_>,
    jobs: &[usize],
    taken: &[usize],
    partners: &BTreeMap<usize, usize>,
) -> Vec<(usize, Target)> {
    let mut free: Vec<u32> = round.cluster().pools().iter().map(crate::PoolSpec::gpus).collect();
    let mut targets: BTreeMap<usize, Target> = jobs.iter().map(|job| (*job, Target::Wait)).collect();
    for job in taken {
        if targets.get(job) != Some(&Target::Wait) {
            continue;
        }
        let guest = partners.get(job).copied();
        let fits = |shape: &&Shape| {
            free[shape.pool] >= shape.gpus && guest.is_none_or(|guest| round.rate(guest, **shape).is_some())
        };
        // Where it runs it stays, for moving costs a restart.
        let current = round.shape_of(*job);
        let Some(shape) = current.as_ref().filter(fits).or_else(|| round.requested(*job).iter().find(fits))
        else {
            continue;
        };
        let shape = *shape;
        free[shape.pool] -= shape.gpus;
        targets.insert(*job, Target::Alone(shape));
        if let Some(guest) = guest {
            targets.insert(guest, Target::Beside(*job, shape));
        }
    }
    targets.into_iter().collect()
}
