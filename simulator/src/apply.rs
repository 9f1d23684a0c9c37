//! A whole plan at once.

use crate::Round;
use crate::rates::Shape;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What a job shall do from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Hold no GPUs.
    Wait,
    /// Have GPUs of its own.
    Alone(Shape),
    /// Share the GPUs of another job. That job runs in this shape, by its own target or already.
    Beside(usize, Shape),
}

impl Target {
    const fn shape(self) -> Option<Shape> {
        match self {
            Self::Wait => None,
            Self::Alone(shape) | Self::Beside(_, shape) => Some(shape),
        }
    }
}

impl Round<'_, '_> {
    /// Makes it so: stops what changes, keeps what does not, and starts the largest first. Jobs without a target go on as
    /// they are, except for a co-runner that leaves. Of several targets of a job the last counts.
    ///
    /// A job keeps its GPUs, at no cost, if its shape stays the same and its co-runner, if any, is the one that it has, or
    /// comes or goes. Two jobs that name each other are one pair. Returns the jobs that wait although their target says
    /// otherwise, because no place was found, in order of submission.
    pub fn apply(&mut self, targets: &[(usize, Target)]) -> Vec<usize> {
        let targets = self.ordered(targets);
        let hosts: BTreeMap<usize, usize> = targets
            .iter()
            .filter_map(|(guest, target)| match target {
                Target::Beside(host, _) => Some((*host, *guest)),
                _ => None,
            })
            .collect();
        for (job, target) in &targets {
            if self.is_running(*job) && !self.stays(*job, *target, &targets, &hosts) {
                self.preempt(*job);
            }
        }
        let mut starts: Vec<(usize, Target)> = targets
            .into_iter()
            .filter(|(job, target)| *target != Target::Wait && self.is_waiting(*job))
            .collect();
        // Guests last: their hosts must be there.
        starts.sort_by_key(|(job, target)| {
            let is_guest = matches!(target, Target::Beside(..));
            (is_guest, Reverse(target.shape().map(|shape| shape.gpus)), *job)
        });
        let mut unplaced = Vec::new();
        for (job, target) in starts {
            let is_placed = match target {
                Target::Wait => true,
                Target::Alone(shape) => self.start(job, shape),
                Target::Beside(host, shape) => {
                    self.shape_of(host) == Some(shape) && self.start_beside(job, host)
                }
            };
            if !is_placed {
                unplaced.push(job);
            }
        }
        unplaced.sort_unstable();
        unplaced
    }

    /// One target for each job, and in each pair one guest: the one that does not hold the GPUs already.
    fn ordered(&self, targets: &[(usize, Target)]) -> BTreeMap<usize, Target> {
        let mut ordered: BTreeMap<usize, Target> =
            targets.iter().filter(|(job, _)| *job < self.engine.jobs.len()).copied().collect();
        let pairs: Vec<(usize, usize, Shape)> = ordered
            .iter()
            .filter_map(|(guest, target)| match target {
                Target::Beside(host, shape) if *host < self.engine.jobs.len() => {
                    Some((*guest, *host, *shape))
                }
                _ => None,
            })
            .collect();
        for (guest, host, shape) in pairs {
            // Turned around by its other half already.
            if ordered.get(&guest) != Some(&Target::Beside(host, shape)) {
                continue;
            }
            let is_mutual = ordered.get(&host) == Some(&Target::Beside(guest, shape));
            let host_is_alone = ordered.get(&host) == Some(&Target::Alone(shape));
            if guest == host || !(is_mutual || host_is_alone) {
                continue;
            }
            let holds = |job: usize| self.shape_of(job) == Some(shape);
            let is_better_host = holds(guest) && !holds(host);
            let (guest, host) = if is_better_host { (host, guest) } else { (guest, host) };
            ordered.insert(host, Target::Alone(shape));
            ordered.insert(guest, Target::Beside(host, shape));
        }
        ordered
    }

    /// Whether a running job keeps its GPUs.
    fn stays(
        &self,
        job: usize,
        target: Target,
        targets: &BTreeMap<usize, Target>,
        hosts: &BTreeMap<usize, usize>,
    ) -> bool {
        if self.shape_of(job) != target.shape() {
            return false;
        }
        let partner = self.partner_of(job);
        match target {
            Target::Wait => false,
            Target::Beside(host, _) => partner == Some(host),
            Target::Alone(_) => match partner {
                // The host of the same pair as before.
                Some(partner) if hosts.get(&job) == Some(&partner) => true,
                Some(partner) => match targets.get(&partner) {
                    None => false,
                    // Both shall be alone here: the one that holds the GPUs keeps them.
                    Some(other) if *other == target => !self.engine.states[job].place.is_empty(),
                    Some(_) => true,
                },
                None => true,
            },
        }
    }
}
