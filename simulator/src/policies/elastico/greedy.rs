//! The ablation without prices.

use super::{Elastico, Pairing};
use crate::rates::Shape;
use crate::{Round, Target};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A step up from the shape that a job has.
struct Step {
    /// What it adds for each GPU that it takes.
    density: f64,
    job: usize,
    shape: Shape,
    worth: f64,
}

impl Elastico {
    /// Jobs by worth for each GPU, each with as few GPUs as it can; then the GPUs that are left, step by step, to whoever
    /// gains most by them; then who still waits beside whoever has one GPU.
    pub(super) fn choose_greedily(&self, round: &Round<'_, '_>, jobs: &[usize]) -> Vec<(usize, Target)> {
        let mut free: Vec<u32> = round.cluster().pools().iter().map(crate::PoolSpec::gpus).collect();
        let mut ranked: Vec<(f64, usize)> = Vec::new();
        let mut shapes: BTreeMap<usize, Vec<(Shape, f64)>> = BTreeMap::new();
        for &job in jobs {
            let mut own = self.shapes(round, job);
            let weight = self.weight(round, job);
            for (_, rate) in &mut own {
                *rate *= weight;
            }
            own.sort_by(|a, b| {
                a.0.gpus.cmp(&b.0.gpus).then(b.1.total_cmp(&a.1)).then(a.0.pool.cmp(&b.0.pool))
            });
            let density = own.iter().map(|(shape, worth)| worth / f64::from(shape.gpus)).fold(0.0, f64::max);
            ranked.push((density, job));
            shapes.insert(job, own);
        }
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut chosen: BTreeMap<usize, (Shape, f64)> = BTreeMap::new();
        for (_, job) in &ranked {
            let fitting = shapes[job].iter().find(|(shape, _)| free[shape.pool] >= shape.gpus);
            if let Some(&(shape, worth)) = fitting {
                free[shape.pool] -= shape.gpus;
                chosen.insert(*job, (shape, worth));
            }
        }
        while let Some(step) = best_step(&chosen, &shapes, &free) {
            let before = chosen[&step.job].0;
            free[step.shape.pool] -= step.shape.gpus - before.gpus;
            chosen.insert(step.job, (step.shape, step.worth));
        }
        let mut targets: BTreeMap<usize, Target> = jobs.iter().map(|job| (*job, Target::Wait)).collect();
        targets.extend(chosen.iter().map(|(job, (shape, _))| (*job, Target::Alone(*shape))));
        if self.options.pairing != Pairing::Off {
            self.join(round, &ranked, &shapes, &chosen, &mut targets);
        }
        targets.into_iter().collect()
    }

    fn join(
        &self,
        round: &Round<'_, '_>,
        ranked: &[(f64, usize)],
        shapes: &BTreeMap<usize, Vec<(Shape, f64)>>,
        chosen: &BTreeMap<usize, (Shape, f64)>,
        targets: &mut BTreeMap<usize, Target>,
    ) {
        let mut hosts: BTreeMap<usize, (Shape, f64)> =
            chosen.iter().filter(|(_, (shape, _))| shape.gpus == 1).map(|(job, own)| (*job, *own)).collect();
        for (_, guest) in ranked.iter().filter(|(_, job)| !chosen.contains_key(job)) {
            let mut best: Option<(f64, usize, Shape)> = None;
            for (host, (shape, worth)) in &hosts {
                let Some((_, own)) = shapes[guest].iter().find(|(found, _)| found == shape) else { continue };
                let Some(sides) = self.safe(round, *guest, *host, shape.pool) else { continue };
                let gain = own / sides[0] - worth * (1.0 - 1.0 / sides[1]);
                if gain > 0.0 && best.is_none_or(|(value, ..)| gain > value) {
                    best = Some((gain, *host, *shape));
                }
            }
            if let Some((_, host, shape)) = best {
                hosts.remove(&host);
                targets.insert(*guest, Target::Beside(host, shape));
            }
        }
    }
}

/// The step within its pool that adds most for each GPU.
fn best_step(
    chosen: &BTreeMap<usize, (Shape, f64)>,
    shapes: &BTreeMap<usize, Vec<(Shape, f64)>>,
    free: &[u32],
) -> Option<Step> {
    let steps = chosen.iter().flat_map(|(job, (now, worth))| {
        shapes[job].iter().filter_map(move |(shape, more)| {
            let is_step = shape.pool == now.pool
                && shape.gpus > now.gpus
                && shape.gpus - now.gpus <= free[shape.pool]
                && more > worth;
            is_step.then(|| Step {
                density: (more - worth) / f64::from(shape.gpus - now.gpus),
                job: *job,
                shape: *shape,
                worth: *more,
            })
        })
    });
    steps.max_by(|a, b| match a.density.total_cmp(&b.density) {
        Ordering::Equal => b.job.cmp(&a.job),
        other => other,
    })
}
