//! At most one configuration for each job, by prices of GPUs.

use crate::{Round, Shape, Target};

/// A configuration and what it is worth against holding no GPUs.
pub(super) type Choice = (Shape, f64);

/// Steps of the prices: enough for two digits.
const STEPS: usize = 60;

/// What a waiting job's shape is worth at least.
const LEAST: f64 = 1e-3;

/// Chooses at most one configuration for each job within the GPUs of each pool, for a large sum of values.
///
/// The exact problem is the integer program of Sia. Here a price for a GPU of each pool rises while too many want it (a
/// subgradient of the Lagrangian), every job takes what is worth most at these prices, what does not fit is left out, the worst
/// first, and GPUs that are left go where they bring the most. Nodes are not looked at.
pub(super) fn choose(options: &[Vec<Choice>], capacity: &[u32]) -> Vec<Option<Choice>> {
    let prices = prices(options, capacity);
    let reduced = |(shape, value): &Choice| value - prices[shape.pool] * f64::from(shape.gpus);
    let mut wanted: Vec<(f64, usize, Choice)> = Vec::new();
    for (job, own) in options.iter().enumerate() {
        let best = own.iter().max_by(|a, b| reduced(a).total_cmp(&reduced(b)));
        if let Some(choice) = best.filter(|choice| choice.1 > 0.0) {
            wanted.push((reduced(choice), job, *choice));
        }
    }
    wanted.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut free = capacity.to_vec();
    let mut chosen = vec![None; options.len()];
    for (_, job, (shape, value)) in wanted {
        if free[shape.pool] >= shape.gpus {
            free[shape.pool] -= shape.gpus;
            chosen[job] = Some((shape, value));
        }
    }
    while let Some((job, choice)) = best_step(options, &chosen, &free) {
        if let Some((shape, _)) = chosen[job].replace(choice) {
            free[shape.pool] += shape.gpus;
        }
        free[choice.0.pool] -= choice.0.gpus;
    }
    chosen
}

/// The change of one job that brings the most for each GPU more.
fn best_step(options: &[Vec<Choice>], chosen: &[Option<Choice>], free: &[u32]) -> Option<(usize, Choice)> {
    let mut best: Option<(f64, usize, Choice)> = None;
    for (job, own) in options.iter().enumerate() {
        let (now, value_now) = chosen[job].map_or((None, 0.0), |(shape, value)| (Some(shape), value));
        for choice @ (shape, value) in own {
            let back = now.filter(|now| now.pool == shape.pool).map_or(0, |now| now.gpus);
            let more = shape.gpus.saturating_sub(now.map_or(0, |now| now.gpus));
            if *value <= value_now + 1e-12 || free[shape.pool] + back < shape.gpus {
                continue;
            }
            let gain = (value - value_now) / f64::from(more.max(1));
            if best.is_none_or(|(most, ..)| gain > most) {
                best = Some((gain, job, *choice));
            }
        }
    }
    best.map(|(_, job, choice)| (job, choice))
}

fn prices(options: &[Vec<Choice>], capacity: &[u32]) -> Vec<f64> {
    let mut prices = vec![0.0; capacity.len()];
    let densest = |own: &Vec<Choice>| {
        own.iter().map(|(shape, value)| value / f64::from(shape.gpus)).fold(0.0_f64, f64::max)
    };
    let scale = options.iter().map(densest).fold(0.0, f64::max);
    for step in 0..STEPS {
        let mut wanted = vec![0.0; capacity.len()];
        for own in options {
            let best = own
                .iter()
                .map(|(shape, value)| (value - prices[shape.pool] * f64::from(shape.gpus), shape))
                .filter(|(reduced, _)| *reduced > 0.0)
                .max_by(|a, b| a.0.total_cmp(&b.0));
            if let Some((_, shape)) = best {
                wanted[shape.pool] += f64::from(shape.gpus);
            }
        }
        let length = 0.5 * scale / (1.0 + step as f64 / 4.0);
        for ((price, wanted), capacity) in prices.iter_mut().zip(wanted).zip(capacity) {
            let over = (wanted / f64::from(*capacity) - 1.0).clamp(-1.0, 1.0);
            *price = (*price + length * over).max(0.0);
        }
    }
    prices
}

/// What a restart leaves of the rate of a job in a configuration that it is not in (Sia, section 3.4, after Pollux).
pub(super) fn restart_factor(round: &Round<'_, '_>, job: usize, shape: Shape) -> f64 {
    if !round.has_run(job) || round.shape_of(job) == Some(shape) {
        return 1.0;
    }
    let age = round.now() - round.job(job).submit_seconds;
    let cost = round.options().restart_seconds;
    let past = cost * f64::from(round.restarts(job));
    ((age - past) / (age + cost)).clamp(0.01, 1.0)
}

/// One round: every job here gets what its `value` of each shape says.
pub(super) fn assign(round: &mut Round<'_, '_>, value: impl Fn(&Round<'_, '_>, usize, Shape, f64) -> f64) {
    let mut jobs = round.waiting();
    jobs.extend(round.running());
    jobs.sort_unstable();
    let options: Vec<Vec<Choice>> = jobs
        .iter()
        .map(|job| {
            // However dear a restart: to wait beside idle GPUs helps nobody.
            let least = if round.is_waiting(*job) { LEAST } else { f64::NEG_INFINITY };
            let shapes = round.shapes(*job).iter();
            shapes
                .map(|known| (known.shape, value(round, *job, known.shape, known.rate).max(least)))
                .collect()
        })
        .collect();
    let capacity: Vec<u32> = round.cluster().pools().iter().map(crate::PoolSpec::gpus).collect();
    let chosen = choose(&options, &capacity);
    let targets: Vec<(usize, Target)> = jobs
        .iter()
        .zip(chosen)
        .map(|(job, choice)| (*job, choice.map_or(Target::Wait, |(shape, _)| Target::Alone(shape))))
        .collect();
    // The nodes did not let everybody in: try what is smaller.
    for job in round.apply(&targets) {
        let mut shapes: Vec<Shape> = round.shapes(job).iter().map(|known| known.shape).collect();
        shapes.sort_by_key(|shape| (std::cmp::Reverse(shape.gpus), shape.pool));
        let _ = shapes.into_iter().any(|shape| round.start(job, shape));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_small_problems_is_found() {
        let choice = |pool, gpus, value| (Shape { pool, gpus }, value);
        // Four GPUs: the second job pays more for its second pair than the first for anything.
        let options = vec![
            vec![choice(0, 1, 1.0), choice(0, 2, 1.1)],
            vec![choice(0, 1, 1.0), choice(0, 2, 1.8), choice(0, 4, 2.0)],
            vec![choice(0, 1, 0.5)],
        ];
        let chosen = choose(&options, &[4]);
        let value: f64 = chosen.iter().flatten().map(|(_, value)| value).sum();
        assert!((value - 3.3).abs() < 1e-12, "{chosen:?}");
        // Two pools: each job has the one that it needs more.
        let options =
            vec![vec![choice(0, 1, 3.0), choice(1, 1, 2.9)], vec![choice(0, 1, 3.0), choice(1, 1, 1.0)]];
        let chosen = choose(&options, &[1, 1]);
        assert_eq!(chosen, vec![Some(choice(1, 1, 2.9)), Some(choice(0, 1, 3.0))]);
        assert_eq!(choose(&[vec![choice(0, 2, 1.0)]], &[1]), vec![None]);
    }
}
