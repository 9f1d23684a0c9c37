//! Time fractions on pools that make the smallest normalised throughput as large as can be.

/// Jobs of the problem that are alike.
#[derive(Clone, Debug)]
pub(super) struct Sharer {
    /// How many they are.
    pub(super) count: f64,
    /// GPUs that each takes wherever it runs.
    pub(super) gpus: f64,
    /// How much each matters.
    pub(super) weight: f64,
    /// The rate of each on each pool; `None` = it cannot run there.
    pub(super) rates: Vec<Option<f64>>,
}

/// Accuracy of the approximation.
const EPSILON: f64 = 0.15;

/// The fractions of time that a job of each kind spends on each pool.
///
/// The linear program is that of Gavel (Narayanan et al., OSDI 2020, section 4.1): maximise the smallest throughput over that
/// of an equal share. It is one of maximum concurrent flow, which the multiplicative weights of Garg and Koenemann (FOCS 1998)
/// with the phases of Fleischer (1999) solve to within a factor of about 1 - 3 epsilon, without a solver. Jobs that are alike are
/// one commodity: the mean of an optimum over them is an optimum.
pub(super) fn fractions(jobs: &[Sharer], capacity: &[f64]) -> Vec<Vec<f64>> {
    let pools = capacity.len();
    let wanted: f64 = jobs.iter().map(|job| job.count * job.gpus).sum();
    let total: f64 = capacity.iter().sum();
    // An equal share of the time on every pool is feasible, so that the optimum is at least 1 against it.
    let share: Vec<f64> = capacity.iter().map(|capacity| capacity / wanted.max(total)).collect();
    let demands: Vec<f64> = jobs
        .iter()
        .map(|job| {
            let rates = job.rates.iter().zip(&share);
            job.count * job.weight * rates.map(|(rate, share)| rate.unwrap_or(0.0) * share).sum::<f64>()
        })
        .collect();
    let constraints = (pools + jobs.len()) as f64;
    let delta = (constraints / (1.0 - EPSILON)).powf(-1.0 / EPSILON);
    let mut of_pool: Vec<f64> = capacity.iter().map(|capacity| delta / capacity).collect();
    let mut of_job: Vec<f64> = jobs.iter().map(|job| delta / job.count).collect();
    let mut fractions = vec![vec![0.0; pools]; jobs.len()];
    let mut length = delta * constraints;
    while length < 1.0 {
        let before = length;
        for (index, job) in jobs.iter().enumerate() {
            let mut left = demands[index];
            while left > 0.0 && length < 1.0 {
                let cost = |pool: usize, rate: f64| (job.gpus * of_pool[pool] + of_job[index]) / rate;
                let cheapest = job
                    .rates
                    .iter()
                    .enumerate()
                    .filter_map(|(pool, rate)| rate.map(|rate| (cost(pool, rate), pool, rate)))
                    .min_by(|a, b| a.0.total_cmp(&b.0));
                let Some((_, pool, rate)) = cheapest else { break };
                let step = (left / rate).min(capacity[pool] / job.gpus).min(job.count);
                fractions[index][pool] += step;
                left -= step * rate;
                let grow = |weight: &mut f64, used: f64, amount: f64| {
                    let more = *weight * EPSILON * used;
                    *weight += more;
                    more * amount
                };
                length += grow(&mut of_pool[pool], job.gpus * step / capacity[pool], capacity[pool]);
                length += grow(&mut of_job[index], step / job.count, job.count);
            }
        }
        // Nobody is there who could run anywhere.
        if length <= before {
            break;
        }
    }
    for (own, job) in fractions.iter_mut().zip(jobs) {
        for fraction in own.iter_mut() {
            *fraction /= job.count;
        }
    }
    scale_to_fit(&mut fractions, jobs, capacity);
    fractions
}

fn scale_to_fit(fractions: &mut [Vec<f64>], jobs: &[Sharer], capacity: &[f64]) {
    let mut over = 0.0_f64;
    for (pool, capacity) in capacity.iter().enumerate() {
        let used: f64 = fractions.iter().zip(jobs).map(|(own, job)| own[pool] * job.count * job.gpus).sum();
        over = over.max(used / capacity);
    }
    for own in fractions.iter() {
        over = over.max(own.iter().sum());
    }
    if over > 0.0 {
        fractions.iter_mut().flatten().for_each(|fraction| *fraction /= over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(rates: &[f64]) -> Sharer {
        Sharer { count: 1.0, gpus: 1.0, weight: 1.0, rates: rates.iter().map(|rate| Some(*rate)).collect() }
    }

    #[test]
    fn who_gains_most_from_the_fast_pool_has_it() {
        // Gavel's example: by comparative advantage the first job has the fast GPU, the second the slow one.
        let jobs = [job(&[10.0, 1.0]), job(&[1.2, 1.0])];
        let fractions = fractions(&jobs, &[1.0, 1.0]);
        // Equal shares give 5.5 and 1.1. The optimum gives both the same ratio t over these: the second job lives off the
        // slow GPU and what the first leaves of the fast one.
        let ratios: Vec<f64> = jobs
            .iter()
            .zip(&fractions)
            .zip([5.5, 1.1])
            .map(|((job, own), equal)| {
                own.iter().zip(&job.rates).map(|(time, rate)| time * rate.unwrap()).sum::<f64>() / equal
            })
            .collect();
        let worst = ratios[0].min(ratios[1]);
        // By hand: the second job on the slow GPU alone has 1 / 1.1 = 0.909; each part x of the fast one that it takes
        // instead brings 0.2 x / 1.1 more, and both constraints bind at x = 0.55: 1.01.
        assert!(worst > 0.85 * 1.01, "{ratios:?}");
        for (first, second) in fractions[0].iter().zip(&fractions[1]) {
            assert!(first + second <= 1.0 + 1e-9);
        }
    }

    #[test]
    fn nobody_gets_nothing() {
        assert!(fractions(&[], &[4.0]).is_empty());
        let nowhere = Sharer { count: 1.0, gpus: 1.0, weight: 1.0, rates: vec![None] };
        assert_eq!(fractions(&[nowhere], &[4.0]), [[0.0]]);
    }

    #[test]
    fn equal_jobs_have_equal_parts_and_a_heavy_one_has_more() {
        let mut jobs = vec![job(&[1.0]); 4];
        let even = fractions(&jobs, &[2.0]);
        assert!(even.iter().all(|own| (own[0] - 0.5).abs() < 0.05), "{even:?}");
        jobs[0].weight = 2.0;
        let heavy = fractions(&jobs, &[2.0]);
        assert!((heavy[0][0] / heavy[1][0] - 2.0).abs() < 0.2, "{heavy:?}");
    }
    #[test]
    fn jobs_that_are_alike_are_as_many_jobs() {
        let (fast, slow) = (job(&[10.0, 1.0]), job(&[1.2, 1.0]));
        let apart = fractions(&[fast.clone(), fast.clone(), fast.clone(), slow.clone()], &[1.0, 2.0]);
        let together = fractions(&[Sharer { count: 3.0, ..fast }, slow], &[1.0, 2.0]);
        for (apart, together) in [(&apart[0], &together[0]), (&apart[3], &together[1])] {
            let near = apart.iter().zip(together).all(|(a, b)| (a - b).abs() < 0.1);
            assert!(near, "{apart:?} {together:?}");
        }
    }
}
