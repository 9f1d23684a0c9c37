//! What a prediction is worth.

use elastico_core::{Seed, mean, quantile};
use rand::RngExt as _;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The scores of one learner on the pooled test rows of one split. All errors and ratios are 0..1 or in slowdown units,
/// never percent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Mean of |predicted − measured| ÷ measured.
    pub mape: f64,
    /// 95 % percentile interval of `mape` by bootstrap over families (Efron & Tibshirani 1993, section 13.3); absent
    /// with fewer than three families.
    pub mape_interval: Option<(f64, f64)>,
    /// Root of the mean squared error, in slowdown units.
    pub rmse: f64,
    /// 1 − SSE ÷ SST around the mean of the pooled test rows; absent where all measured values are equal.
    pub r2: Option<f64>,
    /// 95th percentile of |predicted − measured|, in slowdown units.
    pub p95_abs_error: f64,
    /// Rank correlation with average ranks for ties; absent where either side is constant.
    pub spearman: Option<f64>,
    /// Of the rows predicted at or under the limit, the share that is; absent where none is predicted so.
    pub safe_precision: Option<f64>,
    /// Of the rows at or under the limit, the share predicted so; absent where there is none.
    pub safe_recall: Option<f64>,
    /// Share of rows truly at or under the limit: what precision must be read against.
    pub safe_base_rate: f64,
    /// By how much the co-runner with the least predicted slowdown slows a subject more than the best one does: mean of
    /// measured ÷ least measured − 1 over the subjects with a choice; absent where nobody has one.
    #[serde(default)]
    pub partner_regret: Option<f64>,
    /// The same for a co-runner drawn blindly.
    #[serde(default)]
    pub partner_regret_random: Option<f64>,
}

/// Mean regret of a choice by prediction and of a blind one; `choice` says which rows compete.
pub(crate) fn partner_regret<K: Ord + Copy>(
    measured: &[f64],
    predicted: &[f64],
    choice: &[K],
) -> Option<(f64, f64)> {
    let mut competing: BTreeMap<K, Vec<usize>> = BTreeMap::new();
    for (row, key) in choice.iter().enumerate() {
        competing.entry(*key).or_default().push(row);
    }
    let (mut regrets, mut blind) = (Vec::new(), Vec::new());
    for rows in competing.values().filter(|rows| rows.len() > 1) {
        let least = rows.iter().map(|&row| measured[row]).fold(f64::INFINITY, f64::min);
        // Of those that look alike any may be taken: a learner that tells none apart chooses blindly.
        let best = rows.iter().map(|&row| predicted[row]).fold(f64::INFINITY, f64::min);
        let chosen = rows.iter().filter(|row| predicted[**row] <= best * (1.0 + 1e-9));
        regrets.push(mean(&chosen.map(|&row| measured[row] / least - 1.0).collect::<Vec<_>>()));
        blind.push(mean(&rows.iter().map(|&row| measured[row] / least - 1.0).collect::<Vec<_>>()));
    }
    (!regrets.is_empty()).then(|| (mean(&regrets), mean(&blind)))
}

/// Judges predictions. `family` groups rows for the bootstrap.
pub(crate) fn scores(
    measured: &[f64],
    predicted: &[f64],
    family: &[u32],
    limit: f64,
    seed: Seed,
) -> Option<Scores> {
    if measured.is_empty() {
        return None;
    }
    let count = measured.len() as f64;
    let errors: Vec<f64> = measured.iter().zip(predicted).map(|(y, p)| (p - y).abs()).collect();
    let relative: Vec<f64> = errors.iter().zip(measured).map(|(error, y)| error / y).collect();
    let squares: f64 = errors.iter().map(|error| error * error).sum();
    let center = mean(measured);
    let total: f64 = measured.iter().map(|y| (y - center).powi(2)).sum();
    let decision = safe_scores(measured, predicted, limit);
    Some(Scores {
        mape: mean(&relative),
        mape_interval: bootstrap(&relative, family, seed),
        rmse: (squares / count).sqrt(),
        r2: (total > 1e-12 * count).then(|| 1.0 - squares / total),
        p95_abs_error: quantile(&errors, 0.95),
        spearman: spearman(measured, predicted),
        safe_precision: decision.safe_precision,
        safe_recall: decision.safe_recall,
        safe_base_rate: decision.safe_base_rate,
        partner_regret: None,
        partner_regret_random: None,
    })
}

/// What the decision at a limit is worth, for a learner that makes no other statement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SafeScores {
    /// Of the rows called safe, the share that is; absent where none is called so.
    pub safe_precision: Option<f64>,
    /// Of the safe rows, the share called so; absent where there is none.
    pub safe_recall: Option<f64>,
    /// Share of rows that are safe: what precision must be read against.
    pub safe_base_rate: f64,
}

/// Judges the decision "at most `limit`"; of at least one row.
pub(crate) fn safe_scores(measured: &[f64], predicted: &[f64], limit: f64) -> SafeScores {
    let (mut safe, mut called, mut hit) = (0_u64, 0_u64, 0_u64);
    for (y, p) in measured.iter().zip(predicted) {
        safe += u64::from(*y <= limit);
        called += u64::from(*p <= limit);
        hit += u64::from(*y <= limit && *p <= limit);
    }
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    SafeScores {
        safe_precision: share(hit, called),
        safe_recall: share(hit, safe),
        safe_base_rate: safe as f64 / measured.len().max(1) as f64,
    }
}

/// 95 % interval of a mean over families; absent with fewer than three.
pub(crate) fn mean_interval(of_families: &[f64], seed: Seed) -> Option<(f64, f64)> {
    let codes: Vec<u32> = (0..of_families.len() as u32).collect();
    bootstrap(of_families, &codes, seed)
}

/// Percentile interval of the pooled mean, resampling whole families.
pub(crate) fn bootstrap(values: &[f64], family: &[u32], seed: Seed) -> Option<(f64, f64)> {
    const DRAWS: usize = 400;
    let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for (value, family) in values.iter().zip(family) {
        let entry = sums.entry(*family).or_default();
        entry.0 += value;
        entry.1 += 1.0;
    }
    let sums: Vec<_> = sums.into_values().collect();
    if sums.len() < 3 {
        return None;
    }
    let mut stream = seed.stream("trainer.bootstrap", &[]);
    let draws: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let (total, count) = (0..sums.len()).fold((0.0, 0.0), |(total, count), _| {
                let (sum, n) = sums[stream.random_range(0..sums.len())];
                (total + sum, count + n)
            });
            total / count
        })
        .collect();
    Some((quantile(&draws, 0.025), quantile(&draws, 0.975)))
}

/// Spearman's rank correlation with average ranks; `None` where a side is constant.
pub(crate) fn spearman(a: &[f64], b: &[f64]) -> Option<f64> {
    let (a, b) = (ranks(a), ranks(b));
    let (center_a, center_b) = (mean(&a), mean(&b));
    let (mut product, mut square_a, mut square_b) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(&b) {
        let (a, b) = (a - center_a, b - center_b);
        product += a * b;
        square_a += a * a;
        square_b += b * b;
    }
    (square_a > 0.0 && square_b > 0.0).then(|| product / (square_a * square_b).sqrt())
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    for tie in order.chunk_by(|&a, &b| values[a].total_cmp(&values[b]).is_eq()) {
        // `tie` is a part of `order`, so its offset is the number of smaller values.
        let first = order.partition_point(|&other| values[other].total_cmp(&values[tie[0]]).is_lt());
        let rank = first as f64 + f64::midpoint(tie.len() as f64, 1.0);
        for &index in tie {
            ranks[index] = rank;
        }
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn who_tells_none_apart_chooses_blindly() {
        let measured = [1.0, 1.5, 2.0, 1.2, 1.8];
        let (regret, blind) = partner_regret(&measured, &[1.3; 5], &[0, 0, 0, 1, 1]).unwrap();
        assert!(close(regret, blind) && close(blind, 0.5 * (0.5 + 0.25)));
        assert!(close(partner_regret(&measured, &measured, &[0, 0, 0, 1, 1]).unwrap().0, 0.0));
    }

    #[test]
    fn scores_of_a_case_done_by_hand() {
        let measured = [1.0, 1.25, 2.0, 4.0];
        let predicted = [1.1, 1.0, 2.5, 3.0];
        let scores = scores(&measured, &predicted, &[0, 1, 2, 2], 1.2, Seed(1)).unwrap();
        assert!(close(scores.mape, (0.1 + 0.2 + 0.25 + 0.25) / 4.0));
        assert!(close(scores.rmse, ((0.01_f64 + 0.0625 + 0.25 + 1.0) / 4.0).sqrt()));
        let center = 8.25 / 4.0;
        let total: f64 = measured.iter().map(|y| (y - center) * (y - center)).sum();
        assert!(close(scores.r2.unwrap(), 1.0 - 1.3225 / total));
        assert!(close(scores.safe_precision.unwrap(), 0.5));
        assert!(close(scores.safe_recall.unwrap(), 1.0));
        assert!(close(scores.safe_base_rate, 0.25));
        assert!(close(scores.spearman.unwrap(), 0.8));
        let (lower, upper) = scores.mape_interval.unwrap();
        assert!(lower < scores.mape && scores.mape < upper);
    }

    #[test]
    fn ties_share_their_average_rank() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), vec![3.5, 1.0, 3.5, 2.0]);
        assert_eq!(spearman(&[1.0, 1.0], &[1.0, 2.0]), None);
    }

    #[test]
    fn what_is_undefined_is_absent_not_nan() {
        let scores = scores(&[1.5, 1.5], &[1.4, 1.4], &[0, 0], 1.2, Seed(1)).unwrap();
        assert_eq!((scores.r2, scores.spearman), (None, None));
        assert_eq!((scores.safe_precision, scores.safe_recall, scores.mape_interval), (None, None, None));
        assert!(super::scores(&[], &[], &[], 1.2, Seed(1)).is_none());
    }
}
