use super::Policy;
use super::rounds::Rounds;
use crate::{Round, Shape, Target};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

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

/// Who goes with whom: pairs that are there already, for moving costs a restart, then the heaviest of the kinds of jobs, and of
/// each kind the most urgent first. Whether two may share is asked of the pool that the first prefers.
fn pairs(round: &Round<'_, '_>, taken: &[usize]) -> BTreeMap<usize, usize> {
    let mut partners = BTreeMap::new();
    let all: BTreeSet<usize> = taken.iter().copied().collect();
    for job in taken {
        if let Some(partner) = round.partner_of(*job).filter(|partner| all.contains(partner)) {
            partners.insert(*job, partner);
        }
    }
    let mut kinds: BTreeMap<(u32, u32), VecDeque<usize>> = BTreeMap::new();
    for job in taken.iter().filter(|job| !partners.contains_key(job)) {
        kinds.entry((round.job(*job).gpus, round.alike(*job))).or_default().push_back(*job);
    }
    let mut edges = Vec::new();
    for (first, of_first) in &kinds {
        for (second, of_second) in kinds.range(first..).filter(|(second, _)| second.0 == first.0) {
            let (Some(a), Some(b)) = (of_first.front(), of_second.front()) else { continue };
            let Some(shape) = round.requested(*a).first() else { continue };
            let Some([(of_a, _), (of_b, _)]) = round.expect(*a, *b, shape.pool) else { continue };
            let gain = 1.0 / of_a + 1.0 / of_b;
            if gain > 1.0 {
                edges.push((gain, *first, *second));
            }
        }
    }
    edges.sort_by(|x, y| y.0.total_cmp(&x.0).then((x.1, x.2).cmp(&(y.1, y.2))));
    for (_, first, second) in edges {
        let mut next = |kind| kinds.get_mut(&kind).and_then(VecDeque::pop_front);
        while let Some(a) = next(first) {
            let Some(b) = next(second) else {
                // The odd one may still go with another kind.
                kinds.entry(first).or_default().push_front(a);
                break;
            };
            partners.insert(a, b);
            partners.insert(b, a);
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
