//! How throughput grows with GPUs where it was not measured.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the throughput of training grows with GPUs where it was not measured.
///
/// throughput(n) = throughput(1) · n^`within_node` up to one node, and beyond that grows with the nodes to the power
/// `across_nodes`. Two measured points within a node, or two of whole nodes, replace the exponent of their range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScalingLaw {
    /// Exponent within a node, 0..=1.
    pub within_node: f64,
    /// Exponent over nodes, 0..=1.
    pub across_nodes: f64,
}

impl Default for ScalingLaw {
    /// 0.7 and 0.2: with these the median of the throughputs in ElasticFlow's tables is met from their first point (15
    /// curves of training with a fixed global batch on 1 to 64 A100; Gu et al., ASPLOS 2023); half of the points are off by
    /// more than a factor of 1.2. Still an assumption about another job, which is why such shapes are marked `assumed`;
    /// measured points of the job replace it.
    fn default() -> Self {
        Self { within_node: 0.7, across_nodes: 0.2 }
    }
}

impl ScalingLaw {
    /// Throughput of so many GPUs over that of one.
    pub fn growth(self, gpus: u32, per_node: u32) -> f64 {
        let inside = f64::from(gpus.min(per_node.max(1)));
        let nodes = (f64::from(gpus) / f64::from(per_node.max(1))).max(1.0);
        inside.powf(self.within_node) * nodes.powf(self.across_nodes)
    }

    /// The law with the exponents that measured points say; `points` are GPUs and seconds of a step, one for each count.
    ///
    /// Points beyond a node tell about nodes only. Where just the exponent within a node is known, the one over nodes is at
    /// most that: a network is no faster than what is inside a node.
    pub(super) fn fitted(self, points: &[(u32, f64)], per_node: u32) -> Self {
        let inside: Vec<(u32, f64)> =
            points.iter().copied().filter(|(gpus, _)| *gpus <= per_node.max(1)).collect();
        let whole: Vec<(u32, f64)> = points.iter().copied().filter(|(gpus, _)| *gpus >= per_node).collect();
        let within = exponent(&inside);
        let across = exponent(&whole);
        // One point in each range: a single exponent for both is all that they say.
        let Some(within) = within.or_else(|| across.is_none().then(|| exponent(points)).flatten()) else {
            return Self { across_nodes: across.unwrap_or(self.across_nodes), ..self };
        };
        Self { within_node: within, across_nodes: across.unwrap_or_else(|| self.across_nodes.min(within)) }
    }
}

/// The exponent of throughput over GPUs by least squares on logarithms, where two points say something.
fn exponent(points: &[(u32, f64)]) -> Option<f64> {
    if points.len() < 2 {
        return None;
    }
    let logs: Vec<(f64, f64)> =
        points.iter().map(|(gpus, seconds)| (f64::from(*gpus).ln(), -seconds.ln())).collect();
    let count = logs.len() as f64;
    let (x_mean, y_mean) =
        (logs.iter().map(|(x, _)| x).sum::<f64>() / count, logs.iter().map(|(_, y)| y).sum::<f64>() / count);
    let covariance: f64 = logs.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    let variance: f64 = logs.iter().map(|(x, _)| (x - x_mean).powi(2)).sum();
    Some((covariance / variance).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_range_is_fitted_from_its_own_points() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} and {b}");
        let seconds = |gpus: u32| ScalingLaw { within_node: 0.7, across_nodes: 0.4 }.growth(gpus, 8).recip();
        let points = |counts: &[u32]| -> Vec<(u32, f64)> {
            counts.iter().map(|gpus| (*gpus, seconds(*gpus))).collect()
        };
        let law = ScalingLaw::default();
        let both = law.fitted(&points(&[1, 4, 8, 32]), 8);
        near(both.within_node, 0.7);
        near(both.across_nodes, 0.4);
        let inside = law.fitted(&points(&[1, 8]), 8);
        near(inside.within_node, 0.7);
        near(inside.across_nodes, law.across_nodes);
        let hopeful = ScalingLaw { across_nodes: 0.9, ..law };
        near(hopeful.fitted(&points(&[1, 8]), 8).across_nodes, 0.7);
        let outside = law.fitted(&points(&[8, 16]), 8);
        near(outside.within_node, law.within_node);
        near(outside.across_nodes, 0.4);
        assert_eq!(law.fitted(&points(&[4]), 8), law);
        // Throughput that falls is no growth, and more than linear is not believed.
        near(law.fitted(&[(1, 1.0), (4, 2.0)], 8).within_node, 0.0);
        near(law.fitted(&[(1, 1.0), (4, 0.1)], 8).within_node, 1.0);
    }

    #[test]
    fn a_second_node_brings_less_than_a_second_gpu() {
        let law = ScalingLaw::default();
        assert!(law.growth(16, 8) / law.growth(8, 8) < law.growth(2, 8) / law.growth(1, 8));
        assert!(law.growth(16, 8) < law.growth(16, 16));
    }
}
