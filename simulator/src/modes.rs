//! Slowdowns under many sharing modes, as a simulation needs them: under the one mode that a pair would get.

use crate::{Error, SlowdownTable};
use elastico_core::{SharingMode, Slowdown, WorkloadId};
use elastico_placement::{PairOutcome, PairTable};

/// What a campaign saw, and what a predictor says of the same pairs.
#[derive(Clone, Debug)]
pub struct ChosenModes {
    /// Slowdowns that happen.
    pub truth: SlowdownTable,
    /// Slowdowns that a policy plans with; pairs outside the predictor's domain are absent.
    pub planner: SlowdownTable,
    /// Pairs that were seen and predicted.
    pub pairs_total: usize,
    /// Pairs of which both upper bounds are within the limit.
    pub safe_pairs_total: usize,
    /// Sides of these whose slowdown is above the limit in truth.
    pub harmed_sides_total: usize,
    /// Mean of |predicted ÷ seen − 1| over the sides of all pairs.
    pub error_mean_ratio: f64,
}

/// Chooses the mode of each pair as a scheduler would, by predictions alone: of the modes that were seen, those with both upper
/// bounds within the limit before others, and then the one with the largest system throughput.
///
/// `seen` gives the slowdown of a subject beside a co-runner under a mode as seen from the subject, on the device.
///
/// # Errors
/// A slowdown that is not above 0.
pub fn choose_modes(
    names: [&str; 2],
    device: &str,
    workloads: &[WorkloadId],
    predicted: &PairTable,
    seen: impl Fn(&WorkloadId, &WorkloadId, &SharingMode) -> Option<f64>,
    limit: f64,
) -> Result<ChosenModes, Error> {
    let [truth, planner] = names.map(SlowdownTable::new);
    let mut chosen = ChosenModes {
        truth,
        planner,
        pairs_total: 0,
        safe_pairs_total: 0,
        harmed_sides_total: 0,
        error_mean_ratio: 0.0,
    };
    let mut errors = Vec::new();
    for (index, a) in workloads.iter().enumerate() {
        for b in &workloads[index..] {
            let both = |outcome: &PairOutcome| {
                Some([seen(a, b, &outcome.sharing)?, seen(b, a, &outcome.sharing.swapped())?])
            };
            let rank = |outcome: &PairOutcome| {
                let is_safe = outcome.in_domain && outcome.upper.iter().all(|upper| *upper <= limit);
                (is_safe, outcome.slowdown.iter().map(|slowdown| 1.0 / slowdown).sum::<f64>())
            };
            let outcomes = predicted.get(device, a, b);
            let known = outcomes.iter().filter_map(|outcome| Some((rank(outcome), outcome, both(outcome)?)));
            let best = known.max_by(|(a, ..), (b, ..)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
            let Some(((is_safe, _), outcome, happens)) = best else { continue };
            chosen.pairs_total += 1;
            chosen.safe_pairs_total += usize::from(is_safe);
            let sides = [(a, b), (b, a)];
            // A pair of a workload with itself has one side.
            for (side, (subject, co_runner)) in sides.into_iter().enumerate().take(1 + usize::from(a != b)) {
                let slowdown = |value: f64| {
                    let what = || format!("the slowdown of `{subject}` beside `{co_runner}`");
                    Slowdown::new(value).map_err(|_| Error::Number { what: what(), value, must: "above 0" })
                };
                // Rounding may leave a bound a hair below what it bounds.
                let upper = outcome.upper[side].max(outcome.slowdown[side]);
                let (expected, upper) = (slowdown(outcome.slowdown[side])?, slowdown(upper)?);
                let (subject, co_runner) = (subject.as_str(), co_runner.as_str());
                chosen.truth.set_on(device, subject, co_runner, slowdown(happens[side])?, None);
                if outcome.in_domain {
                    chosen.planner.set_on(device, subject, co_runner, expected, Some(upper));
                }
                chosen.harmed_sides_total += usize::from(is_safe && happens[side] > limit);
                errors.push((outcome.slowdown[side] / happens[side] - 1.0).abs());
            }
        }
    }
    chosen.error_mean_ratio = elastico_core::mean(&errors);
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Oracle as _;

    #[test]
    fn the_mode_is_chosen_by_the_predictions_and_the_truth_is_taken_under_it() {
        let [a, b] = ["a", "b"].map(|name| WorkloadId::new(name).unwrap());
        let fair: SharingMode = "mps(0.5,0.5)".parse().unwrap();
        let modes = [SharingMode::TimeSlice, fair.clone()];
        let outcome = |sharing: &SharingMode, slowdown: [f64; 2], in_domain| PairOutcome {
            sharing: sharing.clone(),
            slowdown,
            upper: slowdown.map(|slowdown| slowdown + 0.1),
            in_domain,
        };
        // Time-slicing would be faster, but its bound is above the limit.
        let predicted = PairTable::from_fn(
            [a.clone(), b.clone()],
            ["h100".to_owned()],
            &modes,
            |_, subject, co_runner, sharing| {
                Some(match (subject == co_runner, sharing == &fair) {
                    (true, _) => outcome(sharing, [1.2, 1.2], false),
                    (false, true) => outcome(sharing, [1.4, 1.4], true),
                    (false, false) => outcome(sharing, [1.0, 1.45], true),
                })
            },
        );
        let seen = |subject: &WorkloadId, _: &WorkloadId, sharing: &SharingMode| {
            Some(if *sharing == fair { 1.3 } else { 9.0 } + if *subject == a { 0.0 } else { 0.3 })
        };
        let chosen =
            choose_modes(["seen", "predicted"], "h100", &[a.clone(), b], &predicted, seen, 1.5).unwrap();
        let of = |table: &SlowdownTable, subject, co_runner| {
            table.pair(subject, co_runner, Some("h100")).map(|pair| pair.slowdown.get())
        };
        assert_eq!(of(&chosen.truth, "a", "b"), Some(1.3));
        assert_eq!(of(&chosen.truth, "b", "a"), Some(1.6));
        assert!((of(&chosen.planner, "a", "b").unwrap() - 1.4).abs() < 1e-6);
        assert_eq!(of(&chosen.planner, "a", "a"), None, "outside the domain");
        assert!(of(&chosen.truth, "a", "a").is_some());
        assert_eq!((chosen.pairs_total, chosen.safe_pairs_total, chosen.harmed_sides_total), (3, 1, 1));
    }
}
